"""An executable graph and the one call that launches it.

Launched past torch's `replay()`, which costs more and would also move torch's random generator: a graph that
uses that generator is launched by `replay()` instead, and the launches it makes besides are counted. Must
not: touch the batch or the metrics.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from torch_impl.graph.driver import DriverError, call, driver, runtime

FLAGS = {"plain": 0, "device_launch": 4}
"""Ways to instantiate, in the order in which they are tried. The second takes kernels, copies, fills and
child graphs alone."""

REPLAY_LAUNCHES = 3
"""What torch's `replay()` launches where the generator was used: seed and offset written, then the graph."""


@dataclass
class Executable:
    """A graph ready to run.

    `launch()` puts it on its stream and returns; it raises what the driver says.
    """

    launch: Callable[[], None]
    destroy: Callable[[], None]
    way: str
    """`plain`, `device_launch` or `torch replay`."""
    launches_per_step: int
    instantiate_s: float
    driver_bytes: int
    """Device memory that went to the driver, outside torch's allocator."""
    refusals: dict[str, str]
    """Ways that were refused, and by which error."""


def instantiate(
    graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream, ways: Iterable[str] = tuple(FLAGS)
) -> Executable:
    """Makes a captured graph (`keep_graph=True`) executable on a stream, past torch's replay.

    Args:
      ways: of `FLAGS`; the first that the driver accepts is taken.

    Raises:
      DriverError: no way to instantiate was accepted.
    """
    refusals: dict[str, str] = {}
    raw = driver().CUgraph(graph.raw_cuda_graph())
    for way in ways:
        free, started = torch.cuda.mem_get_info(stream.device)[0], time.perf_counter()
        try:
            handle = call("cuGraphInstantiate", raw, FLAGS[way])
        except DriverError as error:
            refusals[way] = str(error)
            continue
        try:
            call("cuGraphUpload", handle, stream.cuda_stream)
        except DriverError as error:
            call("cuGraphExecDestroy", handle)
            refusals[way] = str(error)
            continue
        stream.synchronize()
        return Executable(
            launch=_launcher(handle, stream),
            destroy=partial(call, "cuGraphExecDestroy", handle),
            way=way,
            launches_per_step=1,
            instantiate_s=time.perf_counter() - started,
            driver_bytes=max(0, free - torch.cuda.mem_get_info(stream.device)[0]),
            refusals=refusals,
        )
    raise DriverError(f"no way to instantiate was accepted: {refusals}")


def instantiate_for_replay(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Executable:
    """The same through torch, whose `replay()` moves the random generator on as eager steps would."""
    free, started = torch.cuda.mem_get_info(stream.device)[0], time.perf_counter()
    graph.instantiate()

    def launch() -> None:
        with torch.cuda.stream(stream):
            graph.replay()

    return Executable(
        launch=launch,
        destroy=lambda: None,
        way="torch replay",
        launches_per_step=REPLAY_LAUNCHES,
        instantiate_s=time.perf_counter() - started,
        driver_bytes=max(0, free - torch.cuda.mem_get_info(stream.device)[0]),
        refusals={"plain": "the step uses torch's random generator, which only torch's replay moves on"},
    )


def _launcher(handle: Any, stream: torch.cuda.Stream) -> Callable[[], None]:
    """The call with everything looked up beforehand: what is left is one function and one comparison.

    The runtime's call, not the driver's, so that profilers count it.
    """
    function = runtime().cudaGraphLaunch
    executable, on = runtime().cudaGraphExec_t(int(handle)), runtime().cudaStream_t(stream.cuda_stream)

    def launch() -> None:
        (status,) = function(executable, on)
        if status:
            raise DriverError(f"cudaGraphLaunch: {status.name}")

    return launch
