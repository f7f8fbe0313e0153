"""Promotion: a user's code computed in float64 throughout, whatever narrower type it casts to.

A float64 truth is none where the code says `.astype(jnp.float32)`. Inside a `promoting` a narrow type that is
asked for while tracing becomes float64, so that constants which follow it are not rounded either. Then the
jaxpr of what goes `through` is evaluated anew with every narrow type that is left widened: constants,
arguments, programs traced before, the bodies of loops. Gradients are traced first, so custom derivatives are
those of the user's code. What was promoted is noted with the line that asked for it, and so is what stayed
narrow. Must not: change what is computed otherwise. Counterpart: `torch_impl/promote.py`.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax._src import dtypes, source_info_util
from jax.extend import core

from spec import callers
from spec.precision import narrower

NARROW = (jnp.dtype("float32"), jnp.dtype("bfloat16"), jnp.dtype("float16"))
_WIDE = jnp.dtype("float64")
_NOT_USERS = callers.folders(jax, flax)
_READS_TYPES = "check_and_canonicalize_user_dtype"
_DESCRIBES = "ShapeDtypeStruct"
"""What is named so is the type of an array that is there, which nobody asks for."""
_DTYPE_PARAMETERS = ("new_dtype", "dtype", "preferred_element_type", "out_dtype")
_INLINED = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that only call what stands in a parameter of theirs; derivatives were taken before."""


class Promotion:
    """Evaluates jaxprs in float64, and notes what it changed."""

    def __init__(self) -> None:
        self.promoted: dict[str, int] = {}
        """Operations by `file:line operation dtype` that asked for a narrower type."""
        self.left: dict[str, int] = {}
        """Operations by `file:line operation dtype` whose result is narrow all the same."""

        self.tracing = False
        self._narrowest: str | None = None

    @contextlib.contextmanager
    def reading(self) -> Generator[None]:
        """Inside it what is seen is noted; how a model is built is not, as it is given its values."""
        self.tracing = True
        try:
            yield
        finally:
            self.tracing = False

    def record(self) -> dict[str, Any]:
        """For the manifest."""
        return {"promoted": self.promoted, "left": self.left, "narrowest": self._narrowest}

    def note(self, where: dict[str, int], line: str, what: str, dtype: Any) -> None:
        """Counts something that was seen, while the code is traced whose truth is wanted."""
        if not self.tracing:
            return
        self._narrowest = narrower(self._narrowest, str(dtype))
        key = f"{line} {what} {dtype}"
        where[key] = where.get(key, 0) + 1

    def evaluate(self, jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr, every narrow float of it in float64."""
        values: dict[Any, Any] = {}

        def read(atom: Any) -> Any:
            return _constant(atom) if isinstance(atom, core.Literal) else values[atom]

        values |= zip(jaxpr.constvars, map(_wide, constants), strict=True)
        values |= zip(jaxpr.invars, map(_wide, arguments), strict=True)
        for equation in jaxpr.eqns:
            inputs = [read(atom) for atom in equation.invars]
            with source_info_util.user_context(equation.source_info.traceback):
                outputs = self._do(equation, inputs)
            if any(_is_narrow(output) for output in outputs):
                self._note(self.left, equation, equation.outvars[0].aval.dtype)
            values |= zip(equation.outvars, map(_wide, outputs), strict=True)
        return [read(atom) for atom in jaxpr.outvars]

    def _do(self, equation: Any, inputs: list[Any]) -> list[Any]:
        name, parameters = equation.primitive.name, equation.params
        if name in _INLINED and _INLINED[name] in parameters:
            inner, constants = _opened(parameters[_INLINED[name]])
            return self.evaluate(inner, constants, inputs)
        match name:
            case "scan":
                return self._scan(parameters, inputs)
            case "while":
                return self._while(parameters, inputs)
            case "cond":
                branches = [partial(self._branch, branch) for branch in parameters["branches"]]
                return list(lax.switch(inputs[0], branches, *inputs[1:]))
            case "reduce_precision":
                self._note(self.promoted, equation, _of_bits(parameters["mantissa_bits"]))
                return inputs
        changed = {key: _WIDE for key in _DTYPE_PARAMETERS if key in parameters and parameters[key] in NARROW}
        if changed:
            self._note(self.promoted, equation, equation.outvars[0].aval.dtype)
        made = equation.primitive.bind(*inputs, **(parameters | changed))
        return list(made) if equation.primitive.multiple_results else [made]

    def _branch(self, closed: Any, *inputs: Any) -> list[Any]:
        return self.evaluate(*_opened(closed), inputs)

    def _scan(self, parameters: dict[str, Any], inputs: list[Any]) -> list[Any]:
        constants, carry, slices = _scanned(parameters, inputs)
        num_carry = len(carry)

        def body(carry: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
            outputs = self._branch(parameters["jaxpr"], *constants, *carry, *slices)
            return outputs[:num_carry], outputs[num_carry:]

        carry, stacked = lax.scan(
            body,
            carry,
            slices,
            length=parameters["length"],
            reverse=parameters["reverse"],
        )
        return [*carry, *stacked]

    def _while(self, parameters: dict[str, Any], inputs: list[Any]) -> list[Any]:
        num_cond, num_body = parameters["cond_nconsts"], parameters["body_nconsts"]
        of_cond, of_body = inputs[:num_cond], inputs[num_cond : num_cond + num_body]
        return lax.while_loop(
            lambda carry: self._branch(parameters["cond_jaxpr"], *of_cond, *carry)[0],
            lambda carry: self._branch(parameters["body_jaxpr"], *of_body, *carry),
            inputs[num_cond + num_body :],
        )

    def _note(self, where: dict[str, int], equation: Any, dtype: Any) -> None:
        frame = source_info_util.user_frame(equation.source_info.traceback)
        line = f"{Path(frame.file_name).name}:{frame.start_line}" if frame else callers.NOBODY
        self.note(where, line, equation.primitive.name, dtype)


_active: list[Promotion] = []


@contextlib.contextmanager
def promoting(wanted: bool) -> Generator[Promotion | None]:
    """A promotion for all that goes `through` inside, where one is wanted."""
    if not wanted:
        yield None
        return
    promotion = Promotion()
    _active.append(promotion)
    try:
        with _asked_types(promotion):
            yield promotion
    finally:
        _active.pop()


def is_promoting() -> bool:
    """Whether narrow types that are asked for become float64 now."""
    return bool(_active)


@contextlib.contextmanager
def _asked_types(promotion: Promotion) -> Generator[None]:
    """Inside it JAX reads every narrow type that somebody asks for as float64."""
    # All of JAX's functions read a `dtype` by this one. It has no public name; where it is called otherwise,
    # the jaxpr is still widened, and only constants rounded while tracing stay as they are.
    reads = getattr(dtypes, _READS_TYPES, None)
    if reads is None:
        yield
        return

    def widened(dtype: Any, fun_name: str | None = None, **how: Any) -> Any:
        found = reads(dtype, fun_name, **how)
        if found not in NARROW or fun_name == _DESCRIBES:
            return found
        promotion.note(promotion.promoted, callers.line(_NOT_USERS), fun_name or "dtype", found)
        return _WIDE

    setattr(dtypes, _READS_TYPES, widened)
    try:
        yield
    finally:
        setattr(dtypes, _READS_TYPES, reads)


def through(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in float64 inside a `promoting`, as it is elsewhere."""

    def promoted(*arguments: Any) -> Any:
        if not _active:
            return function(*arguments)
        promotion = _active[-1]
        with promotion.reading():
            closed, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
            found = promotion.evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), found)

    return promoted


def _of_bits(mantissa_bits: int) -> str:
    """The type that a value is rounded to which keeps so many bits."""
    return "float32" if mantissa_bits > 10 else "float16" if mantissa_bits > 7 else "bfloat16"


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """A jaxpr and its constants, whether it came closed or not."""
    return (jaxpr.jaxpr, jaxpr.consts) if isinstance(jaxpr, core.ClosedJaxpr) else (jaxpr, ())


def _scanned(parameters: dict[str, Any], inputs: list[Any]) -> list[list[Any]]:
    """The inputs of a scan: its constants, what it carries, and what it slices."""
    if "ft_in" in parameters:  # since jax 0.11
        return [list(part) for part in parameters["ft_in"].update(inputs).unpack()]
    num_consts = parameters["num_consts"]
    first = num_consts + parameters["num_carry"]
    return [inputs[:num_consts], inputs[num_consts:first], inputs[first:]]


def _constant(literal: Any) -> Any:
    """A number written in the code. Rounded to a narrow type, it is read again as the shortest decimal that
    rounds so: 0.044715 is what somebody wrote, whatever its float32 is."""
    value = literal.val
    if getattr(literal.aval, "dtype", None) in NARROW:
        return np.float64(str(np.asarray(value).astype(literal.aval.dtype)))
    return value


def _is_narrow(value: Any) -> bool:
    return getattr(value, "dtype", None) in NARROW


def _wide(value: Any) -> Any:
    return lax.convert_element_type(value, _WIDE) if _is_narrow(value) else value
