"""A result with nothing in it but what a test gives."""

from typing import Any

from parity.report.result import SCHEMA_VERSION, Result, Seconds


def empty_result(command: str, **given: Any) -> Result:
    """The result of a command that found nothing else."""
    nothing: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "verdict": None,
        "exit_code": 0,
        "reasons": [],
        "runs": [],
        "curves": {},
        "numerics": None,
        "comparisons": [],
        "speed": None,
        "capture": None,
        "bench": [],
        "launches": [],
        "seconds": Seconds(total=0.0, launches=0.0, start_up=0.0, compile=0.0, jobs=0.0, judge=0.0),
        "unmeasured": {},
    }
    return Result(command=command, **nothing | given)
