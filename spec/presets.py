"""The presets: named functions that return one run's problem. No other configuration format exists.

A preset gives a batch per device; the number of devices multiplies it, an explicit global batch fixes it.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from spec.errors import RuleError, nearest
from spec.run import AdamW, DataSpec, Execution, Problem, RunSpec
from spec.schedule import Schedule
from spec.workloads.gpt import GptSizes
from spec.workloads.mlp import MlpSizes


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A problem whose batch is still per device, and the number of devices when none is asked for."""

    problem: Problem
    devices: int = 1


def tiny(steps: int = 50) -> Preset:
    """Byte-level GPT on the text inside every Python: two layers, ragged rows, two micro-batches, clipping, a
    moving schedule."""
    return Preset(
        devices=2,
        problem=Problem(
            workload="gpt",
            sizes=GptSizes(vocab=256, seq_len=64, num_layers=2, d_model=64, num_heads=4),
            optimizer=AdamW(),
            schedule=Schedule(
                kind="cosine", peak_lr=1e-3, warmup_steps=min(5, steps), decay_steps=steps, final_lr=1e-4
            ),
            data=DataSpec(kind="text", ragged=True),
            global_batch=4,
            micro_batches=2,
            steps=steps,
        ),
    )


def toy_mlp(steps: int = 100) -> Preset:
    """Linear 32->128, SiLU, Linear 128->32, squared error: the smallest whole step."""
    return Preset(
        problem=Problem(
            workload="mlp",
            sizes=MlpSizes(d_in=32, d_hidden=128, d_out=32),
            optimizer=AdamW(),
            schedule=Schedule(kind="constant", peak_lr=1e-3),
            data=DataSpec(kind="synthetic"),
            global_batch=8,
            steps=steps,
        )
    )


def _gpt(sizes: GptSizes, batch: int, steps: int) -> Preset:
    return Preset(
        problem=Problem(
            workload="gpt",
            sizes=sizes,
            optimizer=AdamW(),
            schedule=Schedule(
                kind="cosine", peak_lr=6e-4, warmup_steps=min(10, steps), decay_steps=steps, final_lr=6e-5
            ),
            data=DataSpec(kind="synthetic"),
            global_batch=batch,
            precision="bf16",
            steps=steps,
        )
    )


def micro(steps: int = 50) -> Preset:
    """A step so short that a GPU waits for the CPU: 6 layers of width 256."""
    return _gpt(GptSizes(vocab=4096, seq_len=128, num_layers=6, d_model=256, num_heads=4), 8, steps)


def mini(steps: int = 50) -> Preset:
    """12 layers of width 512."""
    return _gpt(GptSizes(vocab=8192, seq_len=256, num_layers=12, d_model=512, num_heads=8), 8, steps)


def gpt2_124m(steps: int = 50) -> Preset:
    """GPT-2 small, its vocabulary padded to a multiple of 128."""
    return _gpt(GptSizes(vocab=50304, seq_len=1024, num_layers=12, d_model=768, num_heads=12), 16, steps)


PRESETS: dict[str, Callable[[int], Preset] | Callable[[], Preset]] = {
    "tiny": tiny,
    "toy-mlp": toy_mlp,
    "micro": micro,
    "mini": mini,
    "gpt2-124m": gpt2_124m,
}


def preset(name: str, steps: int | None = None) -> Preset:
    """The preset of that name, for a run of `steps`.

    Raises:
      RuleError: no such preset (the nearest name is suggested), or fewer than one step.
    """
    if name not in PRESETS:
        mend = f"{nearest(name, PRESETS)}presets: {', '.join(PRESETS)}; a pair is named by its folder"
        raise RuleError("A preset is a known one, a pair a folder.", f"{name!r} is neither", mend)
    if steps is not None and steps < 1:
        raise RuleError("A run has at least one step.", f"--steps {steps}", "take --steps 1 or more")
    make = PRESETS[name]
    return make() if steps is None else make(steps)  # type: ignore[call-arg]


def run_spec(
    name: str,
    *,
    steps: int | None = None,
    devices: int | None = None,
    global_batch: int | None = None,
    micro_batches: int | None = None,
    precision: str | None = None,
    data: DataSpec | None = None,
    seed: int | None = None,
    execution: Execution | None = None,
    chosen: Preset | None = None,
) -> RunSpec:
    """A preset with what the command line changes.

    Args:
      devices: processes over all hosts; the preset's own number when None.
      global_batch: fixes the rows of a step; otherwise the preset's rows per device times the devices.
      seed: weights from `seed`, rows from `seed + 1`.
      execution: device and modes; its world size is replaced by `devices`.
      chosen: what to change; the preset of that name when None.
    """
    chosen = chosen or preset(name, steps)
    world_size = chosen.devices if devices is None else devices
    if world_size < 1:
        raise RuleError("A run has at least one device.", f"--devices {world_size}")
    problem = chosen.problem
    changes: dict[str, object] = {
        "global_batch": problem.global_batch * world_size if global_batch is None else global_batch
    }
    for field, value in (("micro_batches", micro_batches), ("precision", precision), ("data", data)):
        if value is not None:
            changes[field] = value
    if seed is not None:
        changes |= {"seed_weights": seed, "seed_data": seed + 1}
    problem = dataclasses.replace(problem, **changes)  # type: ignore[arg-type]
    execution = dataclasses.replace(execution or Execution(), world_size=world_size)
    return RunSpec(name=name, problem=problem, execution=execution)
