"""The referee as functions: `parity.run` and `parity.assert_same`.

    import parity
    result = parity.run("my_pair", steps=20, time=False)
    parity.assert_same("my_pair", steps=20)

The sides run as processes of their own, as they do under the command line; this process imports neither
framework. Must not: print.
"""

import os
from collections.abc import Iterable

from parity.options import Run
from parity.progress import Progress
from parity.report import console, deliver
from parity.report.result import Result
from parity.training import train


def run(
    target: str | os.PathLike[str],
    *,
    steps: int | None = None,
    precision: str | None = None,
    devices: int | None = None,
    global_batch: int | None = None,
    micro_batches: int | None = None,
    mode: str = "auto",
    device: str = "auto",
    data: str | None = None,
    seed: int | None = None,
    backend: str = "torch,jax",
    edit: Iterable[str] = (),
    time: bool = True,
    out: str | os.PathLike[str] = "runs",
    timeout_s: float = 600.0,
    quiet: bool = True,
) -> Result:
    """Trains a preset or a pair on both sides, judges and times them: `parity run` as a function.

    Args:
      target: the name of a preset, or the folder of a pair.
      time: also measure speed.
      out: folder of run folders; the run's own is `result.runs[0].folder`.
      quiet: no progress on standard error. The other arguments are the options of `parity run`.

    Returns:
      What stands in `result.json`; `result.verdict` is SAME, DIFFERENT, INCONCLUSIVE, NOT_COMPARABLE or
      FAILED.

    Raises:
      RuleError: the arguments or the pair must be mended; the message says how.
    """
    options = Run(
        preset=os.fspath(target),
        steps=steps,
        precision=precision,
        devices=devices,
        global_batch=global_batch,
        micro_batches=micro_batches,
        mode=mode,
        device=device,
        data=data,
        seed=seed,
        backend=backend,
        edit=tuple(edit),
        time=time,
        out=os.fspath(out),
        timeout_s=timeout_s,
    )
    result, folder = train(options, ["library", options.preset], Progress(quiet=quiet))
    deliver.keep(result, folder)
    return result


def assert_same(
    target: str | os.PathLike[str],
    *,
    steps: int | None = None,
    precision: str | None = None,
    devices: int | None = None,
    device: str = "auto",
    mode: str = "auto",
    out: str | os.PathLike[str] = "runs",
    timeout_s: float = 600.0,
) -> Result:
    """Runs a preset or a pair without timing it, and fails unless the verdict is SAME.

    Returns:
      The result, for whoever wants to look at it.

    Raises:
      AssertionError: any other verdict; the message is what `parity run` prints.
      RuleError: the arguments or the pair must be mended.
    """
    result = run(
        target,
        steps=steps,
        precision=precision,
        devices=devices,
        device=device,
        mode=mode,
        time=False,
        out=out,
        timeout_s=timeout_s,
    )
    if result.verdict != "SAME":
        raise AssertionError(failure_text(result))
    return result


def failure_text(result: Result) -> str:
    """Verdict, table, notes and paths as text, and the last words of a side that failed."""
    failed = [item for item in result.launches if item.message]
    last_words = [f"  | {line}" for item in failed for line in item.log_tail]
    return "\n".join([console.text(result).rstrip(), *last_words])
