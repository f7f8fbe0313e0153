"""The loss check: the same global batch trained on one and on several devices, each side against itself.

Must not: judge; `parity compare` does.
"""

import json
import math
from pathlib import Path

from benchmarks.scaling.report import LOSS
from benchmarks.scaling.study import Study, gravest, newest, parity
from parity.report.result import read_result
from spec import record
from spec.errors import ExitCode
from spec.presets import preset

STEPS = 20
FILE = "compared.json"


def global_batch(study: Study, name: str) -> int:
    """Rows of a step that every number of devices of the study can share: at least a device's own."""
    problem = preset(name).problem
    each = math.lcm(*study.devices) * problem.micro_batches
    return each * math.ceil(problem.global_batch / each)


def left(study: Study, name: str, devices: int) -> bool:
    """Whether training on the same global batch is still to be made, or compared."""
    return devices > 1 and not compared(study, name, devices).exists()


def compared(study: Study, name: str, devices: int) -> Path:
    """What `parity compare` found. Every global batch has its own: of two batches no run is comparable."""
    return study.out / LOSS / f"{name}_{devices}_batch{global_batch(study, name)}" / FILE


def check(study: Study, name: str, devices: int) -> ExitCode:
    """Trains on one device, unless that is there, and on all; compares each side with itself."""
    codes = [_trained(study, name, n) for n in (1, devices) if not _whole(study, name, n)]
    if not all(_whole(study, name, n) for n in (1, devices)):
        return gravest(codes)
    path = compared(study, name, devices)
    runs = [newest(_trained_home(study, name, n), "run.json") for n in (1, devices)]
    record.write_json(path.with_name("about.json"), {"preset": name, "devices": devices, **_about(runs[1])})
    words = ["compare", *map(str, runs), "--json", str(path)]
    return parity(study, words, f"compare_{name}_{devices}")


def _about(run: Path | None) -> dict[str, int]:
    """What a run was made with, as it says itself."""
    assert run is not None
    problem = json.loads((run / "run.json").read_text())["spec"]["problem"]
    return {"global_batch": problem["global_batch"], "steps": problem["steps"]}


def code(study: Study, name: str, devices: int) -> ExitCode:
    """What a comparison says that was made, whenever that was; SAME where there is none yet."""
    path = compared(study, name, devices)
    return ExitCode(read_result(path).exit_code) if path.exists() else ExitCode.SAME


def _trained_home(study: Study, name: str, devices: int) -> Path:
    return study.out / LOSS / "runs" / f"{name}_{devices}_batch{global_batch(study, name)}"


def _whole(study: Study, name: str, devices: int) -> bool:
    folder = newest(_trained_home(study, name, devices), "run.json")
    return folder is not None and len(list(folder.glob("passes/*run*/done.json"))) >= 2


def _trained(study: Study, name: str, devices: int) -> ExitCode:
    words = ["run", name, "--device", study.device, "--devices", str(devices), "--steps", str(STEPS)]
    words += ["--global-batch", str(global_batch(study, name)), "--no-time"]
    words += ["--out", str(_trained_home(study, name, devices))]
    return parity(study, words, f"loss_{name}_{devices}")
