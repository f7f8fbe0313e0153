"""What a benchmark measured together: blocks, and the calls of `parity bench` that measured them.

A block is some contenders at one batch, timed in order and in reverse by one call. Ratios are formed within
a block and nowhere else. A call is written down before it measures (`invocations/001.json`), so that a run
folder tells what was asked for however the call ended. Must not: start anything, or compute a figure.
"""

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from parity import same_work
from parity.bench.contenders import Contender
from parity.folders import last_number, not_whole, read_json, read_run
from parity.plan import Plan
from parity.report.speeds import Invocation
from parity.speed.figures import TimePass
from parity.speed.machine import difference
from spec import codec, record
from spec.errors import RuleError, few
from spec.job import Timing
from spec.run import RunSpec

FOLDER = "invocations"


class Block(Struct, kw_only=True):
    """Contenders that were timed together."""

    batch: int
    """Rows of a step over all devices."""
    contenders: list[Contender]
    passes: list[str]
    """Their pass folders, finished or not."""

    def finished(self, folder: Path, contender: Contender) -> list[TimePass]:
        """The passes of a contender that ended well, in the order they were run."""
        passes = [TimePass(folder / "passes" / name) for name in self.passes]
        done = [one for one in passes if (one.folder / "done.json").exists()]
        return [one for one in done if (one.job.side, one.job.mode) == contender]

    def whole(self, folder: Path, contenders: Sequence[Contender]) -> bool:
        """Whether both passes of all these contenders ended well here."""
        return all(len(self.finished(folder, contender)) >= 2 for contender in contenders)


class Call(Struct, kw_only=True):
    """One call of `parity bench`."""

    number: int
    argv: list[str]
    warmup_steps: int
    windows: int
    steps_per_window: int
    environment: dict[str, Any]
    blocks: list[Block]
    ended: str | None = None
    """`done`, or how the launch ended that was not finished; null while it runs, or where it was killed."""

    def write(self, folder: Path) -> None:
        """Writes it into the run folder."""
        text = msgspec.json.format(msgspec.json.encode(self), indent=1).decode()
        record.write_text(folder / FOLDER / f"{self.number:03d}.json", text + "\n")

    def told(self) -> Invocation:
        """As it stands in the result."""
        return Invocation(
            number=self.number,
            argv=self.argv,
            utc=self.environment["utc"],
            host_hash=self.environment["host_hash"],
            windows=self.windows,
            steps_per_window=self.steps_per_window,
            ended=self.ended or "killed",
        )


def is_benchmark(folder: Path) -> bool:
    """Whether `parity bench` made a run folder."""
    return (folder / FOLDER).is_dir()


def calls(folder: Path) -> list[Call]:
    """The calls that measured into a run folder, in order.

    Raises:
      RuleError: the record of one is damaged.
    """
    return [_call(path) for path in sorted((folder / FOLDER).glob("*.json"))]


def _call(path: Path) -> Call:
    try:
        return msgspec.convert(read_json(path), Call)
    except msgspec.ValidationError as error:
        raise not_whole(path, str(error)) from None


def new_call(
    folder: Path,
    argv: Sequence[str],
    timing: Timing,
    environment: dict[str, Any],
    blocks: Sequence[Block],
) -> Call:
    """The next call of a run folder, written down."""
    before = calls(folder)
    call = Call(
        number=before[-1].number + 1 if before else 1,
        argv=list(argv),
        warmup_steps=timing.warmup_steps,
        windows=timing.windows,
        steps_per_window=timing.steps_per_window,
        environment=environment,
        blocks=list(blocks),
    )
    call.write(folder)
    return call


def check_goes_on(folder: Path, plan: Plan, sweep: Any, environment: dict[str, Any]) -> None:
    """Refuses to measure into a run what could not stand in one table with it.

    Raises:
      RuleError: another command's run, another problem, device, or version; with all that differs.
    """
    if not is_benchmark(folder):
        raise RuleError("--into names a benchmark.", f"{folder}: no {FOLDER}/", "name a run of parity bench")
    before = read_run(folder)
    saved: RunSpec = codec.from_dict(RunSpec, before["spec"])
    spec, was, now = plan.spec, saved.execution, plan.spec.execution
    found = same_work.differences(saved, spec, any_steps=True)
    if sweep is None and saved.problem.global_batch != spec.problem.global_batch:
        found.append(f"global batch {saved.problem.global_batch}/{spec.problem.global_batch}")
    if was.device != now.device:
        found.append(f"device {was.device}/{now.device}")
    for side in plan.backends:
        if was.mode(side) != now.mode(side):
            found.append(f"own {side} step {was.mode(side)}/{now.mode(side)}")
    if before.get("sweep") != sweep:
        found.append(f"sweep over {_swept(before.get('sweep'))}/{_swept(sweep)}")
    if found:
        # Values in the order of `parity compare`: what is measured beside, then what was asked for.
        numbers = f"{folder.name} and this call: {few(found)}"
    else:
        found = difference(before["environment"], environment, now.device).of_kind
        numbers = f"{folder.name}: {few(found)}"
    if found:
        raise RuleError(
            "What stands in one table was measured on one device, by one version, of one problem.",
            numbers,
            "type the other options as they were, or leave --into out for a run of its own",
        )


def _swept(declared: Any) -> str:
    """`batches 1,8,64`, as a sweep is asked for, or `nothing`."""
    return f"batches {','.join(map(str, declared['batches']))}" if declared else "nothing"


@contextmanager
def alone(folder: Path) -> Generator[None]:
    """Two benchmarks must not number their passes in one folder at once.

    Raises:
      RuleError: another one is at it.
    """
    (folder / FOLDER).mkdir(exist_ok=True)
    handle = os.open(folder / FOLDER / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuleError(
                "One benchmark at a time measures into a run.", f"{folder} is in use", "wait for the other"
            ) from None
        yield
    finally:
        os.close(handle)


def last_pass(folder: Path) -> int:
    """The highest number of a pass that was made, or that a call was going to make when it was broken off."""
    planned = [name for call in calls(folder) for block in call.blocks for name in block.passes]
    return last_number([*planned, *(path.name for path in (folder / "passes").glob("*"))])


def last_launch(folder: Path) -> int:
    """The highest number of a launch."""
    return last_number(path.name for path in (folder / "launches").glob("*"))
