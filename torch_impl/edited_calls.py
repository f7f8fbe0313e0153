"""What each edit of a model makes of one call of a function of torch's.

A change looks at a call and, where it is about it, alters it in place and says what stood there before; else
it gives None. Must not: keep anything from one call to the next.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

_SMALL = 1e-2
"""A constant up to this size that is added to a tensor is taken for an eps."""


@dataclass
class Call:
    """One call on its way."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    then: list[Callable[[Any], Any]] = field(default_factory=list)
    """What is done to the result."""

    def swap(self, func: Callable[..., Any], *args: Any) -> None:
        """Another call in place of this one."""
        self.func, self.args, self.kwargs = func, args, {}


Change = Callable[[Call, float], str | None]


@cache
def _parameters(func: Callable[..., Any]) -> tuple[str, ...]:
    return tuple(inspect.signature(func).parameters)


def _set(call: Call, name: str, value: Any) -> str:
    """Gives an argument of a Python function another value; says which it had."""
    was, place = _get(call, name), _parameters(call.func).index(name)
    if place < len(call.args):
        call.args = (*call.args[:place], value, *call.args[place + 1 :])
    else:
        call.kwargs[name] = value
    return f"{was:.12g}" if isinstance(was, int | float) else str(was)


def _get(call: Call, name: str) -> Any:
    """An argument of a Python function."""
    place = _parameters(call.func).index(name)
    if place < len(call.args):
        return call.args[place]
    return call.kwargs.get(name, inspect.signature(call.func).parameters[name].default)


def _first(call: Call) -> Tensor:
    return call.args[0] if call.args else call.kwargs["input"]


def _layernorm_eps(call: Call, value: float) -> str | None:
    return _set(call, "eps", value) if call.func in (F.layer_norm, F.group_norm) else None


def _layernorm_fast_variance(call: Call, value: float) -> str | None:
    """E[x^2] - E[x]^2, cut off at zero, as flax has it; the eps is the call's, edited or not."""
    if call.func is not F.layer_norm:
        return None
    if value:
        last = tuple(range(-len(_get(call, "normalized_shape")), 0))
        weight, bias, eps = (_get(call, name) for name in ("weight", "bias", "eps"))

        def norm(x: Tensor) -> Tensor:
            mean = x.mean(last, keepdim=True)
            variance = (x.square().mean(last, keepdim=True) - mean.square()).clamp(min=0)
            scale = torch.rsqrt(variance + eps)
            result = (x - mean) * (scale if weight is None else scale * weight)
            return result if bias is None else result + bias

        call.swap(norm, _first(call))
    return "0"


def _batchnorm_eps(call: Call, value: float) -> str | None:
    return _set(call, "eps", value) if call.func is F.batch_norm else None


def _batchnorm_momentum(call: Call, value: float) -> str | None:
    return _set(call, "momentum", value) if call.func is F.batch_norm else None


def _batchnorm_biased(call: Call, value: float) -> str | None:
    running = _get(call, "running_var") if call.func is F.batch_norm else None
    if running is None:
        return None
    if not value:
        return "0"
    before, count = running.clone(), _first(call).numel() // _first(call).shape[1]

    def then(result: Any) -> Any:
        with torch.no_grad():
            kept = (1 - _get(call, "momentum")) * before
            # Past autograd's notice: it keeps the buffer for a backward that, in training, never reads it.
            running.data.copy_(kept + (running - kept) * ((count - 1) / count))
        return result

    call.then.append(then)
    return "0"


def _rmsnorm_eps(call: Call, value: float) -> str | None:
    if call.func is F.rms_norm:
        return _set(call, "eps", value)
    sums = (torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__)
    added = call.args[1] if call.func in sums and len(call.args) == 2 else None
    if not isinstance(added, float) or not 0 < added <= _SMALL:
        return None
    call.args = (call.args[0], value)
    return f"{added:.12g}"


def _gelu_erf(call: Call, value: float) -> str | None:
    if call.func is not F.gelu:
        return None
    was = call.kwargs.get("approximate", "none")
    call.kwargs["approximate"] = "none" if value else "tanh"
    return "1" if was == "none" else "0"


def _relu_tie(call: Call, value: float) -> str | None:
    """max(x, 0) as a product with a factor that has no derivative of its own."""
    relu = call.func in (F.relu, torch.relu, Tensor.relu)
    least = call.kwargs.get("min", call.args[1] if len(call.args) == 2 else None)
    clamp = call.func in (torch.clamp, Tensor.clamp, torch.clamp_min, Tensor.clamp_min) and least == 0
    larger = (
        call.func in (torch.maximum, Tensor.maximum)
        and isinstance(least, Tensor)
        and not least.requires_grad
        and not bool(least.any())
    )
    if not (relu or clamp or larger):
        return None

    def product(x: Tensor) -> Tensor:
        with torch.no_grad():
            factor = (x > 0).to(x.dtype) + value * (x == 0).to(x.dtype)
        return x * factor

    x = _first(call)
    call.swap(product, x)
    ties = float((x.detach() == 0).double().mean())
    was = "0" if relu else "1" if clamp else "0.5"
    return f"{was} at 0, and {ties:.1%} of its inputs are exactly 0" if ties else was


def _is_softmax(call: Call) -> bool:
    return call.func in (F.softmax, torch.softmax, Tensor.softmax)


def _with_first(call: Call, value: Tensor) -> None:
    if call.args:
        call.args = (value, *call.args[1:])
    else:
        call.kwargs["input"] = value


def _attention_scale(call: Call, value: float) -> str | None:
    if call.func is F.scaled_dot_product_attention:
        query = call.args[0] if call.args else call.kwargs["query"]
        call.kwargs["scale"] = (call.kwargs.get("scale") or query.shape[-1] ** -0.5) * value
        return "1"
    if not _is_softmax(call):
        return None
    _with_first(call, _first(call) * value)
    return "1"


def _softmax_bits(call: Call, value: float) -> str | None:
    if not _is_softmax(call):
        return None
    scores = _first(call)
    narrow = {16: torch.bfloat16, 32: torch.float32}.get(int(value), scores.dtype)
    asked = call.kwargs.pop("dtype", None)
    _with_first(call, scores.to(narrow))
    call.then.append(lambda result: result.to(asked or scores.dtype))
    return "64" if asked is None else str(asked)


def _mask_value(call: Call, value: float) -> str | None:
    filled = call.func in (Tensor.masked_fill, torch.masked_fill, Tensor.masked_fill_) and len(call.args) == 3
    if filled and isinstance(call.args[2], float | int) and call.args[2] < 0:
        was = call.args[2]
        call.args = (*call.args[:2], value)
        return f"{was:.12g}"
    if call.func is torch.where and len(call.args) == 3:
        for place in (1, 2):
            was = call.args[place]
            if isinstance(was, float | int) and was < 0:
                call.args = (*call.args[:place], value, *call.args[place + 1 :])
                return f"{was:.12g}"
    return None


def _rope_theta(call: Call, value: float) -> str | None:
    """`theta ** tensor` is a call of `Tensor.__rpow__(tensor, theta)`, or of `torch.pow(theta, tensor)`."""
    if call.func is Tensor.__rpow__ and isinstance(call.args[1], float | int) and call.args[1] > 1:
        was = call.args[1]
        call.args = (call.args[0], value)
        return f"{was:.12g}"
    if call.func is torch.pow and isinstance(call.args[0], float | int) and call.args[0] > 1:
        was = call.args[0]
        call.args = (value, *call.args[1:])
        return f"{was:.12g}"
    return None


def _conv_padding(call: Call, value: float) -> str | None:
    if call.func not in (F.conv1d, F.conv2d, F.conv3d):
        return None
    given = dict(zip(("input", "weight", "bias", "stride", "padding", "dilation"), call.args, strict=False))
    given |= call.kwargs
    spatial = given["weight"].ndim - 2
    stride, padding, dilation = (
        (one,) * spatial if isinstance(one, int) else one
        for one in (given.get("stride", 1), given.get("padding", 0), given.get("dilation", 1))
    )
    if isinstance(padding, str) or not any(padding):
        return None
    was = f"({', '.join(f'({pad}, {pad})' for pad in padding)})"
    if not value:
        return was
    pads: list[int] = []
    for axis in reversed(range(spatial)):
        size, window = given["input"].shape[2 + axis], given["weight"].shape[2 + axis]
        reach = (-(-size // stride[axis]) - 1) * stride[axis] + (window - 1) * dilation[axis] + 1
        total = max(reach - size, 0)
        small, large = total // 2, total - total // 2
        pads += [small, large] if value == 1 else [large, small]
    padded = F.pad(given["input"], pads)
    groups = given.get("groups", call.args[6] if len(call.args) > 6 else 1)
    call.swap(call.func, padded, given["weight"], given.get("bias"), stride, 0, dilation, groups)
    return was


def _constant_bf16(call: Call, value: float) -> str | None:
    products = (torch.mul, Tensor.mul, Tensor.__mul__, Tensor.__rmul__)
    factor = call.args[1] if call.func in products and len(call.args) == 2 else None
    if not isinstance(factor, float):
        return None
    if value:
        call.args = (call.args[0], float(torch.tensor(factor, dtype=torch.bfloat16)))
    return f"{factor:.12g}"


def _matmul_bits(call: Call, value: float) -> str | None:
    products = (torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm, torch.mm, F.linear)
    if call.func not in products:
        return None
    if bits := int(value):
        call.args = (*(_Rounded.apply(one, bits) for one in call.args[:2]), *call.args[2:])
    return "as it is"


class _Rounded(torch.autograd.Function):
    """Rounds to a mantissa of some bits, ties to even."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, bits: int) -> Tensor:  # type: ignore[override]
        """Any float tensor, the same shape."""
        ctx.bits = bits
        return _round(values, bits)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        """The gradient as it is: the products of the backward pass round their own inputs on a GPU."""
        return grad, None


def _round(values: Tensor, bits: int) -> Tensor:
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp(torch.round(mantissa * 2 ** (bits + 1)) / 2 ** (bits + 1), exponent)


CHANGES: dict[str, Change] = {
    "layernorm_eps": _layernorm_eps,
    "layernorm_fast_variance": _layernorm_fast_variance,
    "rmsnorm_eps": _rmsnorm_eps,
    "batchnorm_eps": _batchnorm_eps,
    "batchnorm_momentum": _batchnorm_momentum,
    "batchnorm_biased": _batchnorm_biased,
    "gelu_erf": _gelu_erf,
    "relu_tie": _relu_tie,
    "attention_scale": _attention_scale,
    "softmax_bits": _softmax_bits,
    "mask_value": _mask_value,
    "rope_theta": _rope_theta,
    "conv_padding": _conv_padding,
    "constant_bf16": _constant_bf16,
    "matmul_bits": _matmul_bits,
}
"""By the name of the edit, every one of `spec.edits.of_models`."""
