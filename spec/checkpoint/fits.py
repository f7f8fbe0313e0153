"""Whether a run can go on from a checkpoint: the problem must be the one it was written for.

How a problem is executed (device, processes, mode, side) may change in the course of a run, and so may the
number of steps and the path of the data; every other field of `spec.run.Problem` changes what is computed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spec import codec
from spec.checkpoint.format import Manifest
from spec.errors import RuleError
from spec.run import Problem

FREE = ("steps", "data.path")
"""Fields that may differ. A schedule that ends with the run still ties the steps down, as `schedule`."""

OPTIONS = {
    "precision": "--precision",
    "global_batch": "--global-batch",
    "micro_batches": "--micro-batches",
    "data": "--data",
    "seed_weights": "--seed",
    "seed_data": "--seed",
    "schedule": "--steps",
}
"""Options of the command line by the field that they set."""


def check_fits(path: Path, manifest: Manifest, problem: Problem) -> None:
    """Refuses to go on with another problem, or beyond its end.

    Raises:
      RuleError: a field differs; the first is named with both values.
    """
    saved = manifest.spec.problem
    differing = list(_differences(codec.to_dict(saved), codec.to_dict(problem), ""))
    if differing:
        field, was, now = differing[0]
        more = f" (and {len(differing) - 1} more)" if len(differing) > 1 else ""
        raise RuleError(
            "A run goes on with the problem that its checkpoint was written for.",
            f"{path}: {field} was {was!r}, is {now!r}{more}",
            _mend(field, manifest),
        )
    if manifest.position.step > problem.steps:
        raise RuleError(
            "A run goes on from before its end.",
            f"{path}: {manifest.position.step} steps done of {problem.steps}",
            "give more --steps, or an earlier checkpoint",
        )


def _mend(field: str, manifest: Manifest) -> str:
    problem = manifest.spec.problem
    option = OPTIONS.get(field.partition(".")[0])
    if option is None:
        return f"name the preset it was made with, {manifest.spec.name}, or start without a checkpoint"
    values = {"--steps": problem.steps, "--seed": problem.seed_weights, "--data": problem.data.kind}
    value = values.get(option, getattr(problem, field, ""))
    return f"give {option} {value} as then, or start without a checkpoint"


def _differences(was: Any, now: Any, field: str) -> Iterator[tuple[str, Any, Any]]:
    """(field, value, other value) wherever two JSON trees differ."""
    if field in FREE:
        return
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was | now:
            yield from _differences(was.get(key), now.get(key), f"{field}.{key}" if field else key)
    elif was != now:
        yield field, was, now
