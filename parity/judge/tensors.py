"""Every tensor that both sides wrote down, matched by canonical name, compared phase by phase.

Parameters are measured against the distance that Adam can have carried them, since all that the sides do to
them lies within it: against their own size, another decay would drown in the rounding of small biases. Adam
divides by the gradient's own size, so an element whose gradient is nearly zero carries rounding magnified to
any part of that distance; the worst hundredth of the elements is therefore left out of the RMS. What may not
hide there is an element whose gradient is clearly not zero: where the second moments tell so, every single
one is held to a twentieth of the distance.

Rows whose exact gradient is zero are judged apart: what is seen there is rounding, and Adam turns it into a
step of full length. Their gradients and moments are measured against the whole phase, and their parameters
may part by the whole distance.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from parity.judge.align import Measured, TensorFile
from parity.judge.evidence import CAUSAL_ORDER, Evidence
from parity.judge.measures import measure, rms, scale
from parity.judge.tolerances import ADAM_REACH, Tolerance, covered_steps, find, find_own
from parity.report.result import TensorDifference
from spec.edits import constants, device_table
from spec.own_optimizer import OwnOptimizer

_COMPARED = ("grad", "clipped", "m", "v", "param", "buffer", "eval")
_ALL_THE_WAY = Tolerance(rms=ADAM_REACH, worst=ADAM_REACH, reason="as far as Adam can carry rounding")
_SPIKES = 0.01
_CLEAR = 0.01
"""A gradient is clearly not zero where the root of its second moment exceeds this share of the RMS."""
_CLEAR_REACH = 0.05
"""Share of the distance that such an element may part by. In float32, rounding took even unclear ones 0.002
of it; in bfloat16 it turns clear ones too, so there they are not held."""
_HELD = ("f64", "strict")
_ROUNDED_SHARE = 0.01
"""A parameter much larger than that distance is measured against this share of its RMS: storing it rounds."""

_STORED_ROUNDINGS = 4.0
"""Times the square root of the steps; of evenly spread roundings on two sides 0.8 are expected."""


def compare(a: Measured, b: Measured) -> tuple[list[TensorDifference], list[Evidence]]:
    """All tensors of all observed steps, and what of them does not agree."""
    differences: list[TensorDifference] = []
    evidence: list[Evidence] = []
    covered = a.origin + covered_steps(a.job.spec.problem.precision)
    files_a, files_b = a.tensor_files(), b.tensor_files()
    for step in sorted(files_a.keys() | files_b.keys()):
        if step not in files_a or step not in files_b:
            without = a if step not in files_a else b
            if not a.from_equal_bits and step not in without.observed_steps():
                # A run that goes on from a checkpoint looks at other steps than the whole run did.
                continue
            evidence.append(_unmatched(without, step, "param", f"tensors of step {step}"))
            continue
        with TensorFile(files_a[step]) as file_a, TensorFile(files_b[step]) as file_b:
            for phase in _compared_phases(file_a, file_b):
                pair = _Pair(a, b, step, phase, file_a, file_b)
                new = list(pair.differences())
                differences += new
                evidence += [*pair.unmatched(), *(_excess(item, covered) for item in new if not item.ok)]
    return differences, evidence


def _compared_phases(file_a: TensorFile, file_b: TensorFile) -> list[str]:
    present = file_a.phases() | file_b.phases()
    return sorted(present.intersection(_COMPARED), key=CAUSAL_ORDER.index)


@dataclass(frozen=True)
class _Part:
    """A tensor, or some of its rows, and what its difference is measured against."""

    name: str
    rows: np.ndarray
    """Indices of these rows in the whole tensor."""
    a: np.ndarray
    b: np.ndarray
    s: float
    tolerance: Tolerance
    note: str = ""
    astray: np.ndarray | None = None
    """Marks elements of a parameter that parted though their gradients are clearly not zero."""


class _Pair:
    """One phase of one step on both sides."""

    def __init__(
        self, a: Measured, b: Measured, step: int, phase: str, file_a: TensorFile, file_b: TensorFile
    ) -> None:
        self._a, self._b, self._step, self._phase = a, b, step, phase
        self._file_a, self._file_b = file_a, file_b
        self._names_a, self._names_b = set(file_a.names(phase)), set(file_b.names(phase))
        ordered = [*a.parameters, *sorted(self._names_a - a.parameters.keys())]
        if phase in ("grad", "clipped"):
            # A gradient is made from those of the layers after it.
            ordered.reverse()
        self._shared = [
            name
            for name in ordered
            if name in self._names_a & self._names_b
            and file_a.shape(phase, name) == file_b.shape(phase, name)
        ]
        self._group_rms = self._rms_of_phase()
        # An update moves an element by about lr, and two sides in opposite directions.
        self._own = isinstance(a.job.spec.problem.optimizer, OwnOptimizer)
        self._travel = 2 * _rates_until(a, step)
        last = step == a.job.steps - 1 and step > a.origin
        row = find_own if self._own and phase == "param" else find
        self._tolerance = row(a.job.spec.problem.precision, f"last_{phase}" if last else phase)

    def unmatched(self) -> Iterator[Evidence]:
        """Tensors that one side alone wrote down, in this shape. Buffers of one side are constants or
        counters: running statistics without a counterpart were refused before anything ran. A model without
        an evaluation mode of its own is not evaluated."""
        if self._phase in ("buffer", "eval"):
            return
        for name in sorted(self._names_a ^ self._names_b):
            yield _unmatched(self._a if name in self._names_b else self._b, self._step, self._phase, name)
        for name in sorted((self._names_a & self._names_b).difference(self._shared)):
            shape = self._file_a.shape(self._phase, name)
            yield _unmatched(self._b, self._step, self._phase, f"{name} of shape {shape}")

    def differences(self) -> Iterator[TensorDifference]:
        """Every shared tensor in the order in which it is computed."""
        for name in self._shared:
            a, b = self._file_a.read(self._phase, name), self._file_b.read(self._phase, name)
            for part in self._parts(name, a, b):
                yield self._measured(part)

    def _rms_of_phase(self) -> float:
        """RMS over the finite elements of all shared tensors."""
        total, count = 0.0, 0
        for name in self._shared:
            array = self._file_a.read(self._phase, name)
            finite = array[np.isfinite(array)]
            total, count = total + float(np.square(finite).sum()), count + finite.size
        return (total / count) ** 0.5 if count else 0.0

    def _parts(self, name: str, a: np.ndarray, b: np.ndarray) -> Iterator[_Part]:
        row = self._a.parameters.get(name)
        span = row.zero_gradient if row else None
        every = np.arange(len(a) if a.ndim else 1)
        astray = self._astray(name, a, b)
        if span is None:
            yield _Part(name, every, a, b, self._scale(a, b, name), self._tolerance, astray=astray)
            return
        inside = (every >= span[0]) & (every < span[1])
        rest, rest_a, rest_b = every[~inside], a[~inside], b[~inside]
        if astray is not None:
            astray = astray[~inside]
        if rest.size:
            scale_of_rest = self._scale(rest_a, rest_b, name)
            yield _Part(name, rest, rest_a, rest_b, scale_of_rest, self._tolerance, astray=astray)
        s, tolerance, note = self._reach_of_rounding(name)
        yield _Part(f"{name}[{span[0]}:{span[1]}]", every[inside], a[inside], b[inside], s, tolerance, note)

    def _scale(self, a: np.ndarray, b: np.ndarray, name: str) -> float:
        """What a difference of this phase is measured against."""
        s = scale(a, b, self._group_rms)
        if self._phase != "param":
            return s
        if self._own:
            return max(self._stored * s / self._tolerance.rms, self._moved(name))
        return max(_ROUNDED_SHARE * s, self._travel)

    @property
    def _stored(self) -> float:
        """What storing a parameter at every step can part two sides by, as a share of it: a random walk."""
        u = float(np.finfo(self._a.job.spec.problem.profile.master).eps) / 2
        return _STORED_ROUNDINGS * u * (self._step - self._a.origin + 1) ** 0.5

    def _moved(self, name: str) -> float:
        """RMS of how far a parameter went from its first value, on the side where it went farther."""
        moved = [0.0]
        for side, file in ((self._a, self._file_a), (self._b, self._file_b)):
            with TensorFile(side.folder / "tensors" / "init.safetensors") as first:
                moved.append(rms(file.read("param", name) - first.read("param", name)))
        return max(moved)

    def _astray(self, name: str, a: np.ndarray, b: np.ndarray) -> np.ndarray | None:
        """Elements of a parameter that parted though their gradients are clearly not zero on either side."""
        problem = self._a.job.spec.problem
        if (
            self._own
            or self._phase != "param"
            or problem.precision not in _HELD
            or "v" not in self._file_a.phases()
        ):
            return None
        if name not in self._file_a.names("v") or name not in self._file_b.names("v"):
            return None
        v = np.minimum(self._file_a.read("v", name), self._file_b.read("v", name))
        if v.shape != a.shape:
            return None
        stored = 4 * problem.profile.unit_roundoff * np.maximum(np.abs(a), np.abs(b))
        far = np.abs(a - b) > _CLEAR_REACH * self._travel + stored
        return far & (v > np.square(_CLEAR) * np.mean(v))

    def _reach_of_rounding(self, name: str) -> tuple[float, Tolerance, str]:
        """Scale, bound and note for rows whose exact gradient is zero."""
        if self._phase != "param":
            return self._group_rms, self._tolerance, "exact gradient zero: measured against the whole phase"
        travel = self._moved(name) if self._own else self._travel
        return travel, _ALL_THE_WAY, "exact gradient zero: may part by all that Adam can carry it"

    def _measured(self, part: _Part) -> TensorDifference:
        found = measure(part.a, part.b, part.s, _SPIKES if self._phase == "param" else 0.0)
        bound = part.tolerance
        ok = (
            found.rms_rel is not None and found.rms_rel <= bound.rms and (found.max_rel or 0.0) <= bound.worst
        )
        notes = [part.note] if part.note else []
        if part.astray is not None and part.astray.any():
            ok = False
            notes.append(f"{int(part.astray.sum())} elements with clear gradients parted")
        if found.both_not_finite:
            notes.append(f"{found.both_not_finite} elements not finite on both sides alike")
        return TensorDifference(
            step=self._step,
            phase=self._phase,
            tensor=part.name,
            ok=ok,
            rms_rel=found.rms_rel,
            max_rel=found.max_rel,
            max_abs=found.max_abs,
            tolerance_rms=bound.rms,
            tolerance_max=bound.worst,
            worst_index=[int(part.rows[found.index[0]]), *found.index[1:]],
            worst={self._a.label: repr(found.a), self._b.label: repr(found.b)},
            note="; ".join(notes),
        )


def _rates_until(side: Measured, step: int) -> float:
    """Sum of the learning rates since both sides had equal bits; of steps before this pass, by the table."""
    problem, curve = side.job.spec.problem, side.curve
    before = device_table(problem, constants(problem))[side.origin : curve.first_step, 0]
    return float(before.sum() + curve.lr[: step - curve.first_step + 1].sum())


def _excess(item: TensorDifference, covered: int) -> Evidence:
    worst = ", ".join(f"{label} {value}" for label, value in item.worst.items())
    if item.rms_rel is None or item.max_rel is None:
        distance, tolerance, apart = None, None, "not finite on one side only"
    elif item.rms_rel > item.tolerance_rms:
        distance, tolerance = item.rms_rel, item.tolerance_rms
        apart = f"rms rel {distance:.1e}, tol {tolerance:.1e}"
    elif item.max_rel <= item.tolerance_max:
        distance, tolerance, apart = item.max_rel, item.tolerance_max, item.note
    else:
        distance, tolerance = item.max_rel, item.tolerance_max
        apart = f"worst element rel {distance:.1e}, tol {tolerance:.1e}"
    return Evidence(
        step=item.step,
        phase=item.phase,
        tensor=item.tensor,
        covered=item.step < covered,
        index=tuple(item.worst_index),
        values=item.worst,
        difference=distance,
        tolerance=tolerance,
        message=f"{item.phase} of step {item.step}, {item.tensor}{item.worst_index}: {worst} ({apart})",
    )


def _unmatched(without: Measured, step: int, phase: str, name: str) -> Evidence:
    return Evidence(
        step=step,
        phase=phase,
        tensor=name,
        class_="unmatched",
        message=f"{phase} of step {step}: {without.label} wrote no {name}",
    )
