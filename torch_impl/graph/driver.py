"""The CUDA driver through cuda.bindings: imported when first needed, every failure an exception with a name.

cuda.bindings comes with torch's CUDA builds and is absent from its CPU builds, where this package must still
import. Must not: know what it is called for.
"""

from functools import cache
from types import ModuleType
from typing import Any

from spec.errors import RuleError


class DriverError(RuntimeError):
    """A call that the driver refused: its name and the driver's name for the error."""


@cache
def driver() -> ModuleType:
    """`cuda.bindings.driver`.

    Raises:
      RuleError: the package is missing, or older than CUDA 13, whose signatures differ.
    """
    return _import("driver")


@cache
def nvrtc() -> ModuleType:
    """`cuda.bindings.nvrtc`."""
    return _import("nvrtc")


@cache
def runtime() -> ModuleType:
    """`cuda.bindings.runtime`, whose calls profilers show."""
    return _import("runtime")


def call(name: str, *arguments: Any) -> Any:
    """Calls a function of the driver.

    Returns:
      None, its one result, or a tuple of them; the status is taken off.

    Raises:
      DriverError: the status is not success.
    """
    status, *values = getattr(driver(), name)(*arguments)
    if status:
        raise DriverError(f"{name}: {status.name}")
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def _import(name: str) -> ModuleType:
    try:
        from importlib import import_module

        import cuda.bindings

        version = cuda.bindings.__version__
        module = import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise RuleError(
            "Graph modes need the package cuda-bindings.", str(error), "pip install 'cuda-bindings>=13'"
        ) from None
    if int(version.partition(".")[0]) < 13:
        raise RuleError(
            "Graph modes need cuda-bindings of CUDA 13 or newer.",
            f"cuda-bindings {version}",
            "take a torch built for CUDA 13",
        )
    return module
