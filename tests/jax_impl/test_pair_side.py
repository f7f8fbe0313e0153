"""A user's JAX side, as it is loaded and called."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_impl.models.pair import load_side
from spec.data.folder import batch_file
from spec.errors import RuleError
from spec.run import DataSpec
from spec.weights import save_tensors
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


RECURRENT = """
from flax import linen, nnx


class Model(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.RNN(linen.{cell}(4), time_major={time_major})({given})


def build():
    if {is_linen}:
        return Model()
    return nnx.RNN(nnx.{cell}(5, 4, rngs=nnx.Rngs(0)), time_major={time_major}, rngs=nnx.Rngs(0))


def loss(model, batch):
    return model(batch["x"]).sum(), 1
"""


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("cell", ["OptimizedLSTMCell", "GRUCell"])
@pytest.mark.parametrize(("is_linen", "given"), [(False, ""), (True, "x"), (True, "inputs=x")])
def test_a_recurrent_cell_carries_float64_where_its_parameters_are(
    tmp_path: Path, jax_x64, is_linen: bool, given: str, cell: str, time_major: bool
) -> None:
    """It makes its first carry in the dtype that it was built with, which a loop would not widen."""
    path, x_BTI = tmp_path / "jax_side.py", np.ones((2, 3, 5), np.float32)
    path.write_text(RECURRENT.format(is_linen=is_linen, given=given, cell=cell, time_major=time_major))
    save_tensors(batch_file(tmp_path, 0), {"batch/x": x_BTI})
    data = DataSpec(kind="folder", path=str(tmp_path))
    side = load_side(PairFiles(torch="", jax=str(path)), pair_problem(precision="f64", data=data))
    model = side.build()
    assert side.loss(model, {"x": x_BTI})[0].dtype == jnp.float64, "as it was built, rows in float64"
    nnx.update(model, jax.tree.map(lambda leaf: leaf.astype(jnp.float64), nnx.state(model, nnx.Param)))
    total, grads = nnx.value_and_grad(lambda model: side.loss(model, {"x": x_BTI})[0])(model)
    assert {leaf.dtype for leaf in (total, *jax.tree.leaves(grads))} == {jnp.dtype("float64")}
