"""Reads `pair.py` and writes its batches down once, so that both sides read the same bytes.

Floating-point arrays are written as float32, whatever they come in; integers and booleans as they are.
Must not: run in a process that has a framework, or that goes on to do something else.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from spec.data.folder import batch_file
from spec.data.rows import Batch
from spec.errors import RuleError
from spec.job import PREPARED_BATCHES
from spec.pairs import user_code
from spec.pairs.pair import FILE, Pair
from spec.weights import save_tensors

_NUMBERS = "A batch's arrays hold numbers or booleans, rows first."
_RECTANGULAR = (
    "give every row as many numbers, padded where they differ, such as np.asarray(rows, np.float32)"
)


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What the referee must know of a pair before anything is written."""

    folder: str
    pair: Pair
    rows: int
    """Of one global batch."""
    arrays: dict[str, str]
    """Dtype and shape of each array of a batch, in words."""


def outline(folder: Path) -> Outline:
    """Reads a pair and tries its first batch.

    Raises:
      RuleError: the file, the pair in it or its batches break a rule; see `read` and `one_batch`.
    """
    path = folder.absolute() / FILE
    module = read(path)
    batch = one_batch(module, path, 0)
    _refuse_change(batch, one_batch(module, path, 0), path, 0)
    return Outline(
        folder=str(folder.absolute()),
        pair=module.pair,
        rows=len(next(iter(batch.values()))),
        arrays={name: f"{array.dtype} {list(array.shape)}" for name, array in batch.items()},
    )


def write(folder: Path, out: Path, steps: int) -> None:
    """Writes the batches of steps [0, max(steps, PREPARED_BATCHES)) to `out`, one file each."""
    path = folder.absolute() / FILE
    module = read(path)
    first = one_batch(module, path, 0)
    for step in range(max(steps, PREPARED_BATCHES)):
        batch = one_batch(module, path, step)
        _refuse_other_arrays(first, batch, path, step)
        save_tensors(batch_file(out, step), {f"batch/{name}": array for name, array in batch.items()})
    # Asked again after all others: a generator that is drawn from at every call gives something else.
    _refuse_change(first, one_batch(module, path, 0), path, 0)


def read(path: Path) -> ModuleType:
    """The module of `pair.py`.

    Raises:
      RuleError: it cannot be imported, imports a framework, or holds no `pair` or no `batches`.
    """
    module = user_code.load(path, ["batches"])
    loaded = sorted({"torch", "jax"} & sys.modules.keys())
    if loaded:
        raise RuleError(
            "pair.py is neutral: it imports neither framework.",
            f"{path} loads {', '.join(loaded)}",
            "make batches with NumPy; models belong to the sides' files",
        )
    if not isinstance(getattr(module, "pair", None), Pair):
        raise RuleError(
            "pair.py holds a Pair.", f"{path}: no pair = Pair(...)", "from spec.pairs import Pair"
        )
    for file in (module.pair.torch, module.pair.jax):
        if not (path.parent / file).is_file():
            raise RuleError(
                "A pair's files exist.", f"{path.parent / file}: no such file", f"name it in {path}"
            )
    return module


def one_batch(module: ModuleType, path: Path, step: int) -> Batch:
    """The batch of a step, checked.

    Raises:
      RuleError: it is not a dictionary of arrays with rows first, or holds what no side can read.
    """
    batches: Callable[[int], object] = module.batches
    with user_code.told(path, f"batches({step}) returns a batch."):
        made = batches(step)
    if not isinstance(made, dict) or not made:
        words = "an empty dictionary" if isinstance(made, dict) else type(made).__name__
        raise RuleError(
            "A batch is a dictionary of NumPy arrays by name.",
            f"{path}: batches({step}) is {words}",
            'return {"x": x, "y": y}',
        )
    batch = {str(name): _array(value, f"{path}: {name} of batches({step})") for name, value in made.items()}
    rows = {name: array.shape[0] for name, array in batch.items()}
    if len(set(rows.values())) > 1 or not min(rows.values()):
        raise RuleError(
            "All arrays of a batch have rows first, as many each, at least one.",
            f"{path}: rows {rows} in batches({step})",
            "what is no array of rows belongs to the model",
        )
    return batch


def _array(value: object, where: str) -> np.ndarray:
    if not isinstance(value, np.ndarray | np.generic | int | float | list):
        raise RuleError(
            "A batch holds NumPy arrays.",
            f"{where} is {type(value).__name__}",
            "make it one: np.asarray(...)",
        )
    try:
        array = np.asarray(value)
    except ValueError as error:
        # A list of rows of different lengths.
        raise RuleError(_NUMBERS, f"{where}: {error}", _RECTANGULAR) from None
    if array.ndim == 0 or array.dtype.kind not in "fiub":
        raise RuleError(_NUMBERS, f"{where} is {array.dtype} {array.shape}", _RECTANGULAR)
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, np.float32)
    if (
        array.dtype.itemsize == 8
        and array.size
        and max(abs(int(array.min())), abs(int(array.max()))) >= 2**31
    ):
        raise RuleError(
            "Integers of a batch fit into 32 bits, which is what JAX has.",
            f"{where} is from {array.min()} to {array.max()}",
            "number them anew, or make floating-point numbers of them",
        )
    return np.ascontiguousarray(array)


def _refuse_other_arrays(first: Batch, batch: Batch, path: Path, step: int) -> None:
    def described(one: Batch) -> dict[str, tuple[str, tuple[int, ...]]]:
        return {name: (str(array.dtype), array.shape) for name, array in one.items()}

    if described(first) != described(batch):
        raise RuleError(
            "Every batch has the names, shapes and dtypes of the first.",
            f"{path}: batches({step}) {described(batch)}, batches(0) {described(first)}",
            "pad the rows",
        )


def _refuse_change(first: Batch, again: Batch, path: Path, step: int) -> None:
    _refuse_other_arrays(first, again, path, step)
    for name, array in first.items():
        if array.tobytes() != again[name].tobytes():
            differing = np.argwhere(array != again[name])
            place = differing[0].tolist() if len(differing) else "a NaN"
            raise RuleError(
                "batches(step) is a function of the step: asked twice, it gives the same bytes.",
                f"{path}: {name}{place} of batches({step}) changed from one call to the next",
                "make the generator inside, seeded by the step: np.random.default_rng([seed, step])",
            )
