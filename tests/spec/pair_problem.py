"""The problem of a pair that is loaded and not trained, for the tests of both sides."""

from typing import Any

from spec.run import AdamW, DataSpec, Problem
from spec.schedule import Schedule
from spec.workloads.pair import PairSizes


def pair_problem(**changes: Any) -> Problem:
    """Two rows of data that nobody reads."""
    settings: dict[str, Any] = {
        "workload": "pair",
        "sizes": PairSizes(),
        "optimizer": AdamW(),
        "schedule": Schedule(kind="constant", peak_lr=1e-3),
        "data": DataSpec(kind="folder", path="none"),
        "global_batch": 2,
        "steps": 1,
    }
    return Problem(**settings | changes)
