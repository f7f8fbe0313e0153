"""A user's JAX side as a `Side`: its file imported, its model checked, its loss called in one way.

A linen module becomes an nnx one, its variables made by one call of the loss, its parts' outputs there to be
observed. Floating-point arrays of a batch come in the compute dtype of the precision profile, as the
parameters do. Must not: change what the user's code computes. Counterpart: `torch_impl/models/pair.py`.
"""

import contextlib
import types
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen, nnx
from flax.core.scope import union_filters
from flax.nnx import bridge
from flax.traverse_util import flatten_dict

from jax_impl.models import Side
from jax_impl.promote import is_promoting
from spec.data.batches import open_source
from spec.errors import RuleError
from spec.own_optimizer import OwnOptimizer
from spec.pairs import user_code
from spec.run import Problem
from spec.workloads.pair import PairFiles

_WIDE = jnp.dtype("float64")


def load_side(files: PairFiles, problem: Problem) -> Side:
    """The JAX side of a pair.

    Raises:
      RuleError: its file cannot be imported, or lacks `build`, `loss` or an `optimizer` that is its own.
    """
    path = files.jax
    is_own = isinstance(problem.optimizer, OwnOptimizer)
    wide = _is_wide()
    functions = ("build", "loss", *(("optimizer",) if is_own else ()))
    # JAX keeps the classes of an optimizer's state from job to job, so such a file stays as it was first.
    module = _module(path, _changed_ns(path), is_promoting() and not is_own, functions)
    _keep_wide(wide, files)
    compute = jnp.dtype(problem.profile.compute)

    def build() -> nnx.Module:
        with user_code.told(path, "build() returns a model."):
            model = module.build()
            if isinstance(model, linen.Module):
                model = _as_nnx(model, module.loss, problem)
        if not isinstance(model, nnx.Module):
            raise RuleError(
                "build() returns a flax module, nnx or linen.",
                f"{path}: build() returned {type(model).__name__}",
            )
        _follow_parameters(model, compute)
        _tell_outputs(model)
        return model

    def loss(model: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        rounded = {
            name: values.astype(compute) if jnp.issubdtype(values.dtype, jnp.floating) else values
            for name, values in batch.items()
        }
        with _wide_carries(compute):
            return _sum_and_count(module.loss(model, rounded), path)

    own = module.optimizer if is_own else None
    return Side(build, loss, own, files.links, user_code.logged_lr(module))


@lru_cache(maxsize=4)
def _module(path: str, changed_ns: int, promoting: bool, functions: tuple[str, ...]) -> types.ModuleType:
    """The file, executed once for all jobs of a process: a class of a state in it must stay one class. Jobs
    that promote have one of their own, since what it casts as it is executed is promoted then.
    """
    del changed_ns, promoting
    return user_code.load(path, functions)


def _changed_ns(path: str) -> int:
    return Path(path).stat().st_mtime_ns if Path(path).is_file() else 0


def _is_wide() -> bool:
    return bool(jax.config.values["jax_enable_x64"])


def _keep_wide(wide: bool, files: PairFiles) -> None:
    """Undoes what a file did to the switch of 64 bits, where a narrower run is asked about in float64.

    Raises:
      RuleError: the run itself computes in float64, and would have been in float32 unseen.
    """
    if not wide or _is_wide():
        return
    if files.computes == "float64":
        raise RuleError(
            "A run in float64 computes in float64 on both sides.",
            f"{files.jax} switches jax_enable_x64 off, and every float64 would be a float32",
            "take that line out, or run with another --precision",
        )
    jax.config.update("jax_enable_x64", True)


def _as_nnx(model: linen.Module, loss: Any, problem: Problem) -> nnx.Module:
    """The linen module in nnx's clothes; linen makes its variables when it first sees a batch."""
    wrapped = bridge.ToNNX(model, rngs=nnx.Rngs(0))
    rows = {name: jnp.asarray(array) for name, array in open_source(problem).rows(0, 0, 1).items()}
    bridge.lazy_init(types.MethodType(lambda self, batch: loss(self, batch), wrapped), rows)
    # Its generator was for the first values. Kept, it would count as state of the model.
    wrapped.to_nnx__rngs = None
    return wrapped


def _follow_parameters(model: nnx.Module, compute: Any) -> None:
    """Embeddings compute in the dtype of their parameters, as all other layers do, and in float64 the first
    carry of a recurrent cell has that dtype too.

    nnx.Embed keeps the dtype that it was built with, whatever profile it is then run under. A cell keeps it
    for its carry, which a loop refuses to begin narrower than it goes on.
    """
    for _, part in nnx.iter_modules(model):
        if isinstance(part, nnx.Embed) and part.dtype == part.param_dtype:
            part.dtype = compute
        if isinstance(part, nnx.RNNCellBase) and compute == _WIDE and _follows_parameters(part):
            part.param_dtype = compute  # type: ignore[attr-defined]


def _follows_parameters(cell: Any) -> bool:
    """Whether a recurrent cell was told no dtype to compute in."""
    return getattr(cell, "dtype", None) is None


def _wide_carries(compute: Any) -> contextlib.AbstractContextManager[Any]:
    """Inside it the same holds for cells of linen's, which a module makes as it is called."""
    return linen.intercept_methods(_begin_wide) if compute == _WIDE else contextlib.nullcontext()


def _begin_wide(call: Any, args: Any, kwargs: Any, context: linen.module.InterceptorContext) -> Any:
    rnn, inputs = context.module, args[0] if args else kwargs.get("inputs")
    if (
        isinstance(rnn, linen.RNN)
        and context.method_name == "__call__"
        and kwargs.get("initial_carry") is None
        and inputs is not None
        and _follows_parameters(rnn.cell)
    ):
        # As linen.RNN does it: the shape of one step, and a key that cells seldom look at.
        shape = list(inputs.shape)
        is_time_major = rnn.time_major if kwargs.get("time_major") is None else kwargs["time_major"]
        shape.pop(0 if is_time_major else len(shape) - 1 - rnn.cell.num_feature_axes)
        key = jax.random.key(0) if kwargs.get("init_key") is None else kwargs["init_key"]
        carry = rnn.cell.initialize_carry(key, tuple(shape))
        kwargs = {**kwargs, "initial_carry": jax.tree.map(lambda part: part.astype(_WIDE), carry)}
    return call(*args, **kwargs)


class _ToNNX(bridge.ToNNX):
    """A linen module in nnx's clothes whose parts' outputs `nnx.capture` sees like those of nnx modules.

    The bridge takes everything on itself for a variable of linen's, what is captured too. So that is held
    back during a call, and linen's own intermediates are put to it after. What a lifted transformation
    (scan, RNN) calls has no output outside of it, and linen leaves it out.
    """

    _INTERMEDIATES = "intermediates"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The linen module's output."""
        if not hasattr(self, "__captures__"):
            return super().__call__(*args, **kwargs)
        captures, module = self.__captures__, self.to_nnx__module
        seen: dict[str, Any] = {}

        def apply(*args: Any, mutable: Any, **kwargs: Any) -> Any:
            asked = union_filters(mutable, self._INTERMEDIATES)
            out, updates = module.apply(*args, mutable=asked, capture_intermediates=True, **kwargs)
            kept = dict(updates)
            seen.update(kept.pop(self._INTERMEDIATES, {}))
            return out if mutable is False else (out, kept)

        del self.__captures__
        self.to_nnx__module = types.SimpleNamespace(apply=apply)
        try:
            out = super().__call__(*args, **kwargs)
        finally:
            self.to_nnx__module, self.__captures__ = module, nnx.data(captures)
        outputs: dict[tuple[str, ...], Any] = flatten_dict(seen)  # type: ignore[assignment]
        for (*path, method), calls in outputs.items():
            # Its own output, which has no path, is captured as any nnx module's.
            for output in calls if path and method == "__call__" else ():
                self.sow(nnx.Intermediate, ".".join((*path, method)), output)
        return out


def _tell_outputs(model: nnx.Module) -> None:
    """Linen modules, the whole model or parts of an nnx one, let their own parts be observed."""
    for _, part in nnx.iter_modules(model):
        if type(part) is bridge.ToNNX:
            part.__class__ = _ToNNX


def _sum_and_count(made: Any, path: str) -> tuple[jax.Array, jax.Array]:
    if not isinstance(made, tuple) or len(made) != 2:
        raise RuleError(
            "loss(model, batch) returns (sum of the losses, how many they are).",
            f"{path}: loss returned {_returned(made)}",
            "return total, count; leave the mean to the step, which divides once for the global batch",
        )
    total, count = made
    if not isinstance(total, jax.Array) or total.size != 1 or not jnp.issubdtype(total.dtype, jnp.floating):
        raise RuleError(
            "The sum of the losses is one floating-point number.",
            f"{path}: loss returned {_words(total)} as the sum",
            "reduce with sum",
        )
    count = jnp.asarray(count)
    if count.size != 1:
        raise RuleError("The count of the losses is one number.", f"{path}: loss returned {_words(count)}")
    return total.reshape(()), count.reshape(())


def _returned(made: Any) -> str:
    if isinstance(made, tuple):
        return f"a tuple of {len(made)}"
    return f"a single array, {_words(made)}" if isinstance(made, jax.Array) else type(made).__name__


def _words(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "shape") else type(value).__name__
