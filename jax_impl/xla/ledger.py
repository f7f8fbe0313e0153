"""What of a GPU program runs inside command buffers (CUDA graphs) and what outside, and why.

XLA writes the sequence of its thunks beside a compiled program when it is told to. The text is no promised
format: what cannot be read is null, with the reason. Must not: run a program.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^(?P<indent> *)\d+: k(?P<kind>\w+)")
_BUFFER = "CommandBuffer"
_COLLECTIVE = re.compile(
    r"AllReduce|AllGather|ReduceScatter|AllToAll|CollectivePermute|CollectiveBroadcast|Nccl|CollectiveKernel"
)
_TYPES = {
    "While": "WHILE",
    "Conditional": "CONDITIONAL",
    "Gemm": "CUBLAS",
    "CublasLtMatmul": "CUBLASLT",
    "CuDnn": "CUDNN",
    "CustomCall": "CUSTOM_CALL",
    "DynamicSlice": "DYNAMIC_SLICE_FUSION",
    "Convolution": "CONVOLUTION",
}
"""The command-buffer type that each kind of thunk belongs to; kernels, copies and fills are FUSION."""
_KERNELS = ("Kernel", "CustomKernel")
_CONTAINERS = (_BUFFER, "While", "Conditional", "Sequential")

NO_CPU = "XLA's CPU backend has no command buffers"
NOT_WRITTEN = "XLA wrote no thunk sequence"
CACHED = "not asked for where JAX's persistent cache is on: the folder it is written to would change the key"


@dataclass(frozen=True)
class Thunk:
    """One line of the sequence."""

    kind: str
    captured: bool
    """Whether it stands inside a command buffer."""
    loops: int
    """How many host loops it stands in."""


def read_ledger(folder: Path, enabled: Iterable[str], smallest: int) -> dict[str, Any] | None:
    """The ledger of the one program that was dumped into a folder; None where there is none.

    Args:
      enabled: command-buffer types that XLA was told to use.
      smallest: fewest thunks that make a command buffer.
    """
    # XLA writes the second file only where a pass changed the first.
    for pattern in ("*thunk_sequence_after_thunk_passes.txt", "*thunk_sequence.txt"):
        for file in sorted(folder.glob(pattern)):
            return ledger(file.read_text(), enabled, smallest)
    return None


def ledger(text: str, enabled: Iterable[str], smallest: int) -> dict[str, Any]:
    """Counts of thunks, kernels, collectives and command buffers, and the reason of every break."""
    thunks = read_thunks(text)
    inside = [thunk for thunk in thunks if thunk.captured and thunk.kind not in _CONTAINERS]
    outside = [thunk for thunk in thunks if not thunk.captured and thunk.kind not in _CONTAINERS]
    loops = [thunk for thunk in thunks if thunk.kind == "While" and not thunk.captured]
    buffers = [thunk for thunk in thunks if thunk.kind == _BUFFER]
    top = [thunk for thunk in (*buffers, *outside) if thunk.loops == 0]
    kinds = Counter(thunk.kind for thunk in (*outside, *loops))
    return {
        "command_buffers": len(buffers),
        "thunks_in": len(inside),
        "thunks_out": len(outside),
        "kernels_in": sum(thunk.kind in _KERNELS for thunk in inside),
        "kernels_out": sum(thunk.kind in _KERNELS for thunk in outside),
        "collectives_in": sum(bool(_COLLECTIVE.search(thunk.kind)) for thunk in inside),
        "collectives_out": sum(bool(_COLLECTIVE.search(thunk.kind)) for thunk in outside),
        "host_loops": len(loops),
        "launches": None if loops else len(top),
        "updates": None,
        "breaks": {kind: why_outside(kind, enabled, smallest) for kind in sorted(kinds)},
        "reasons": {
            # Whether an address has moved, only a run shows.
            "updates": "a buffer is updated before a launch where an address in it has moved: counted in a "
            "trace, as graph_updates_per_step",
        }
        | ({"launches": "a loop on the host launches its body as often as it turns"} if loops else {}),
    }


def read_thunks(text: str) -> list[Thunk]:
    """The thunks of a sequence, in order."""
    found: list[Thunk] = []
    around: list[tuple[int, str]] = []
    for line in text.splitlines():
        if (match := _LINE.match(line)) is None:
            continue
        depth, kind = len(match["indent"]), match["kind"]
        while around and around[-1][0] >= depth:
            around.pop()
        kinds = [outer for _, outer in around]
        found.append(Thunk(kind, _BUFFER in kinds, kinds.count("While")))
        if kind in _CONTAINERS:
            around.append((depth, kind))
    return found


def why_outside(kind: str, enabled: Iterable[str], smallest: int) -> str:
    """Why a thunk of this kind is in no command buffer, as far as its kind tells."""
    needed = "COLLECTIVES" if _COLLECTIVE.search(kind) else _TYPES.get(kind, "FUSION")
    if needed not in set(enabled):
        return f"{needed} is not among the command-buffer types that XLA was told to use"
    return f"{needed} may be captured: fewer than {smallest} such in a row, or one of them could not be"
