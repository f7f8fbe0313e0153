"""What a `jit` mode of the JAX side may be told: words after a colon, such as `jit:k8+remat` or `jit:off`.

They say how the step is executed, never what it computes. A mode is one word on the command line and in every
record, so that contenders of a benchmark have names. Must not: know XLA's flags; `jax_impl/compile.py` does.
"""

from dataclasses import dataclass

from spec.errors import RuleError

TUNED = "PARITY_XLA_TUNED"
"""The variable that names the folder in which XLA keeps which kernels it found the fastest."""

COMMAND_BUFFERS = {
    "default": "what XLA puts into command buffers (CUDA graphs) by itself: no collective, no loop",
    "off": "none: every kernel is launched by itself",
    "collectives": "XLA's own set and collectives",
    "while": "XLA's own set and loops",
    "all": "XLA's own set, collectives, loops and convolutions",
}

ARRAYS = {
    "one": "all parameters in one flat array: the host launches least",
    "apart": "every matrix in an array of its own: the device copies least",
    "buckets": "matrices that follow each other together, up to 31 MB or one, the rest with the first: a "
    "reduction each",
}
"""How the parameters lie, and so what is reduced at once."""

WORDS = (
    "off, collectives, while or all (command buffers), min1 (command buffers of one operation too), "
    "concurrent (independent operations of one at once), "
    "kN (N steps a launch), remat (recompute each layer in backward), scan (one loop over the layers), "
    "apart (every matrix an array of its own), buckets (matrices together up to 31 MB), "
    "overlap (gradients are reduced while others are computed), "
    "oneprocess (one process holds all devices)"
)


@dataclass(frozen=True, kw_only=True)
class JitOptions:
    """How a jitted step is executed."""

    command_buffers: str = "default"
    smallest_buffer: int | None = None
    """Fewest operations that make a command buffer; None leaves it to XLA (5 in 0.10 and 0.11)."""
    steps_per_launch: int = 1
    concurrent: bool = False
    """Let independent operations of a command buffer run at once."""
    remat: bool = False
    scan_layers: bool = False
    arrays: str = "one"
    """One of `ARRAYS`."""
    overlap: bool = False
    """XLA's latency-hiding scheduler: what is reduced travels while other work goes on. With all gradients in
    one array there is one reduction, at the end; `apart` and `buckets` make several. On two H200s XLA made
    the same program without it."""
    one_process: bool = False
    """One process holds all devices of the run, on one host, instead of one each."""


def jit_options(mode: str) -> JitOptions:
    """The options of a mode; those of plain `jit` for every mode that is no jit.

    Raises:
      RuleError: a word that is not known, or two that contradict each other.
    """
    name, colon, words = mode.partition(":")
    given: dict[str, str | int | bool] = {}
    for word in words.split("+") if name == "jit" and colon else ():
        option, value = _option(word, mode)
        if option in given:
            raise _refused(mode, f"{option} is given twice")
        given[option] = value
    return JitOptions(**given)  # type: ignore[arg-type]


def _option(word: str, mode: str) -> tuple[str, str | int | bool]:
    if word in COMMAND_BUFFERS:
        return "command_buffers", word
    if word == "min1":
        return "smallest_buffer", 1
    if word in ARRAYS.keys() - {JitOptions.arrays}:
        return "arrays", word
    if word in ("remat", "scan", "concurrent", "overlap", "oneprocess"):
        return {"scan": "scan_layers", "oneprocess": "one_process"}.get(word, word), True
    if word[:1] == "k" and word[1:].isdecimal() and int(word[1:]) > 1:
        return "steps_per_launch", int(word[1:])
    raise _refused(mode, repr(word))


def _refused(mode: str, numbers: str) -> RuleError:
    return RuleError(
        "A jit mode is told known things, each once.", f"{numbers} in {mode}", f"after `jit:` stand {WORDS}"
    )
