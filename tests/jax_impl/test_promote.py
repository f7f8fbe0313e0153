"""Promotion: code full of casts gives what the same code without them gives in float64, and says where."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jax_impl.models.pair import load_side
from jax_impl.promote import promoting, through
from spec.workloads.pair import PairFiles
from tests.jax_impl.small import mlp_problem

W_II = np.random.default_rng(0).standard_normal((8, 8))
X_BI = np.random.default_rng(1).standard_normal((4, 8))


def make(single, half) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Casts as people do, in two dtypes: to and fro, by factories, in loops and branches and products."""

    def loss(w_II: jax.Array, x_BI: jax.Array) -> jax.Array:
        h_BI = jax.nn.softmax((x_BI @ w_II).astype(single), -1).astype(x_BI.dtype)
        h_BI = jax.nn.gelu((h_BI + 0.1 * jax.nn.relu(h_BI.astype(single))).astype(half)).astype(x_BI.dtype)

        def body(carry: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            return carry * jnp.asarray(0.9, single) + h_BI.sum().astype(single), carry

        carry, stacked = lax.scan(body, jnp.zeros((), single), None, length=3)
        looped = lax.fori_loop(0, 3, lambda _, value: value * 0.7 + 1, carry)
        h_BI = jax.checkpoint(lambda h: jnp.tanh(h.astype(single) * 0.3).astype(x_BI.dtype))(h_BI)
        product_BB = lax.dot_general(h_BI, h_BI, (((1,), (1,)), ((), ())), preferred_element_type=single)
        branch = lax.cond(carry > 0, lambda: product_BB.sum(), lambda: product_BB.min())
        return (h_BI.sum() + looped + stacked.sum() + branch).astype(single)

    return loss


@pytest.fixture(autouse=True)
def _x64(jax_x64) -> None:
    """A truth is computed in a process of 64-bit types."""


def test_a_constant_of_a_users_file_is_what_each_job_asks_for(tmp_path: Path) -> None:
    """Promoted for a truth, as it stands before and after, in one process."""
    file = tmp_path / "jax_side.py"
    file.write_text(
        "import jax.numpy as jnp\nSCALE = jnp.asarray(55.43, jnp.bfloat16)\n"
        "def build(): pass\ndef loss(model, batch): return SCALE, 1\n"
    )
    problem = replace(mlp_problem(), precision="f64")

    def scale() -> float:
        return float(load_side(PairFiles(torch="", jax=str(file)), problem).loss(None, {})[0])

    assert scale() == 55.5
    with promoting(True):
        assert scale() == 55.43
    assert scale() == 55.5


def test_casts_make_no_difference_to_a_truth() -> None:
    casting, plain = make(jnp.float32, jnp.bfloat16), make(jnp.float64, jnp.float64)
    with promoting(True) as promotion:
        total, grad = jax.jit(through(jax.value_and_grad(casting)))(W_II, X_BI)
    expected, truth = jax.value_and_grad(plain)(W_II, X_BI)
    assert total.dtype == grad.dtype == jnp.float64
    np.testing.assert_allclose(total, expected, rtol=1e-14)
    np.testing.assert_allclose(grad, truth, rtol=1e-12, atol=1e-14)
    assert abs(jax.value_and_grad(casting)(W_II, X_BI)[0] - expected) > 1e-3, "with its casts another number"
    assert promotion is not None
    noted = promotion.record()
    assert not noted["left"]
    assert noted["narrowest"] == "bfloat16"
    lines = {key.partition(" ")[0] for key in noted["promoted"]}
    assert all(line.startswith(f"{Path(__file__).name}:") for line in lines), lines
    assert len(lines) >= 5


def test_programs_traced_before_are_widened_too() -> None:
    """Their casts are in a cache, where no request for a type is seen any more."""
    rounded = jax.jit(lambda x: x.astype(jnp.float32) * np.float32(0.1))
    plain = X_BI * 0.1
    assert np.abs(np.asarray(rounded(X_BI)) - plain).max() > 1e-9
    with promoting(True) as promotion:
        found = through(lambda x: rounded(x))(X_BI)
    np.testing.assert_allclose(found, plain, rtol=1e-15)
    assert promotion is not None
    assert promotion.record()["promoted"]


def test_a_custom_derivative_stays() -> None:
    @jax.custom_vjp
    def clipped(x):
        return x.astype(jnp.float32).sum()

    clipped.defvjp(lambda x: (clipped(x), None), lambda _, g: (jnp.full(X_BI.shape, 2 * g, jnp.float64),))
    with promoting(True):
        total, grad = through(jax.value_and_grad(lambda x: clipped(x) / 3))(X_BI)
    np.testing.assert_allclose(total, X_BI.sum() / 3, rtol=1e-14)
    np.testing.assert_allclose(grad, np.full(X_BI.shape, 2 / 3), rtol=1e-15)


def test_nothing_is_promoted_where_it_is_not_wanted() -> None:
    def loss(x):
        return x.astype(jnp.float32).sum()

    with promoting(False) as promotion:
        assert promotion is None
        assert through(loss)(X_BI).dtype == jnp.float32
    assert through(loss)(X_BI).dtype == jnp.float32
    with promoting(True):
        assert through(loss)(X_BI).dtype == jnp.float64
    assert jnp.zeros(1, jnp.float32).dtype == jnp.float32


def test_the_type_of_an_array_that_is_there_stays() -> None:
    """A program is compiled from shapes and types, and takes the arrays that have them."""
    x_I = jnp.ones(4, jnp.float32)
    with promoting(True):
        program = jax.jit(lambda x_I: 2 * x_I).lower(jax.ShapeDtypeStruct(x_I.shape, x_I.dtype)).compile()
    assert program(x_I).dtype == jnp.float32
