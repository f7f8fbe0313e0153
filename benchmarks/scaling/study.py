"""A study as it is asked for, and how it runs one command of the project. Must not: compute a figure."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.scaling.prediction import NodeRecord
from parity.commands import python_path
from spec.errors import PRECEDENCE, ExitCode, RuleError
from spec.presets import preset

LEAST_S = 20.0
"""Less time than this is not worth a start."""
GRACE_S = 60.0
"""What a command has to end by itself and write down what it finished."""


@dataclass(frozen=True)
class Study:
    """What is asked for."""

    presets: tuple[str, ...]
    devices: tuple[int, ...]
    out: Path
    device: str
    budget_s: float
    assumed: NodeRecord
    traced: bool = True
    more: tuple[str, ...] = ()
    """Further words for `parity bench`."""
    began: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Refuses what cannot be measured.

        Raises:
          RuleError: no device, too little time, or an unknown preset.
        """
        if not self.devices or min(self.devices) < 1:
            raise RuleError(
                "A study has numbers of devices from 1 on.",
                f"--devices {','.join(map(str, self.devices))}",
                "--devices 1,2",
            )
        if not self.budget_s >= LEAST_S:
            raise RuleError(
                "A study has time to start a command.",
                f"--budget-s {self.budget_s:g}, at least {LEAST_S:g}",
                "give more, or leave it out for no limit",
            )
        for name in self.presets:
            preset(name)

    @property
    def left_s(self) -> float:
        """Of the budget."""
        return self.budget_s - (time.monotonic() - self.began)


def gravest(codes: Sequence[ExitCode]) -> ExitCode:
    """The one that decides, of several."""
    return min(codes, key=[*PRECEDENCE, ExitCode.USAGE, ExitCode.SAME].index)


def newest(home: Path, what: str) -> Path | None:
    """The last run folder that has got as far as this file or folder."""
    return max((path.parent for path in home.glob(f"*/{what}")), default=None)


def parity(study: Study, words: Sequence[str], name: str) -> ExitCode:
    """Runs one command of the project within the budget, as Ctrl-C would end it; its output is a log."""
    argv = [sys.executable, "-m", "parity", *words]
    log = study.out / "logs" / f"{name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"parity {' '.join(words)}", flush=True)
    environ = os.environ | {"PYTHONPATH": python_path()}
    with log.open("a") as file:
        before = file.tell()
        # Of a session of its own, so that Ctrl-C reaches it once, from here.
        started = subprocess.Popen(argv, env=environ, stdout=file, stderr=file, start_new_session=True)
        try:
            code = _wait(started, max(study.left_s, LEAST_S))
        except KeyboardInterrupt:
            _end(started)
            raise
    if code not in (0, int(ExitCode.DIFFERENT)):
        print(f"exit code {code}, log: {log}", *last_words(log, before), sep="\n  ", flush=True)
    return ExitCode(code) if code in set(ExitCode) else ExitCode.CRASHED


def _wait(started: subprocess.Popen[bytes], seconds: float) -> int:
    try:
        return started.wait(None if math.isinf(seconds) else seconds)
    except subprocess.TimeoutExpired:
        return _end(started)


def _end(started: subprocess.Popen[bytes]) -> int:
    """As Ctrl-C does, so that it writes down what was finished."""
    started.send_signal(signal.SIGINT)
    try:
        return started.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        started.kill()
        return started.wait()


def last_words(log: Path, begin: int) -> list[str]:
    """What a log says last, from this byte on: the lines of a broken rule, or else one line."""
    written = log.read_bytes()[begin:].decode(errors="replace")
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    found = [number for number, line in enumerate(lines) if line.startswith("found: ")]
    # The mend alone says nothing of what is wrong.
    broken = bool(found) and len(lines) - found[-1] <= 2
    return lines[max(0, found[-1] - 1) :] if broken else lines[-1:]
