"""A job's checkpoints: going on from one before the first step, and saving them between steps.

Must not: know what a state consists of; the trainer gives it out and takes it.
"""

from pathlib import Path
from typing import Any, Self

from spec.checkpoint import Saver, open_checkpoint
from spec.checkpoint.find import FOLDER
from spec.environment import package_versions
from spec.errors import RuleError
from spec.job import Job
from spec.worker.steps import StepLines
from spec.worker.trainer import Trainer


def resume(job: Job, trainer: Trainer) -> None:
    """Puts the trainer where the job's checkpoint stands, if it names one; all ranks read it.

    Raises:
      RuleError: the checkpoint is damaged or another run's, no step is left, or a step before it is observed.
    """
    if job.resume is None:
        return
    checkpoint = open_checkpoint(job.resume)
    checkpoint.check_fits(job.spec.problem)
    checkpoint.check_steps_left(job.steps)
    done = checkpoint.position.step
    for entry in job.observe:
        if 0 <= job.observed_at(entry)[1] < done:
            raise RuleError(
                "What is observed comes to pass in the job.",
                f"{entry}, and the job goes on from step {done}",
                f"observe step {done} or a later one",
            )
    trainer.resume(checkpoint)


class Checkpoints:
    """Saves every N steps and after the last one, where the job asks for it; for a `with` block.

    All ranks take part and rank 0 writes, in the background: training waits for the copy to the host alone.

    Args:
      steps: brought up to date before a save, so that a checkpoint is never ahead of the record.
    """

    def __init__(self, job: Job, trainer: Trainer, steps: StepLines) -> None:
        self._job, self._trainer, self._steps = job, trainer, steps
        writes = job.save_every is not None and trainer.ranks.rank == 0
        self._saver = Saver(Path(job.out) / FOLDER, job.keep) if writes else None

    def after(self, step: int) -> None:
        """Saves if it is time to, the step just dispatched included.

        Raises:
          RuleError: the checkpoint before could not be written; those before that one are whole.
        """
        every, done = self._job.save_every, step + 1
        if every is None or (done % every and done != self._job.steps):
            return
        self._steps.write()
        if self._saver is not None:
            # Before the copies are made, so that there is one set of them.
            self._saver.wait()
        position, tensors = self._trainer.checkpoint()
        if self._saver is not None:
            self._saver.save(self._job.spec, position, tensors, self._written_by())

    def _written_by(self) -> dict[str, Any]:
        compiled = self._trainer.compiled
        return {
            "side": self._job.side,
            "mode": compiled.mode_ran if compiled else None,
            "world_size": self._job.spec.execution.world_size,
            "plan": (compiled.proven or {}).get("plan") if compiled else None,
            "versions": package_versions(),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if self._saver is None:
            return
        try:
            self._saver.close()
        except RuleError:
            # What ended the block before matters more than a checkpoint that could not be written.
            if kind is None:
                raise
