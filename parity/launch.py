"""One launch: a side's processes do some jobs and end, well or not; how they ended is told in one record.

A group is ended early when one of its processes fails, when nothing is written for the time-out, and when
the referee is interrupted. Must not: judge what was written.
"""

import contextlib
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from parity.processes import Command, Group
from spec.errors import ExitCode, RuleError

_POLL_S = 0.05
_LOOK_S = 0.5
"""How often the files are looked at."""
_GRACE_S = 5.0
"""How long the other ranks may go on once one has failed: enough to write down their own view of it."""
_TAIL_LINES = 15


class SideFailed(RuleError):
    """A side ended before its job did, and not because of a broken rule."""

    code = ExitCode.CRASHED


def raise_told(error: Mapping[str, Any]) -> NoReturn:
    """Raises what a side said of itself in `error.json`.

    Raises:
      RuleError: the user can mend it.
      SideFailed: it crashed.
    """
    kind = RuleError if error["code"] == ExitCode.USAGE else SideFailed
    raise kind(error["rule"], error["numbers"], error["mend"])


def check_timeout(timeout_s: float) -> None:
    """Refuses seconds after which nothing, or everything, would be ended.

    Raises:
      RuleError: they are not positive, or no number.
    """
    if not 0 < timeout_s < math.inf:
        raise RuleError(
            "A time-out is a positive, finite number of seconds.",
            f"--timeout-s {timeout_s:g}",
            "name seconds, such as 600; 1e9 waits for ever",
        )


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a launch ended."""

    how: str
    """`done`, `error` (a side said why), `crashed`, `killed`, `timeout` or `interrupted`."""
    seconds: float
    exit_codes: tuple[int | None, ...] = ()
    error: dict[str, Any] | None = None
    """The `error.json` of the first rank that failed."""
    failed_pass: Path | None = None
    """The pass that was not finished."""
    log_tail: tuple[str, ...] = ()

    @property
    def code(self) -> ExitCode:
        """What this means for the exit code of the command."""
        if self.how == "done":
            return ExitCode.SAME
        usage = self.error is not None and self.error.get("code") == ExitCode.USAGE
        return ExitCode.USAGE if usage else ExitCode.CRASHED


def launch(
    commands: Sequence[Command],
    passes: Sequence[Path],
    log: Path,
    timeout_s: float,
    on_look: Callable[[], None] = lambda: None,
    has_rank_0: bool = True,
) -> Ended:
    """Starts the commands, waits for them, and leaves no process behind.

    Args:
      passes: the pass folders of the jobs, in order.
      log: receives what the processes print outside their jobs.
      timeout_s: a group that writes nothing for so long is ended.
      on_look: called about twice a second.
      has_rank_0: whether rank 0, which writes `done.json`, is among the processes of this host.
    """
    started = time.monotonic()
    group = Group(commands, log)
    try:
        how = _wait(group, passes, log, timeout_s, on_look)
    except KeyboardInterrupt:
        how = "interrupted"
    finally:
        exit_codes = group.end()
    unfinished = next((folder for folder in passes if not (folder / "done.json").exists()), None)
    error = _first_error(passes)
    if how == "done" and has_rank_0 and unfinished is not None:
        how = "crashed"
    return Ended(
        how="error" if error and how != "interrupted" else how,
        seconds=time.monotonic() - started,
        exit_codes=exit_codes,
        error=error,
        failed_pass=None if how == "done" else unfinished,
        log_tail=() if how == "done" else _tail(unfinished, error, log),
    )


def _wait(
    group: Group, passes: Sequence[Path], log: Path, timeout_s: float, on_look: Callable[[], None]
) -> str:
    """`done`, `crashed`, `killed` or `timeout`."""
    failed_at = None
    next_look = moved_at = time.monotonic()
    newest = 0
    while True:
        codes, now = group.poll(), time.monotonic()
        if None not in codes:
            return _how(codes)
        if now >= next_look:
            next_look = now + _LOOK_S
            on_look()
            latest = _newest_change([*passes, log])
            if latest != newest:
                newest, moved_at = latest, now
            if failed_at is None and (any(codes) or _first_error(passes)):
                failed_at = now
        if failed_at is not None and now - failed_at > _GRACE_S:
            return "killed" if _how(codes) == "killed" else "crashed"
        if now - moved_at > timeout_s:
            return "timeout"
        time.sleep(_POLL_S)


def _how(codes: Sequence[int | None]) -> str:
    if any(code is not None and code < 0 for code in codes):
        return "killed"
    return "crashed" if any(codes) else "done"


def _newest_change(places: Sequence[Path]) -> int:
    """The latest modification, in ns, of the places and the files in them."""
    latest = 0
    for place in places:
        for file in (place, *place.glob("*"), *place.glob("tensors/*"), *place.glob("checkpoints/*/*")):
            # A temporary file may be renamed between being listed and being looked at.
            with contextlib.suppress(OSError):
                latest = max(latest, file.stat().st_mtime_ns)
    return latest


def _first_error(passes: Sequence[Path]) -> dict[str, Any] | None:
    for folder in passes:
        if (folder / "error.json").exists():
            return json.loads((folder / "error.json").read_text())
    return None


def _tail(unfinished: Path | None, error: dict[str, Any] | None, log: Path) -> tuple[str, ...]:
    """The last lines that most likely say why: of the failing rank, else of all ranks and the group."""
    if unfinished is not None and error is not None:
        files = [unfinished / f"log.rank{error['rank']}.txt"]
    else:
        files = [*(sorted(unfinished.glob("log.rank*.txt")) if unfinished is not None else []), log]
    texts = [file.read_text(errors="replace").strip() for file in files if file.exists()]
    spoken = [text.splitlines() for text in texts if text]
    share = max(5, _TAIL_LINES // max(1, len(spoken)))
    return tuple(line for lines in spoken for line in lines[-share:])
