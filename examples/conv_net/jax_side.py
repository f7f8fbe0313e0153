"""The residual network in JAX, flax nnx: channels last.

Two conventions differ between the frameworks and are met here: padding "SAME" of a strided convolution is
(0, 1) in flax where torch's padding=1 is (1, 1); and flax's BatchNorm keeps the biased variance, torch's the
unbiased one, so it is written out.
"""

import jax
import jax.numpy as jnp
from flax import nnx

PADDING = ((1, 1), (1, 1))


class BatchNorm(nnx.Module):
    """torch.nn.BatchNorm2d in training mode: momentum 0.1, epsilon 1e-5, unbiased running variance."""

    def __init__(self, width: int) -> None:
        self.scale = nnx.Param(jnp.ones(width))
        self.bias = nnx.Param(jnp.zeros(width))
        self.mean = nnx.BatchStat(jnp.zeros(width))
        self.var = nnx.BatchStat(jnp.ones(width))

    def __call__(self, x_BHWC: jax.Array) -> jax.Array:
        """Normalises over all but the channels, and moves the running statistics."""
        mean_C, var_C = x_BHWC.mean((0, 1, 2)), x_BHWC.var((0, 1, 2))
        count = x_BHWC[..., 0].size
        self.mean[...] = 0.9 * self.mean[...] + 0.1 * mean_C
        self.var[...] = 0.9 * self.var[...] + 0.1 * var_C * (count / (count - 1))
        normal_BHWC = (x_BHWC - mean_C) * jax.lax.rsqrt(var_C + 1e-5)
        return normal_BHWC * self.scale[...] + self.bias[...]


class Block(nnx.Module):
    """Two convolutions and a shortcut; the width and the stride may change."""

    def __init__(self, d_in: int, d_out: int, stride: int, rngs: nnx.Rngs) -> None:
        options = {"padding": PADDING, "use_bias": False, "rngs": rngs}
        self.conv1 = nnx.Conv(d_in, d_out, (3, 3), strides=stride, **options)
        self.norm1 = BatchNorm(d_out)
        self.conv2 = nnx.Conv(d_out, d_out, (3, 3), **options)
        self.norm2 = BatchNorm(d_out)
        shortcut = nnx.Conv(d_in, d_out, (1, 1), strides=stride, use_bias=False, rngs=rngs)
        self.shortcut = shortcut if stride > 1 else None

    def __call__(self, x_BHWC: jax.Array) -> jax.Array:
        """(B, H, W, d_in) -> (B, H / stride, W / stride, d_out)."""
        short = x_BHWC if self.shortcut is None else self.shortcut(x_BHWC)
        hidden = jax.nn.relu(self.norm1(self.conv1(x_BHWC)))
        return jax.nn.relu(self.norm2(self.conv2(hidden)) + short)


class ResNet(nnx.Module):
    """Stem, two blocks, mean over the image, head."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(3, 8, (3, 3), padding=PADDING, use_bias=False, rngs=rngs)
        self.norm = BatchNorm(8)
        self.blocks = nnx.List([Block(8, 8, 1, rngs), Block(8, 16, 2, rngs)])
        self.head = nnx.Linear(16, 10, rngs=rngs)

    def __call__(self, images_BHWC: jax.Array) -> jax.Array:
        """(B, H, W, 3) -> logits (B, 10)."""
        x_BHWC = jax.nn.relu(self.norm(self.stem(images_BHWC)))
        for block in self.blocks:
            x_BHWC = block(x_BHWC)
        return self.head(x_BHWC.mean((1, 2)))


def build() -> nnx.Module:
    """The model; its first values are torch's."""
    return ResNet(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, int]:
    """Sum of the cross-entropies of some images, and their number."""
    logits_BL, labels_B = model(batch["images"]), batch["labels"]
    chosen_B = jnp.take_along_axis(logits_BL, labels_B[:, None], axis=-1)[:, 0]
    return jnp.sum(jax.nn.logsumexp(logits_BL, axis=-1) - chosen_B), len(labels_B)
