"""The same model in flax, whose loss shifts the labels once more."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx


def build() -> nnx.Module:
    """Embedding, tanh, logits."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(nnx.Embed(17, 16, rngs=rngs), jnp.tanh, nnx.Linear(16, 17, rngs=rngs))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the losses of all positions but the last, and their number."""
    logits_BTV = model(batch["ids"])[:, :-1]
    labels_BT = batch["labels"][:, 1:]
    losses_BT = optax.softmax_cross_entropy_with_integer_labels(logits_BTV, labels_BT)
    return jnp.sum(losses_BT), labels_BT.size
