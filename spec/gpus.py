"""The NVIDIA driver and its GPUs, as the driver tells them through NVML: no CUDA context, no framework."""

from collections.abc import Callable
from typing import Any


def describe_gpus() -> dict[str, Any]:
    """`driver` and `gpus` for a manifest; both null, with `gpus_reason`, where NVML cannot be asked.

    All GPUs of the host are listed, whatever CUDA_VISIBLE_DEVICES hides. A fact that a GPU withholds is null.
    """
    try:
        import pynvml
    except ImportError:
        return _none("nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _none(f"NVML: {error}")
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return {
            "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
            "gpus": [_describe_gpu(pynvml, handle) for handle in handles],
        }
    except pynvml.NVMLError as error:
        return _none(f"NVML: {error}")
    finally:
        pynvml.nvmlShutdown()


def _none(reason: str) -> dict[str, Any]:
    return {"driver": None, "gpus": None, "gpus_reason": reason}


def _describe_gpu(nvml: Any, handle: Any) -> dict[str, Any]:
    """The facts of one GPU; clocks in MHz, power in W, memory in bytes."""

    def ask(question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(handle, *arguments)
        except nvml.NVMLError:
            return None

    memory = ask(nvml.nvmlDeviceGetMemoryInfo)
    power_limit_mw = ask(nvml.nvmlDeviceGetEnforcedPowerLimit)
    clocks = {"graphics": nvml.NVML_CLOCK_GRAPHICS, "sm": nvml.NVML_CLOCK_SM, "memory": nvml.NVML_CLOCK_MEM}
    return {
        "name": _text(ask(nvml.nvmlDeviceGetName)),
        "uuid": _text(ask(nvml.nvmlDeviceGetUUID)),
        "memory_bytes": None if memory is None else int(memory.total),
        "power_limit_w": None if power_limit_mw is None else power_limit_mw / 1000,
        "clocks_mhz": {name: ask(nvml.nvmlDeviceGetClockInfo, clock) for name, clock in clocks.items()},
        "max_clocks_mhz": {
            name: ask(nvml.nvmlDeviceGetMaxClockInfo, clock) for name, clock in clocks.items()
        },
        "mig": _switch(_first(ask(nvml.nvmlDeviceGetMigMode))),
        "ecc": _switch(_first(ask(nvml.nvmlDeviceGetEccMode))),
        "persistence": _switch(ask(nvml.nvmlDeviceGetPersistenceMode)),
    }


def _first(pair: Any) -> Any:
    """The current of a (current, pending) pair."""
    return None if pair is None else pair[0]


def _switch(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _text(value: str | bytes | None) -> str | None:
    """Older versions of the binding answer in bytes."""
    return value.decode() if isinstance(value, bytes) else value
