"""The kernels of `kernels.cu`, compiled by NVRTC once a device, launched or put into a graph.

Must not: compute anything of a step; they move bytes.
"""

import ctypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from torch_impl.graph.driver import DriverError, call, driver, nvrtc

SOURCE = Path(__file__).with_name("kernels.cu")
THREADS = 256
BYTES_PER_BLOCK = 16 * THREADS
MAX_BLOCKS = 1024

POINTER, WORD = ctypes.c_void_p, ctypes.c_uint64


@dataclass(frozen=True)
class Launch:
    """One kernel with its grid and arguments."""

    kernel: str
    blocks: tuple[int, int]
    values: tuple[int, ...]
    types: tuple[Any, ...]

    def run(self, stream: torch.cuda.Stream) -> None:
        """Puts it on a stream; a stream that is being captured takes it as a node."""
        function = functions(stream.device_index)[self.kernel]
        sizes = (*self.blocks, 1, THREADS, 1, 1)
        call("cuLaunchKernel", function, *sizes, 0, stream.cuda_stream, (self.values, self.types), 0)

    def node_params(self, device_index: int) -> Any:
        """`CUDA_KERNEL_NODE_PARAMS` for a node that does the same."""
        params = driver().CUDA_KERNEL_NODE_PARAMS()
        params.func = functions(device_index)[self.kernel]
        params.gridDimX, params.gridDimY, params.gridDimZ = (*self.blocks, 1)
        params.blockDimX, params.blockDimY, params.blockDimZ = THREADS, 1, 1
        params.sharedMemBytes = 0
        params.kernelParams = (self.values, self.types)
        return params


def fill(start: int, pitch: int, width: int, height: int, pattern: int) -> Launch:
    """Fills `height` rows of `width` bytes, `pitch` bytes apart, with a 4-byte pattern."""
    values, types = (start, pitch, width, height, pattern), (POINTER, WORD, WORD, WORD, ctypes.c_uint32)
    return Launch("fill", (_blocks(width), min(height, MAX_BLOCKS)), values, types)


def copy(to: int, source: int, num_bytes: int) -> Launch:
    """Copies bytes between device buffers."""
    return Launch("copy", (_blocks(num_bytes), 1), (to, source, num_bytes), (POINTER, POINTER, WORD))


def gather(to: torch.Tensor, ring: torch.Tensor, tick: torch.Tensor) -> Launch:
    """Copies row (tick mod rows) of `ring` to `to`; rows are a multiple of 16 bytes."""
    num_slots, row_bytes = len(ring), ring[0].nbytes
    assert row_bytes == to.nbytes and row_bytes % 16 == 0, (row_bytes, to.nbytes)
    values = (to.data_ptr(), ring.data_ptr(), row_bytes // 16, num_slots, tick.data_ptr())
    return Launch("gather", (_blocks(row_bytes), 1), values, (POINTER, POINTER, WORD, WORD, POINTER))


def publish(ring: torch.Tensor, metrics: torch.Tensor, tick: torch.Tensor) -> Launch:
    """Writes the metrics with sequence number tick + 1 to row ((tick + 1) mod rows) and counts tick up."""
    num_slots, num_words = ring.shape
    assert num_words * 4 == metrics.nbytes, (num_words, metrics.nbytes)
    values = (ring.data_ptr(), metrics.data_ptr(), num_words, num_slots, tick.data_ptr())
    return Launch("publish", (1, 1), values, (POINTER, POINTER, WORD, WORD, POINTER))


@cache
def functions(device_index: int) -> dict[str, Any]:
    """Function handles by name in the device's context, which stay loaded for the life of the process."""
    major, minor = torch.cuda.get_device_capability(device_index)
    image = compile_image(f"sm_{major}{minor}")
    library = call("cuLibraryLoadData", image, [], [], 0, [], [], 0)
    return {
        name: call("cuKernelGetFunction", call("cuLibraryGetKernel", library, name.encode()))
        for name in ("fill", "copy", "gather", "publish")
    }


@cache
def compile_image(architecture: str) -> bytes:
    """Machine code of `kernels.cu` for an architecture such as sm_90; needs no GPU."""
    api = nvrtc()
    source, options = SOURCE.read_bytes(), [f"--gpu-architecture={architecture}".encode()]
    _, program = api.nvrtcCreateProgram(source, SOURCE.name.encode(), 0, [], [])
    (status,) = api.nvrtcCompileProgram(program, len(options), options)
    if status:
        _, size = api.nvrtcGetProgramLogSize(program)
        log = b" " * size
        api.nvrtcGetProgramLog(program, log)
        raise DriverError(f"nvrtc: {status.name}\n{log.decode()}")
    _, size = api.nvrtcGetCUBINSize(program)
    image = b" " * size
    api.nvrtcGetCUBIN(program, image)
    api.nvrtcDestroyProgram(program)
    return image


def _blocks(num_bytes: int) -> int:
    return max(1, min(MAX_BLOCKS, -(-num_bytes // BYTES_PER_BLOCK)))
