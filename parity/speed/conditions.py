"""What else the machine did while it was timed: the load before a launch, clocks and throttling beside it.

One line a sample in `launches/NNN_SIDE.conditions.jsonl`. Everything is read and nothing is set: clocks stay
as the driver has them. Must not: judge what was seen; `warnings.py` does.
"""

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any, Self

from parity.devices import count_cores
from spec import record

SUFFIX = ".conditions.jsonl"

_PERIOD_S = 0.1

_THROTTLE = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "too hot (software)",
    0x40: "too hot (hardware)",
    0x80: "power brake",
}
"""Bits of NVML's clocks event reasons that slow a busy GPU down; being idle, or clocks that a user chose, do
not."""


class Watch:
    """Samples while a launch runs; for a `with` block.

    Args:
      path: the file to write.
      gpus: how many GPUs of this host the launch uses; 0 on a CPU.
      first: whether nothing of this command ran before, so that the load is that of others.
    """

    def __init__(self, path: Path, gpus: int, first: bool) -> None:
        self._lines, self._first = record.Lines(path), first
        self._nvml, self._handles = _open(gpus)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        load = os.getloadavg()[0] if self._first and hasattr(os, "getloadavg") else None
        processes = [_ask(self._nvml, "nvmlDeviceGetComputeRunningProcesses", one) for one in self._handles]
        self._lines.write(
            {
                "kind": "before",
                "at": time.time(),
                "load_of_others": load,
                "cores": count_cores(),
                "gpu_processes": [None if found is None else len(found) for found in processes],
            }
        )
        if self._handles:
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._handles:
            self._thread.join()
            self._nvml.nvmlShutdown()
        self._lines.close()

    def _sample(self) -> None:
        while not self._stop.wait(_PERIOD_S):
            gpus = [self._look(handle) for handle in self._handles]
            self._lines.write({"kind": "gpus", "at": time.time(), "gpus": gpus})

    def _look(self, handle: Any) -> dict[str, Any]:
        """Clocks in MHz, temperature in degrees Celsius, power in W; null for what the GPU does not tell."""
        nvml = self._nvml
        bits = _ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", handle)
        power_mw = _ask(nvml, "nvmlDeviceGetPowerUsage", handle)
        return {
            "sm_mhz": _ask(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_SM),
            "memory_mhz": _ask(nvml, "nvmlDeviceGetClockInfo", handle, nvml.NVML_CLOCK_MEM),
            "throttled": None if bits is None else [word for bit, word in _THROTTLE.items() if bits & bit],
            "celsius": _ask(nvml, "nvmlDeviceGetTemperature", handle, nvml.NVML_TEMPERATURE_GPU),
            "power_w": None if power_mw is None else power_mw / 1000,
        }


def read(launches: Path) -> list[dict[str, Any]]:
    """Every sample beside the launches of a run, in the order of time; each knows its launch."""
    found: list[dict[str, Any]] = []
    for path in sorted(launches.glob(f"*{SUFFIX}")):
        launch = path.name.removesuffix(SUFFIX)
        found += [{"launch": launch, **item} for item in record.read_lines(path)]
    return sorted(found, key=lambda item: item["at"])


def _open(gpus: int) -> tuple[Any, list[Any]]:
    """NVML and the handles of the first GPUs that a new process would see; none where it cannot be asked."""
    if not gpus:
        return None, []
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        # Not installed, or no driver: the figures are then without conditions, and no worse.
        return None, []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = _ask(pynvml, "nvmlDeviceGetCount") or 0
    names = map(str, range(count)) if visible is None else visible.split(",")
    handles = []
    for name in [name.strip() for name in names][:gpus]:
        with contextlib.suppress(pynvml.NVMLError):
            by_index = name.isdigit()
            find = pynvml.nvmlDeviceGetHandleByIndex if by_index else pynvml.nvmlDeviceGetHandleByUUID
            handles.append(find(int(name) if by_index else name))
    return pynvml, handles


def _ask(nvml: Any, question: str, *arguments: Any) -> Any:
    """The answer, or None where this GPU or this driver has none."""
    try:
        return getattr(nvml, question)(*arguments)
    except Exception:
        return None
