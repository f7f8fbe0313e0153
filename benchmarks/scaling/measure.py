"""Measures a study by the real command line: `parity bench`, `parity run` and `parity compare`.

What is finished is not run again. The largest number of devices comes last, and what the smaller ones say
of each is written down before it is measured. Must not: compute a figure.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from benchmarks.scaling import loss, prediction
from benchmarks.scaling.prediction import CannotPredict
from benchmarks.scaling.study import LEAST_S, Study, gravest, newest, parity
from parity.bench import blocks
from parity.bench.contenders import Contender, why_not
from spec.errors import ExitCode
from spec.run import AUTO_MODES

JAX_MODES = {"cuda": ("jit:concurrent", "jit:concurrent+apart+overlap"), "cpu": ("jit",)}
"""Beside each other; the faster one is the family's."""


def measure(study: Study) -> ExitCode:
    """Measures what is left, as far as the budget goes. Returns the gravest exit code, that of every loss
    check among them, whenever it was made."""
    codes = [ExitCode.SAME]
    for devices in sorted(set(study.devices)):
        if any(bench_left(study, name, devices) for name in study.presets):
            _predict(study, devices)
        for name in study.presets:
            if bench_left(study, name, devices) is None:
                continue
            if study.left_s < LEAST_S:
                return _stopped(study, f"bench {name} on {devices}")
            codes.append(_bench(study, name, devices))
        for name in study.presets:
            if not loss.left(study, name, devices):
                continue
            if study.left_s < LEAST_S:
                return _stopped(study, f"loss of {name} on {devices}")
            codes.append(loss.check(study, name, devices))
    return gravest([*codes, *_ended(study)])


def _predict(study: Study, devices: int) -> None:
    """Writes down what smaller counts say of this one, where they say anything and it is not too late."""
    if devices == min(study.devices) or prediction.path_of(study.out, devices).exists():
        return
    try:
        made = prediction.write([study.out], devices, study.out, study.assumed)
    except CannotPredict as error:
        print(f"{devices} devices are measured without a prediction. {error.message()}", flush=True)
    else:
        print(f"predicted {devices} devices before measuring them: {made}", flush=True)


def _ended(study: Study) -> list[ExitCode]:
    """Says what the loss checks found, and whether anything is left; returns the codes of the checks."""
    pairs = [(name, devices) for devices in sorted(set(study.devices)) for name in study.presets]
    codes = [loss.code(study, *pair) for pair in pairs]
    for (name, devices), code in zip(pairs, codes, strict=True):
        if code != ExitCode.SAME:
            path = loss.compared(study, name, devices)
            print(f"loss of {name} on {devices} devices: {code.name}, {path}", flush=True)
    if not any(bench_left(study, *pair) or loss.left(study, *pair) for pair in pairs):
        here = Path.cwd()
        out = study.out.relative_to(here) if study.out.is_relative_to(here) else study.out
        print(f"nothing is left: python -m benchmarks.scaling report {shlex.quote(str(out))}", flush=True)
    return codes


def _stopped(study: Study, at: str) -> ExitCode:
    print(f"the budget of {study.budget_s:g} s is over before {at}: the same command goes on", flush=True)
    return ExitCode.CRASHED


def contenders(device: str, devices: int) -> list[Contender]:
    """Who is timed: our own steps, and the baselines that exist there. DDP on one device is eager."""
    own = [("torch", AUTO_MODES[device]["torch"]), *(("jax", mode) for mode in JAX_MODES[device])]
    wanted = ("eager", "compile") if devices == 1 else ("ddp",)
    stock = [("torch", name) for name in wanted] + [("jax", "jit")]
    return [*own, *((s, f"baseline:{n}") for s, n in stock if why_not(s, n, device, devices) is None)]


def bench_left(study: Study, name: str, devices: int) -> list[Contender] | None:
    """The contenders without two finished passes; None where nothing is left."""
    wanted, folder = contenders(study.device, devices), newest(_home(study, name, devices), blocks.FOLDER)
    if folder is None:
        return wanted
    made = [block for call in blocks.calls(folder) for block in call.blocks]
    left = [one for one in wanted if not any(block.whole(folder, [one]) for block in made)]
    return left or None


def _home(study: Study, name: str, devices: int) -> Path:
    return study.out / "bench" / f"{name}_{devices}"


def bench_words(study: Study, name: str, devices: int, left: Sequence[Contender]) -> list[str]:
    """The command that measures what is left of one preset on so many devices; our own steps always."""
    modes = ",".join(f"jax={mode}" for mode in JAX_MODES[study.device])
    stock = [(side, mode) for side, mode in left if mode.startswith("baseline:")]
    words = ["bench", name, "--device", study.device, "--devices", str(devices), "--mode", modes]
    words += ["--baselines", ",".join(f"{side}:{mode.removeprefix('baseline:')}" for side, mode in stock)]
    words += ["--out", str(_home(study, name, devices)), *study.more]
    if folder := newest(_home(study, name, devices), blocks.FOLDER):
        words += ["--into", str(folder)]
    return words + ["--trace"] * study.traced


def _bench(study: Study, name: str, devices: int) -> ExitCode:
    left = bench_left(study, name, devices)
    assert left is not None
    return parity(study, bench_words(study, name, devices, left), f"bench_{name}_{devices}")
