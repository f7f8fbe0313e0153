"""What an optimizer was given and what it made of it: parameters and gradients of every step, in float64.

Everything lies in one row a step, the tensors behind each other in the order of their names, since update
rules act element by element. Must not: know a rule.

Legend: S steps, N elements of all tensors, T tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from parity.judge.align import Measured
from spec.weights import Tensors, load_tensors

PHASES = ("clipped", "param")
"""What a run that is followed writes down of every step: gradients as the optimizer is given them."""

_U64 = 2.0**-53


@dataclass(frozen=True)
class Observed:
    """The steps of one side."""

    names: tuple[str, ...]
    dims: tuple[int, ...]
    """How many dimensions each tensor has."""
    sizes: tuple[int, ...]
    params_SN: np.ndarray
    """(S + 1, N): before each step, and after the last."""
    grads_SN: np.ndarray
    norms_S: np.ndarray
    """2-norm of all gradients of a step."""

    @staticmethod
    def of(params: Sequence[Tensors], grads: Sequence[Tensors]) -> "Observed":
        """From tensors by name: one more of the parameters than of the gradients."""
        names = tuple(sorted(grads[0]))
        rows = [
            np.stack([np.concatenate([step[name].ravel() for name in names]) for step in steps]).astype(float)
            for steps in (params, grads)
        ]
        return Observed(
            names=names,
            dims=tuple(grads[0][name].ndim for name in names),
            sizes=tuple(grads[0][name].size for name in names),
            params_SN=rows[0],
            grads_SN=rows[1],
            norms_S=np.sqrt((rows[1] ** 2).sum(1)),
        )

    @staticmethod
    def read(folder: Path) -> "Observed":
        """From the pass of a run job that observed `PHASES` at every step, and the parameters at first."""
        first = load_tensors(folder / "tensors" / "init.safetensors")
        steps = [load_tensors(path) for _, path in sorted(Measured("", folder).tensor_files().items())]
        grads = [_phase(step, "clipped") for step in steps]
        params = [_phase(step, "param") for step in (first, *steps)]
        # What is trained has a gradient; the rest stays.
        return Observed.of([{name: step[name] for name in grads[0]} for step in params], grads)

    @property
    def num_steps(self) -> int:
        """Updates."""
        return len(self.grads_SN)

    @cached_property
    def updates_SN(self) -> np.ndarray:
        """What each step added to the parameters."""
        return np.diff(self.params_SN, axis=0)

    @cached_property
    def tensor_N(self) -> np.ndarray:
        """The tensor of each element, by its number."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def size_ST(self) -> np.ndarray:
        """RMS of each tensor's update."""
        return self.rms(self.updates_SN)

    @cached_property
    def rounding_ST(self) -> np.ndarray:
        """What rounding the parameters alone leaves of an update's difference: four last bits of them."""
        return 4 * _U64 * np.maximum(self.rms(self.params_SN[1:]), self.rms(self.params_SN[:-1]))

    def rms(self, values_SN: np.ndarray) -> np.ndarray:
        """(S, T): RMS over each tensor."""
        return np.sqrt(self.sums(values_SN**2) / np.array(self.sizes))

    def sums(self, values_SN: np.ndarray) -> np.ndarray:
        """(S, T): sums over each tensor."""
        starts = np.cumsum((0, *self.sizes[:-1]))
        return np.add.reduceat(values_SN, starts, axis=1)

    def thinned(self, most: int) -> "Observed":
        """The same with at most so many elements of each tensor, evenly taken; norms stay those of all."""
        kept, start = [], 0
        for size in self.sizes:
            kept.append(start + np.unique(np.linspace(0, size - 1, min(size, most)).astype(int)))
            start += size
        every = np.concatenate(kept)
        return replace(
            self,
            sizes=tuple(len(part) for part in kept),
            params_SN=self.params_SN[:, every],
            grads_SN=self.grads_SN[:, every],
        )


def _phase(tensors: Tensors, phase: str) -> Tensors:
    prefix = f"{phase}/"
    return {key.removeprefix(prefix): array for key, array in tensors.items() if key.startswith(prefix)}
