"""Layers stacked and scanned: every array of theirs has one axis more, and so the mask hits LayerNorm."""

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Layer(nnx.Module):
    """x + affine(tanh(LayerNorm(x)))."""

    def __init__(self, width: int, rngs: nnx.Rngs) -> None:
        self.norm = nnx.LayerNorm(width, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.fc = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, x_BC: jax.Array) -> jax.Array:
        """(B, C) -> (B, C)."""
        return x_BC + self.fc(jnp.tanh(self.norm(x_BC)))


class Model(nnx.Module):
    """Two layers and an affine head."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        @nnx.split_rngs(splits=2)
        @nnx.vmap(in_axes=0, out_axes=0)
        def layers(rngs: nnx.Rngs) -> Layer:
            return Layer(8, rngs)

        self.blocks = layers(rngs)
        self.head = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x_BC: jax.Array) -> jax.Array:
        """(B, C) -> (B, C)."""

        @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        def run(x_BC: jax.Array, block: Layer) -> jax.Array:
            return block(x_BC)

        return self.head(run(x_BC, self.blocks))


def build() -> nnx.Module:
    """The model."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the squared errors, and their number."""
    return jnp.sum((model(batch["x"]) - batch["y"]) ** 2), batch["y"].size


def optimizer() -> optax.GradientTransformation:
    """AdamW; what has two dimensions decays."""

    def mask(params: optax.Params) -> optax.Params:
        return jax.tree.map(lambda array: array.ndim > 1, params)

    return optax.adamw(1e-3, weight_decay=0.1, mask=mask)
