"""The arena: alignment, padding, groups, ties, frozen parameters, and addresses that never move."""

import pytest
import torch
from torch import nn

from spec.errors import RuleError
from spec.precision import PROFILES
from tests.torch_impl.small import gpt_problem, make_trainer, mlp_problem, train
from torch_impl.memory import ALIGN_BYTES, Arena
from torch_impl.models import Side

CPU = torch.device("cpu")


class Odd(nn.Module):
    """A user's module: a tied weight, a frozen one, a scalar, and buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.frozen = nn.Linear(3, 3)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens_B: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.frozen(self.embed(tokens_B)) * self.scale))


def odd_arena(profile: str = "strict") -> Arena:
    return Arena(Odd(), (), PROFILES[profile], CPU)


def buffers_of(arena: Arena) -> list[torch.Tensor]:
    return [arena.master, arena.working, arena.m, arena.v, arena.sums]


@pytest.mark.parametrize("precision", ["f64", "strict", "bf16"])
def test_every_parameter_is_aligned_in_every_buffer(precision) -> None:
    trainer = make_trainer(gpt_problem(precision=precision))
    for buffer in buffers_of(trainer.state):
        assert {slot.start * buffer.element_size() % ALIGN_BYTES for slot in trainer.state.slots} == {0}
    for parameter in trainer.state.module.parameters():
        assert parameter.is_contiguous()
        assert parameter.untyped_storage().data_ptr() == trainer.state.working.untyped_storage().data_ptr()


@pytest.mark.parametrize("precision", ["strict", "bf16"])
def test_padding_stays_zero_and_nothing_overlaps(precision) -> None:
    trainer = make_trainer(gpt_problem(precision=precision))
    train(trainer, 3)
    arena = trainer.state
    for buffer in (arena.master, arena.working, arena.m, arena.v, arena.grad):
        covered = torch.zeros_like(buffer, dtype=torch.int32)
        for slot in arena.slots:
            slot.view(covered).add_(1)
        assert covered.max() == 1
        assert not buffer[covered == 0].any()
        assert buffer[covered == 1].any()


def test_decayed_parameters_come_first() -> None:
    arena = make_trainer(gpt_problem()).state
    for decayed, cut in arena.groups():
        inside = {slot.row.decayed for slot in arena.slots if cut.start <= slot.start < cut.stop}
        assert inside == {decayed}
    assert [cut.stop for _, cut in arena.groups()] == [arena.num_decayed, arena.num_trainable]


def test_no_address_ever_moves() -> None:
    trainer = make_trainer(gpt_problem(precision="bf16"))
    lasting = [*trainer.state.lasting(), trainer.state.sums, trainer.state.metrics]
    addresses = [tensor.data_ptr() for tensor in (*lasting, *trainer.state.module.parameters())]
    saved = trainer.export(["param", "m", "v"])
    train(trainer, 2)
    trainer.load(saved)
    lasting = [*trainer.state.lasting(), trainer.state.sums, trainer.state.metrics]
    assert [tensor.data_ptr() for tensor in (*lasting, *trainer.state.module.parameters())] == addresses


def test_a_users_module_keeps_its_values_ties_and_frozen_parts() -> None:
    torch.manual_seed(0)
    module = Odd()
    values = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    arena = Arena(module, (), PROFILES["strict"], CPU)
    assert arena.ties == [["embed.weight", "head.weight"]]
    assert module.head.weight is module.embed.weight
    for name, parameter in module.named_parameters():
        assert torch.equal(parameter, values[name]), name
    described = {entry["name"]: entry for entry in arena.describe()}
    assert described.keys() == values.keys()
    assert [name for name, entry in described.items() if not entry["trainable"]] == [
        "frozen.weight",
        "frozen.bias",
    ]
    assert [name for name, entry in described.items() if entry["decayed"]] == ["embed.weight"]
    assert set(arena.tensors("m")) == {"embed.weight", "scale", "norm.weight", "norm.bias"}
    assert set(arena.tensors("param")) == values.keys()


def test_buffers_take_the_master_dtype_and_counters_stay_whole() -> None:
    arena = odd_arena("f64")
    assert {name: buffer.dtype for name, buffer in arena.buffers.items()} == {
        "norm.running_mean": torch.float64,
        "norm.running_var": torch.float64,
        "norm.num_batches_tracked": torch.int64,
    }
    assert arena.module.norm.running_mean is arena.buffers["norm.running_mean"]


def test_refused_updates_put_buffers_back() -> None:
    def loss(module: nn.Module, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        loss_sum = module(batch["tokens"]).square().sum() * batch["factor"].sum()
        return loss_sum, torch.ones_like(batch["tokens"]).sum()

    trainer = make_trainer(mlp_problem(), side=Side(Odd, loss))
    rows = {"tokens": torch.arange(4).numpy(), "factor": torch.ones(4).numpy()}
    trainer.step(rows)
    before = trainer.export(["param", "m", "v", "buffer"])
    assert before["buffer/norm.num_batches_tracked"] == 1
    trainer.step({**rows, "factor": torch.full((4,), float("nan")).numpy()})
    after = trainer.export(["param", "m", "v", "buffer"])
    assert trainer.metrics().skipped == 1
    assert all(after[name].tobytes() == array.tobytes() for name, array in before.items())
    trainer.step(rows)
    assert trainer.export(["buffer"])["buffer/norm.num_batches_tracked"] == 2


def test_parameters_are_numbers_and_there_are_some() -> None:
    with pytest.raises(RuleError, match="has none"):
        Arena(nn.ReLU(), (), PROFILES["strict"], CPU)
