"""Both sides in one process on CPUs: one step from one state on one batch, phase by phase in causal order.

A tensor's distance is RMS(one - other) over RMS(one), where the latter is at least 1e-6 of the RMS of its
phase. Rows whose exact gradient is zero hold rounding alone: among gradients and moments they are measured
against the RMS of the phase, among parameters they are left out, as Adam divides that rounding by its size.
"""

from dataclasses import dataclass

import numpy as np

import jax_impl.observe
import jax_impl.trainer
import torch_impl.observe
import torch_impl.trainer
from spec.edits import Edit
from spec.params import ParamSpec
from spec.run import Execution, Problem
from spec.weights import Tensors

FLOOR = 1e-6
PHASES = ("batch", "init", "act", "loss", "grad", "norm", "clipped", "m", "v", "param")
"""In causal order: what comes later is made from what comes before."""

STATE = ("param", "m", "v")


@dataclass
class Sides:
    """A trainer of each side on one problem; edits go to the JAX side."""

    torch: torch_impl.trainer.Trainer
    jax: jax_impl.trainer.Trainer
    rows: dict[str, ParamSpec]


def make_sides(problem: Problem, edits: tuple[Edit, ...] = ()) -> Sides:
    """Two trainers with the same initial weights."""
    return Sides(
        torch=torch_impl.trainer.Trainer(problem, Execution(), "eager"),
        jax=jax_impl.trainer.Trainer(problem, Execution(), "jit", edits),
        rows={row.name: row for row in problem.parameter_table()},
    )


def step(sides: Sides, number: int) -> dict[str, float]:
    """Makes both sides take step `number` from torch's state; the largest distance of each phase."""
    state = sides.torch.export(STATE) | {"meta/applied": np.array(sides.torch.applied)}
    sides.jax.load(state)
    found: dict[str, tuple[Tensors, Tensors]] = {
        "batch": (sides.torch.feed.rows(number), sides.jax.feed.rows(number)),
        "init": (sides.torch.export(STATE), sides.jax.export(STATE)),
    }
    rows = found["batch"][0]
    found["act"] = (
        torch_impl.observe.activations(sides.torch, rows),
        jax_impl.observe.activations(sides.jax, rows),
    )
    sides.jax.look(rows)
    sides.torch.step(rows)
    sides.jax.step(rows)
    for phase in ("grad", "clipped", "m", "v", "param"):
        found[phase] = (sides.torch.export([phase]), sides.jax.export([phase]))
    metrics = sides.torch.metrics(), sides.jax.metrics()
    found["loss"] = tuple({"loss": np.array(m.loss), "tokens": np.array(m.tokens)} for m in metrics)
    found["norm"] = tuple({"norm": np.array(m.grad_norm)} for m in metrics)
    return {phase: max(distances(*found[phase], sides.rows).values()) for phase in PHASES}


def distances(one: Tensors, other: Tensors, rows: dict[str, ParamSpec]) -> dict[str, float]:
    """The distance of each tensor of a phase; a name that one side lacks is an error."""
    assert one.keys() == other.keys(), sorted(one.keys() ^ other.keys())
    whole = _rms(np.concatenate([np.ravel(array).astype(np.float64) for array in one.values()]))
    found = {}
    for key, array in one.items():
        assert array.shape == other[key].shape, key
        phase, _, name = key.partition("/")
        differences, values = array.astype(np.float64) - other[key], array.astype(np.float64)
        zero_gradient = rows[name].zero_gradient if name in rows else None
        if zero_gradient is not None and phase != "act":
            zero = np.zeros(len(array), bool)
            zero[slice(*zero_gradient)] = True
            found[f"{key}, zero gradient"] = 0.0 if phase == "param" else _rms(differences[zero]) / whole
            differences, values = differences[~zero], values[~zero]
        difference = _rms(differences)
        found[key] = difference / max(_rms(values), FLOOR * whole) if difference else 0.0
    return found


def _rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0


def first_divergence(found: dict[str, float], tolerance: float) -> str | None:
    """The first phase in causal order that is not the same; None where all are."""
    return next((phase for phase in PHASES if found[phase] > tolerance), None)
