"""Stands in for a side where a test is about the referee: answers jobs with `pass_writer`, or misbehaves.

The variable PARITY_FAKE_TORCH or PARITY_FAKE_JAX says how: crash, usage, hang, kill, orphan, or
`step_ms=NUMBER` for the speed it reports. `tests/parity/fakes` makes it `python -m torch_impl`.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from spec import protocol
from spec.errors import RuleError
from spec.job import Job
from tests.parity.pass_writer import make_content, write_windows


def main(side: str) -> int:
    """Serves the jobs of the command line, `work JOB...`."""
    behaviour = os.environ.get(f"PARITY_FAKE_{side.upper()}", "")
    rank = int(os.environ.get("RANK") or os.environ.get("JAX_PROCESS_ID") or 0)
    return protocol.serve(sys.argv[2:], lambda job: _do(job, rank, behaviour), rank)


def _do(job: Job, rank: int, behaviour: str) -> None:
    if job.purpose == "run" and behaviour:
        _misbehave(behaviour)
    if rank:
        return
    content = make_content(job)
    content.finished = False
    content.write()
    if job.purpose == "time":
        name, _, value = behaviour.partition("=")
        write_windows(Path(job.out), float(value) if name == "step_ms" else 2.0)


def _misbehave(behaviour: str) -> None:
    match behaviour.partition("=")[0]:
        case "crash":
            print("about to divide by zero")
            raise ZeroDivisionError("one by zero")
        case "usage":
            raise RuleError(
                "Every token is in the vocabulary.", "token 300, vocabulary 256", "take a larger one"
            )
        case "hang":
            print("about to hang", flush=True)
            time.sleep(600)
        case "kill":
            print("about to be killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        case "orphan":
            orphan = [sys.executable, "-c", "import time; time.sleep(600)"]
            subprocess.Popen(orphan, start_new_session=True)
            raise ZeroDivisionError("left a child behind")
