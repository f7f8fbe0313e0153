"""The worker's half of the protocol: jobs in, pass folders out, one way to end.

Launchers such as torchrun hide exit codes, so how a job ended is also a file: `done.json`, or `error.json`
with the rule, the numbers and the mend. Both sides call `serve` and bring nothing but the function that does
a job.
"""

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

from spec import record
from spec.errors import ExitCode, RuleError
from spec.job import Job, read_job
from spec.pairs import user_code
from spec.run import OwnOptimizer


def serve(paths: Iterable[str], do: Callable[[Job], None], rank: int) -> int:
    """Does the jobs in order and returns the exit code of this process; the first failure ends it.

    Args:
      paths: job files, taken one by one as they are done.
      do: does one job with all ranks; returns when every rank is through.
      rank: this process's rank; rank 0 writes `done.json`, whoever fails first writes `error.json`.
    """
    for path in paths:
        try:
            job = read_job(path)
        except RuleError as error:
            print(error.message(), file=sys.stderr)
            return int(error.code)
        code = _do_one(job, do, rank)
        if code:
            return code
    return 0


def _do_one(job: Job, do: Callable[[Job], None], rank: int) -> int:
    out, started = Path(job.out), time.perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with redirected(out / f"log.rank{rank}.txt"):
            try:
                do(job)
            except RuleError:
                raise
            except Exception as error:
                traceback.print_exc()
                _tell_users_own(job, error)
                raise
    except RuleError as error:
        _write_error(out, rank, error.code, error.rule, error.numbers, error.mend)
        return int(error.code)
    except Exception as error:
        log = f"read {out}/log.rank{rank}.txt"
        numbers = f"{type(error).__name__}: {str(error)[:500]}"
        _write_error(
            out, rank, ExitCode.CRASHED, f"The {job.side} side ends a job without an exception.", numbers, log
        )
        return int(ExitCode.CRASHED)
    if rank == 0:
        record.write_json(out / "done.json", {"seconds": round(time.perf_counter() - started, 6)})
    return 0


def tell_stall(job: Job, rank: int, found: str) -> None:
    """Writes `error.json` for a process that ends itself because others do not come along."""
    log = f"read {job.out}/log.rank*.txt; a longer wait is --timeout-s"
    _write_error(Path(job.out), rank, ExitCode.CRASHED, "All ranks make their steps together.", found, log)


def _tell_users_own(job: Job, error: Exception) -> None:
    """Where the file of a user's pair raised, it is the user's to mend, and its line is named.

    Raises:
      RuleError: it did.
    """
    if job.spec.pair is None:
        return
    found = user_code.raised_in(error, Path(job.spec.pair.file(job.side)))
    if found is not None:
        raise RuleError(
            f"The {job.side} side's file runs under the run's profile and mode.",
            f"{found} ({job.spec.problem.precision}, {job.mode})",
            "mend the line, or take another --precision or --mode",
        ) from None


def _write_error(out: Path, rank: int, code: ExitCode, rule: str, numbers: str, mend: str) -> None:
    """The first rank that fails names the cause; ranks that fail because of it do not write over it."""
    value = {"code": code.value, "rule": rule, "numbers": numbers, "mend": mend, "rank": rank}
    print(f"rank {rank}: {rule} {numbers} {mend}", file=sys.stderr)
    if not (out / "error.json").exists():
        record.write_json(out / "error.json", value)


@contextlib.contextmanager
def redirected(path: Path) -> Generator[None]:
    """Sends stdout and stderr of this process, native libraries included, to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    try:
        with (
            path.open("a", buffering=1) as log,
            contextlib.redirect_stdout(log),
            contextlib.redirect_stderr(log),
        ):
            for target in (1, 2):
                os.dup2(log.fileno(), target)
            yield
    finally:
        for target, source in zip((1, 2), saved, strict=True):
            os.dup2(source, target)
            os.close(source)


def refuse_what_is_not_done(job: Job) -> None:
    """Nothing that a job asks for is passed over in silence.

    Raises:
      RuleError: the job asks for what no side does in this version.
    """
    if job.purpose == "lockstep" and isinstance(job.spec.problem.optimizer, OwnOptimizer):
        raise RuleError(
            "A state holds all that a step starts from.",
            "the optimizer is the user's own, and so is its state",
            "take AdamW in pair.py for lockstep",
        )
    if job.state is not None and job.purpose != "lockstep":
        raise RuleError(
            "Only a lockstep job starts from states in this version.",
            f"purpose {job.purpose}, state {job.state}",
            "leave the state out",
        )
