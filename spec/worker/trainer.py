"""What a worker's records need of a side's trainer. Must not: be more than they need."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from spec.checkpoint import Checkpoint, Position
from spec.data.batches import Batch
from spec.weights import Tensors


class Metrics(Protocol):
    """What one step reports; all but `tokens` are of the global batch."""

    @property
    def loss(self) -> float:
        """Of the mean over the global batch's tokens."""
        ...

    @property
    def grad_norm(self) -> float:
        """Before clipping."""
        ...

    @property
    def lr(self) -> float:
        """The learning rate of the update."""
        ...

    @property
    def skipped(self) -> int:
        """Updates refused so far."""
        ...

    @property
    def tokens(self) -> int:
        """Losses counted in this rank's rows."""
        ...


class Compiled(Protocol):
    """What the step became."""

    @property
    def mode_ran(self) -> str:
        """The mode that really runs."""
        ...

    @property
    def compile_s(self) -> float | None:
        """Seconds of compiling."""
        ...

    @property
    def reasons(self) -> dict[str, str]:
        """Why a figure is null, by figure."""
        ...

    @property
    def options(self) -> dict[str, Any]:
        """What the compiler was told."""
        ...

    @property
    def proven(self) -> dict[str, Any] | None:
        """What was found in the one program that makes a step."""
        ...


class Ranks(Protocol):
    """This process among all processes of the run."""

    @property
    def rank(self) -> int:
        """Its number."""
        ...


class Feed(Protocol):
    """This rank's rows."""

    def rows(self, step: int) -> Batch:
        """Those of a step."""
        ...

    def digest(self, rows: Batch) -> str:
        """Their hash."""
        ...


class Observer(Protocol):
    """What looks at the steps; see `observe.py` of each side."""

    activations: list[str]
    """Names of the activations that were written last."""

    def agreement(self) -> str:
        """Whether the observed and the timed program are one, in words."""
        ...

    def write_into(self, folder: Path) -> None:
        """Where the next tensors go."""
        ...

    def before(self, trainer: Any, step: int, rows: Batch, taken: Batch) -> None:
        """Looks at what is gone after the step."""
        ...

    def after(self, trainer: Any, step: int) -> None:
        """Writes what was asked for of the step."""
        ...


class Promotion(Protocol):
    """What was computed in float64 that a user's code narrows; see `promote.py` of each side."""

    def record(self) -> dict[str, Any]:
        """For the manifest."""
        ...


class Side(Protocol):
    """The model and what stands beside it; see `models/` of each side."""

    @property
    def logged_lr(self) -> Callable[[int], float] | None:
        """Step -> the learning rate that the user's own loop logs of it."""
        ...


class Trainer(Protocol):
    """One run on this process's device; see `trainer.py` of each side."""

    @property
    def side(self) -> Side:
        """What is trained."""
        ...

    @property
    def ranks(self) -> Ranks:
        """The processes."""
        ...

    @property
    def feed(self) -> Feed:
        """The rows of every step."""
        ...

    @property
    def compiled(self) -> Compiled | None:
        """What the step became; None before the first."""
        ...

    @property
    def num_steps(self) -> int:
        """Steps that this trainer dispatched."""
        ...

    @property
    def applied(self) -> int:
        """Updates made so far; waits for the device."""
        ...

    @property
    def next_step(self) -> int:
        """The step of the run that is next."""
        ...

    def step(self, rows: Batch) -> None:
        """Dispatches one step."""
        ...

    def load(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Writes a state."""
        ...

    def metrics(self, step: int | None = None) -> Metrics:
        """Metrics of a step, by how many were dispatched before it."""
        ...

    def export(self, phases: Iterable[str]) -> Tensors:
        """Copies of the phases on the host."""
        ...

    def facts(self) -> dict[str, Any]:
        """What it really holds."""
        ...

    def checkpoint(self) -> tuple[Position, Tensors]:
        """Where the run stands, and all that it takes to go on."""
        ...

    def resume(self, checkpoint: Checkpoint) -> None:
        """Goes on from a checkpoint."""
        ...
