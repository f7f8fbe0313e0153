"""The precision table holds on this device: dtypes of what is stored and used, and probes that can fail."""

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_impl import runtime
from jax_impl.layers import Embed, Linear
from jax_impl.memory import abstract
from jax_impl.models import Side
from spec.errors import RuleError
from spec.precision import PROFILES
from spec.run import Execution
from tests.jax_impl.small import gpt_problem, make_trainer, mlp_problem, train

WIDTHS = {"f64": "float64", "float64": "f64", "float32": "f32", "bfloat16": "bf16"}


@pytest.fixture(params=["f64", "strict", "bf16"])
def precision(request) -> str:
    if request.param == "f64":
        request.getfixturevalue("jax_x64")
    return request.param


def test_everything_has_the_tables_dtype(precision) -> None:
    problem = gpt_problem(precision=precision, micro_batches=2)
    profile, seen = problem.profile, {}
    inner = make_trainer(problem).side

    def spy(module, batch):
        """Runs while the step is traced."""
        logits_BTV = module(batch["tokens"])
        loss_sum, count = inner.loss(module, batch)
        weights = jax.tree.leaves(jax.tree.map(lambda leaf: leaf, module))
        seen["compute"] = {logits_BTV.dtype.name, *(weight.dtype.name for weight in weights)}
        seen["statistics"] = {loss_sum.dtype.name}
        return loss_sum, count

    trainer = make_trainer(problem, side=Side(inner.build, spy))
    batch = trainer.stage(trainer.feed.rows(0))
    state = trainer.state.train_state
    after, _, gradients = jax.eval_shape(trainer._step, abstract(state), abstract(batch))
    seen["master"] = {after.params[0].dtype.name}
    seen["moments"] = {after.m[0].dtype.name, after.v[0].dtype.name}
    seen["accumulate"] = {gradients["grad"][0].dtype.name}
    for column, dtypes in seen.items():
        assert dtypes == {getattr(profile, column)}, column


def test_float64_is_float64_everywhere(jax_x64) -> None:
    """No value of the traced step is of a narrower floating-point type but the rows and the step table."""
    trainer = make_trainer(gpt_problem(precision="f64", micro_batches=2))
    batch = trainer.stage(trainer.feed.rows(0))
    text = str(jax.make_jaxpr(trainer._step)(trainer.state.train_state, batch))
    assert "f64[" in text
    assert re.findall(r"\b(?:f32|bf16|f16)\[", text) == []


def test_bf16_rounds_the_master_once_a_step() -> None:
    """As many casts of weights to bfloat16 as there are parameters, and none inside the loop."""
    trainer = make_trainer(gpt_problem(precision="bf16", micro_batches=2))
    batch = trainer.stage(trainer.feed.rows(0))
    jaxpr = jax.make_jaxpr(trainer._step)(trainer.state.train_state, batch).jaxpr
    slices = [e for e in jaxpr.eqns if e.primitive.name == "slice" and e.invars[0] is jaxpr.invars[0]]
    shaped = [
        e
        for e in jaxpr.eqns
        if e.primitive.name == "reshape" and e.invars[0] in {s.outvars[0] for s in slices}
    ]
    masters = {variable for e in (*slices, *shaped) for variable in e.outvars} | {jaxpr.invars[0]}
    casts = [e for e in jaxpr.eqns if e.primitive.name == "convert_element_type" and set(e.invars) & masters]
    assert len(casts) == len(trainer.state.rows)
    (loop,) = [equation for equation in jaxpr.eqns if equation.primitive.name == "scan"]
    assert not masters & {variable for variable in loop.invars if not hasattr(variable, "val")}


def test_bf16_accumulates_in_float32() -> None:
    """The sum over micro-batches is that of bfloat16 gradients, and is no bfloat16 itself."""
    problem = mlp_problem(precision="bf16", micro_batches=4)
    trainer = make_trainer(problem)
    rows, arena = trainer.feed.rows(0), trainer.state
    working = {name: array.astype(jnp.bfloat16) for name, array in arena.tensors("param").items()}
    totals = None
    for k in range(4):
        part = {name: array[2 * k : 2 * k + 2] for name, array in rows.items()}
        grads = jax.grad(lambda w, part=part: trainer.side.loss(arena.module(w, {}), part)[0])(working)
        assert {grad.dtype.name for grad in grads.values()} == {"bfloat16"}
        grads = {name: np.asarray(grad, np.float32) for name, grad in grads.items()}
        totals = grads if totals is None else {name: totals[name] + grads[name] for name in grads}
    trainer.look(rows)
    found = {name: np.asarray(array) for name, array in arena.tensors("grad").items()}
    train(trainer, 1)
    for name, total in totals.items():
        # Rounding to bfloat16 anywhere after the sum would show as 4e-3.
        np.testing.assert_allclose(found[name], total / trainer.metrics().tokens, rtol=1e-2, atol=1e-6)
    assert any((total != total.astype(jnp.bfloat16)).any() for total in totals.values())
    assert any((grad != grad.astype(jnp.bfloat16)).any() for grad in found.values())


def _summed(kind: type[nnx.Module], dtype: jnp.dtype | None, weights_BTO: jax.Array) -> np.ndarray:
    """The gradient of what every row reads, which is the sum of the weights; compiled as a bf16 step is."""
    width = weights_BTO.shape[-1]
    graph, params = nnx.split(kind(width, width, dtype=dtype, rngs=nnx.Rngs(0)))
    params = jax.tree.map(lambda array: array.astype(jnp.bfloat16), params)
    tokens_BT = jnp.zeros(weights_BTO.shape[:2], jnp.int32)
    inputs = tokens_BT if issubclass(kind, nnx.Embed) else weights_BTO

    def weighted(params, inputs, weights_BTO):
        return (nnx.merge(graph, params)(inputs).astype(jnp.float32) * weights_BTO).sum()

    lowered = jax.jit(jax.grad(weighted)).lower(params, inputs, weights_BTO)
    gradient = lowered.compile(runtime.compiler_options(PROFILES["bf16"]))(params, inputs, weights_BTO)
    summed_O = gradient["bias"][...] if "bias" in gradient else gradient["embedding"][...][0]
    assert summed_O.dtype == jnp.bfloat16
    return np.asarray(summed_O, np.float64)


def test_gradients_that_add_up_many_rows_are_summed_in_float32() -> None:
    """Ours are off by the one rounding to bfloat16, flax's own by more than a third at 4096 rows."""
    weights = np.random.default_rng(0).uniform(0.5, 1.5, (64, 64, 8))
    weights_BTO = jnp.asarray(weights, jnp.bfloat16)
    truth_O = np.asarray(weights_BTO, np.float64).sum(axis=(0, 1))
    for kind in (Linear, Embed):
        assert np.abs(_summed(kind, None, weights_BTO) / truth_O - 1).max() <= 2.0**-8
    for kind in (nnx.Linear, nnx.Embed):
        assert np.abs(_summed(kind, jnp.dtype("bfloat16"), weights_BTO) / truth_O - 1).max() > 1 / 3


def test_layers_give_what_flax_gives_rounded_once(precision) -> None:
    compute = jnp.dtype(PROFILES[precision].compute)
    x_BI = jnp.asarray(np.random.default_rng(0).standard_normal((8, 5)), compute)
    graph, params = nnx.split(Linear(5, 7, rngs=nnx.Rngs(0)))
    params = jax.tree.map(lambda array: (array + 0.1).astype(compute), params)
    stock = nnx.merge(nnx.split(nnx.Linear(5, 7, rngs=nnx.Rngs(0)))[0], params)
    found = nnx.merge(graph, params)(x_BI)
    assert found.dtype == compute
    np.testing.assert_array_equal(np.asarray(found), np.asarray(stock(x_BI)))


def test_probes_find_the_table_on_a_cpu(precision) -> None:
    found = runtime.probes(PROFILES[precision], jax.local_devices()[0])
    assert {probe["name"] for probe in found} == {
        "matmul_inputs",
        "norm_statistics",
        "softmax_statistics",
        "loss_dtype",
        "rounding_between_operations",
    }
    assert all(probe["ok"] for probe in found)


def test_probes_see_what_is_not_so(monkeypatch) -> None:
    """No TF32 on a CPU; statistics, softmax, loss and roundings of another dtype."""
    device, bf16 = jax.local_devices()[0], PROFILES["bf16"]
    probes = runtime.probes.__wrapped__
    with pytest.raises(RuleError, match="matmul_inputs: expected tf32, got float32"):
        probes(replace(PROFILES["strict"], matmul="tf32"), device)

    class Coarse:
        """A norm whose mean is bfloat16."""

        def __init__(self, *_, **__) -> None:
            pass

        def __call__(self, x_C):
            centred_C = x_C - x_C.mean()
            return centred_C / jnp.sqrt((centred_C * centred_C).mean())

    def coarse_attention(profile):
        def attend(q_BTHD, k_BSHD, v_BSHD):
            step = jnp.asarray(1 / 1024, jnp.bfloat16)
            total = jax.lax.fori_loop(0, 1024, lambda _, total: total + step, jnp.zeros((), jnp.bfloat16))
            return jnp.broadcast_to(total, v_BSHD.shape)

        return attend

    for name, stand_in, message in (
        ("LayerNorm", Coarse, "norm_statistics"),
        ("attention", coarse_attention, "softmax_statistics"),
        ("cross_entropy", lambda logits, labels: (logits.sum(), labels.sum()), "loss_dtype: .* got bfloat16"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"jax_impl.runtime.{name}", stand_in)
            with pytest.raises(RuleError, match=message):
                probes(bf16, device)
    wide = replace(bf16, compute="float32")
    assert runtime._rounding(bf16, device) == "bfloat16"
    with monkeypatch.context() as patch:
        run = runtime._run
        patch.setattr(runtime, "_run", lambda profile, *rest: run(wide, *rest))
        assert runtime._rounding(bf16, device) == "wider (1 kept)"


def test_a_process_has_one_width() -> None:
    """Here narrower types were configured before."""
    runtime.configure(mlp_problem(), Execution())
    with pytest.raises(RuleError, match="not in both"):
        runtime.configure(mlp_problem(precision="f64"), Execution())
    with jax.enable_x64(True):
        runtime.configure(mlp_problem(precision="f64"), Execution())


def test_bf16_is_a_rounding_of_strict() -> None:
    """Losses of the two profiles agree to some bfloat16 roundings (4e-3), and not by being one program."""
    losses = [train(make_trainer(gpt_problem(precision=p)), 10) for p in ("strict", "bf16")]
    assert losses[0] == pytest.approx(losses[1], rel=4e-3)
    assert losses[0] != losses[1]


@pytest.mark.parametrize(
    ("name", "matmul", "expected"),
    [
        ("tf32", "tf32", "(Precision.HIGH, Precision.HIGH)"),
        ("strict", "ieee", "(Precision.HIGHEST, Precision.HIGHEST)"),
        ("bf16", "ieee", "(Precision.DEFAULT, Precision.DEFAULT)"),
    ],
)
def test_products_ask_for_the_tables_rounding(name, matmul, expected) -> None:
    """A CPU cannot show it; the traced step can, its derivatives included. jax calls tensorfloat32 HIGH."""
    profile = PROFILES[name]
    assert profile.matmul == matmul
    with runtime.matmul_precision(profile):
        jaxpr = jax.make_jaxpr(jax.grad(lambda a, b: (a @ b).sum()))(jnp.ones((2, 2)), jnp.ones((2, 2))).jaxpr
    products = [equation for equation in jaxpr.eqns if equation.primitive.name == "dot_general"]
    assert products
    assert {str(product.params["precision"]) for product in products} == {expected}


def test_every_product_of_the_step_is_under_the_rule() -> None:
    trainer = make_trainer(gpt_problem())
    text = str(jax.make_jaxpr(trainer._step)(trainer.state.train_state, trainer.stage(trainer.feed.rows(0))))
    # Six products a layer and one in the head, each with two in the backward pass.
    assert text.count("dot_general[") == 3 * (6 + 1)
    assert text.count("precision=(Precision.HIGHEST, Precision.HIGHEST)") == 3 * (6 + 1)
