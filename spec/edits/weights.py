"""Edits of the order in which a model's tensors hold their elements: transposed, split or laid out otherwise.

They act between canonical tensors and what a side's model is given, on the way in, and are undone on the way
out, so that every phase is compared under its canonical name and layout. No element is computed with.

Legend: H heads, D their size, C inputs.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from spec.edits.kinds import Edit
from spec.errors import RuleError

_MOVED = ("param", "m", "v", "grad", "clipped")
_QUERY = ("q", "wq", "query", "q_proj", "to_q")
_KEY = ("k", "wk", "key", "k_proj", "to_k")
_FUSED = ("qkv", "c_attn", "in_proj_weight", "in_proj_bias", "query_key_value")
NAMES = ("transpose", "qkv_split", "rope_layout")
"""The kinds of edits that are made here."""


def moved(
    edits: Iterable[Edit], tensors: Mapping[str, np.ndarray], *, back: bool = False
) -> Mapping[str, np.ndarray]:
    """The tensors, keys `phase/name`, as the edited model holds them; `back` gives canonical ones again.

    Raises:
      RuleError: an edit does not fit the tensors.
    """
    chosen = [edit for edit in edits if edit.name in NAMES]
    if not chosen:
        return tensors
    result = dict(tensors)
    for edit in reversed(chosen) if back else chosen:
        for key, array in result.items():
            phase, _, name = key.partition("/")
            if phase in _MOVED:
                result[key] = _moved(edit, name, array, back)
            elif phase == "act" and back:
                result[key] = _output(edit, name.partition("#")[0], array)
    return result


def fits(edit: Edit, name: str, shape: tuple[int, ...]) -> bool:
    """Whether an edit moves elements of a tensor of this name and shape."""
    value, rows = abs(int(edit.value)), shape[0] if shape else 0
    if edit.name == "transpose":
        return name == edit.target and len(shape) == 2 and shape[0] == shape[1] and value == 1
    kind = _kind(name)
    if edit.name == "qkv_split":
        return kind == "fused" and value > 1 and rows % (3 * value) == 0
    parts = 3 if kind == "fused" else 1
    return kind != "" and value > 2 and value % 2 == 0 and rows % (parts * value) == 0


def _moved(edit: Edit, name: str, array: np.ndarray, back: bool) -> np.ndarray:
    if edit.name == "transpose" and name == edit.target and not fits(edit, name, array.shape):
        raise RuleError("Only a square matrix is transposed unseen.", f"{name} is {array.shape}")
    if not fits(edit, name, array.shape):
        return array
    if edit.name == "transpose":
        return np.ascontiguousarray(array.T)
    order = _order(edit, name, array.shape[0])
    if back:
        order = np.argsort(order)
    return np.ascontiguousarray(array[order])


def _output(edit: Edit, path: str, array: np.ndarray) -> np.ndarray:
    """The output of a projection whose rows were moved, its last axis in canonical order again."""
    last = path.rpartition(".")[2]
    if edit.name == "transpose" or not fits(edit, last, array.shape[-1:]):
        return array
    return np.ascontiguousarray(array[..., np.argsort(_order(edit, last, array.shape[-1]))])


def _order(edit: Edit, name: str, rows: int) -> np.ndarray:
    """Which row comes where."""
    every, value = np.arange(rows), int(edit.value)
    if edit.name == "qkv_split":
        # (3, H, D), thirds, becomes (H, 3, D), a query, key and value of each head together.
        order = every.reshape(3, abs(value), -1).swapaxes(0, 1).reshape(-1)
    else:
        thirds = every.reshape(3, -1) if _kind(name) == "fused" else every.reshape(1, -1)
        # The two halves of a head become its even and odd rows.
        turned = [part.reshape(-1, 2, abs(value) // 2).swapaxes(1, 2).reshape(-1) for part in thirds[:2]]
        order = np.concatenate([*turned, *thirds[2:]])
    return order if value > 0 else np.argsort(order)


def _kind(name: str) -> str:
    """`q`, `k` or `fused`, by the names that people give these projections; empty for any other tensor."""
    words = name.lower().split(".")
    for kind, known in (("q", _QUERY), ("k", _KEY), ("fused", _FUSED)):
        if any(word in known for word in words):
            return kind
    return ""
