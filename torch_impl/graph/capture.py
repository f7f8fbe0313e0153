"""Captures a function of the device's work as a CUDA graph, or says in which line of whose file it cannot be.

Warm-up and capture run on one stream: autograd and cuBLAS keep to the stream on which they were first used.
Capturing does not run anything. Must not: keep a half-made graph; a failure leaves the stream usable.
"""

import gc
import linecache
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

_TORCH = str(Path(torch.__file__).parent)
_HERE = str(Path(__file__).parent)

_CAUSES = (
    ("called a synchronizing CUDA operation", "the host waits for a value of the device here"),
    (
        "legacy stream",
        "a loss or output of an earlier backward, made on another stream, is still alive; delete it",
    ),
    ("when stream is capturing", "this call is not allowed while a graph is captured"),
    ("capture", "this call broke the capture"),
    ("out of memory", "the device has no memory left"),
)

WARMUP_RUNS = 2
"""The first compiles and makes handles; the second is watched for waits of the host."""


class CaptureRefused(RuntimeError):
    """The step cannot be captured: what, where, and what to do. The state is as it was."""


def warm_up(body: Callable[[], None], stream: torch.cuda.Stream) -> float:
    """Runs the body on the capture stream until nothing is left to be set up.

    Returns:
      Seconds of the first run, in which compilers work.

    Raises:
      CaptureRefused: the body fails, or makes the host wait for the device.
    """
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    first_s, started = 0.0, time.perf_counter()
    for run in range(WARMUP_RUNS):
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings():
            # That it does not find every wait is no news to the user: capture finds the others.
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
            torch.cuda.set_sync_debug_mode("error" if run else "default")
        try:
            with torch.cuda.stream(stream):
                body()
        except Exception as error:
            raise _refusal(error, "warm-up") from error
        finally:
            torch.cuda.set_sync_debug_mode(mode)
        stream.synchronize()
        first_s = first_s or time.perf_counter() - started
    return first_s


def capture(body: Callable[[], None], stream: torch.cuda.Stream, pool: Any) -> torch.cuda.CUDAGraph:
    """The graph of one run of the body; not instantiated.

    Raises:
      CaptureRefused: something in the body cannot be captured.
    """
    torch.cuda.synchronize(stream.device)
    torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    failure: Exception | None = None
    collecting = gc.isenabled()
    # The collector could let go of things whose release is a CUDA call.
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            _forget_streams()
            # Other threads (a loader that pins memory, NCCL's watchdog) may call what a capture forbids
            # this one.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                body()
            except Exception as error:
                failure = error
            # Ending a broken capture fails too; what broke it is the failure to tell.
            try:
                graph.capture_end()
            except Exception as error:
                failure = failure or error
    finally:
        if collecting:
            gc.enable()
    if failure is not None:
        _unwind(stream)
        raise _refusal(failure, "capture") from failure
    return graph


def _forget_streams() -> None:
    """Lets backward take the capture's stream where autograd remembers another one, if this torch can."""
    override = getattr(torch.autograd.graph, "set_override_stale_capture_stream", None)
    if override is not None:
        override(True)


def _refusal(error: Exception, phase: str) -> CaptureRefused:
    """The refusal that a failure becomes; its frames let go of the tensors of the attempt."""
    refusal = CaptureRefused(explain(error, phase))
    traceback.clear_frames(error.__traceback__)
    return refusal


def explain(error: BaseException, phase: str) -> str:
    """What failed in which line of the user's code, in one sentence or two."""
    message = str(error).strip().split("\n")[0]
    cause = next((words for pattern, words in _CAUSES if pattern in str(error)), "")
    where = _where(error.__traceback__)
    text = f"{phase} failed: {type(error).__name__}: {message}"
    return text + (f"; at {where}" if where else "") + (f" ({cause})" if cause else "")


def _where(trace: TracebackType | None) -> str:
    """file:line and source of the innermost frame that is neither torch's nor this package's."""
    frames = [
        frame for frame in traceback.extract_tb(trace) if not frame.filename.startswith((_TORCH, _HERE, "<"))
    ]
    if not frames:
        return ""
    frame = frames[-1]
    source = linecache.getline(frame.filename, frame.lineno or 0).strip()
    return f"{frame.filename}:{frame.lineno}: {source}"


def _unwind(stream: torch.cuda.Stream) -> None:
    """Takes the error that a broken capture left behind, so that the next call does not stumble over it."""
    try:
        torch.cuda.synchronize(stream.device)
    except RuntimeError:
        torch.cuda.synchronize(stream.device)
