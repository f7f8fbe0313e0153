"""Lockstep: single steps from states that a run kept, and the same again with noise.

A run job keeps states; a lockstep job makes one step from each of them, on either side, so that what one step
does is compared before differences add up. Must not: know how a trainer steps.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from spec import noise
from spec.data.batches import Batch, micro_slices
from spec.data.folder import batch_file
from spec.errors import RuleError
from spec.job import Job
from spec.state import LOADED_PHASES
from spec.weights import Tensors, load_tensors, save_tensors
from spec.worker.steps import StepLines
from spec.worker.trainer import Observer, Trainer

RERUNS = "reruns"
"""Folder of a lockstep pass with one folder a rerun, laid out as the pass itself."""
STATES = "states"
"""Folder of a run pass with the states that it keeps."""


def make_steps(job: Job, trainer: Trainer, observer: Observer) -> None:
    """One step from each of the states in the job's folder, step N on the rows of step N; then the reruns."""
    for rerun, folder in attempts(job):
        observer.write_into(folder)
        with StepLines(job, trainer, folder) as steps:
            for step, tensors in states(job, rerun):
                trainer.load(tensors)
                rows = trainer.feed.rows(step)
                taken_rows = taken(job, rows, step, rerun)
                observer.before(trainer, step, rows, taken_rows)
                trainer.step(taken_rows)
                steps.note(step, taken_rows)
                observer.after(trainer, step)


def attempts(job: Job) -> Iterator[tuple[int | None, Path]]:
    """(rerun, folder) for each time that a lockstep job goes through its states; the first has no noise."""
    yield None, Path(job.out)
    for rerun in range(job.perturb.reruns if job.perturb else 0):
        yield rerun, Path(job.out) / RERUNS / f"{rerun:02d}"


def states(job: Job, rerun: int | None = None) -> Iterator[tuple[int, Tensors]]:
    """(N, state before step N) for every `stepNNNNNN.safetensors` of the job's folder, in order.

    Args:
      rerun: number of the rerun whose noise is put on it.

    Raises:
      RuleError: there is none, or one does not say how many updates it has had.
    """
    files = sorted(Path(str(job.state)).glob("step*.safetensors"))
    if not files:
        raise RuleError("A lockstep job finds states.", f"{job.state}: no stepNNNNNN.safetensors")
    for file in files:
        tensors = load_tensors(file)
        if "meta/applied" not in tensors:
            raise RuleError(
                "A state says how many updates it has had.",
                f"{file}: no meta/applied",
                "write it beside the tensors; the learning rate is read at it",
            )
        if rerun is not None and job.perturb is not None:
            tensors = noise.moved(tensors, rerun, job.perturb.roundoff)
        yield int(file.stem.removeprefix("step")), {"meta/skipped": np.zeros((), np.int64), **tensors}


def taken(job: Job, rows: Batch, step: int, rerun: int | None) -> Batch:
    """A rank's rows as a step of a lockstep job takes them: in another order in a rerun."""
    if rerun is None:
        return rows
    slices = micro_slices(len(next(iter(rows.values()))), job.spec.problem.micro_batches)
    return noise.reordered(rows, rerun, step, slices)


def keep_state(job: Job, step: int, trainer: Trainer) -> None:
    """Writes the state before a step, where the job keeps it; rank 0 does."""
    keep = job.keep_states
    if keep is None or step not in keep.steps or trainer.ranks.rank:
        return
    rounded = {
        key: array.astype(keep.dtype) if array.dtype.kind == "f" else array
        for key, array in trainer.export(LOADED_PHASES).items()
    }
    path = batch_file(Path(job.out) / STATES, step)
    save_tensors(path, rounded | {"meta/applied": np.array(trainer.applied, np.int64)})
