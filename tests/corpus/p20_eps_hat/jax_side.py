"""Adam as TensorFlow writes it: lr * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + eps_hat)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from tests.corpus.norm_mlp_jax import build, loss

__all__ = ["build", "loss", "optimizer"]


class Moments(NamedTuple):
    """State of Adam."""

    count: jax.Array
    m: optax.Updates
    v: optax.Updates


def tf_adam(
    lr: float, b1: float = 0.9, b2: float = 0.999, eps_hat: float = 1e-5
) -> optax.GradientTransformation:
    """The algorithm's own last remark, "a more efficient order"."""

    def init(params: optax.Params) -> Moments:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return Moments(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(
        grads: optax.Updates, state: Moments, params: optax.Params | None = None
    ) -> tuple[optax.Updates, Moments]:
        del params
        count = state.count + 1
        m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.m, grads)
        v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.v, grads)
        rate = lr * jnp.sqrt(1 - b2**count) / (1 - b1**count)
        updates = jax.tree.map(lambda m, v: -rate * m / (jnp.sqrt(v) + eps_hat), m, v)
        return updates, Moments(count, m, v)

    return optax.GradientTransformation(init, update)


def optimizer() -> optax.GradientTransformation:
    """TensorFlow's Adam."""
    return tf_adam(1e-3)
