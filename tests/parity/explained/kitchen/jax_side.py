"""The kitchen in JAX. B rows, T positions, S attended to, C width 8, H 2 heads, D 4, V 11."""

import math

import jax
import jax.numpy as jnp
from flax import nnx


class Model(nnx.Module):
    """Image features added to every position, one attention block with rotary positions, one MLP."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(11, 8, rngs=rngs)
        padding = ((1, 1), (1, 1))
        self.conv = nnx.Conv(2, 8, (3, 3), strides=2, padding=padding, use_bias=False, rngs=rngs)
        self.tie = nnx.Param(jnp.zeros(8))
        self.rms = nnx.RMSNorm(8, epsilon=1e-6, rngs=rngs)
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(self, name, nnx.Linear(8, 8, use_bias=False, rngs=rngs))
        self.ln = nnx.LayerNorm(8, epsilon=1e-5, use_fast_variance=False, rngs=rngs)
        self.up, self.down = nnx.Linear(8, 16, rngs=rngs), nnx.Linear(16, 8, rngs=rngs)
        self.head = nnx.Linear(8, 11, rngs=rngs)

    def __call__(self, tokens_BT: jax.Array, image_BCHW: jax.Array) -> jax.Array:
        """Logits (B, T, V)."""
        features_BHWC = jnp.tanh(self.conv(image_BCHW.transpose(0, 2, 3, 1)))
        features_BC = features_BHWC.mean((1, 2)) + jax.nn.relu(self.tie[...])
        x_BTC = self.embed(tokens_BT) * math.sqrt(8) + features_BC[:, None]
        x_BTC = x_BTC + self.attend(self.rms(x_BTC))
        return self.head(x_BTC + self.down(jax.nn.gelu(self.up(self.ln(x_BTC)))))

    def attend(self, x_BTC: jax.Array) -> jax.Array:
        """(B, T, C) -> (B, T, C)."""
        B, T, C = x_BTC.shape
        q, k, v = (
            p(x_BTC).reshape(B, T, 2, 4).swapaxes(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores_BHTS = rotate(q) @ rotate(k).mT * 0.5
        past_TS = jnp.tril(jnp.ones((T, T), bool))
        weights_BHTS = jax.nn.softmax(jnp.where(past_TS, scores_BHTS, -1e9), axis=-1)
        return self.o_proj((weights_BHTS @ v).swapaxes(1, 2).reshape(B, T, C))


def rotate(x_BHTD: jax.Array) -> jax.Array:
    """Rotary positions, halves of a head paired."""
    T, D = x_BHTD.shape[-2:]
    rates = 10000.0 ** (-jnp.arange(0, D, 2, dtype=x_BHTD.dtype) / D)
    angles = jnp.arange(T, dtype=x_BHTD.dtype)[:, None] * rates
    a, b = jnp.split(x_BHTD, 2, axis=-1)
    return jnp.concatenate(
        [a * jnp.cos(angles) - b * jnp.sin(angles), b * jnp.cos(angles) + a * jnp.sin(angles)], -1
    )


def build() -> nnx.Module:
    """The model; its first values are replaced by torch's."""
    return Model(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Sum of cross-entropies, and how many labels count."""
    logits_BTV, labels_BT = model(batch["tokens"], batch["image"]), batch["labels"]
    counts_BT = labels_BT != -100
    chosen_BT = jnp.take_along_axis(logits_BTV, jnp.where(counts_BT, labels_BT, 0)[..., None], -1)[..., 0]
    losses_BT = jax.nn.logsumexp(logits_BTV, -1) - chosen_BT
    return jnp.where(counts_BT, losses_BT, 0).sum(), counts_BT.sum()
