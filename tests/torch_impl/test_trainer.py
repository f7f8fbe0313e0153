"""The library's door: a user's own module and loss, metrics that may be read one step late, facts."""

import numpy as np
import pytest
import torch
from torch import nn

from spec.edits import Edit
from spec.errors import RuleError
from spec.run import Execution
from tests.torch_impl.small import gpt_problem, make_trainer, mlp_problem, train
from torch_impl.models import Side
from torch_impl.trainer import Trainer


def regression(module: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    error = module(batch["x"].to(torch.float64)) - batch["y"]
    return error.square().sum(), torch.full((), error.numel())


def own_module() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def own_rows(seed: int) -> dict[str, np.ndarray]:
    x_BI = np.random.default_rng(seed).standard_normal((8, 4))
    return {"x": x_BI, "y": x_BI[:, :1] * x_BI[:, 1:2]}


def test_a_users_module_trains_as_in_plain_torch() -> None:
    problem = mlp_problem(precision="f64", steps=20)
    trainer = make_trainer(problem, side=Side(own_module, regression))
    module = own_module()
    decayed, plain = ([p for p in module.parameters() if (p.ndim >= 2) == big] for big in (True, False))
    optimizer = torch.optim.AdamW(
        [{"params": decayed}, {"params": plain, "weight_decay": 0.0}], betas=(0.9, 0.95)
    )
    for group, decay in zip(optimizer.param_groups, (0.1, 0.0), strict=True):
        group["weight_decay"] = decay
    for step in range(20):
        rows = own_rows(step)
        trainer.step(rows)
        for group in optimizer.param_groups:
            group["lr"] = trainer.metrics().lr
        optimizer.zero_grad()
        loss = (module(torch.from_numpy(rows["x"])) - torch.from_numpy(rows["y"])).square().mean()
        loss.backward()
        norm = nn.utils.get_total_norm([parameter.grad for parameter in module.parameters()])
        nn.utils.clip_grads_with_norm_(module.parameters(), problem.optimizer.max_norm, norm - 1e-6)
        optimizer.step()
        assert trainer.metrics().loss == pytest.approx(loss.item(), rel=1e-12)
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(trainer.export(["param"])[f"param/{name}"], parameter.detach(), rtol=1e-11)


def test_metrics_of_the_last_two_steps_can_be_read() -> None:
    late, prompt = make_trainer(gpt_problem()), make_trainer(gpt_problem())
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
        trainer = make_trainer(gpt_problem(micro_batches=2))
        train(trainer, 5)
        ends.append(trainer.export(["param", "m", "v"]))
    assert all(ends[0][name].tobytes() == array.tobytes() for name, array in ends[1].items())


def test_a_baseline_takes_no_edits() -> None:
    with pytest.raises(RuleError, match="stock"):
        make_trainer(gpt_problem(), "baseline:eager", edits=[Edit(name="adam_eps", value=1e-6)])


def test_a_run_of_two_processes_is_not_begun_by_one() -> None:
    with pytest.raises(RuleError, match="1 started, 2 asked for"):
        Trainer(gpt_problem(), Execution(world_size=2), "eager")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(RuleError, match="1 processes on this host, 0 GPUs"):
        Trainer(gpt_problem(), Execution(device="cuda"), "eager")
