"""The library's door: a user's own module and loss, metrics that may be read one step late, facts."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from jax_impl import parallel
from jax_impl.models import Side
from jax_impl.trainer import Trainer
from spec.edits import Edit
from spec.errors import RuleError
from spec.run import Execution
from tests.jax_impl.small import STATE, assert_equal_bits, gpt_problem, make_trainer, mlp_problem, train


def regression(module: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    error_BO = module(batch["x"]) - batch["y"]
    return (error_BO**2).sum(), jnp.asarray(error_BO.size)


def own_module() -> nnx.Module:
    rngs = nnx.Rngs(3)
    wide = {"param_dtype": jnp.float64, "rngs": rngs}
    return nnx.Sequential(nnx.Linear(4, 8, **wide), nnx.tanh, nnx.Linear(8, 1, **wide))


def own_rows(seed: int) -> dict[str, np.ndarray]:
    x_BI = np.random.default_rng(seed).standard_normal((8, 4))
    return {"x": x_BI, "y": x_BI[:, :1] * x_BI[:, 1:2]}


def test_a_users_module_trains_as_in_plain_jax(jax_x64) -> None:
    problem = mlp_problem(precision="f64", steps=20)
    trainer = make_trainer(problem, side=Side(own_module, regression))
    graph, params = nnx.split(own_module())
    rates = jnp.asarray([float(np.float32(problem.schedule.learning_rate(t))) for t in range(20)])
    matrices = jax.tree.map(lambda array: array.ndim >= 2, params)
    optimizer = optax.chain(
        optax.clip_by_global_norm(problem.optimizer.max_norm),
        optax.adamw(lambda t: rates[t], b2=0.95, weight_decay=0.1, mask=matrices),
    )
    state = optimizer.init(params)

    @jax.jit
    def update(params, state, batch):
        def mean_loss(params):
            error = nnx.merge(graph, params)(batch["x"]) - batch["y"]
            return (error**2).mean()

        loss, grads = jax.value_and_grad(mean_loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss

    for step in range(20):
        trainer.step(own_rows(step))
        params, state, loss = update(params, state, own_rows(step))
        assert trainer.metrics().loss == pytest.approx(float(loss), rel=1e-12)
    found, module = trainer.export(["param"]), nnx.merge(graph, params)
    for number in (0, 2):
        layer = module.layers[number]
        np.testing.assert_allclose(found[f"param/layers.{number}.weight"], layer.kernel[...].T, rtol=1e-10)
        np.testing.assert_allclose(found[f"param/layers.{number}.bias"], layer.bias[...], rtol=1e-10)


def test_metrics_of_the_last_two_steps_can_be_read() -> None:
    late, prompt = make_trainer(mlp_problem()), make_trainer(mlp_problem())
    expected = train(prompt, 3)
    late.step(late.feed.rows(0))
    late.step(late.feed.rows(1))
    assert late.metrics(0).loss == expected[0]
    late.step(late.feed.rows(2))
    assert [late.metrics(1).loss, late.metrics().loss] == expected[1:]
    assert late.metrics(1).step == 1
    with pytest.raises(AssertionError, match="metrics of step 0 after step 2"):
        late.metrics(0)


def test_facts_are_what_the_step_does() -> None:
    problem = gpt_problem(precision="bf16")
    facts = make_trainer(problem).facts()
    table = {row.name: row for row in problem.parameter_table()}
    assert [entry["name"] for entry in facts["parameters"]] == list(table)
    for entry in facts["parameters"]:
        row = table[entry["name"]]
        assert entry == {
            "name": row.name,
            "shape": list(row.shape),
            "dtype": "float32",
            "decayed": row.decayed,
            "trainable": True,
        }
    assert facts["num_params"] == sum(row.size for row in table.values())
    assert facts["world_size"] == 1
    assert facts["precision"]["compute"] == "bfloat16"
    assert facts["ties"] == []


def test_runs_repeat_bit_for_bit() -> None:
    ends = []
    for _ in range(2):
        trainer = make_trainer(mlp_problem(micro_batches=2))
        train(trainer, 5)
        ends.append(trainer.export(STATE))
    assert_equal_bits(*ends)


def test_a_baseline_takes_no_edits() -> None:
    with pytest.raises(RuleError, match="stock"):
        make_trainer(gpt_problem(), "baseline:jit", edits=[Edit(name="adam_eps", value=1e-6)])


def test_a_gpu_that_is_not_there_is_said_so(run_python) -> None:
    for platforms in ("", "cpu"):
        command = ["-m", "jax_impl", "toy-mlp", "--device", "cuda", "--steps", "1"]
        done = run_python(*command, env={"JAX_PLATFORMS": platforms}, code=2)
        assert done.stderr.startswith("The device of the run is there."), done.stderr
        assert "Traceback" not in done.stderr


def test_a_process_stays_on_its_platform() -> None:
    with pytest.raises(RuleError, match="cuda asked for, cpu in use"):
        parallel.join(Execution(device="cuda"))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "1 started, 2 devices asked for"),
        ({"JAX_NUM_PROCESSES": "2"}, "no JAX_COORDINATOR_ADDRESS"),
        ({"JAX_NUM_PROCESSES": "two"}, "'two'"),
        ({"JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID 2, JAX_NUM_PROCESSES 2"),
        ({"JAX_LOCAL_DEVICE_IDS": "0,x"}, "'x'"),
    ],
)
def test_a_run_of_two_processes_is_not_begun_by_one(monkeypatch, environment, message) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RuleError, match=message):
        Trainer(gpt_problem(), Execution(world_size=2), "jit")
