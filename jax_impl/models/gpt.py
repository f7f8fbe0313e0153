"""GPT: pre-LN decoder with learned positions, GELU, and a head tied to the token embedding.

Parameter names are the table's in `spec/workloads/gpt.py`. What flax decides by default and the table decides
otherwise is said here. Layers compute in the dtype of the parameters that the step gives them. Must not:
initialise anything or read a constant that an edit can reach from elsewhere than `Constants`. Counterpart:
`torch_impl/models/gpt.py`.

Legend: B rows, T positions, S positions attended to, C width, H heads, D = C / H, F = 4 C, V vocabulary.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from jax_impl.layers import Embed, LayerNorm, Linear, at_least_float32, gelu, whole_cotangent
from jax_impl.loss import cross_entropy
from spec.edits import Constants
from spec.precision import Profile
from spec.workloads.gpt import GptSizes


class Attention(nnx.Module):
    """Causal self-attention; queries, keys and values are thirds of one projection, heads contiguous."""

    def __init__(self, sizes: GptSizes, profile: Profile) -> None:
        self.num_heads = sizes.num_heads
        self.attend = attention(profile)
        self.qkv = Linear(sizes.d_model, 3 * sizes.d_model, rngs=nnx.Rngs(0))
        self.proj = Linear(sizes.d_model, sizes.d_model, rngs=nnx.Rngs(0))

    def __call__(self, x_BTC: jax.Array) -> jax.Array:
        """(B, T, C) -> (B, T, C)."""
        B, T, C = x_BTC.shape
        parts_BTC = jnp.split(whole_cotangent(self.qkv(x_BTC)), 3, axis=-1)
        q_BTHD, k_BTHD, v_BTHD = (part_BTC.reshape(B, T, self.num_heads, -1) for part_BTC in parts_BTC)
        out_BTHD = self.attend(q_BTHD, k_BTHD, v_BTHD)
        return self.proj(out_BTHD.reshape(B, T, C))


class FeedForward(nnx.Module):
    """Affine, GELU, affine."""

    def __init__(self, sizes: GptSizes, constants: Constants) -> None:
        self.approximate = not constants.gelu_erf
        self.fc = Linear(sizes.d_model, 4 * sizes.d_model, rngs=nnx.Rngs(0))
        self.proj = Linear(4 * sizes.d_model, sizes.d_model, rngs=nnx.Rngs(0))

    def __call__(self, x_BTC: jax.Array) -> jax.Array:
        """(B, T, C) -> (B, T, C)."""
        return self.proj(gelu(self.fc(x_BTC), self.approximate))


class Block(nnx.Module):
    """Attention and feed-forward, each normalised before and added to the residual stream after."""

    def __init__(self, sizes: GptSizes, profile: Profile, constants: Constants) -> None:
        self.ln1 = _layer_norm(sizes, constants)
        self.attn = Attention(sizes, profile)
        self.ln2 = _layer_norm(sizes, constants)
        self.mlp = FeedForward(sizes, constants)

    def __call__(self, x_BTC: jax.Array) -> jax.Array:
        """(B, T, C) -> (B, T, C)."""
        x_BTC = x_BTC + self.attn(self.ln1(x_BTC))
        return x_BTC + self.mlp(self.ln2(x_BTC))


class Gpt(nnx.Module):
    """The whole model."""

    def __init__(self, sizes: GptSizes, profile: Profile, constants: Constants) -> None:
        self.wte = Embed(sizes.vocab, sizes.d_model, rngs=nnx.Rngs(0))
        self.wpe = Embed(sizes.seq_len, sizes.d_model, rngs=nnx.Rngs(0))
        self.blocks = nnx.List(Block(sizes, profile, constants) for _ in range(sizes.num_layers))
        self.ln_f = _layer_norm(sizes, constants)
        self.remat, self.scan_layers = False, False

    def arrange(self, remat: bool, scan_layers: bool) -> None:
        """Chooses how the blocks are executed; the same sums in the same order, fused otherwise.

        Args:
          remat: keep the input of each block alone, and compute the rest again in the backward pass.
          scan_layers: one loop over all blocks, whose parameters are stacked for it: a smaller program.
        """
        self.remat, self.scan_layers = remat, scan_layers

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """Tokens (B, T), integers, T at most the sequence length -> logits (B, T, V)."""
        # Positions are added in float32, so that their gradients are summed in it; see `layers.py`.
        tokens_BTC, positions_TC = self.wte(tokens_BT), self.wpe.embedding[: tokens_BT.shape[1]]
        x_BTC = (at_least_float32(tokens_BTC) + at_least_float32(positions_TC)).astype(tokens_BTC.dtype)
        x_BTC = self._scanned(x_BTC) if self.scan_layers else self._looped(x_BTC)
        return self.ln_f(x_BTC) @ self.wte.embedding[...].T

    def _looped(self, x_BTC: jax.Array) -> jax.Array:
        for block in self.blocks:
            if self.remat:
                graph, state = nnx.split(block)
                x_BTC = _recomputed(graph)(state, x_BTC)
            else:
                x_BTC = block(x_BTC)
        return x_BTC

    def _scanned(self, x_BTC: jax.Array) -> jax.Array:
        graph, *_ = (nnx.split(block)[0] for block in self.blocks)
        stacked = jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(nnx.state(block) for block in self.blocks)
        )
        call = _recomputed(graph) if self.remat else lambda state, x_BTC: nnx.merge(graph, state)(x_BTC)
        return lax.scan(lambda x_BTC, state: (call(state, x_BTC), None), x_BTC, stacked)[0]


def _recomputed(graph: nnx.GraphDef) -> Callable[[nnx.State, jax.Array], jax.Array]:
    return jax.checkpoint(lambda state, x_BTC: nnx.merge(graph, state)(x_BTC))


def build(sizes: GptSizes, profile: Profile, constants: Constants) -> Gpt:
    """The model with abstract parameters: names and shapes, no memory, no random numbers."""
    return nnx.eval_shape(lambda: Gpt(sizes, profile, constants))


def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """(sum of cross-entropies, tokens that count) of a batch of `tokens` and `labels`, both (B, T)."""
    return cross_entropy(model(batch["tokens"]), batch["labels"])


def attention(profile: Profile) -> Callable[[jax.Array, jax.Array, jax.Array], jax.Array]:
    """The causal attention of the profile: queries, keys, values (B, T, H, D) -> (B, T, H, D)."""
    return {"exact": _exact_attention, "fused": _fused_attention}[profile.attention]


def _exact_attention(q_BTHD: jax.Array, k_BSHD: jax.Array, v_BSHD: jax.Array) -> jax.Array:
    """Scores, softmax and values written out, so that every value has the dtype of the inputs.

    `jax.nn.dot_product_attention` would cast its softmax to float32, that of float64 inputs too.
    """
    num_positions, head_size = q_BTHD.shape[1], q_BTHD.shape[-1]
    scores_BHTS = jnp.einsum("BTHD,BSHD->BHTS", q_BTHD, k_BSHD) * head_size**-0.5
    past_TS = jnp.tril(jnp.ones((num_positions, num_positions), bool))
    weights_BHTS = jax.nn.softmax(jnp.where(past_TS, scores_BHTS, -jnp.inf), axis=-1)
    return jnp.einsum("BHTS,BSHD->BTHD", weights_BHTS, v_BSHD)


def _fused_attention(q_BTHD: jax.Array, k_BSHD: jax.Array, v_BSHD: jax.Array) -> jax.Array:
    """The framework's fused kernel, whose softmax is float32 inside: cuDNN's on a GPU, XLA's own on a CPU."""
    implementation = "xla" if jax.default_backend() == "cpu" else "cudnn"
    return jax.nn.dot_product_attention(q_BTHD, k_BSHD, v_BSHD, is_causal=True, implementation=implementation)


def _layer_norm(sizes: GptSizes, constants: Constants) -> LayerNorm:
    return LayerNorm(
        sizes.d_model, epsilon=constants.layernorm_eps, use_fast_variance=False, rngs=nnx.Rngs(0)
    )
