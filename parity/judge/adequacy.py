"""What a run that found nothing would not have seen: mistakes that its data and settings never bring out.

Read off the records of one side, since the sides agree where this is asked. It names circumstances;
`parity power` makes the mistakes themselves and knows. Must not: decide.
"""

from collections.abc import Iterator

import numpy as np

from parity.judge.align import Measured
from spec.run import AdamW, Problem
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
    """Of this project's GPT; `parity.pairs.sight` looks at a pair's batches."""
    sizes = problem.sizes
    if isinstance(sizes, GptSizes) and sizes.seq_len < ENOUGH_POSITIONS:
        yield f"positions (rows of {sizes.seq_len})"


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
