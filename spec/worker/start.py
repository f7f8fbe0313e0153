"""Where the timed steps of a `time` job begin: the state before warm-up, put back after it and looked at.

Warm-up is training too. Without this, steps of later losses and rates would be timed, and on one side after
more of them than on the other. Must not: know how a trainer steps.
"""

from typing import Any

import numpy as np

from spec import threads
from spec.job import Job
from spec.own_optimizer import OwnOptimizer
from spec.state import LOADED_PHASES
from spec.weights import raw_bytes
from spec.worker.trainer import Trainer


class Start:
    """The state that a job begins with, copied to the host.

    Args:
      trainer: before its first step; all ranks make one together.
    """

    def __init__(self, job: Job, trainer: Trainer) -> None:
        self._own = isinstance(job.spec.problem.optimizer, OwnOptimizer)
        self._trainer = trainer
        self._kept = {} if self._own else trainer.export(LOADED_PHASES)
        self._applied = 0 if self._own else trainer.applied

    def put_back(self) -> dict[str, Any]:
        """Puts the state back and reads it again: the `start` record of `windows.jsonl`.

        `initial` is whether every bit is as it was before warm-up; null, with the reason, where an optimizer
        of the user's own holds a state that is not known.
        """
        if self._own:
            reason = "the optimizer is the user's own, and so is its state: timed steps follow the warm-up"
            return {"kind": "start", "initial": None, "reason": reason}
        counters = {"meta/applied": np.array(self._applied, np.int64), "meta/skipped": np.zeros((), np.int64)}
        self._trainer.load(self._kept | counters)
        found = self._trainer.export(LOADED_PHASES)
        same = self._trainer.applied == self._applied and found.keys() == self._kept.keys()
        initial = same and all(threads.each(lambda key: _same_bits(found[key], self._kept[key]), found))
        # A large model's copy is as large as its state.
        self._kept = {}
        return {
            "kind": "start",
            "initial": initial,
            "reason": None if initial else "the state reads otherwise",
        }


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    alike = (one.dtype, one.shape) == (other.dtype, other.shape)
    return alike and np.array_equal(raw_bytes(one), raw_bytes(other))
