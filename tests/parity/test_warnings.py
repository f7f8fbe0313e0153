"""Every warning from records in which it is there, and none from records in which it is not."""

import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.speed import conditions
from parity.speed.statistics import ratio
from parity.speed.warnings import drift, of_contender, of_machine, slow_first
from tests.parity.timed import time_pass

QUIET = [1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 0.98, 1.01]
EAGER = ("torch", "eager")


def kinds(
    folder: Path, *passes: list[float], seen: Sequence[dict[str, Any]] = (), **options: Any
) -> list[str]:
    """Kinds of the warnings about passes with these windows."""
    written = [time_pass(folder / str(i), EAGER, one, **options) for i, one in enumerate(passes)]
    return [one.kind for one in of_contender("torch eager", written, seen)]


def test_quiet_passes_have_no_warning(tmp_path: Path) -> None:
    assert kinds(tmp_path, QUIET, QUIET) == []


def test_samples_that_are_too_few_are_told(tmp_path: Path) -> None:
    assert kinds(tmp_path, QUIET[:4], QUIET[:4]) == ["few windows"]
    assert kinds(tmp_path / "one", QUIET) == ["one pass"]


def test_a_start_that_is_not_the_initial_state_is_told(tmp_path: Path) -> None:
    assert kinds(tmp_path, QUIET, QUIET, initial=False) == ["not the initial state"]


def test_a_slow_first_window_is_told(tmp_path: Path) -> None:
    assert kinds(tmp_path, [1.5, *QUIET], QUIET) == ["first window"]
    assert not slow_first([1.03, *QUIET])
    assert not slow_first([1.5, 1.0, 1.6, 0.7, 1.4])


def test_drift_is_a_trend_and_not_a_spread() -> None:
    assert drift([1 + 0.01 * i for i in range(10)]) == pytest.approx(0.07 / 1.045)
    assert drift([1 + 0.001 * i for i in range(10)]) == 0
    generator = np.random.default_rng(0)
    found = [drift(generator.normal(1, 0.05, 10).tolist()) for _ in range(500)]
    # Two-sided at 1 in 100.
    assert sum(each != 0 for each in found) <= 15


def test_drift_is_told_with_its_sign(tmp_path: Path) -> None:
    passes = [time_pass(tmp_path / str(i), EAGER, [1 - 0.02 * n for n in range(9)]) for i in range(2)]
    (found,) = of_contender("torch eager", passes, [])
    assert (found.kind, found.found[:20]) == ("drift", "step times moved by ")
    assert "-13 %" in found.found


def clocks(*mhz: int, throttled: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Samples at the ends of the windows that `time_pass` writes."""
    return [
        {
            "kind": "gpus",
            "at": 1e9 + number,
            "launch": "001",
            "gpus": [{"sm_mhz": each, "throttled": list(throttled)}],
        }
        for number, each in enumerate(mhz)
    ]


def test_clocks_that_moved_are_told(tmp_path: Path) -> None:
    steady, falling = clocks(*[1980] * 8), clocks(1980, *[1950] * 6, 1800)
    assert kinds(tmp_path, QUIET, QUIET, seen=steady) == []
    assert kinds(tmp_path, QUIET, QUIET, seen=falling) == ["clocks moved"]


def test_a_gpu_that_slowed_itself_down_is_told_only_while_it_was_timed(tmp_path: Path) -> None:
    hot = clocks(*[1980] * 8, throttled=("too hot (hardware)",))
    assert kinds(tmp_path, QUIET, QUIET, seen=hot) == ["throttled"]
    assert kinds(tmp_path / "later", QUIET, QUIET, seen=hot, ended=2e9) == []


def before(load: float | None, processes: list[int | None]) -> dict[str, Any]:
    return {
        "kind": "before",
        "launch": "001_torch",
        "at": 0.0,
        "load_of_others": load,
        "cores": 2,
        "gpu_processes": processes,
    }


def test_a_busy_machine_and_a_shared_gpu_are_told() -> None:
    assert [one.kind for one in of_machine([before(0.3, [0]), before(None, [None])])] == []
    found = list(of_machine([before(1.5, [0, 2])]))
    assert [one.kind for one in found] == ["machine busy", "GPU shared"]
    assert "load average 1.50 on 2 cores" in found[0].found
    assert "GPU 1 " in found[1].found


def test_a_watch_samples_what_the_driver_tells_and_sets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for NVML that answers some questions, refuses others, and has nothing that sets."""
    nvml = types.ModuleType("pynvml")
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: ["someone"],
        "nvmlDeviceGetClockInfo": lambda handle, clock: 1980 + clock,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x40 | 0x01,
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "NVMLError": RuntimeError,
    }
    for name, answer in answers.items():
        setattr(nvml, name, answer)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(conditions, "_PERIOD_S", 0.01)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    path = tmp_path / f"001_torch{conditions.SUFFIX}"
    with conditions.Watch(path, gpus=1, first=True) as watch:
        watch._stop.wait(0.2)
    first, *samples = conditions.read(tmp_path)
    assert (first["kind"], first["gpu_processes"], first["launch"]) == ("before", [1], "001_torch")
    assert first["load_of_others"] >= 0
    assert samples[0]["gpus"] == [
        {
            "sm_mhz": 1981,
            "memory_mhz": 1982,
            "throttled": ["too hot (hardware)"],
            "celsius": None,
            "power_w": None,
        }
    ]


def test_on_a_cpu_only_the_load_before_the_first_launch_is_kept(tmp_path: Path) -> None:
    for number, first in ((1, True), (2, False)):
        with conditions.Watch(tmp_path / f"{number:03d}_torch{conditions.SUFFIX}", gpus=0, first=first):
            pass
    loads = [item["load_of_others"] for item in conditions.read(tmp_path)]
    assert loads[0] is not None and loads[1] is None


def test_a_clear_ratio_needs_nothing_more() -> None:
    found = ratio([[2.0, 2.1, 1.9]] * 2, [[1.0, 1.1, 0.9]] * 2)
    assert found is not None
    assert (found.verdict, found.settle) == ("SLOWER", None)


def test_how_many_more_windows_would_settle_a_ratio_at_the_spread_seen() -> None:
    """Windows grow as the square of how much narrower the interval must be; measured again, it is."""
    generator = np.random.default_rng(1)

    def measured(windows: int) -> Any:
        a, b = (generator.normal(mean, 0.15, windows).tolist() for mean in (1.08, 1.0))
        return ratio([a], [b])

    unclear = next(found for _ in range(50) if (found := measured(20)).verdict == "AMBIGUOUS")
    assert unclear.settle is not None and "more windows" in unclear.settle
    clear = [measured(400).verdict for _ in range(20)]
    assert clear.count("SLOWER") >= 18


def test_passes_that_part_are_not_settled_by_windows() -> None:
    found = ratio([[1.0] * 10, [1.4] * 10], [[1.0] * 10, [1.0] * 10])
    assert found is not None and found.verdict == "AMBIGUOUS"
    assert found.settle is not None and "more windows will not help" in found.settle


def test_a_ratio_at_the_bound_is_not_settled_by_windows() -> None:
    values = [0.9, 0.95, 1.0, 1.05, 1.1] * 4
    found = ratio([[1.0201 * value for value in values]], [values])
    assert found is not None and found.verdict == "AMBIGUOUS"
    assert found.settle is not None and "too near to" in found.settle
