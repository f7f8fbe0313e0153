"""The model of the cases that are about rotary positions, in flax; a case brings how it rotates."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from flax import nnx

VOCAB, C, H, D = 13, 16, 2, 8


class Attention(nnx.Module):
    """One causal attention layer between an embedding and a head.

    Args:
      rotate: turns queries and keys (B, H, T, D) by their positions.
    """

    def __init__(self, rotate: Callable[[jax.Array], jax.Array], rngs: nnx.Rngs) -> None:
        self.rotate = rotate
        self.embed = nnx.Embed(VOCAB, C, rngs=rngs)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nnx.Linear(C, C, use_bias=False, rngs=rngs))
        self.head = nnx.Linear(C, VOCAB, rngs=rngs)

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """Logits (B, T, VOCAB)."""
        x_BTC = self.embed(tokens_BT)
        B, T, _ = x_BTC.shape
        q, k, v = (
            p(x_BTC).reshape(B, T, H, D).swapaxes(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores_BHTS = self.rotate(q) @ self.rotate(k).mT / D**0.5
        past_TS = jnp.tril(jnp.ones((T, T), bool))
        weights_BHTS = jax.nn.softmax(jnp.where(past_TS, scores_BHTS, -jnp.inf), axis=-1)
        return self.head(self.o_proj((weights_BHTS @ v).swapaxes(1, 2).reshape(B, T, C)))


def angles(x_BHTD: jax.Array, theta: float, size: int) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines (T, size / 2) of the angles by which pairs among `size` numbers are turned."""
    rates = theta ** (-jnp.arange(0, size, 2, dtype=x_BHTD.dtype) / size)
    angles = jnp.arange(x_BHTD.shape[-2], dtype=x_BHTD.dtype)[:, None] * rates
    return jnp.cos(angles), jnp.sin(angles)


def rotate_halves(x_BHTD: jax.Array, theta: float) -> jax.Array:
    """Halves of a head are paired."""
    cos, sin = angles(x_BHTD, theta, x_BHTD.shape[-1])
    a, b = jnp.split(x_BHTD, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of cross-entropies, and their number."""
    losses_BT = optax.softmax_cross_entropy_with_integer_labels(model(batch["tokens"]), batch["labels"])
    return losses_BT.sum(), losses_BT.size
