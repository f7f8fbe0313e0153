"""GPT: pre-LN decoder with learned positions, tanh GELU and a head tied to the token embedding.

Counterparts: `torch_impl/models/gpt.py` and `jax_impl/models/gpt.py` compute what this table describes.
"""

import math
from dataclasses import dataclass, replace

from spec.errors import RuleError
from spec.params import ParamSpec, linear, norm

LAYER_NORM_EPS = 1e-5
INIT_STD = 0.02
IGNORE_LABEL = -1
"""A label that carries no loss and is not counted as a token."""


@dataclass(frozen=True, kw_only=True)
class GptSizes:
    """B is the batch, T the sequence length, C the model width, V the vocabulary."""

    vocab: int
    seq_len: int
    num_layers: int
    d_model: int
    num_heads: int

    def __post_init__(self) -> None:
        for name in ("vocab", "seq_len", "num_layers", "d_model", "num_heads"):
            if getattr(self, name) < 1:
                raise RuleError("Model sizes are at least 1.", f"{name} = {getattr(self, name)}")
        if self.d_model % self.num_heads:
            raise RuleError(
                "The heads divide the model width.",
                f"d_model {self.d_model}, num_heads {self.num_heads}",
                f"take a width that is a multiple of {self.num_heads}",
            )


def parameter_table(sizes: GptSizes) -> tuple[ParamSpec, ...]:
    """Every parameter in canonical order. Residual projections start smaller, as GPT-2's do."""
    width, hidden = sizes.d_model, 4 * sizes.d_model
    residual_std = INIT_STD / math.sqrt(2 * sizes.num_layers)
    table: list[ParamSpec] = [_embedding("wte", sizes.vocab, width), _embedding("wpe", sizes.seq_len, width)]
    for i in range(sizes.num_layers):
        block = f"blocks.{i}"
        qkv_weight, qkv_bias = linear(f"{block}.attn.qkv", width, 3 * width, INIT_STD)
        # A shift of every key by one vector moves all scores of a query alike, and softmax does not see it.
        qkv_bias = replace(qkv_bias, zero_gradient=(width, 2 * width))
        table += [*norm(f"{block}.ln1", width), qkv_weight, qkv_bias]
        table += [*linear(f"{block}.attn.proj", width, width, residual_std), *norm(f"{block}.ln2", width)]
        table += linear(f"{block}.mlp.fc", width, hidden, INIT_STD)
        table += linear(f"{block}.mlp.proj", hidden, width, residual_std)
    return tuple([*table, *norm("ln_f", width)])


def _embedding(name: str, rows: int, width: int) -> ParamSpec:
    return ParamSpec(
        name=f"{name}.weight",
        shape=(rows, width),
        init="normal",
        init_std=INIT_STD,
        partition=(None, None),
        layout="embedding",
    )


def step_flops(sizes: GptSizes, global_batch: int) -> int:
    """Forward plus backward (twice the forward): matrix products only, causal attention counted in full.

    Per token and layer 24 C^2 for the four projections and 4 T C for scores and values; 2 C V for the head.
    """
    width, seq_len = sizes.d_model, sizes.seq_len
    per_token = sizes.num_layers * (24 * width * width + 4 * seq_len * width) + 2 * width * sizes.vocab
    return 3 * per_token * seq_len * global_batch
