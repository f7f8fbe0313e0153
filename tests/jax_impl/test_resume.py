"""The library's door to checkpoints: a user's module with buffers goes on to the bit."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx

from jax_impl.models import Side
from jax_impl.trainer import Trainer
from spec.checkpoint import Checkpoint, Saver, open_checkpoint
from spec.errors import RuleError
from tests.jax_impl.small import (
    MLP,
    assert_equal_bits,
    gpt_problem,
    make_trainer,
    mlp_problem,
    run_spec,
    train,
)

STATE = ("param", "m", "v", "buffer")


class Net(nnx.Module):
    """A user's module on the rows of the MLP problem."""

    def __init__(self, seed: int) -> None:
        rngs = nnx.Rngs(seed)
        self.first = nnx.Linear(MLP.d_in, 7, rngs=rngs)
        self.norm = nnx.BatchNorm(7, rngs=rngs)
        self.last = nnx.Linear(7, MLP.d_out, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.last(self.norm(self.first(x)))


def side(seed: int) -> Side:
    def loss(module: Any, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
        out = module(batch["x"]) - batch["y"]
        return (out**2).sum(), jnp.asarray(out.size)

    return Side(lambda: Net(seed), loss)


def saved(trainer: Trainer, folder: Path) -> Checkpoint:
    """The checkpoint of a trainer, written and opened."""
    saver = Saver(folder)
    saver.save(run_spec(trainer.problem), *trainer.checkpoint(), {"side": "jax"})
    path = saver.wait()
    saver.close()
    assert path is not None
    return open_checkpoint(path)


@pytest.mark.parametrize("mode", ["jit", "nojit"])
def test_a_users_module_goes_on_to_the_bit(tmp_path: Path, mode: str) -> None:
    whole = make_trainer(mlp_problem(), mode, side=side(0))
    train(whole, 3)
    checkpoint = saved(whole, tmp_path)
    expected = train(whole, 3, start=3)
    other = make_trainer(mlp_problem(), mode, side=side(1))
    other.resume(checkpoint)
    assert (other.next_step, other.applied) == (3, 3)
    assert train(other, 3, start=3) == expected
    assert_equal_bits(other.export(STATE), whole.export(STATE))
    assert {name for name in checkpoint.tensors if name.startswith("buffer/")} == {
        "buffer/norm.mean",
        "buffer/norm.var",
    }


def test_a_trainer_that_has_trained_goes_on_with_the_program_it_has(tmp_path: Path) -> None:
    first, other = (make_trainer(gpt_problem(precision="bf16")) for _ in range(2))
    train(first, 4)
    checkpoint = saved(first, tmp_path)
    train(other, 7)
    compiled = other.compiled
    other.resume(checkpoint)
    assert other.next_step == 4
    assert train(other, 2, start=4) == train(first, 2, start=4)
    assert other.compiled is compiled
    assert other.checkpoint()[0] == first.checkpoint()[0]


def test_what_was_read_is_the_callers_still() -> None:
    """On a CPU an array's memory can become the state's, which the step writes over."""
    trainer, other = make_trainer(gpt_problem()), make_trainer(gpt_problem())
    train(trainer, 2)
    given = trainer.export(STATE)
    copies = {name: array.copy() for name, array in given.items()}
    other.load(given)
    train(other, 2)
    assert_equal_bits(given, copies)


def test_another_module_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    trainer = make_trainer(mlp_problem(), side=side(0))
    train(trainer, 1)
    checkpoint = saved(trainer, tmp_path)
    other = make_trainer(mlp_problem())
    before = other.export(STATE)
    with pytest.raises(RuleError, match=r"missing|not in the model"):
        other.resume(checkpoint)
    assert_equal_bits(other.export(STATE), before)
    assert (other.next_step, other.applied) == (0, 0)
