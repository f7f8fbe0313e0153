"""Promotion: a user's code computed in float64 throughout, whatever narrower type it casts to.

A float64 truth is none where the code says `.float()`. Inside a `Promotion` casts to narrower types, and
tensors made in them, become float64, and what is narrow all the same is widened before it is computed with.
Which operations were promoted is noted with the line that called them, and so is what stayed narrow. Must
not: change what is computed otherwise. Counterpart: `jax_impl/promote.py`.
"""

import contextlib
from collections.abc import Generator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from spec import callers
from spec.precision import narrower

NARROW = (torch.float32, torch.bfloat16, torch.float16)
_NOT_USERS = callers.folders(torch)


class Promotion(TorchDispatchMode):
    """Computes in float64 inside a `with`, and notes what it changed."""

    def __init__(self) -> None:
        super().__init__()
        self.promoted: dict[str, int] = {}
        """Calls by `file:line operation dtype` that asked for a narrower type."""
        self.left: dict[str, int] = {}
        """Calls by `file:line operation dtype` whose result is narrow all the same."""

        self._narrowest: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation, in float64."""
        kwargs = kwargs or {}
        changed = func._schema.is_mutable
        if not changed:
            args, kwargs = tree_map(_wide, args), tree_map(_wide, kwargs)
        asked = [value for value in tree_leaves((args, kwargs)) if _is_dtype(value) and value in NARROW]
        if asked:
            args, kwargs = tree_map(_wide_dtype, args), tree_map(_wide_dtype, kwargs)
        result = func(*args, **kwargs)
        made = tree_leaves(result)
        if asked and any(isinstance(leaf, torch.Tensor) for leaf in made):
            self._note(self.promoted, func, asked[0])
        narrow = [leaf for leaf in made if _is_narrow(leaf)]
        if narrow and not changed:
            self._note(self.left, func, narrow[0].dtype)
        return result

    def record(self) -> dict[str, Any]:
        """For the manifest."""
        return {"promoted": self.promoted, "left": self.left, "narrowest": self._narrowest}

    def _note(self, where: dict[str, int], func: Any, dtype: torch.dtype) -> None:
        name = str(dtype).removeprefix("torch.")
        self._narrowest = narrower(self._narrowest, name)
        key = f"{callers.line(_NOT_USERS)} {func} {name}"
        where[key] = where.get(key, 0) + 1


@contextlib.contextmanager
def promoting(wanted: bool) -> Generator[Promotion | None]:
    """A promotion for all that is computed inside, where one is wanted."""
    if not wanted:
        yield None
        return
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with Promotion() as promotion:
            yield promotion
    finally:
        torch.set_default_dtype(default)


def _is_dtype(value: Any) -> bool:
    return isinstance(value, torch.dtype)


def _is_narrow(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in NARROW


def _wide(value: Any) -> Any:
    return value.to(torch.float64) if _is_narrow(value) else value


def _wide_dtype(value: Any) -> Any:
    return torch.float64 if _is_dtype(value) and value in NARROW else value
