"""A pair as a problem, as far as it is known before its sides are asked.

Must not: start a process.
"""

from collections.abc import Mapping
from pathlib import Path

from parity.options import Training
from spec.edits import OF_ADAMW, Edit
from spec.errors import RuleError
from spec.own_optimizer import OwnOptimizer, lost_state
from spec.pairs.materialise import Outline
from spec.presets import Preset
from spec.run import DataSpec, Problem
from spec.workloads.pair import PairFiles, PairSizes


def from_pair(outline: Outline, options: Training) -> Preset:
    """The problem of a pair. Its batches are whole: more devices take shares of the same rows.

    Raises:
      RuleError: an option asks for what a pair decides itself.
    """
    if options.data is not None:
        raise RuleError(
            "A pair makes its own batches.", f"--data {options.data}", f"change batches() in {outline.folder}"
        )
    if options.global_batch not in (None, outline.rows):
        raise RuleError(
            "A pair's batch has the rows that batches() gives it.",
            f"--global-batch {options.global_batch}, rows {outline.rows}",
            "leave --global-batch out",
        )
    pair = outline.pair
    problem = Problem(
        workload="pair",
        sizes=PairSizes(pair=Path(outline.folder).name),
        optimizer=pair.optimizer,
        schedule=pair.schedule,
        data=DataSpec(kind="folder", path=outline.folder),
        global_batch=outline.rows,
        micro_batches=pair.micro_batches,
        precision=pair.precision,
        seed_weights=pair.seed,
        seed_data=pair.seed + 1,
        steps=pair.steps if options.steps is None else options.steps,
    )
    return Preset(problem=problem, devices=pair.devices)


def pair_files(outline: Outline, computes: str) -> PairFiles:
    """Where the sides' files stand, what the user says of their tensors, and the dtype of the run."""
    folder, pair = Path(outline.folder), outline.pair
    return PairFiles(
        torch=str(folder / pair.torch),
        jax=str(folder / pair.jax),
        init=pair.init,
        links=pair.links,
        computes=computes,
    )


def refuse_lost_edits(outline: Outline, edits: dict[str, tuple[Edit, ...]]) -> None:
    """Refuses an edit of AdamW or its schedule where the optimizer is the user's own.

    Raises:
      RuleError: there is one.
    """
    if not isinstance(outline.pair.optimizer, OwnOptimizer):
        return
    for side, own in edits.items():
        for edit in own:
            if edit.name in OF_ADAMW:
                raise RuleError(
                    "An edit reaches what this project runs, not what a pair brings.",
                    f"--edit {side}:{edit.name}, on a pair's own optimizer",
                    f"change it in the {side} side's file",
                )


def refuse_lost_state(problem: Problem, asked: Mapping[str, object]) -> None:
    """Refuses to write or read a checkpoint where the optimizer is the user's own, and so is its state.

    Args:
      asked: the options that ask for one, as typed.

    Raises:
      RuleError: there is one.
    """
    if not isinstance(problem.optimizer, OwnOptimizer):
        return
    for name, value in asked.items():
        raise lost_state(
            f"{name} {value}, on a pair's own optimizer", f"leave {name} out, or take AdamW in pair.py"
        )
