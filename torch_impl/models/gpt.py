"""GPT: pre-LN decoder with learned positions, GELU, and a head tied to the token embedding.

Parameter names and shapes are the table's in `spec/workloads/gpt.py`. Must not: initialise anything or read a
constant that an edit can reach from elsewhere than `Constants`. Counterpart: `jax_impl/models/gpt.py`.

Legend: B rows, T positions, S positions attended to, C width, H heads, D = C / H, F = 4 C, V vocabulary.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from spec.edits import Constants
from spec.precision import Profile
from spec.workloads.gpt import GptSizes
from torch_impl.loss import cross_entropy


class Attention(nn.Module):
    """Causal self-attention; queries, keys and values are thirds of one projection, heads contiguous."""

    def __init__(self, sizes: GptSizes, profile: Profile) -> None:
        super().__init__()
        self.num_heads = sizes.num_heads
        self.attend = attention(profile)
        self.qkv = nn.Linear(sizes.d_model, 3 * sizes.d_model)
        self.proj = nn.Linear(sizes.d_model, sizes.d_model)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        q_BHTD, k_BHTD, v_BHTD = (
            part_BTC.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part_BTC in self.qkv(x_BTC).chunk(3, dim=-1)
        )
        out_BHTD = self.attend(q_BHTD, k_BHTD, v_BHTD)
        return self.proj(out_BHTD.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Affine, GELU, affine."""

    def __init__(self, sizes: GptSizes, constants: Constants) -> None:
        super().__init__()
        self.approximate = "none" if constants.gelu_erf else "tanh"
        self.fc = nn.Linear(sizes.d_model, 4 * sizes.d_model)
        self.proj = nn.Linear(4 * sizes.d_model, sizes.d_model)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        h_BTF = F.gelu(self.fc(x_BTC), approximate=self.approximate)
        return self.proj(h_BTF)


class Block(nn.Module):
    """Attention and feed-forward, each normalised before and added to the residual stream after."""

    def __init__(self, sizes: GptSizes, profile: Profile, constants: Constants) -> None:
        super().__init__()
        self.ln1 = _LayerNorm(sizes.d_model, eps=constants.layernorm_eps)
        self.attn = Attention(sizes, profile)
        self.ln2 = _LayerNorm(sizes.d_model, eps=constants.layernorm_eps)
        self.mlp = FeedForward(sizes, constants)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """(B, T, C) -> (B, T, C)."""
        x_BTC = x_BTC + self.attn(self.ln1(x_BTC))
        return x_BTC + self.mlp(self.ln2(x_BTC))


class Gpt(nn.Module):
    """The whole model."""

    def __init__(self, sizes: GptSizes, profile: Profile, constants: Constants) -> None:
        super().__init__()
        self.wte = _Embedding(sizes.vocab, sizes.d_model)
        self.wpe = _Embedding(sizes.seq_len, sizes.d_model)
        self.blocks = nn.ModuleList(Block(sizes, profile, constants) for _ in range(sizes.num_layers))
        self.ln_f = _LayerNorm(sizes.d_model, eps=constants.layernorm_eps)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Tokens (B, T), integers, T at most the sequence length -> logits (B, T, V)."""
        x_BTC = self.wte(tokens_BT) + self.wpe.weight[: tokens_BT.shape[1]]
        for block in self.blocks:
            x_BTC = block(x_BTC)
        return F.linear(self.ln_f(x_BTC), self.wte.weight)


class _LayerNorm(nn.LayerNorm):
    """LayerNorm whose scale and shift get gradients summed in float32, in bfloat16 too."""

    def forward(self, x_BTC: Tensor) -> Tensor:  # type: ignore[override]
        """(B, T, C) -> (B, T, C)."""
        wide_BTC, weight_C, bias_C = (_wide_on_cpu(values) for values in (x_BTC, self.weight, self.bias))
        return F.layer_norm(wide_BTC, self.normalized_shape, weight_C, bias_C, self.eps).to(x_BTC.dtype)


class _Embedding(nn.Embedding):
    """Embedding whose rows get gradients summed in float32, in bfloat16 too."""

    def reset_parameters(self) -> None:
        """Leaves them as they are; drawing normal numbers that nobody keeps would load a compiler first."""

    def forward(self, tokens_BT: Tensor) -> Tensor:  # type: ignore[override]
        """(B, T) -> (B, T, C)."""
        return F.embedding(tokens_BT, _wide_on_cpu(self.weight)).to(self.weight.dtype)


def _wide_on_cpu(values: Tensor) -> Tensor:
    """What an operation reads whose backward adds up many rows: at least float32 on a CPU.

    There torch adds in the dtype of what was read, and 2000 rows added in bfloat16 were off by a third. The
    kernels for CUDA add in float32 by themselves.
    """
    return values.to(torch.promote_types(values.dtype, torch.float32)) if values.is_cpu else values


def build(sizes: GptSizes, profile: Profile, constants: Constants) -> Gpt:
    """The model with its parameters on the meta device: names and shapes, no memory, no random numbers."""
    with torch.device("meta"):
        return Gpt(sizes, profile, constants)


def loss(model: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """(sum of cross-entropies, tokens that count) of a batch of `tokens` and `labels`, both (B, T)."""
    return cross_entropy(model(batch["tokens"]), batch["labels"])


def attention(profile: Profile) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The causal attention of the profile: queries, keys, values (B, H, T, D) -> (B, H, T, D)."""
    return {"exact": _exact_attention, "fused": _fused_attention}[profile.attention]


def _exact_attention(q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor) -> Tensor:
    """Scores, softmax and values written out, so that every value has the dtype of the inputs."""
    num_positions, head_size = q_BHTD.shape[-2:]
    scores_BHTS = (q_BHTD @ k_BHTD.mT) * head_size**-0.5
    future_TS = torch.ones(num_positions, num_positions, dtype=torch.bool, device=q_BHTD.device).triu(1)
    weights_BHTS = scores_BHTS.masked_fill(future_TS, float("-inf")).softmax(dim=-1)
    return weights_BHTS @ v_BHTD


def _fused_attention(q_BHTD: Tensor, k_BHTD: Tensor, v_BHTD: Tensor) -> Tensor:
    """The framework's fused kernel, whose softmax is float32 inside."""
    return F.scaled_dot_product_attention(q_BHTD, k_BHTD, v_BHTD, is_causal=True)
