"""A user's JAX side, as it is loaded and called."""

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from jax_impl.models.pair import load_side
from spec.errors import RuleError
from spec.workloads.pair import PairFiles
from tests.spec.pair_problem import pair_problem

PROBLEM = pair_problem()


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
