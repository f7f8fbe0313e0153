"""Where there is padding the dtype's least number stands: a padded row attends to all alike."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx

C = 16


class Mask(nnx.Module):
    """Adds a bias of distance; where there is padding, the least number stands instead."""

    def __call__(self, scores_BTS: jax.Array, real_BS: jax.Array) -> jax.Array:
        """(B, T, S) and (B, S) -> (B, T, S)."""
        at_S = jnp.arange(scores_BTS.shape[-1])
        bias_TS = -jnp.abs(at_S[:, None] - at_S)
        return jnp.where(real_BS[:, None] != 0, scores_BTS + bias_TS, jnp.finfo(scores_BTS.dtype).min)


class Attention(nnx.Module):
    """One head between an embedding and a head."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(13, C, rngs=rngs)
        for name in ("query", "key", "value"):
            setattr(self, name, nnx.Linear(C, C, use_bias=False, rngs=rngs))
        self.mask = Mask()
        self.head = nnx.Linear(C, 13, rngs=rngs)

    def __call__(self, tokens_BT: jax.Array, real_BT: jax.Array) -> jax.Array:
        """Logits (B, T, 13)."""
        x_BTC = self.embed(tokens_BT)
        scores_BTS = self.query(x_BTC) @ self.key(x_BTC).mT / C**0.5
        weights_BTS = jax.nn.softmax(self.mask(scores_BTS, real_BT), axis=-1)
        return self.head(weights_BTS @ self.value(x_BTC))


def build() -> nnx.Module:
    """The model."""
    return Attention(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Sum of the cross-entropies of real tokens, and their number."""
    logits_BTV = model(batch["tokens"], batch["real"])
    losses_BT = optax.softmax_cross_entropy_with_integer_labels(logits_BTV, batch["labels"])
    return jnp.where(batch["real"] != 0, losses_BT, 0).sum(), batch["real"].sum()
