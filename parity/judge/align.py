"""Reads the pass folder of a run job: its curve over all ranks, its tensors by phase, step and name.

Must not: compare. Tensors are read one by one when asked for, so that a large model fits in memory.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes  # noqa: F401 - gives NumPy, and safetensors through it, the bfloat16 dtype
import numpy as np
from safetensors import SafetensorError, safe_open

from parity.folders import read_json
from spec import record
from spec.data.digest import add_digests
from spec.errors import RuleError
from spec.job import Job, read_job
from spec.params import ParamSpec

_STEP_FILE = re.compile(r"step(\d+)\.safetensors")


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One value a step, of all ranks together."""

    first_step: int
    """The step of the first value."""
    loss: np.ndarray
    """float64, exact to the bit."""
    grad_norm: np.ndarray
    lr: np.ndarray
    skipped: list[int]
    """Updates skipped so far."""
    tokens: list[int]
    """Labels that carry loss, over all ranks."""
    batch_digests: list[str]
    """Of the global batch."""
    logged_lr: list[float | None]
    """What the user's own loop logs as the learning rate, where a side tells it."""

    @property
    def num_steps(self) -> int:
        """Steps that every rank wrote down."""
        return len(self.loss)

    @property
    def stop(self) -> int:
        """The step after the last."""
        return self.first_step + self.num_steps

    def part(self, start: int, stop: int) -> "Curve":
        """Its steps within [start, stop)."""
        cut = slice(max(0, start - self.first_step), max(0, stop - self.first_step))
        values = {name: getattr(self, name)[cut] for name in _VALUES}
        return Curve(first_step=max(start, self.first_step), **values)


_VALUES = tuple(item.name for item in fields(Curve) if item.name != "first_step")


def joined(parts: Sequence[Curve]) -> Curve:
    """Stretches of one run, one behind the other."""
    values: dict[str, Any] = {"first_step": parts[0].first_step}
    for name in _VALUES:
        pieces = [getattr(part, name) for part in parts]
        whole = np.concatenate(pieces) if isinstance(pieces[0], np.ndarray) else list(chain(*pieces))
        values[name] = whole
    return Curve(**values)


@dataclass(frozen=True)
class Measured:
    """What one side wrote in one pass."""

    label: str
    """How the report names it."""
    folder: Path
    since: int = 0
    """Steps before it are left out: what this is judged against has none of them."""
    origin: int = 0
    """The step at which both had equal bits: from there on, rounding adds up."""

    @cached_property
    def job(self) -> Job:
        """What it was asked."""
        return read_job(self.folder / "job.json")

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """What it said of itself."""
        return read_json(self.folder / "manifest.json")

    @cached_property
    def curve(self) -> Curve:
        """Its steps; fewer than asked for where it was ended early."""
        return self.whole_curve.part(self.since, self.whole_curve.stop)

    @cached_property
    def whole_curve(self) -> Curve:
        """Its steps, those before `since` too."""
        return read_curve(self.folder, self.job.spec.execution.processes(self.job.side))

    @cached_property
    def end_digests(self) -> dict[int, dict[str, Any]]:
        """The hashes of the last state, by rank."""
        return {
            int(path.name.split(".")[1].removeprefix("rank")): read_json(path)
            for path in sorted(self.folder.glob("digest.rank*.json"))
        }

    @cached_property
    def parameters(self) -> dict[str, ParamSpec]:
        """The parameter table of the problem, by name."""
        return {parameter.name: parameter for parameter in self.job.spec.problem.parameter_table()}

    @property
    def finished(self) -> bool:
        """Whether the job ended well."""
        return (self.folder / "done.json").exists()

    @property
    def from_equal_bits(self) -> bool:
        """Whether the first step compared starts from equal bits on both sides."""
        return self.since == self.origin

    def observed_steps(self) -> set[int]:
        """The steps that it was asked to write tensors of."""
        return {self.job.observed_at(entry)[1] for entry in self.job.observe}

    def tensor_files(self) -> dict[int, Path]:
        """The file of each step that was observed, from `since` on."""
        found = ((path, _STEP_FILE.fullmatch(path.name)) for path in (self.folder / "tensors").glob("step*"))
        steps = {int(match.group(1)): path for path, match in found if match}
        return {step: path for step, path in steps.items() if step >= self.since}


Side = TypeVar("Side", bound=Measured)
Other = TypeVar("Other", bound=Measured)


def aligned(a: Side, b: Other) -> tuple[Side, Other]:
    """Both from the first step that they share, which one that goes on from a checkpoint begins with."""
    since = max(a.whole_curve.first_step, b.whole_curve.first_step)
    origin = since if a.job.resume == b.job.resume else 0
    return replace(a, since=since, origin=origin), replace(b, since=since, origin=origin)


class TensorFile:
    """One file of tensors, read by phase and name; closed with `with`."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = safe_open(path, framework="np")
            self._keys = list(self._file.keys())
        except (SafetensorError, OSError) as error:
            raise RuleError(
                "A tensor file of a run is whole.", f"{path}: {error}", "make the run again"
            ) from None

    def __enter__(self) -> "TensorFile":
        self._file.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.__exit__(*exc)

    def names(self, phase: str) -> list[str]:
        """The tensors of a phase."""
        prefix = f"{phase}/"
        return [key.removeprefix(prefix) for key in self._keys if key.startswith(prefix)]

    def phases(self) -> set[str]:
        """The phases in this file."""
        return {key.partition("/")[0] for key in self._keys}

    def shape(self, phase: str, name: str) -> tuple[int, ...]:
        """The shape of one tensor, without reading it."""
        return tuple(self._file.get_slice(f"{phase}/{name}").get_shape())

    def read(self, phase: str, name: str) -> np.ndarray:
        """One tensor in float64."""
        return self._file.get_tensor(f"{phase}/{name}").astype(np.float64)


def read_curve(folder: Path, processes: int) -> Curve:
    """The steps that all processes wrote, losses from rank 0, tokens and batch digests summed over them.

    Raises:
      RuleError: a rank wrote no steps file.
    """
    ranks = [list(_rank_steps(folder, rank)) for rank in range(processes)]
    steps = list(zip(*ranks, strict=False))

    def exact(name: str) -> np.ndarray:
        return np.array([record.from_bits(step[0][f"{name}_bits"]) for step in steps], np.float64)

    return Curve(
        first_step=steps[0][0]["step"] if steps else 0,
        loss=exact("loss"),
        grad_norm=exact("grad_norm"),
        lr=exact("lr"),
        skipped=[step[0]["skipped"] for step in steps],
        tokens=[sum(rank["tokens"] for rank in step) for step in steps],
        batch_digests=[add_digests(rank["batch_digest"] for rank in step) for step in steps],
        logged_lr=[_logged(step[0]) for step in steps],
    )


def _logged(line: dict[str, Any]) -> float | None:
    return record.from_bits(line["logged_lr_bits"]) if "logged_lr_bits" in line else None


def _rank_steps(folder: Path, rank: int) -> Iterator[dict[str, Any]]:
    path = folder / f"steps.rank{rank}.jsonl"
    if not path.exists():
        raise RuleError("Every rank writes its steps.", f"{path}: no such file", "make the run again")
    return record.read_lines(path)
