"""What a job asks to see of a run: phases of the state at chosen steps, written as tensors by rank 0.

The program that runs is the same whether it is looked at or not: gradients are read from where the step left
them, and activations come from a forward pass of their own, before the step. Must not: change the state.
Counterpart: `jax_impl/observe.py`.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from spec.data.batches import Batch
from spec.data.folder import batch_file
from spec.edits.weights import moved
from spec.job import Job
from spec.weights import Tensors, save_tensors
from torch_impl.trainer import Trainer

INIT = -1
"""The step number of what is observed before the first step."""

OUTPUT = "output"
"""The name of what the model itself returns, among the activations."""


class Observer:
    """Writes `tensors/stepNNNNNN.safetensors` and `tensors/init.safetensors` of one job."""

    def __init__(self, job: Job) -> None:
        self._folder = Path(job.out) / "tensors"
        self._phases: dict[int, list[str]] = {}
        for phase, step in (job.observed_at(entry) for entry in job.observe):
            self._phases.setdefault(step, []).append(phase)
        self._edits = job.edits
        self._activations: Tensors = {}
        self._rows: Batch = {}
        self.activations: list[str] = []
        """Names of the activations that were seen, as they were computed."""

    def write_into(self, folder: Path) -> None:
        """From here on the tensors go into another pass folder."""
        self._folder = folder / "tensors"

    def before(self, trainer: Trainer, step: int, rows: Batch, taken: Batch) -> None:
        """Looks at what is gone after the step: activations at the parameters that it starts from.

        Args:
          rows: in their own order, which activations are written in.
          taken: as the step takes them.
        """
        self._rows = rows
        if "act" in self._phases.get(step, ()) and trainer.ranks.rank == 0:
            self._activations = dict(moved(self._edits, activations(trainer, rows), back=True))
            self.activations = [key.removeprefix("act/") for key in self._activations]

    def after(self, trainer: Trainer, step: int) -> None:
        """Writes what was asked for of this step; to be called at `INIT` too."""
        phases = self._phases.get(step, [])
        if not phases or trainer.ranks.rank:
            return
        tensors = trainer.export(phase for phase in phases if phase not in ("act", "batch", "eval"))
        if "act" in phases:
            tensors |= self._activations
        if "eval" in phases:
            tensors |= evaluation(trainer, self._rows)
        if "batch" in phases:
            tensors |= {f"batch/{k}": values for k, values in trainer.feed.global_rows(step).items()}
        name = self._folder / "init.safetensors" if step == INIT else batch_file(self._folder, step)
        save_tensors(name, tensors)

    def agreement(self) -> str:
        """Whether the observed and the timed program are one in what they compute, in words."""
        return (
            "the same program runs whether it is observed or not: gradients are read from the memory that "
            "the step leaves them in"
        )


@torch.no_grad()
def activations(trainer: Trainer, rows: Batch) -> Tensors:
    """Outputs of every submodule on this rank's rows, keys `act/PATH`, in the dtype of the master weights.

    A submodule that is called again in one pass gets `act/PATH#2`, and so on. Outputs that are no tensors are
    left out. Buffers that the pass changes are put back.
    """
    module, master = trainer.state.module, trainer.problem.profile.master
    seen: Tensors = {}
    calls: dict[str, int] = {}

    def keep(path: str, output: Tensor) -> None:
        calls[path] = calls.get(path, 0) + 1
        key = f"act/{path}" if calls[path] == 1 else f"act/{path}#{calls[path]}"
        seen[key] = output.detach().to("cpu", getattr(torch, master), copy=True).numpy()

    def hook(path: str) -> Callable[[nn.Module, object, object], None]:
        # Copied at once, since a later operation may work in place.
        return lambda _module, _inputs, output: keep(path, output) if isinstance(output, Tensor) else None

    batch = {name: torch.from_numpy(values).to(trainer.ranks.device) for name, values in rows.items()}
    buffers = [buffer.clone() for buffer in module.buffers()]
    handles = [part.register_forward_hook(hook(path or OUTPUT)) for path, part in module.named_modules()]
    devices = [trainer.ranks.device] if trainer.ranks.device.type == "cuda" else []
    try:
        # A model that draws random numbers must draw the same ones in the step that follows.
        with torch.random.fork_rng(devices=devices):
            trainer.side.loss(module, batch)
    finally:
        for handle in handles:
            handle.remove()
        for buffer, saved in zip(module.buffers(), buffers, strict=True):
            buffer.copy_(saved)
    return seen


@torch.no_grad()
def evaluation(trainer: Trainer, rows: Batch) -> Tensors:
    """`eval/loss`, shape (1,): the mean loss of this rank's rows in evaluation mode, by the state as it is.

    Empty for a model without running statistics, which evaluates as it trains.
    """
    module = trainer.state.module
    if not any(getattr(part, "running_var", None) is not None for part in module.modules()):
        return {}
    batch = {name: torch.from_numpy(values).to(trainer.ranks.device) for name, values in rows.items()}
    training = {part: part.training for part in module.modules()}
    module.eval()
    try:
        total, count = trainer.side.loss(module, batch)
    finally:
        for part, was in training.items():
            part.training = was
    mean = (total / count).reshape(1).to("cpu", getattr(torch, trainer.problem.profile.master))
    return {"eval/loss": mean.numpy()}
