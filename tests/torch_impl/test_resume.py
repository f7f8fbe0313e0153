"""The library's door to checkpoints: a user's module with buffers and dropout goes on to the bit."""

import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from spec.checkpoint import Checkpoint, Saver, open_checkpoint
from spec.errors import RuleError
from tests.torch_impl.small import MLP, gpt_problem, make_trainer, mlp_problem, run_spec, train
from torch_impl.graph.plan import FLAT, Plan, kept
from torch_impl.models import Side
from torch_impl.trainer import Trainer

STATE = ("param", "m", "v", "buffer")


def side(dropout: float = 0.0) -> Side:
    """A user's module on the rows of the MLP problem."""

    def build() -> nn.Module:
        torch.manual_seed(3)
        return nn.Sequential(
            nn.Linear(MLP.d_in, 7), nn.BatchNorm1d(7), nn.Dropout(dropout), nn.Linear(7, MLP.d_out)
        )

    def loss(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        out = module(batch["x"]) - batch["y"]
        return out.square().sum(), torch.full((), out.numel(), device=out.device)

    return Side(build, loss)


def saved(trainer: Trainer, folder: Path) -> Checkpoint:
    """The checkpoint of a trainer, written and opened."""
    saver = Saver(folder)
    saver.save(run_spec(trainer.problem), *trainer.checkpoint(), {"side": "torch"})
    path = saver.wait()
    saver.close()
    assert path is not None
    return open_checkpoint(path)


@pytest.mark.parametrize(
    ("mode", "dropout"),
    [("eager", 0.0), ("eager", 0.4), pytest.param("inductor", 0.4, marks=pytest.mark.slow)],
)
def test_a_users_module_goes_on_to_the_bit(tmp_path: Path, mode: str, dropout: float) -> None:
    whole = make_trainer(mlp_problem(), mode, side=side(dropout))
    train(whole, 3)
    checkpoint = saved(whole, tmp_path)
    expected = train(whole, 3, start=3)
    other = make_trainer(mlp_problem(), mode, side=side(dropout))
    torch.manual_seed(99)
    other.resume(checkpoint)
    assert (other.next_step, other.applied) == (3, 3)
    assert train(other, 3, start=3) == expected
    found, wanted = other.export(STATE), whole.export(STATE)
    assert found["buffer/1.num_batches_tracked"] == 6
    assert all(found[name].tobytes() == array.tobytes() for name, array in wanted.items())
    drawn = {name for name in checkpoint.tensors if name.startswith("generator/")}
    assert drawn == ({"generator/cpu"} if dropout else set())


def test_a_run_that_draws_no_more_hands_its_generator_on(tmp_path: Path) -> None:
    trainer = make_trainer(mlp_problem(), side=side(0.4))
    train(trainer, 1)
    first = saved(trainer, tmp_path / "first")
    other = make_trainer(mlp_problem(), side=side(0.4))
    other.resume(first)
    second = saved(other, tmp_path / "second")
    assert np.array_equal(second.tensors["generator/cpu"], first.tensors["generator/cpu"])


def test_resuming_is_in_place_with_a_trainer_that_has_trained(tmp_path: Path) -> None:
    first, other = (make_trainer(gpt_problem(precision="bf16")) for _ in range(2))
    train(first, 4)
    checkpoint = saved(first, tmp_path)
    train(other, 7)

    def addresses() -> dict[str, int]:
        arena = other.state
        named = {name: getattr(arena, name) for name in ("master", "working", "m", "v", "applied", "skipped")}
        named |= dict(arena.module.named_parameters()) | dict(arena.module.named_buffers())
        return {name: tensor.data_ptr() for name, tensor in named.items()}

    before = addresses()
    other.resume(checkpoint)
    assert addresses() == before
    assert other.next_step == 4
    assert train(other, 2, start=4) == train(first, 2, start=4)
    assert other.checkpoint()[0] == first.checkpoint()[0]


class Watched(Mapping[str, np.ndarray]):
    """Makes a new array at every access, and notices how many of those given out are still held."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._tensors = tensors
        self._given: list[weakref.ref[np.ndarray]] = []
        self.most_held = 0

    def __getitem__(self, name: str) -> np.ndarray:
        array = self._tensors[name].copy()
        # As a file that is mapped gives them.
        array.flags.writeable = False
        self._given.append(weakref.ref(array))
        self.most_held = max(self.most_held, sum(ref() is not None for ref in self._given))
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def test_a_state_is_read_tensor_by_tensor() -> None:
    trainer, other = make_trainer(gpt_problem()), make_trainer(gpt_problem())
    train(trainer, 2)
    watched = Watched(trainer.export(STATE))
    other.load(watched)
    assert watched.most_held <= 2 < len(watched)
    found = other.export(STATE)
    assert all(found[name].tobytes() == array.tobytes() for name, array in trainer.export(STATE).items())


def _without(checkpoint: Checkpoint, gone: str) -> Any:
    """The checkpoint without some tensors."""
    tensors = {name: array for name, array in checkpoint.tensors.items() if not name.startswith(gone)}

    class Fewer:
        position, written_by = checkpoint.position, checkpoint.written_by

    Fewer.tensors = tensors  # type: ignore[attr-defined]
    return Fewer()


@pytest.mark.parametrize("gone", ["buffer/", "m/", "param/0.weight"])
def test_a_checkpoint_that_is_not_whole_is_refused_before_anything_is_written(
    tmp_path: Path, gone: str
) -> None:
    trainer = make_trainer(mlp_problem(), side=side())
    train(trainer, 2)
    checkpoint = saved(trainer, tmp_path)
    other = make_trainer(mlp_problem(), side=side())
    before = other.export(STATE)
    with pytest.raises(RuleError, match="is missing"):
        other.resume(_without(checkpoint, gone))
    assert all(array.tobytes() == before[name].tobytes() for name, array in other.export(STATE).items())
    assert (other.next_step, other.applied) == (0, 0)


def test_another_module_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(mlp_problem(), side=side())
    checkpoint = saved(trainer, tmp_path)
    with pytest.raises(RuleError, match=r"missing|not in the model"):
        make_trainer(mlp_problem()).resume(checkpoint)


def test_a_plan_is_kept_where_the_run_could_choose_it() -> None:
    blocks = Plan("blocks", 25)
    plans = (FLAT, blocks, Plan("blocks", 100))
    recorded = {"name": blocks.name, "measured_ms": {blocks.name: 1.0}}
    assert kept(plans, recorded) == (blocks,)
    assert kept((FLAT,), recorded) == (FLAT,)
    for nothing in (None, "blocks", {}, {"name": ["blocks"]}, 3):
        assert kept(plans, nothing) == plans
