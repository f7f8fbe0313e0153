"""The encoder in JAX, flax nnx: one projection each for queries, keys and values, heads split off.

flax's defaults that differ from torch's are given: epsilon 1e-6, the variance as a difference of squares,
and the tanh form of GELU.
"""

import jax
import jax.numpy as jnp
from flax import nnx

WIDTH, HEADS, LAYERS = 16, 4, 2


def layer_norm(rngs: nnx.Rngs) -> nnx.LayerNorm:
    """torch.nn.LayerNorm."""
    return nnx.LayerNorm(WIDTH, epsilon=1e-5, use_fast_variance=False, rngs=rngs)


class Layer(nnx.Module):
    """Attention and feed-forward, each added and then normalised."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(HEADS, WIDTH, decode=False, rngs=rngs)
        self.linear1 = nnx.Linear(WIDTH, 4 * WIDTH, rngs=rngs)
        self.linear2 = nnx.Linear(4 * WIDTH, WIDTH, rngs=rngs)
        self.norm1 = layer_norm(rngs)
        self.norm2 = layer_norm(rngs)

    def __call__(self, x_BTC: jax.Array, mask_B11T: jax.Array) -> jax.Array:
        """(B, T, C) -> (B, T, C)."""
        x_BTC = self.norm1(x_BTC + self.attention(x_BTC, mask=mask_B11T))
        hidden_BTF = jax.nn.gelu(self.linear1(x_BTC), approximate=False)
        return self.norm2(x_BTC + self.linear2(hidden_BTF))


class Encoder(nnx.Module):
    """Embeddings, layers, a head tied to the token embedding."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.token_embedding = nnx.Embed(64, WIDTH, rngs=rngs)
        self.position_embedding = nnx.Embed(12, WIDTH, rngs=rngs)
        self.layers = nnx.List([Layer(rngs) for _ in range(LAYERS)])
        self.head_bias = nnx.Param(jnp.zeros(64))

    def __call__(self, tokens_BT: jax.Array, there_BT: jax.Array) -> jax.Array:
        """Tokens (B, T) -> logits (B, T, V)."""
        x_BTC = self.token_embedding(tokens_BT) + self.position_embedding.embedding[...]
        for layer in self.layers:
            x_BTC = layer(x_BTC, there_BT[:, None, None, :])
        return x_BTC @ self.token_embedding.embedding[...].T + self.head_bias[...]


def build() -> nnx.Module:
    """The model; its first values are torch's."""
    return Encoder(nnx.Rngs(0))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Sum of the cross-entropies at the masked tokens, and their number."""
    logits_BTV = model(batch["tokens"], batch["there"])
    counts_BT = batch["labels"] >= 0
    labels_BT1 = jnp.where(counts_BT, batch["labels"], 0)[..., None]
    chosen_BT = jnp.take_along_axis(logits_BTV, labels_BT1, axis=-1)[..., 0]
    losses_BT = jax.nn.logsumexp(logits_BTV, axis=-1) - chosen_BT
    return jnp.sum(jnp.where(counts_BT, losses_BT, 0)), counts_BT.sum()
