"""Ranks' rows are slices of the global batch, and every batch looks like the first."""

import numpy as np
import pytest
from jax.sharding import Mesh

from jax_impl import parallel
from jax_impl.feed import Feed, Stage
from jax_impl.loss import cross_entropy
from jax_impl.parallel import BY_RANK, Ranks
from jax_impl.xla.several import STACKED
from spec.data.batches import add_digests, batch_digest, open_source
from spec.errors import RuleError
from spec.run import Execution
from spec.workloads.gpt import IGNORE_LABEL
from tests.jax_impl.small import GPT, gpt_problem, make_trainer


def ranks_of(world_size: int) -> list[Ranks]:
    """Ranks that only count rows: their mesh is never used."""
    mesh: Mesh = parallel.join(Execution()).mesh
    return [Ranks(rank, world_size, rank, mesh) for rank in range(world_size)]


def test_ranks_share_the_global_batch() -> None:
    problem = gpt_problem()
    source = open_source(problem)
    feeds = [Feed(source, problem, ranks) for ranks in ranks_of(4)]
    whole = feeds[0].global_rows(3)
    parts = [feed.rows(3) for feed in feeds]
    for name, array in whole.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), array)
    digests = [feed.digest(part) for feed, part in zip(feeds, parts, strict=True)]
    assert add_digests(digests) == batch_digest(whole, first_row=0)


def test_prepared_rows_repeat() -> None:
    problem, (ranks,) = gpt_problem(), ranks_of(1)
    feed = Feed(open_source(problem), problem, ranks, cycle=2)
    plain = Feed(open_source(problem), problem, ranks)
    for step, same_as in ((0, 0), (1, 1), (2, 0), (5, 1)):
        np.testing.assert_array_equal(feed.rows(step)["tokens"], plain.rows(same_as)["tokens"])


def test_staged_rows_are_the_rows() -> None:
    rows = {"x": np.arange(8, dtype=np.float32).reshape(4, 2), "n": np.arange(4, dtype=np.int32)}
    staged = Stage(parallel.join(Execution()))(rows)
    for name, array in rows.items():
        np.testing.assert_array_equal(np.asarray(staged[name]), array)
        assert staged[name].dtype == array.dtype


@pytest.mark.parametrize("where", [BY_RANK, STACKED])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "float64"])
def test_what_is_put_is_what_is_placed(where, dtype) -> None:
    """The short way and JAX's own; types that JAX narrows included."""
    ranks, array = parallel.join(Execution()), np.arange(24).reshape(2, 4, 3).astype(dtype)
    put, placed = ranks.put(array, where), ranks.place(array, where)
    assert (put.dtype, put.shape, put.sharding) == (placed.dtype, placed.shape, placed.sharding)
    assert put.committed and placed.committed
    np.testing.assert_array_equal(put, placed)


@pytest.mark.parametrize(
    "other",
    [
        {"x": np.zeros((3, 2), np.float32)},
        {"x": np.zeros((4, 2), np.float64)},
        {"z": np.zeros((4, 2), np.float32)},
        {"x": np.zeros((4, 1), np.float32)},
    ],
    ids=["rows", "dtype", "name", "width that would broadcast"],
)
def test_another_shape_is_refused(other) -> None:
    stage = Stage(parallel.join(Execution()))
    stage({"x": np.zeros((4, 2), np.float32)})
    with pytest.raises(RuleError, match="of the first"):
        stage(other)


@pytest.mark.parametrize(
    ("name", "value"), [("tokens", GPT.vocab), ("tokens", -1), ("labels", GPT.vocab), ("labels", -2)]
)
def test_a_token_out_of_range_is_named_before_it_is_staged(name, value) -> None:
    trainer = make_trainer(gpt_problem())
    rows = {key: array.copy() for key, array in trainer.feed.rows(0).items()}
    rows[name][2, 3] = value
    with pytest.raises(RuleError, match="in the vocabulary") as caught:
        trainer.step(rows)
    assert caught.value.numbers == f"{name}[2, 3] is {value}, vocabulary {GPT.vocab}"


@pytest.mark.parametrize("label", [GPT.vocab, -2, -100])
def test_a_label_that_is_no_class_makes_the_loss_nan_and_not_another_class(label) -> None:
    logits_BTV = np.random.default_rng(0).standard_normal((1, 3, GPT.vocab)).astype(np.float32)
    good, count = cross_entropy(logits_BTV, np.array([[1, IGNORE_LABEL, 2]], np.int32))
    assert np.isfinite(good) and count == 2
    bad, _ = cross_entropy(logits_BTV, np.array([[1, IGNORE_LABEL, label]], np.int32))
    assert np.isnan(bad)
