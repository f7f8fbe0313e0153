"""A run by hand: `python -m torch_impl tiny`, without the referee. What both sides do around its one job.

Must not: do the job.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from spec import mistyped, record
from spec.checkpoint import find_checkpoint
from spec.errors import RuleError
from spec.job import Job
from spec.presets import PRESETS, run_spec
from spec.run import AUTO_MODES, Execution, check_device


@dataclass(frozen=True, kw_only=True)
class Options:
    """What can be typed behind the preset."""

    steps: int | None = None
    """Number of steps; the preset's own when left out."""
    precision: str | None = None
    """f64, strict, tf32 or bf16."""
    mode: str = "auto"
    """A mode of the side (torch: eager, inductor, graph, graph+inductor; jax: jit, nojit), baseline:NAME, or
    auto (torch: graph+inductor on a GPU, else eager; jax: jit)."""
    global_batch: int | None = None
    """Rows of a step over all processes; the preset's rows times the processes when left out."""
    micro_batches: int | None = None
    """Slices of a process's rows whose gradients are summed."""
    device: str = "auto"
    """cpu, cuda, or auto (cuda where there is one)."""
    out: str | None = None
    """Folder of the records; runs/PRESET_SIDE_TIME when left out."""
    save_every: int | None = None
    """Write a checkpoint every so many steps and after the last one, to checkpoints/ in that folder."""
    keep: int | None = None
    """How many of the newest checkpoints stay; all when left out."""
    resume: str | None = None
    """Go on from a checkpoint folder, or from the newest checkpoint of a run's folder (of a run of both
    sides, this side's own). Give the other options as they were then."""

    def job(self, side: str, preset: str, device: str, processes: int) -> Job:
        """The job that they ask for; its folder is left empty where none was named.

        Raises:
          RuleError: they do not go together, a pair is named, a run lies in the folder, or there is no
            checkpoint.
        """
        _refuse_pair(preset)
        check_device(device)
        mode = AUTO_MODES[device][side] if self.mode == "auto" else self.mode
        execution = Execution(device=device, **{f"{side}_mode": mode})  # type: ignore[arg-type]
        spec = run_spec(
            preset,
            steps=self.steps,
            devices=processes,
            global_batch=self.global_batch,
            micro_batches=self.micro_batches,
            precision=self.precision,
            execution=execution,
        )
        if self.out:
            refuse_used_folder(Path(self.out))
        return Job(
            side=side,
            purpose="run",
            spec=spec,
            mode=mode,
            steps=spec.problem.steps,
            out=self.out or "",
            resume=None if self.resume is None else str(find_checkpoint(self.resume, side)),
            save_every=self.save_every,
            keep=self.keep,
        )


def typed(preset: str, /, options: Options) -> tuple[str, Options]:
    """What a parser of command lines fills in; the job is done once it has let everything pass.

    Args:
      preset: tiny, toy-mlp, micro, mini or gpt2-124m.
      options: what is left out is the preset's, or this machine's.
    """
    return preset, options


def complaint(words: str, arguments: Sequence[str]) -> RuleError | None:
    """What is wrong with arguments that were refused; None where nothing is seen.

    Args:
      words: what calls the side, such as `python -m torch_impl`.
    """
    known = mistyped.accepted(words, Options, ())
    return mistyped.complaint(arguments, replace(known, positionals=["PRESET"], required=["PRESET"]))


def _refuse_pair(name: str) -> None:
    """A side alone knows neither the batches of a pair nor how its tensors correspond."""
    if name not in PRESETS and ("/" in name or Path(name).is_dir()):
        raise RuleError(
            "A side by hand runs a preset; a pair is run by `parity run`.",
            f"{name!r}, a {'folder' if Path(name).is_dir() else 'path'}",
            f"parity run {name}, or parity train {name} --backend torch (or jax) for one side; "
            f"presets: {', '.join(PRESETS)}",
        )


def refuse_used_folder(folder: Path) -> None:
    """No run is written over another; to be asked before its ranks meet.

    Raises:
      RuleError: a job was already written there.
    """
    if (folder / "job.json").exists():
        raise RuleError(
            "A run is not written over another.", f"{folder} holds a job.json", "name another --out"
        )


def print_steps(folder: Path) -> None:
    """About ten of the steps that were recorded, and where the rest is."""
    steps = list(record.read_lines(folder / "steps.rank0.jsonl"))
    print(f"{'step':>6} {'loss':>12} {'grad norm':>12} {'lr':>10} {'skipped':>8}")
    for line in steps[:: max(1, len(steps) // 10)]:
        loss, norm = record.from_bits(line["loss_bits"]), record.from_bits(line["grad_norm_bits"])
        print(f"{line['step']:6d} {loss:12.6f} {norm:12.6f} {line['lr']:10.3g} {line['skipped']:8d}")
    print(folder)
