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
from pathlib import Path

import torch

from spec import protocol, record
from spec.errors import ExitCode, RuleError
from spec.job import Job
from spec.presets import run_spec
from spec.run import AUTO_MODES, Execution
from torch_impl import parallel, work


def main(arguments: list[str]) -> int:
    """Does what the command line says and returns the exit code."""
    if arguments[:1] == ["work"]:
        names = (line.strip() for line in sys.stdin) if arguments[1:] == ["-"] else arguments[1:]
        return serve(names)
    import tyro  # here, because a machine that only does jobs need not have it

    try:
        return tyro.cli(by_hand, prog="python -m torch_impl", args=arguments)
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


def by_hand(
    preset: str,
    /,
    *,
    steps: int | None = None,
    precision: str | None = None,
    mode: str = "auto",
    global_batch: int | None = None,
    micro_batches: int | None = None,
    device: str = "auto",
    out: str | None = None,
) -> int:
    """One training run on the PyTorch side; torchrun in front makes it a run of several processes.

    Args:
      preset: tiny, toy-mlp, micro, mini or gpt2-124m.
      steps: number of steps; the preset's own when left out.
      precision: f64, strict, tf32 or bf16.
      mode: eager, inductor, graph, graph+inductor, baseline:NAME, or auto (graph+inductor on a GPU, else
        eager).
      global_batch: rows of a step over all processes; the preset's rows times the processes when left out.
      micro_batches: slices of a process's rows whose gradients are summed.
      device: cpu, cuda, or auto (cuda where there is one).
      out: folder of the records; runs/PRESET_torch_TIME when left out.
    """
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if mode == "auto":
        mode = AUTO_MODES[device]["torch"]
    spec = run_spec(
        preset,
        steps=steps,
        devices=int(os.environ.get("WORLD_SIZE", "1")),
        global_batch=global_batch,
        micro_batches=micro_batches,
        precision=precision,
        execution=Execution(device=device, torch_mode=mode),
    )
    if out:
        protocol.refuse_used_folder(Path(out))
    ranks = parallel.join(spec.execution)
    try:
        folder = out or f"runs/{preset}_torch_{_agreed_time(ranks)}"
        job = Job(side="torch", purpose="run", spec=spec, mode=mode, steps=spec.problem.steps, out=folder)
        code = protocol.serve([str(job.write())], lambda job: work.do(job, ranks), ranks.rank)
    finally:
        ranks.close()
    if code == 0 and ranks.rank == 0:
        _print_steps(Path(folder))
    return code


def _agreed_time(ranks: parallel.Ranks) -> str:
    """Rank 0's time of day, so that all ranks write to one folder."""
    seconds = torch.tensor(int(time.time()), device=ranks.device)
    ranks.broadcast(seconds)
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(int(seconds)))


def _print_steps(folder: Path) -> None:
    """About ten of the steps that were recorded, and where the rest is."""
    steps = list(record.read_lines(folder / "steps.rank0.jsonl"))
    print(f"{'step':>6} {'loss':>12} {'grad norm':>12} {'lr':>10} {'skipped':>8}")
    for line in steps[:: max(1, len(steps) // 10)]:
        loss, norm = record.from_bits(line["loss_bits"]), record.from_bits(line["grad_norm_bits"])
        print(f"{line['step']:6d} {loss:12.6f} {norm:12.6f} {line['lr']:10.3g} {line['skipped']:8d}")
    print(folder)


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
