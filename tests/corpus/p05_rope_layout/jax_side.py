"""The same weights in JAX, where rotary positions turn neighbours."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

VOCAB, C, H, D = 13, 16, 2, 8
THETA = 10000.0


class Attention(nnx.Module):
    """One causal attention layer with rotary positions, between an embedding and a head."""

    def __init__(self, rngs: nnx.Rngs) -> None:
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
        scores_BHTS = rotate(q) @ rotate(k).mT / D**0.5
        past_TS = jnp.tril(jnp.ones((T, T), bool))
        weights_BHTS = jax.nn.softmax(jnp.where(past_TS, scores_BHTS, -jnp.inf), axis=-1)
        return self.head(self.o_proj((weights_BHTS @ v).swapaxes(1, 2).reshape(B, T, C)))


def rotate(x_BHTD: jax.Array) -> jax.Array:
    """Neighbours are paired."""
    T = x_BHTD.shape[-2]
    rates = THETA ** (-jnp.arange(0, D, 2, dtype=x_BHTD.dtype) / D)
    angles = jnp.arange(T, dtype=x_BHTD.dtype)[:, None] * rates
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    a, b = x_BHTD[..., ::2], x_BHTD[..., 1::2]
    return jnp.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(x_BHTD.shape)


def build() -> nnx.Module:
    """The model."""
    return Attention(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of cross-entropies, and their number."""
    losses_BT = optax.softmax_cross_entropy_with_integer_labels(model(batch["tokens"]), batch["labels"])
    return losses_BT.sum(), losses_BT.size
