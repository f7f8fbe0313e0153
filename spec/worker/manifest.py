"""`manifest.json`, what a side says of itself in a job, and `digest.rankR.json`, the state it ended with."""

from pathlib import Path
from typing import Any

from spec import record
from spec.environment import describe_environment
from spec.job import Job
from spec.own_optimizer import UNKNOWN_DECAY, OwnOptimizer
from spec.weights import Tensors, state_digest, tensor_sha256
from spec.worker.trainer import Observer, Promotion, Trainer


class Manifest:
    """`manifest.json`, written by rank 0 before the first step and again after the last.

    Args:
      trainer: in the state that the job starts from.
      probes: of the precision profile.
      environment: of the framework.
      observer: of the job.
      promotion: of a user's casts; None where there is none.
    """

    def __init__(
        self,
        job: Job,
        trainer: Trainer,
        probes: list[dict[str, Any]],
        environment: dict[str, Any],
        observer: Observer,
        promotion: Promotion | None = None,
    ) -> None:
        self._job, self._trainer, self._observer, self._promotion = job, trainer, observer, promotion
        initial = _bare(trainer.export(["param"]))
        self._constant = {
            "environment": describe_environment() | environment,
            "probes": probes,
            "first_step": trainer.next_step,
            "init_sha256": {name: tensor_sha256(array) for name, array in initial.items()},
            "init_digest": state_digest(initial),
        }

    def write(self) -> None:
        """What is known by now."""
        if self._trainer.ranks.rank:
            return
        compiled = self._trainer.compiled
        reasons = dict(compiled.reasons) if compiled else {"compile_s": "no step was run"}
        reasons["observation"] = self._observer.agreement()
        facts = self._trainer.facts() | {"compiler_options": compiled.options if compiled else None}
        if isinstance(self._job.spec.problem.optimizer, OwnOptimizer):
            facts["parameters"] = [row | {"decayed": None} for row in facts["parameters"]]
            reasons["facts.parameters.decayed"] = UNKNOWN_DECAY
        manifest = {
            "side": self._job.side,
            "purpose": self._job.purpose,
            "mode_asked": self._job.mode,
            "mode_ran": compiled.mode_ran if compiled else None,
            **self._constant,
            "facts": facts,
            "compile_s": compiled.compile_s if compiled else None,
            "capture": compiled.proven if compiled else None,
            "activations": self._observer.activations,
            "promotion": self._promotion.record() if self._promotion else None,
            "reasons": reasons,
        }
        record.write_json(Path(self._job.out) / "manifest.json", manifest)


def write_digest(job: Job, trainer: Trainer) -> None:
    """`digest.rankR.json`: hashes of the state that this rank ended with, and the steps that led to it."""
    digests = {phase: state_digest(_bare(trainer.export([phase]))) for phase in ("param", "m", "v")}
    path = Path(job.out) / f"digest.rank{trainer.ranks.rank}.json"
    record.write_json(path, {"step": trainer.next_step, **digests})


def _bare(tensors: Tensors) -> Tensors:
    """Tensors under their names alone, the phase taken off."""
    return {key.partition("/")[2]: array for key, array in tensors.items()}
