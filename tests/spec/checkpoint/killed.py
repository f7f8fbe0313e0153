"""Program: children save checkpoints and are killed with SIGKILL; the parent checks what is left each time.

    python tests/spec/checkpoint/killed.py every-call|random FOLDER

A process of its own, since it forks: a test process with frameworks loaded must not.
"""

import itertools
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from spec.checkpoint import Saver, checkpoints_in, find_checkpoint, open_checkpoint
from tests.spec.checkpoint import small

CALLS = ("mkdir", "rename", "replace", "fsync", "unlink", "rmdir")
"""Calls of `os` with which a Saver changes the disk, all but the writes themselves."""

STEPS, KEEP, SIZE = 2, 1, 20_000
ENOUGH, MOST_ROUNDS = 12, 300
"""Checkpoints made, and kills that interrupted one, before random killing ends."""


def save_all(folder: Path, first: int, last: int) -> None:
    """Saves a checkpoint a step; a line of the file `told` says which were whole."""
    saver = Saver(folder, keep=KEEP, shard_bytes=20 * SIZE)
    with folder.with_suffix(".told").open("a") as told:
        for step in range(first, last):
            small.save(saver, step, SIZE)
            told.write(f"{step}\n")
            told.flush()
    saver.close()


def child(do: Callable[[], None]) -> int:
    """Forks a process that does it and ends with 0."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            do()
            code = 0
        finally:
            os._exit(code)
    return process


def die_at(number: int) -> None:
    """Kills this process at call `number` of `CALLS`: before it in even rounds, after it in odd ones."""
    count = itertools.count()

    def dying(call: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object, **kwargs: object) -> object:
            fatal = next(count) == number // 2
            if fatal and number % 2 == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*args, **kwargs)
            finally:
                if fatal:
                    os.kill(os.getpid(), signal.SIGKILL)

        return wrapper

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))


def check(folder: Path) -> tuple[int, bool]:
    """The newest whole checkpoint is right to the bit, and no older than what was told.

    Returns:
      Its step, and whether something half-written lies about.
    """
    told = folder.with_suffix(".told")
    promised = max(map(int, told.read_text().split()), default=0) if told.exists() else 0
    whole = checkpoints_in(folder)
    newest = max(whole, default=0)
    assert newest >= promised, f"{folder}: step {promised} was whole, now the newest is {newest}"
    for step, path in whole.items():
        assert small.same(open_checkpoint(path), step, SIZE), path
    if whole:
        assert find_checkpoint(folder) == whole[newest]
    hidden = any(path.name.startswith(".") for path in folder.glob(".*"))
    Saver(folder, keep=KEEP).close()
    assert sorted(folder.iterdir()) == sorted(whole.values()), "the next Saver removes what is half-written"
    return newest, hidden


def kill_at_every_call(out: Path) -> None:
    """A fresh folder for each call that a child can be killed at, until one lives."""
    half_written = set()
    for number in itertools.count():
        folder = out / f"{number:04d}"

        def do(folder: Path = folder, number: int = number) -> None:
            die_at(number)
            save_all(folder, 1, STEPS + 1)

        process = child(do)
        _, status = os.waitpid(process, 0)
        newest, hidden = check(folder)
        half_written.add((newest, hidden))
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == 0
            break
    assert number > 60, f"{STEPS} checkpoints make more than {number // 2} calls"
    assert half_written >= {(step, hidden) for step in range(STEPS) for hidden in (False, True)}


def kill_at_random(out: Path) -> None:
    """One folder, in which each child goes on from what the one before left."""
    folder, moments = out / "run", random.Random(0)
    newest = half_written = 0
    for number in range(MOST_ROUNDS):
        process = child(lambda first=newest + 1: save_all(folder, first, first + 10**6))
        # Longer and longer, so that the run gets on however slow the machine is.
        time.sleep(moments.uniform(0, 0.1 + number / 500))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        newest, hidden = check(folder)
        half_written += hidden
        if min(newest, half_written) >= ENOUGH:
            return
    raise AssertionError(f"{newest} checkpoints, {half_written} interrupted, in {MOST_ROUNDS} rounds")


if __name__ == "__main__":
    {"every-call": kill_at_every_call, "random": kill_at_random}[sys.argv[1]](Path(sys.argv[2]))
