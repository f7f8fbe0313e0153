"""What a run that found nothing would not have seen: mistakes that its data and settings never bring out.

Read off the records of one side, since the sides agree where this is asked. It names circumstances;
`parity power` makes the mistakes themselves and knows. In one circumstance a SAME would be none: positions
where there is one. Must not: decide.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors import safe_open

from parity.judge.align import Measured
from spec.data.folder import batch_file
from spec.run import AdamW, Problem, RunSpec
from spec.workloads.gpt import GptSizes

ENOUGH_POSITIONS = 64
"""A rotation by a wrong base, or a mask that is off by a few places, needs rows of some length to show."""


def would_not_see(side: Measured) -> list[str]:
    """What mistakes are about, each with the circumstance that is missing, in words."""
    problem = side.job.spec.problem
    return [
        *_clipping(side, problem),
        *_schedule(side, problem),
        *_decay(side, problem),
        *_lengths(side, problem),
        *_positions(problem),
        *_sums(side, problem),
        *_evaluation(side, problem),
        *_tf32(side, problem),
    ]


def too_little(side: Measured) -> str:
    """Why a run that found nothing is no pass, since its data cannot show what the model does; else empty."""
    unseen = between_positions(side.job.spec)
    return f"nothing differs, and {unseen}" if unseen else ""


def between_positions(spec: RunSpec) -> str:
    """Why a run shows nothing of what its model does between positions, in words; empty where it does.

    Of a user's model it is told by what the torch side was seen to call, whatever its batches look like.
    """
    if isinstance(spec.problem.sizes, GptSizes):
        between = "attention" if spec.problem.sizes.seq_len == 1 else ""
    else:
        between = ", ".join(spec.pair.over_one) if spec.pair else ""
    if not between:
        return ""
    return (
        "one position cannot show what the model does between positions "
        f"({between} over one position): give rows of 2 positions or more"
    )


def _clipping(side: Measured, problem: Problem) -> Iterator[str]:
    limit, norms = problem.optimizer.max_norm, side.curve.grad_norm
    if limit is None:
        yield "clipping (none is asked for)"
    elif not (norms > limit).any():
        yield f"clipping (no norm above {limit:g}, {np.max(norms):.2g} at most)"


def _schedule(side: Measured, problem: Problem) -> Iterator[str]:
    if isinstance(problem.optimizer, AdamW) and len(set(side.curve.lr.tolist())) == 1:
        yield "schedule (one learning rate)"


def _decay(side: Measured, problem: Problem) -> Iterator[str]:
    if not isinstance(problem.optimizer, AdamW):
        return
    if problem.optimizer.weight_decay == 0:
        yield "weight decay (it is 0)"
    elif not any(row["decayed"] for row in side.manifest["facts"]["parameters"]):
        yield "weight decay (nothing is decayed)"


def _lengths(side: Measured, problem: Problem) -> Iterator[str]:
    """Rows are ragged where the labels of a step are not as many as they can be, or as in another step."""
    counts = set(side.curve.tokens)
    if isinstance(problem.sizes, GptSizes):
        is_ragged = counts != {problem.global_batch * problem.sizes.seq_len}
    else:
        is_ragged = problem.workload != "pair" or len(counts) > 1 or side.curve.num_steps == 1
    if not is_ragged:
        yield f"padding ({max(counts)} labels in every step)"


def _positions(problem: Problem) -> Iterator[str]:
    sizes = problem.sizes
    longest = sizes.seq_len if isinstance(sizes, GptSizes) else _longest_of_pair(problem)
    if longest is not None and longest < ENOUGH_POSITIONS:
        yield f"positions (rows of {longest})"


def _longest_of_pair(problem: Problem) -> int | None:
    """Length of the rows of token ids in a pair's batches; None where there are none, or they are gone."""
    file = batch_file(Path(problem.data.path or ""), 0)
    if problem.workload != "pair" or not file.exists():
        return None
    with safe_open(file, framework="np") as batch:
        slices = [batch.get_slice(name) for name in batch.keys()]  # noqa: SIM118 - a file, not a dict
        lengths = [one.get_shape()[1] for one in slices if _is_ids(one.get_dtype(), one.get_shape())]
    return max(lengths, default=None)


def _is_ids(dtype: str, shape: list[int]) -> bool:
    return len(shape) == 2 and dtype.startswith(("I", "U"))


def _sums(side: Measured, problem: Problem) -> Iterator[str]:
    if problem.micro_batches == 1:
        yield "accumulation (one micro-batch)"
    if side.job.spec.execution.world_size == 1:
        yield "reduction (one process)"


def _evaluation(side: Measured, problem: Problem) -> Iterator[str]:
    """The models of this project compute the same when they are evaluated; a user's may not."""
    if problem.workload == "pair" and not any(entry.startswith("eval@") for entry in side.job.observe):
        yield "evaluation (none was made)"


def _tf32(side: Measured, problem: Problem) -> Iterator[str]:
    if side.job.spec.execution.device == "cpu" and problem.profile.compute == "float32":
        yield (
            "TF32 (a CPU has no TF32, which a GPU may take for products of float32: "
            "jax_default_matmul_precision, torch.backends.cuda.matmul)"
        )
