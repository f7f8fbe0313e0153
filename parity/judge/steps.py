"""Reads a lockstep pass: for each step its numbers, its tensors, the state that it started from, its reruns.

Parameters are read as updates, after less before: both sides start a step from the same ones, so the update
is all that a step does to them. Must not: compare.
"""

import contextlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from parity.judge.align import Measured, TensorFile
from spec import noise, record
from spec.data.folder import batch_file
from spec.weights import load_tensors
from spec.worker.lockstep import RERUNS

SCALARS = ("loss", "grad_norm", "lr")


class Steps:
    """One lockstep pass, or one rerun of it; closes its files with `with`.

    Args:
      rerun: its number, or None for the steps without noise.
    """

    def __init__(self, measured: Measured, rerun: int | None = None) -> None:
        self.measured, self._rerun = measured, rerun
        self._folder = measured.folder if rerun is None else measured.folder / RERUNS / f"{rerun:02d}"
        self._files: dict[int, TensorFile] = {}
        self._opened = contextlib.ExitStack()

    def __enter__(self) -> "Steps":
        for number in self.numbers:
            path = batch_file(self._folder / "tensors", number)
            if path.exists():
                self._files[number] = self._opened.enter_context(TensorFile(path))
        return self

    def __exit__(self, *exc: object) -> None:
        self._opened.close()

    @property
    def label(self) -> str:
        """How the report names the side."""
        return self.measured.label

    @cached_property
    def _lines(self) -> dict[int, list[dict[str, Any]]]:
        """The lines of all ranks, by step."""
        job = self.measured.job
        processes = job.spec.execution.processes(job.side)
        found = [record.read_lines(self._folder / f"steps.rank{rank}.jsonl") for rank in range(processes)]
        return {lines[0]["step"]: list(lines) for lines in zip(*found, strict=False)}

    @property
    def numbers(self) -> list[int]:
        """The steps, in order."""
        return sorted(self._lines)

    def scalar(self, step: int, name: str) -> float:
        """Loss, gradient norm or learning rate, exact."""
        return record.from_bits(self._lines[step][0][f"{name}_bits"])

    def tokens(self, step: int) -> int:
        """Losses counted over all ranks."""
        return sum(line["tokens"] for line in self._lines[step])

    def skipped(self, step: int) -> int:
        """Updates refused by the end of the step."""
        return int(self._lines[step][0]["skipped"])

    def phases(self, step: int) -> set[str]:
        """The phases that were written of a step."""
        return self._files[step].phases() if step in self._files else set()

    def names(self, step: int, phase: str) -> list[str]:
        """The tensors of a phase."""
        return self._files[step].names(phase) if step in self._files else []

    def shape(self, step: int, phase: str, name: str) -> tuple[int, ...]:
        """The shape of one tensor, without reading it."""
        return self._files[step].shape(phase, name)

    def read(self, step: int, phase: str, name: str) -> np.ndarray:
        """One tensor in float64; of a parameter, its update."""
        array = self._files[step].read(phase, name)
        return array - self.before(step, name) if phase == "param" else array

    def before(self, step: int, name: str) -> np.ndarray:
        """A parameter as the step found it, in float64."""
        key = f"param/{name}"
        state = load_tensors(batch_file(str(self.measured.job.state), step), [key])
        if self._rerun is not None:
            perturb = self.measured.job.perturb
            assert perturb is not None
            state = noise.moved(state, self._rerun, perturb.roundoff)
        return state[key].astype(np.float64)

    @property
    def narrowest_cast(self) -> str | None:
        """The narrowest dtype that a promoted pass was asked for; None where it was asked for none."""
        return (self.measured.manifest.get("promotion") or {}).get("narrowest")

    def activation_order(self) -> list[str]:
        """Names of the activations in the order in which they were computed; empty where it was not noted."""
        return self.measured.manifest.get("activations", [])


def reruns(measured: Measured) -> Iterator[Steps]:
    """The reruns of a pass, not yet opened."""
    for folder in sorted(Path(measured.folder / RERUNS).glob("*")):
        yield Steps(measured, int(folder.name))
