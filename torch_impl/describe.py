"""Describes a user's model: its tensors, and its loss and gradients on the first rows, without training it.

What is wrong with the user's file shows here, before anything is timed or compared. Must not: take a step.
Counterpart: `jax_impl/describe.py`.
"""

import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from spec import codec, record
from spec.data.batches import open_source
from spec.description import DESCRIPTION, PROBE_ROWS, VALUES, Described, Description
from spec.job import Job
from spec.pairs import user_code
from spec.pairs.probe import probe_values
from spec.pairs.updates import OPTIMIZER_UPDATES, UPDATES, save_updates
from spec.state import of_phase
from spec.weights import Tensors, save_tensors
from torch_impl import runtime, state
from torch_impl.memory import Arena
from torch_impl.models.pair import load_side
from torch_impl.over_one import OverOne
from torch_impl.own_optimizer import updates
from torch_impl.parallel import Ranks


def describe(job: Job, ranks: Ranks) -> None:
    """Writes `description.json` and `values.safetensors` into the pass folder, and `updates.safetensors` of
    an optimizer that the side brings.

    Raises:
      RuleError: the user's file cannot be used as it is; file and line are named.
    """
    problem, files = job.spec.problem, job.spec.pair
    assert files is not None
    runtime.configure(problem, job.spec.execution)
    side = load_side(files, problem)
    user_code.try_logged_lr(side.logged_lr, problem.steps)
    arena = Arena(side.build(), (), problem.profile, ranks.device)
    initial = _bare(state.export(arena, ["param"]))
    before = _bare(state.export(arena, ["buffer"]))
    probe = probe_values(initial)
    state.load(arena, {f"param/{name}": array for name, array in probe.items()})
    rows = open_source(problem, job.batches).rows(0, 0, min(PROBE_ROWS, problem.global_batch))
    batch = {name: torch.from_numpy(array).to(ranks.device) for name, array in rows.items()}
    seen = OverOne()
    with user_code.told(files.torch, "The torch side's loss and its gradients can be computed."), seen:
        total, count = side.loss(arena.module, batch)
        grads = torch.autograd.grad(total, arena.trainable, materialize_grads=True)
    after = _bare(state.export(arena, ["buffer"]))
    names = [slot.row.name for slot in arena.slots if slot.trainable]
    values = {
        **_keyed("param", initial),
        **_keyed("buffer", before),
        **_keyed("after", after),
        **_keyed("probe", probe),
        **{f"grad/{name}": _host(grad) for name, grad in zip(names, grads, strict=True)},
    }
    save_tensors(Path(job.out) / VALUES, values)
    if side.optimizer is not None:
        make, asked = side.optimizer, of_phase(values, "grad")
        with user_code.told(files.torch, OPTIMIZER_UPDATES):
            save_updates(
                Path(job.out) / UPDATES, probe, asked, lambda gradients: updates(make, arena, gradients)
            )
    description = Description(
        side="torch",
        parameters=_parameters(arena, initial),
        buffers=_buffers(arena, before, after),
        ties=tuple(tuple(group) for group in arena.ties),
        loss_sum=loss_sum if math.isfinite(loss_sum := float(total.detach())) else None,
        loss_dtype=str(total.dtype).removeprefix("torch."),
        count=float(count.detach()),
        precision=problem.precision,
        over_one=seen.found(array.shape for array in rows.values()),
    )
    record.write_json(Path(job.out) / DESCRIPTION, codec.to_dict(description))


def _parameters(arena: Arena, initial: Tensors) -> tuple[Described, ...]:
    return tuple(
        Described(
            name=row["name"],
            path=row["name"],
            shape=tuple(row["shape"]),
            dtype=row["dtype"],
            owner=_owner(arena.module, row["name"]),
            trainable=row["trainable"],
            decayed=row["decayed"],
            mean=float(initial[row["name"]].mean(dtype=np.float64)),
            std=float(initial[row["name"]].std(dtype=np.float64)),
        )
        for row in arena.describe()
    )


def _buffers(arena: Arena, before: Tensors, after: Tensors) -> tuple[Described, ...]:
    return tuple(
        Described(
            name=name,
            path=name,
            shape=array.shape,
            dtype=array.dtype.name,
            owner=_owner(arena.module, name),
            trainable=False,
            mean=float(np.mean(array, dtype=np.float64)) if array.size else 0.0,
            std=float(np.std(array, dtype=np.float64)) if array.size else 0.0,
            changes=array.tobytes() != after[name].tobytes(),
        )
        for name, array in before.items()
    )


def _owner(module: nn.Module, name: str) -> str:
    return type(module.get_submodule(name.rpartition(".")[0])).__name__


def _host(tensor: Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", copy=True).numpy()


def _keyed(phase: str, tensors: Tensors) -> Tensors:
    return {f"{phase}/{name}": array for name, array in tensors.items()}


def _bare(tensors: Tensors) -> Tensors:
    return {key.partition("/")[2]: array for key, array in tensors.items()}
