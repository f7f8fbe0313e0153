"""Models against their table, their formula and themselves. Against PyTorch's they are in tests/cross.

Legend: B rows, T positions, V vocabulary.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_impl.loss import cross_entropy
from jax_impl.models import gpt, preset_side
from spec.edits import Edit, constants
from spec.precision import PROFILES
from spec.weights import init_parameters
from spec.workloads.gpt import IGNORE_LABEL
from tests.jax_impl.small import GPT, MLP, bare, gpt_problem, make_trainer, mlp_problem, relative_difference
from tests.torch_impl.references import mlp_loss_and_gradients


def logits_of(trainer, tokens_BT) -> np.ndarray:
    """Eagerly: no step is compiled."""
    module = trainer.state.module(trainer.state.tensors("param"), {})
    return np.asarray(module(jnp.asarray(tokens_BT)))


@pytest.mark.parametrize("problem", [gpt_problem(), mlp_problem()], ids=["gpt", "mlp"])
def test_modules_have_the_tables_parameters_and_no_memory(problem) -> None:
    module = preset_side(problem, constants(problem)).build()
    held = jax.tree.leaves(nnx.state(module, nnx.Param))
    assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in held)
    assert jax.tree.leaves(nnx.state(module, nnx.Not(nnx.Param))) == []
    rows = make_trainer(problem).state.rows
    assert rows == problem.parameter_table()


def test_initial_weights_are_the_specs() -> None:
    problem = gpt_problem()
    expected = init_parameters(problem.parameter_table(), problem.seed_weights)
    found = bare(make_trainer(problem).export(["param"]))
    assert {n: a.tobytes() for n, a in found.items()} == {n: a.tobytes() for n, a in expected.items()}


def test_gpt_edits_change_the_logits() -> None:
    tokens_BT = np.arange(GPT.seq_len, dtype=np.int32)[None]
    plain, erf, eps = (
        logits_of(make_trainer(gpt_problem(), edits=edits), tokens_BT)
        for edits in ((), (Edit(name="gelu_erf", value=1),), (Edit(name="layernorm_eps", value=1e-2),))
    )
    assert not np.array_equal(plain, erf)
    assert not np.array_equal(plain, eps)


def test_gpt_sees_no_future() -> None:
    trainer = make_trainer(gpt_problem())
    tokens_BT = np.arange(GPT.seq_len, dtype=np.int32)[None]
    changed_BT = tokens_BT.copy()
    changed_BT[0, 6] = 50
    one, other = logits_of(trainer, tokens_BT), logits_of(trainer, changed_BT)
    np.testing.assert_array_equal(one[:, :6], other[:, :6])
    assert (one[:, 6:] != other[:, 6:]).any()


def test_gpt_takes_fewer_positions_than_it_has() -> None:
    trainer = make_trainer(gpt_problem())
    tokens_BT = np.arange(GPT.seq_len, dtype=np.int32)[None]
    whole, part = logits_of(trainer, tokens_BT), logits_of(trainer, tokens_BT[:, :5])
    np.testing.assert_allclose(part, whole[:, :5], rtol=1e-5, atol=1e-7)


def test_fused_attention_is_the_exact_one_rounded() -> None:
    generator = np.random.default_rng(0)
    q, k, v = (jnp.asarray(generator.standard_normal((2, 5, 3, 8)), jnp.float32) for _ in range(3))
    exact, fused = (gpt.attention(PROFILES[name])(q, k, v) for name in ("strict", "bf16"))
    np.testing.assert_allclose(np.asarray(fused), np.asarray(exact), rtol=1e-5, atol=1e-6)


def test_exact_attention_is_float64_from_end_to_end(jax_x64) -> None:
    """The framework's own is not: its softmax is float32, which shows in the eighth digit."""
    generator = np.random.default_rng(0)
    q, k, v = (jnp.asarray(generator.standard_normal((1, 6, 1, 4))) for _ in range(3))
    scores_TS = np.asarray(q)[0, :, 0] @ np.asarray(k)[0, :, 0].T / 2
    weights_TS = np.exp(np.where(np.tri(6, dtype=bool), scores_TS, -np.inf))
    expected = (weights_TS / weights_TS.sum(-1, keepdims=True)) @ np.asarray(v)[0, :, 0]
    errors = [
        np.abs(np.asarray(gpt.attention(PROFILES[name])(q, k, v))[0, :, 0] - expected).max()
        for name in ("f64", "bf16")
    ]
    assert errors[0] < 1e-15 < 1e-9 < errors[1]


def test_ignored_labels_carry_no_loss(jax_x64) -> None:
    generator = np.random.default_rng(0)
    logits_BTV, labels_BT = generator.standard_normal((2, 4, 7)), generator.integers(0, 7, (2, 4))
    labels_BT[1, 2:] = IGNORE_LABEL
    loss_sum, count = cross_entropy(jnp.asarray(logits_BTV), jnp.asarray(labels_BT))
    losses = [
        np.log(np.exp(logits_BTV[b, t]).sum()) - logits_BTV[b, t, labels_BT[b, t]]
        for b, t in np.argwhere(labels_BT != IGNORE_LABEL)
    ]
    assert int(count) == 6
    assert float(loss_sum) == pytest.approx(sum(losses), rel=1e-14)


def test_mlp_is_its_formula(jax_x64) -> None:
    trainer = make_trainer(mlp_problem(precision="f64"))
    rows, arena = trainer.feed.rows(0), trainer.state
    weights = bare(trainer.export(["param"]))
    loss_sum, gradients = mlp_loss_and_gradients(weights, *(rows[k].astype(np.float64) for k in "xy"))
    (found_sum, count), found = jax.value_and_grad(
        lambda params: trainer.side.loss(arena.module(params, {}), rows), has_aux=True
    )(arena.tensors("param"))
    found = {name: np.asarray(a).T if a.ndim == 2 else np.asarray(a) for name, a in found.items()}
    assert int(count) == 8 * MLP.d_out
    assert float(found_sum) == pytest.approx(loss_sum, rel=1e-14)
    assert relative_difference(found, gradients) < 1e-13


@pytest.mark.parametrize("problem", [gpt_problem(), mlp_problem()], ids=["gpt", "mlp"])
def test_losses_only_call_the_module(problem) -> None:
    trainer = make_trainer(problem)
    module = trainer.state.module(trainer.state.tensors("param"), {})
    loss_sum, _ = trainer.side.loss(lambda *inputs: module(*inputs), trainer.feed.rows(0))
    assert np.isfinite(float(loss_sum))
