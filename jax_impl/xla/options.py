"""What the words of a mode (`spec/jit.py`) are for XLA: its command buffers (CUDA graphs) and their order.

Must not: change what a program computes.
"""

from typing import Any

from jax_impl.xla import flags
from spec.jit import JitOptions

_MORE = {
    "collectives": ("COLLECTIVES",),
    "while": ("WHILE",),
    "all": ("COLLECTIVES", "WHILE", "CONVOLUTION"),
}


def mode_options(options: JitOptions) -> dict[str, Any]:
    """Compiler options of one program, over the user's XLA_FLAGS."""
    told: dict[str, Any] = {}
    if options.command_buffers != "default":
        # Options of one program know no `+COLLECTIVES`: the whole list is said.
        usual = [] if options.command_buffers == "off" else flags.values()["xla_gpu_enable_command_buffer"]
        more = _MORE.get(options.command_buffers, ())
        told["xla_gpu_enable_command_buffer"] = ",".join(dict.fromkeys([*usual, *more]))
    if options.smallest_buffer is not None:
        told["xla_gpu_graph_min_graph_size"] = options.smallest_buffer
    if options.concurrent:
        told["xla_gpu_command_buffer_scheduling_mode"] = "CONCURRENT"
    if options.arrays == "buckets":
        # They are the reductions: put together once more, they would be copied.
        told["xla_gpu_all_reduce_combine_threshold_bytes"] = 0
    if options.overlap:
        told["xla_gpu_enable_latency_hiding_scheduler"] = True
    return told
