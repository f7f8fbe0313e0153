"""Measures a study by the real command line: `parity bench`, `parity run` and `parity compare`.

What is finished is not run again. The largest number of devices comes last, and what the smaller ones say
of each is written down before it is measured. Must not: compute a figure.
"""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.scaling import prediction
from benchmarks.scaling.prediction import NodeRecord
from benchmarks.scaling.report import LOSS
from parity.bench import blocks
from parity.bench.contenders import Contender, why_not
from spec import record
from spec.errors import PRECEDENCE, ExitCode, RuleError
from spec.presets import preset
from spec.run import AUTO_MODES

ROOT = Path(__file__).resolve().parents[2]
LOSS_STEPS = 20
JAX_MODES = {"cuda": ("jit:concurrent", "jit:concurrent+apart+overlap"), "cpu": ("jit",)}
"""Beside each other; the faster one is the family's."""
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
          RuleError: no device, or an unknown preset.
        """
        if not self.devices or min(self.devices) < 1:
            raise RuleError("A study has numbers of devices from 1 on.", f"--devices {self.devices}")
        for name in self.presets:
            preset(name)

    @property
    def left_s(self) -> float:
        """Of the budget."""
        return self.budget_s - (time.monotonic() - self.began)


def measure(study: Study) -> ExitCode:
    """Measures what is left, as far as the budget goes. Returns the gravest exit code."""
    codes = [ExitCode.SAME]
    counts = sorted(set(study.devices))
    for number, devices in enumerate(counts):
        for name in study.presets:
            if bench_left(study, name, devices) is None:
                continue
            if number and not prediction.path_of(study.out, devices).exists():
                made = prediction.write([study.out], devices, study.out, study.assumed)
                print(f"predicted {devices} devices before measuring them: {made}", flush=True)
            if study.left_s < LEAST_S:
                return _stopped(study, f"bench {name} on {devices}")
            codes.append(_bench(study, name, devices))
        for name in study.presets:
            if not loss_left(study, name, devices):
                continue
            if study.left_s < LEAST_S:
                return _stopped(study, f"loss of {name} on {devices}")
            codes.append(_loss(study, name, devices))
    return _gravest(codes)


def _gravest(codes: Sequence[ExitCode]) -> ExitCode:
    return min(codes, key=[*PRECEDENCE, ExitCode.USAGE, ExitCode.SAME].index)


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
    wanted, folder = contenders(study.device, devices), _newest(_home(study, name, devices), blocks.FOLDER)
    if folder is None:
        return wanted
    made = [block for call in blocks.calls(folder) for block in call.blocks]
    left = [one for one in wanted if not any(block.whole(folder, [one]) for block in made)]
    return left or None


def _home(study: Study, name: str, devices: int) -> Path:
    return study.out / "bench" / f"{name}_{devices}"


def _newest(home: Path, what: str) -> Path | None:
    """The last run folder that has got as far as this file or folder."""
    return max((path.parent for path in home.glob(f"*/{what}")), default=None)


def bench_words(study: Study, name: str, devices: int, left: Sequence[Contender]) -> list[str]:
    """The command that measures what is left of one preset on so many devices; our own steps always."""
    modes = ",".join(f"jax={mode}" for mode in JAX_MODES[study.device])
    stock = [(side, mode) for side, mode in left if mode.startswith("baseline:")]
    words = ["bench", name, "--device", study.device, "--devices", str(devices), "--mode", modes]
    words += ["--baselines", ",".join(f"{side}:{mode.removeprefix('baseline:')}" for side, mode in stock)]
    words += ["--out", str(_home(study, name, devices)), *study.more]
    if folder := _newest(_home(study, name, devices), blocks.FOLDER):
        words += ["--into", str(folder)]
    return words + ["--trace"] * study.traced


def _bench(study: Study, name: str, devices: int) -> ExitCode:
    left = bench_left(study, name, devices)
    assert left is not None
    return _parity(study, bench_words(study, name, devices, left), f"bench_{name}_{devices}")


def global_batch(study: Study, name: str) -> int:
    """Rows of a step that every number of devices of the study can share: at least a device's own."""
    problem = preset(name).problem
    each = math.lcm(*study.devices) * problem.micro_batches
    return each * math.ceil(problem.global_batch / each)


def loss_left(study: Study, name: str, devices: int) -> bool:
    """Whether training on the same global batch is still to be made, or compared."""
    return devices > 1 and not (_compared(study, name, devices) / "compared.json").exists()


def _compared(study: Study, name: str, devices: int) -> Path:
    return study.out / LOSS / f"{name}_{devices}"


def _loss(study: Study, name: str, devices: int) -> ExitCode:
    """Trains on one device, unless that is there, and on all; compares each side with itself."""
    codes = [_trained(study, name, n) for n in (1, devices) if not _whole(study, name, n)]
    if not all(_whole(study, name, n) for n in (1, devices)):
        return _gravest(codes)
    home = _compared(study, name, devices)
    home.mkdir(parents=True, exist_ok=True)
    about = {"preset": name, "devices": devices, "global_batch": global_batch(study, name)}
    record.write_json(home / "about.json", about | {"steps": LOSS_STEPS})
    runs = [str(_newest(_trained_home(study, name, n), "run.json")) for n in (1, devices)]
    words = ["compare", *runs, "--json", str(home / "compared.json")]
    return _parity(study, words, f"compare_{name}_{devices}")


def _trained_home(study: Study, name: str, devices: int) -> Path:
    return study.out / LOSS / "runs" / f"{name}_{devices}"


def _whole(study: Study, name: str, devices: int) -> bool:
    folder = _newest(_trained_home(study, name, devices), "run.json")
    return folder is not None and len(list(folder.glob("passes/*run*/done.json"))) >= 2


def _trained(study: Study, name: str, devices: int) -> ExitCode:
    words = ["run", name, "--device", study.device, "--devices", str(devices), "--steps", str(LOSS_STEPS)]
    words += ["--global-batch", str(global_batch(study, name)), "--no-time"]
    words += ["--out", str(_trained_home(study, name, devices))]
    return _parity(study, words, f"loss_{name}_{devices}")


def _parity(study: Study, words: Sequence[str], name: str) -> ExitCode:
    """Runs one command of the project within the budget, as Ctrl-C would end it; its output is a log."""
    argv = [sys.executable, "-m", "parity", *words]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    log = study.out / "logs" / f"{name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"parity {' '.join(words)}", flush=True)
    environ = os.environ | {"PYTHONPATH": path}
    with log.open("a") as file:
        # Of a session of its own, so that Ctrl-C reaches it once, from here.
        started = subprocess.Popen(argv, env=environ, stdout=file, stderr=file, start_new_session=True)
        try:
            code = _wait(started, max(study.left_s, LEAST_S))
        except KeyboardInterrupt:
            _end(started)
            raise
    if code not in (0, int(ExitCode.DIFFERENT)):
        print(f"exit code {code}: {next(_last_words(log), '')}  log: {log}", flush=True)
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


def _last_words(log: Path) -> Iterator[str]:
    """The lines of a log that say something, from its end."""
    return (line.strip() for line in reversed(log.read_text().splitlines()) if line.strip())
