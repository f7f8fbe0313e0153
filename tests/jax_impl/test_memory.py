"""The arena: names, a user's module, buffers, and the proof that a program updates it in place."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jax_impl import parallel
from jax_impl.memory import Arena, TrainState, abstract, prove_in_place
from jax_impl.models import Side
from jax_impl.xla import layout
from spec.errors import RuleError
from spec.precision import PROFILES
from spec.run import Execution
from tests.jax_impl.small import (
    assert_equal_bits,
    gpt_problem,
    make_trainer,
    mlp_problem,
    relative_difference,
    train,
)

PHASES = ("param", "m", "v", "buffer")


class Odd(nnx.Module):
    """A user's module: a shared weight, a scalar, running statistics, a constant."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.embed = nnx.Embed(5, 3, rngs=rngs)
        self.factor = nnx.Param(jnp.asarray(2.0))
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.head = nnx.Linear(3, 5, use_bias=False, rngs=rngs)
        self.shift = nnx.Variable(jnp.arange(3))
        self.again = self.embed.embedding

    def __call__(self, tokens_B: jax.Array) -> jax.Array:
        return self.head(self.norm(self.embed(tokens_B) * self.factor[...] + self.shift[...]))


def odd_loss(module: nnx.Module, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    loss_sum = (module(batch["tokens"]) ** 2).sum() * batch["factor"].sum()
    return loss_sum, jnp.asarray(batch["tokens"].size)


def make_arena(module: nnx.Module, profile: str = "strict") -> Arena:
    return Arena(module, (), PROFILES[profile], parallel.join(Execution()))


def test_a_users_module_keeps_its_values_and_ties() -> None:
    module = Odd()
    arena = make_arena(module)
    assert arena.ties == [["again", "embed.weight"]]
    described = {entry["name"]: entry for entry in arena.describe()}
    assert set(described) == {"again", "factor", "norm.weight", "norm.bias", "head.weight"}
    assert [name for name, entry in described.items() if entry["decayed"]] == ["again", "head.weight"]
    assert described["head.weight"]["shape"] == [5, 3]
    assert set(arena.tensors("buffer")) == {"norm.mean", "norm.var", "shift"}
    np.testing.assert_array_equal(arena.tensors("param")["again"], module.embed.embedding[...])


@pytest.mark.parametrize("arrays", ["apart", "buckets"])
def test_several_arrays_are_the_same_state_and_step(jax_x64, monkeypatch, arrays) -> None:
    """Every element is computed as before; only the norm adds up in another order."""
    monkeypatch.setattr(layout, "BUCKET", 1500)
    problem = replace(gpt_problem(), precision="f64")
    one, several = make_trainer(problem), make_trainer(problem, f"jit:{arrays}")
    assert_equal_bits(one.export(PHASES), several.export(PHASES))
    assert isinstance(several.state, Arena)
    rows = several.state.rows
    decayed = [row.size for row in rows if row.decayed]
    *sizes, last = (array.size for array in several.state.train_state.m)
    if arrays == "apart":
        assert (sizes, last) == (decayed, sum(row.size for row in rows) - sum(decayed))
    else:
        # The last holds the first of the decayed, which ends the backward pass, and all that does not decay.
        assert several.state.layout.pieces[-1][0] == next(row.name for row in rows if row.decayed)
        assert set(several.state.layout.pieces[-1]) >= {row.name for row in rows if not row.decayed}
        assert 1 < len(sizes) < len(decayed) - 1
        assert all(size <= 1500 or size in decayed for size in sizes)
    assert train(several, 4) == pytest.approx(train(one, 4), rel=1e-13)
    assert relative_difference(one.export(PHASES), several.export(PHASES)) < 1e-12
    assert several.compiled is not None and several.compiled.proven is not None
    total = sum(row.size for row in several.state.rows)
    assert several.compiled.proven["state_bytes_in_place"] == 3 * 8 * total + 8


def test_buffers_take_the_master_dtype_and_counters_stay_whole(jax_x64) -> None:
    buffers = make_arena(Odd(), "f64").tensors("buffer")
    assert {name: array.dtype.name for name, array in buffers.items()} == {
        "norm.mean": "float64",
        "norm.var": "float64",
        "shift": buffers["shift"].dtype.name,
    }
    assert jnp.issubdtype(buffers["shift"].dtype, jnp.integer)


def test_refused_updates_put_buffers_back() -> None:
    trainer = make_trainer(mlp_problem(), side=Side(Odd, odd_loss))
    rows = {"tokens": np.arange(4, dtype=np.int32), "factor": np.ones(4, np.float32)}
    fresh = trainer.export(["buffer"])
    trainer.step(rows)
    before = trainer.export(PHASES)
    assert (before["buffer/norm.mean"] != fresh["buffer/norm.mean"]).all()
    trainer.step({**rows, "factor": np.full(4, np.nan, np.float32)})
    assert trainer.metrics().skipped == 1
    assert_equal_bits(trainer.export(PHASES), before)
    trainer.step(rows)
    assert (trainer.export(["buffer"])["buffer/norm.mean"] != before["buffer/norm.mean"]).all()


def test_buffers_go_through_the_micro_batches_in_order() -> None:
    """Two micro-batches move the running mean twice, as two forward passes do."""
    trainer = make_trainer(mlp_problem(micro_batches=2), side=Side(Odd, odd_loss))
    rows = {"tokens": np.array([0, 1, 1, 4], np.int32), "factor": np.ones(4, np.float32)}
    trainer.step(rows)
    module = Odd()
    for half in (slice(0, 2), slice(2, 4)):
        module(jnp.asarray(rows["tokens"][half]))
    found = trainer.export(["buffer"])
    np.testing.assert_allclose(found["buffer/norm.mean"], module.norm.mean[...], rtol=1e-6)
    np.testing.assert_allclose(found["buffer/norm.var"], module.norm.var[...], rtol=1e-6)


class Twice(nnx.Module):
    """A kernel and a weight beside each other."""

    def __init__(self) -> None:
        self.kernel, self.weight = nnx.Param(jnp.ones((2, 2))), nnx.Param(jnp.ones((2, 2)))


class Random(nnx.Module):
    """Dropout carries a generator."""

    def __init__(self) -> None:
        self.fc, self.drop = nnx.Linear(2, 2, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(0))


class Whole(nnx.Module):
    """A parameter of whole numbers."""

    def __init__(self) -> None:
        self.table = nnx.Param(jnp.arange(3))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (Twice, r"\('kernel',\) and \('weight',\) are both weight"),
        (Random, "state of a generator"),
        (Whole, "table is int32"),
        (lambda: nnx.List([]), "it has none"),
        (lambda: nnx.eval_shape(Odd), "norm.mean is abstract"),
    ],
    ids=["name", "generator", "whole numbers", "empty", "abstract buffer"],
)
def test_what_cannot_be_trained_is_refused(build, message) -> None:
    with pytest.raises(RuleError, match=message):
        make_arena(build())


def test_a_loaded_array_stays_the_callers() -> None:
    """A step writes over the memory of its state; what was loaded must not be that memory."""
    trainer = make_trainer(mlp_problem())
    given = trainer.export(["param", "m", "v"])
    copies = {name: array.copy() for name, array in given.items()}
    trainer.load(given)
    train(trainer, 3)
    assert_equal_bits(given, copies)


def compiled_step(donate: bool = True):
    """The small MLP's program, and the state it is for."""
    trainer = make_trainer(mlp_problem())
    state, batch = trainer.state.train_state, trainer.stage(trainer.feed.rows(0))
    jitted = jax.jit(
        lambda state, batch: trainer._step(state, batch)[:2],
        donate_argnums=0 if donate else (),
        out_shardings=trainer.ranks.sharding(parallel.REPLICATED),
        keep_unused=True,
    )
    return jitted.lower(abstract(state), abstract(batch)).compile(), state


def test_every_byte_of_the_state_is_updated_in_place() -> None:
    program, state = compiled_step()
    num_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(state))
    assert prove_in_place(program, state) == num_bytes == 3 * 4 * (5 * 7 + 7 + 7 * 3 + 3) + 2 * 4


def test_a_copied_leaf_is_named() -> None:
    program, state = compiled_step(donate=False)
    with pytest.raises(RuleError, match=r"0 of 800 bytes; copied: params/0, m/0, v/0, applied, skipped"):
        prove_in_place(program, state)
    program, state = compiled_step()
    text = program.as_text().replace("(1, {}, may-alias)", "(1, {}, none)")
    assert text != program.as_text()
    leaking = SimpleNamespace(
        as_text=lambda: text,
        memory_analysis=lambda: SimpleNamespace(alias_size_in_bytes=536),
        out_info=program.out_info,
        output_shardings=program.output_shardings,
    )
    with pytest.raises(RuleError, match=r"536 of 800 bytes; copied: m/0\n"):
        prove_in_place(leaking, state)


def test_a_leaf_that_changes_its_dtype_is_named() -> None:
    """The drift that would compile a second program in silence."""
    trainer = make_trainer(mlp_problem())
    state = trainer.state.train_state

    def drift(state: TrainState) -> tuple[TrainState, None]:
        return replace(state, v=tuple(piece.astype(jnp.bfloat16) for piece in state.v)), None

    program = jax.jit(drift, keep_unused=True).lower(abstract(state)).compile()
    with pytest.raises(RuleError, match=r"v/0: in float32\(66,\) .*out bfloat16\(66,\)"):
        prove_in_place(program, state)
