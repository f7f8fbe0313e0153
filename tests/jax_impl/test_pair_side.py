"""A user's JAX side, as it is loaded and called."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_impl.models.pair import load_side
from spec.errors import RuleError
from spec.run import AdamW, DataSpec, Problem
from spec.schedule import Schedule
from spec.workloads.pair import PairFiles, PairSizes

PROBLEM = Problem(
    workload="pair",
    sizes=PairSizes(),
    optimizer=AdamW(),
    schedule=Schedule(kind="constant", peak_lr=1e-3),
    data=DataSpec(kind="folder", path="none"),
    global_batch=2,
    steps=1,
)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("batch['x'].sum()", "a single array, float32 ()"),
        ("(batch['x'].sum(),)", "a tuple of 1"),
        ("None", "NoneType"),
    ],
)
def test_a_loss_without_a_count_is_told_in_the_users_words(tmp_path: Path, result: str, words: str) -> None:
    """Not in those of a trace, in which an array is a tracer of some name."""
    path = tmp_path / "jax_side.py"
    path.write_text(f"def build(): ...\n\n\ndef loss(model, batch):\n    return {result}\n")
    side = load_side(PairFiles(torch="", jax=str(path), computes="float32"), PROBLEM)
    with pytest.raises(RuleError) as caught:
        jax.eval_shape(lambda x: side.loss(None, {"x": x}), jnp.ones(2))  # type: ignore[arg-type]
    assert caught.value.numbers == f"{path}: loss returned {words}"
