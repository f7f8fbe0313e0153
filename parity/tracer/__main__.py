"""`python -m parity.tracer [--ranks 0,1] -m MODULE ARGUMENTS...`: runs a module as `python -m` does, traced.

Which of its steps are traced is the module's to say; until then CUPTI collects nothing. Ranks that are not
named, 0 when none are, make the same steps untraced.
"""

import os
import runpy
import sys

from parity.tracer.collection import Cupti
from spec.errors import RuleError
from spec.worker import tracing

_USAGE = "python -m parity.tracer [--ranks 0,1] [--] -m MODULE ARGUMENTS..."
_RANKS = ("RANK", "JAX_PROCESS_ID")
"""Where torchrun and the referee's jax processes say which rank this is."""


def main(arguments: list[str]) -> int:
    """Runs the module in this process; returns only for a command line that names none."""
    try:
        ranks, module, rest = split(arguments)
    except RuleError as error:
        print(error.message(), file=sys.stderr)
        return int(error.code)
    attach(ranks)
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    return 0


def split(arguments: list[str]) -> tuple[set[int], str, list[str]]:
    """The ranks to trace, the module and its arguments.

    Raises:
      RuleError: it is no such command line.
    """
    rest, ranks = list(arguments), {0}
    if rest[:1] == ["--ranks"] and len(rest) > 1 and rest[1].replace(",", "").isdigit():
        ranks = {int(rank) for rank in rest[1].split(",")}
        rest = rest[2:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if rest[:1] != ["-m"] or len(rest) < 2:
        raise RuleError("The tracer runs a module.", " ".join(arguments), _USAGE)
    return ranks, rest[1], rest[2:]


def attach(ranks: set[int]) -> None:
    """Offers CUPTI to what runs in this process, or says why it cannot be had."""
    rank = int(next((os.environ[name] for name in _RANKS if name in os.environ), "0"))
    if rank not in ranks:
        tracing.offer(tracing.Untraced())
        return
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        tracing.refuse("CUPTI sees GPUs, and this process has none")
        return
    try:
        tracing.offer(Cupti())
    except ImportError as error:
        tracing.refuse(
            f"cupti-python is not installed ({error}): in the project's folder, pip install -e '.[gpu]'"
        )
    except Exception as error:  # whatever CUPTI does not like: the framework's own profiler may do
        tracing.refuse(f"CUPTI cannot be used: {type(error).__name__}: {error}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
