"""`steps.rankR.jsonl`: what every step reports, written one launch behind the device.

Must not: wait for a step before the next one is on its way.
"""

from pathlib import Path
from typing import Self

from spec import record
from spec.data.batches import Batch
from spec.job import Job
from spec.worker.trainer import Trainer


class StepLines:
    """The file of this rank, open for a `with` block; the last step is written at its good end.

    Args:
      folder: where it is written; the job's when None.
    """

    def __init__(self, job: Job, trainer: Trainer, folder: Path | None = None) -> None:
        self._trainer = trainer
        self._lines = record.Lines((folder or Path(job.out)) / f"steps.rank{trainer.ranks.rank}.jsonl")
        self._waiting: list[tuple[int, int, Batch]] = []

    def note(self, step: int, *many: Batch) -> None:
        """Takes note of the launch just dispatched, its steps' rows from `step` on; writes the one before."""
        self.write()
        first = self._trainer.num_steps - len(many)
        self._waiting = [(step + i, first + i, rows) for i, rows in enumerate(many)]

    def write(self) -> None:
        """Writes the steps that were noted last, if they are not written yet; waits for them."""
        waiting, self._waiting = self._waiting, []
        for step, dispatched, rows in waiting:
            self._write(step, dispatched, rows)

    def _write(self, step: int, dispatched: int, rows: Batch) -> None:
        metrics, logged = self._trainer.metrics(dispatched), self._trainer.side.logged_lr
        self._lines.write(
            {
                "step": step,
                **record.float_fields("loss", metrics.loss),
                **record.float_fields("grad_norm", metrics.grad_norm),
                **record.float_fields("lr", metrics.lr),
                **(record.float_fields("logged_lr", logged(step)) if logged else {}),
                "skipped": metrics.skipped,
                "tokens": metrics.tokens,
                "batch_digest": self._trainer.feed.digest(rows),
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self.write()
        self._lines.close()
