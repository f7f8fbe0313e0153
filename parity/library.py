"""The referee as functions: `parity.run` and `parity.assert_same`.

    import parity
    result = parity.run("my_pair", steps=20, time=False)
    parity.assert_same("my_pair", steps=20)

The sides run as processes of their own, as they do under the command line; this process imports neither
framework. Must not: print.
"""

import os
from collections.abc import Iterable
from typing import Any, get_args, get_origin, get_type_hints

from parity.options import Run
from parity.progress import Progress
from parity.report import console, deliver
from parity.report.result import Result
from parity.training import train
from spec.errors import RuleError


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
        preset=_path(target),
        steps=steps,
        precision=precision,
        devices=devices,
        global_batch=global_batch,
        micro_batches=micro_batches,
        mode=mode,
        device=device,
        data=_path(data),
        seed=seed,
        backend=backend,
        edit=_many(edit),
        time=time,
        out=_path(out),
        timeout_s=timeout_s,
    )
    _check_types(options)
    result, folder = train(options, ["library", options.preset], Progress(quiet=quiet))
    deliver.keep(result, folder)
    return result


def _path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _many(values: Any) -> Any:
    """As a tuple; a string, which would fall apart into letters, and what is none of many, as they are."""
    return tuple(values) if isinstance(values, Iterable) and not isinstance(values, str) else values


def _check_types(options: Run) -> None:
    """What the parser of the command line does for whoever types.

    Raises:
      RuleError: an argument has another type than its option.
    """
    for name, hint in get_type_hints(Run).items():
        value, kinds = getattr(options, name), get_args(hint) or (hint,)
        if get_origin(hint) is tuple:
            fits = isinstance(value, tuple) and all(isinstance(item, str) for item in value)
            words = "an iterable of strings"
        else:
            fits = any(_is(value, kind) for kind in kinds)
            words = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        if not fits:
            argument = "target" if name == "preset" else name
            raise RuleError(
                "An argument of parity.run has the type of its option.",
                f"{argument} = {str(value)[:60]!r} ({type(value).__name__})",
                f"give {words}",
            )


def _is(value: object, kind: type) -> bool:
    """Whether a value is of a kind; a whole number is a float too, and True is no number."""
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


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
