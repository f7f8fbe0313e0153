"""Writes lockstep passes out of formulas: one step of AdamW on made-up gradients, in any dtype.

`Sides` holds what the tests change: the values of a side before they are rounded, and of its truth.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from parity.judge.lockstep import Row, compare
from spec import noise, philox, record
from spec.data.folder import batch_file
from spec.job import Job, Perturb
from spec.weights import Tensors, init_parameters, save_tensors
from spec.worker.lockstep import RERUNS
from tests.parity.pass_writer import small_spec

STEPS = (0, 3)
LR = 1e-3
U = 2.0**-24
ZERO_TENSOR, ZERO_ROWS = "blocks.0.attn.qkv.bias", slice(8, 16)
"""Where the exact gradient is zero, as the parameter table says."""
Change = Callable[[int, Tensors], None]
"""(step, tensors in float64 by phase/name) -> nothing; changes them in place."""


@dataclass
class Sides:
    """What both sides compute; every change is made to the torch side, the jax side, or what is named."""

    root: Path
    precision: str = "strict"
    jax: Change = lambda _step, _tensors: None
    """In the profile and in the truth."""
    jax_profile: Change = lambda _step, _tensors: None
    """In the profile alone."""
    both: Change = lambda _step, _tensors: None
    """On both sides, in the profile and in the truth."""
    reruns: int = 4
    losses: dict[str, float] = field(default_factory=dict)
    """Factor on the loss, by pass."""

    def rows(self, truths: bool = True) -> list[Row]:
        """Everything written and compared."""
        folders = {name: self._write(name) for name in ("torch", "jax", "torch_f64", "jax_f64")}
        given = (folders["torch_f64"], folders["jax_f64"]) if truths else ()
        return compare(folders["torch"], folders["jax"], *given)

    def _write(self, name: str) -> Path:
        side, exact = name.partition("_")[0], name.endswith("f64")
        folder, states = self.root / name, self.root / "states"
        spec = small_spec(precision="f64" if exact else self.precision)
        phases = ("act", "grad", "clipped", "m", "v", "param")
        Job(
            side=side,
            purpose="lockstep",
            spec=spec,
            mode=spec.execution.mode(side),
            steps=4,
            out=str(folder),
            state=str(states),
            observe=tuple(f"{phase}@{step}" for phase in phases for step in STEPS),
            perturb=None if exact or not self.reruns else Perturb(reruns=self.reruns, roundoff=U),
        ).write()
        record.write_json(folder / "manifest.json", {"activations": ["wte", "ln_f", "output"]})
        self._write_steps(name, folder, None)
        for rerun in range(0 if exact else self.reruns):
            self._write_steps(name, folder / RERUNS / f"{rerun:02d}", rerun)
        return folder

    def _write_steps(self, name: str, folder: Path, rerun: int | None) -> None:
        side, exact = name.partition("_")[0], name.endswith("f64")
        table = small_spec().problem.parameter_table()
        state = {f"param/{key}": array for key, array in init_parameters(table, 0).items()}
        with record.Lines(folder / "steps.rank0.jsonl") as lines:
            for step in STEPS:
                save_tensors(batch_file(self.root / "states", step), state | {"meta/applied": np.array(step)})
                found = step_of(state if rerun is None else noise.moved(state, rerun, U), step)
                self.both(step, found)
                if side == "jax":
                    self.jax(step, found)
                    if not exact:
                        self.jax_profile(step, found)
                if not exact:
                    found = {
                        key: _rounded(array, f"{name}{rerun}{step}{key}") for key, array in found.items()
                    }
                save_tensors(batch_file(folder / "tensors", step), found)
                lines.write(_line(step, 5.0 * self.losses.get(name, 1.0)))


def step_of(state: Tensors, step: int) -> Tensors:
    """Activations, gradients and one update in float64; gradients depend smoothly on the parameters."""
    found: Tensors = {}
    for name in ("wte", "ln_f", "output"):
        found[f"act/{name}"] = philox.normals(philox.key(step, name), (4, 8, 8), 1.0).astype(np.float64)
    for key, array in state.items():
        name, param = key.removeprefix("param/"), array.astype(np.float64)
        slope = philox.normals(philox.key(step, "slope", name), param.shape, 0.1).astype(np.float64)
        grad = 0.01 * slope * (1 + param)
        if name == ZERO_TENSOR:
            grad[ZERO_ROWS] = 0
        m, v = 0.1 * grad / 2, 0.05 * (grad / 2) ** 2
        update = LR * (m / 0.1) / (np.sqrt(v / 0.05) + 1e-8)
        values = {"grad": grad, "clipped": grad / 2, "m": m, "v": v, "param": param - update}
        found |= {f"{phase}/{name}": value for phase, value in values.items()}
    return found


def _rounded(array: np.ndarray, label: str) -> np.ndarray:
    """In float32, a last bit up or down, as another order of sums gives."""
    x = (philox.bits_u64(philox.key(0, label), array.size) >> np.uint64(11)) * 2.0**-52 - 1
    return (array * (1 + U * x.reshape(array.shape))).astype(np.float32)


def _line(step: int, loss: float) -> dict[str, object]:
    return {
        "step": step,
        **record.float_fields("loss", loss),
        **record.float_fields("grad_norm", 2.0),
        **record.float_fields("lr", LR),
        "skipped": 0,
        "tokens": 64,
        "batch_digest": "0" * 16,
    }
