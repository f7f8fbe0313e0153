"""Edits inside models: norms, activations, attention, convolutions, and the dtypes of what they compute.

The torch side makes them around calls of functions, so they reach users' models as well. Must not: compute.
"""

from spec.edits.kinds import NOT_NEGATIVE, POSITIVE, SHARE, Kind

_FUNCTIONS = "functions of a user's JAX file are bound when it is imported, and cannot be exchanged later"
_OWN = "a JAX program's calls cannot be exchanged from outside; the torch side makes the same change"
_TORCH, _JAX = "torch", "jax"

OF_MODELS = {
    "layernorm_eps": Kind(
        what="every LayerNorm's and GroupNorm's eps is value",
        reach="model",
        shows="act",
        signature="largest where inputs are small",
        values=(1e-6, 1e-5, 1e-3),
        scale="linear",
        within=NOT_NEGATIVE,
        mend={_TORCH: "nn.LayerNorm(..., eps={value})", _JAX: "nnx.LayerNorm(..., epsilon={value})"},
    ),
    "layernorm_fast_variance": Kind(
        what="LayerNorm's variance is the mean of squares less the mean squared (1), or about the mean (0)",
        reach="model",
        shows="act",
        signature="largest where means are large",
        values=(1, 0),
        number=bool,
        mend={
            _TORCH: {
                1: "(x.square().mean(-1) - x.mean(-1).square()).clamp(min=0) as the variance",
                0: "nn.LayerNorm as it is",
            },
            _JAX: {
                1: "nnx.LayerNorm(..., use_fast_variance=True), the default",
                0: "nnx.LayerNorm(..., use_fast_variance=False)",
            },
        },
        jax=_OWN,
    ),
    "rmsnorm_eps": Kind(
        what="every RMSNorm's eps, or small constant added to a mean of squares, is value",
        reach="model",
        shows="act",
        signature="largest where inputs are small",
        values=(1e-6, 1e-5, 1.1920929e-07),
        scale="linear",
        within=NOT_NEGATIVE,
        mend={
            _TORCH: "nn.RMSNorm(..., eps={value}); the default is that of the dtype",
            _JAX: "nnx.RMSNorm(..., epsilon={value})",
        },
    ),
    "batchnorm_eps": Kind(
        what="every BatchNorm's eps is value",
        reach="model",
        shows="act",
        signature="largest where inputs are small",
        values=(1e-5, 1e-3),
        scale="linear",
        within=NOT_NEGATIVE,
        mend={_TORCH: "nn.BatchNorm(..., eps={value})", _JAX: "nnx.BatchNorm(..., epsilon={value})"},
    ),
    "batchnorm_momentum": Kind(
        what="every BatchNorm gives its new statistics weight value",
        reach="model",
        shows="buffer",
        signature="running statistics alone",
        values=(0.1, 0.01, 0.9),
        scale="linear",
        within=SHARE,
        mend={
            _TORCH: "nn.BatchNorm(..., momentum={value})",
            _JAX: "nnx.BatchNorm(..., momentum={one_minus}): flax's momentum is the weight of the old ones",
        },
    ),
    "batchnorm_biased": Kind(
        what="BatchNorm keeps the variance of n values over n (1) or over n - 1 (0)",
        reach="model",
        shows="buffer",
        signature="running statistics alone",
        values=(1, 0),
        number=bool,
        mend={
            _TORCH: {1: "multiply the new running_var's share by (n - 1) / n", 0: "nn.BatchNorm as it is"},
            _JAX: {1: "nnx.BatchNorm as it is", 0: "multiply the new var's share by n / (n - 1)"},
        },
        jax="flax computes its running variance inside the layer",
    ),
    "gelu_erf": Kind(
        what="GELU is the erf form (1) or the tanh form (0)",
        reach="model",
        shows="act",
        signature="elementwise",
        values=(0, 1),
        number=bool,
        mend={
            _TORCH: {1: "F.gelu(x)", 0: 'F.gelu(x, approximate="tanh")'},
            _JAX: {1: "jax.nn.gelu(x, approximate=False)", 0: "jax.nn.gelu(x)"},
        },
        jax_pair=_FUNCTIONS,
    ),
    "relu_tie": Kind(
        what="the derivative of max(x, 0) at 0 is value",
        reach="model",
        shows="grad",
        signature="gradients alone",
        values=(0.0, 0.5, 1.0),
        mend={
            _TORCH: {
                0.0: "torch.relu(x)",
                0.5: "torch.maximum(x, torch.zeros_like(x))",
                1.0: "x.clamp(min=0)",
            },
            _JAX: {
                0.0: "jax.nn.relu(x)",
                0.5: "jnp.maximum(x, 0)",
                1.0: "a custom derivative; jax.nn.relu has 0, jnp.maximum a half",
            },
        },
        jax=_OWN,
    ),
    "attention_scale": Kind(
        what="scores are multiplied by value once more before the softmax of attention",
        reach="model",
        shows="act",
        signature="elementwise",
        values=(0.5, 0.25, 2.0),
        scale="linear",
        factor=True,
        mend={side: "multiply the scores by {value} more" for side in (_TORCH, _JAX)},
        jax=_OWN,
    ),
    "mask_value": Kind(
        what="masked scores are filled with value instead of what stands there",
        reach="model",
        shows="act",
        signature="elementwise",
        values=(-1e9, -1e4, -10.0),
        scale="exp",
        mend={_TORCH: "masked_fill(mask, {value})", _JAX: "jnp.where(mask, scores, {value})"},
        jax=_OWN,
    ),
    "rope_theta": Kind(
        what="the base of rotary positions, or of any constant to the power of a tensor, is value",
        reach="model",
        shows="act",
        signature="grows with position",
        values=(1e4, 5e5, 1e6),
        scale="log",
        within=POSITIVE,
        mend={side: "rotary positions with theta {value}" for side in (_TORCH, _JAX)},
        jax=_OWN,
    ),
    "conv_padding": Kind(
        what="padded convolutions pad the end first (1, XLA's SAME), the start first (2), or as written (0)",
        reach="model",
        shows="act",
        signature="on borders",
        values=(1, 2, 0),
        number=int,
        mend={
            _TORCH: {
                1: "F.pad(x, (0, 1, 0, 1)) and padding=0",
                2: "F.pad(x, (1, 0, 1, 0)) and padding=0",
                0: "padding as it is",
            },
            _JAX: {
                1: 'padding="SAME", which may be asymmetric, (0, 1) at stride 2 of an even size',
                2: 'padding="SAME_LOWER"',
                0: "padding={was}",
            },
        },
        jax=_OWN,
    ),
    "constant_bf16": Kind(
        what="constants that multiply tensors are rounded to bfloat16 (1)",
        reach="model",
        shows="act",
        signature="one ratio for all elements",
        values=(1, 0),
        number=bool,
        mend={
            side: {1: "round the constant to bfloat16 before the product", 0: "the constant as it is"}
            for side in (_TORCH, _JAX)
        },
        jax=_OWN,
    ),
    "softmax_bits": Kind(
        what="softmax computes in bfloat16 (16), in float32 (32), or in the dtype of its input (64)",
        reach="model",
        shows="act",
        signature="elementwise",
        values=(64, 32, 16),
        number=int,
        narrow=True,
        mend={
            side: {
                64: "softmax in the dtype of its input",
                32: "softmax in float32",
                16: "softmax in bfloat16",
            }
            for side in (_TORCH, _JAX)
        },
        jax=_OWN,
    ),
    "matmul_bits": Kind(
        what="inputs of matrix products are rounded to value bits of mantissa: 10 TF32, 7 bfloat16, 0 all",
        reach="model",
        shows="act",
        signature="elementwise",
        values=(10, 7, 0),
        number=int,
        narrow=True,
        mend={
            _TORCH: {
                0: "products of inputs as they are",
                10: "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
                7: "bfloat16 inputs of products",
            },
            _JAX: {
                0: "products of inputs as they are",
                10: 'jax.default_matmul_precision("tensorfloat32"), the default on a GPU',
                7: 'jax.default_matmul_precision("bfloat16")',
            },
        },
        jax=_OWN,
    ),
}
