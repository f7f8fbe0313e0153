"""`python -m jax_impl`: a worker that does job files, or one run by hand.

    python -m jax_impl work JOB.json...     what the referee starts, once for each process
    python -m jax_impl tiny --steps 20      makes the same kind of job and does it

Several processes each have JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID. Counterpart:
`torch_impl/__main__.py`.
"""

import importlib.util
import os
import pkgutil
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from jax_impl import parallel, runtime, work
from spec import mistyped, protocol
from spec.errors import ExitCode, RuleError
from spec.job import Job
from spec.worker import launcher
from spec.worker.by_hand import Options, complaint, print_steps, typed

_PROGRAM = "python -m jax_impl"


def main(arguments: list[str]) -> int:
    """Does what the command line says and returns the exit code."""
    if arguments[:1] == ["work"]:
        names = (line.strip() for line in sys.stdin) if arguments[1:] == ["-"] else arguments[1:]
        return serve(names)
    import tyro  # here, because a machine that only does jobs need not have it

    try:
        preset, options = mistyped.in_short(
            lambda: tyro.cli(
                typed,
                prog=_PROGRAM,
                description=by_hand.__doc__,
                args=arguments,
                config=(tyro.conf.OmitArgPrefixes,),
            ),
            lambda: complaint(_PROGRAM, arguments),
        )
        return by_hand(preset, options)
    except RuleError as error:
        print(error.message(), file=sys.stderr)
        return int(error.code)
    except Exception:
        # Python's own exit code would be 1, which says that numbers differ.
        traceback.print_exc()
        return int(ExitCode.CRASHED)


def serve(paths: Iterable[str]) -> int:
    """Does job files in one group of processes, which the first job decides."""
    joined: list[parallel.Ranks] = []

    def do(job: Job) -> None:
        if not joined:
            # The platform is chosen before JAX looks for devices.
            runtime.configure(job.spec.problem, job.spec.execution)
            joined.append(parallel.join(job.spec.execution))
        work.do(job, joined[0])

    code = protocol.serve(paths, do, rank=_rank())
    for ranks in joined:
        _leave(ranks, code)
    return code


def by_hand(preset: str, options: Options) -> int:
    """One training run on the JAX side; jax.distributed's variables make it a run of several processes."""
    device = _default_device() if options.device == "auto" else options.device
    job = options.job("jax", preset, device, launcher.number("JAX_NUM_PROCESSES", 1, least=1))
    runtime.configure(job.spec.problem, job.spec.execution)
    ranks = parallel.join(job.spec.execution)
    job = replace(job, out=job.out or f"runs/{preset}_jax_{_agreed_time(ranks)}")
    code = protocol.serve([str(job.write())], lambda job: work.do(job, ranks), ranks.rank)
    _leave(ranks, code)
    if code == 0 and ranks.rank == 0:
        print_steps(Path(job.out))
    return code


def _leave(ranks: parallel.Ranks, code: int) -> None:
    if code:
        ranks.abandon(code)
    ranks.close()


def _default_device() -> str:
    """`cuda` where JAX's plugin and a GPU are. JAX is not asked: it could not join a group then."""
    platforms = os.environ.get("JAX_PLATFORMS")
    if platforms:
        return "cuda" if "cuda" in platforms or "gpu" in platforms else "cpu"
    plugins = [module.name for module in pkgutil.iter_modules(_plugin_folders())]
    has_plugin = any(name.startswith("xla_cuda") for name in plugins)
    return "cuda" if has_plugin and Path("/dev/nvidiactl").exists() else "cpu"


def _plugin_folders() -> list[str]:
    spec = importlib.util.find_spec("jax_plugins")
    return list(spec.submodule_search_locations or ()) if spec else []


def _agreed_time(ranks: parallel.Ranks) -> str:
    """Rank 0's time of day, so that all ranks write to one folder."""
    seconds = ranks.broadcast(np.array(int(time.time()), np.int32))
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(int(seconds)))


def _rank() -> int:
    return int(os.environ.get("JAX_PROCESS_ID", "0"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
