"""`python -m torch_impl`: a worker that does job files, or one run by hand.

    python -m torch_impl work JOB.json...     what the referee starts; torchrun in front for several processes
    python -m torch_impl work -               the same, the names of job files read from standard input
    python -m torch_impl tiny --steps 20      makes the same kind of job and does it

Counterpart: `jax_impl/__main__.py`.
"""

import os
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from spec import mistyped, protocol
from spec.errors import ExitCode, RuleError
from spec.job import Job
from spec.worker import launcher
from spec.worker.by_hand import Options, complaint, print_steps, typed
from torch_impl import parallel, work

_PROGRAM = "python -m torch_impl"


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
    """Does job files in one group of processes, which the first job decides and every way out ends."""
    joined: list[parallel.Ranks] = []

    def do(job: Job) -> None:
        if not joined:
            joined.append(parallel.join(job.spec.execution))
        work.do(job, joined[0])

    try:
        return protocol.serve(paths, do, rank=_rank())
    finally:
        for ranks in joined:
            ranks.close()


def by_hand(preset: str, options: Options) -> int:
    """One training run on the PyTorch side; torchrun in front makes it a run of several processes."""
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    job = options.job("torch", preset, device, launcher.number("WORLD_SIZE", 1, least=1))
    ranks = parallel.join(job.spec.execution)
    try:
        job = replace(job, out=job.out or f"runs/{preset}_torch_{_agreed_time(ranks)}")
        code = protocol.serve([str(job.write())], lambda job: work.do(job, ranks), ranks.rank)
    finally:
        ranks.close()
    if code == 0 and ranks.rank == 0:
        print_steps(Path(job.out))
    return code


def _agreed_time(ranks: parallel.Ranks) -> str:
    """Rank 0's time of day, so that all ranks write to one folder."""
    seconds = torch.tensor(int(time.time()), device=ranks.device)
    ranks.broadcast(seconds)
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(int(seconds)))


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
