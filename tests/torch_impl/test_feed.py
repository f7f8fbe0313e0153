"""Ranks' rows are slices of the global batch, and every batch looks like the first."""

import numpy as np
import pytest
import torch

from spec.data.batches import add_digests, batch_digest, open_source
from spec.errors import RuleError
from tests.torch_impl.small import gpt_problem
from torch_impl.feed import Feed, Stage
from torch_impl.parallel import Ranks

CPU = torch.device("cpu")


def test_ranks_share_the_global_batch() -> None:
    problem = gpt_problem()
    source = open_source(problem)
    feeds = [Feed(source, problem, Ranks(rank, 4, rank, CPU)) for rank in range(4)]
    whole = feeds[0].global_rows(3)
    parts = [feed.rows(3) for feed in feeds]
    for name, array in whole.items():
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), array)
    digests = [feed.digest(part) for feed, part in zip(feeds, parts, strict=True)]
    assert add_digests(digests) == batch_digest(whole, first_row=0)


def test_prepared_rows_repeat() -> None:
    problem = gpt_problem()
    feed = Feed(open_source(problem), problem, Ranks(0, 1, 0, CPU), cycle=2)
    plain = Feed(open_source(problem), problem, Ranks(0, 1, 0, CPU))
    for step, same_as in ((0, 0), (1, 1), (2, 0), (5, 1)):
        np.testing.assert_array_equal(feed.rows(step)["tokens"], plain.rows(same_as)["tokens"])


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
    stage = Stage(Ranks(0, 1, 0, CPU))
    stage({"x": np.zeros((4, 2), np.float32)})
    with pytest.raises(RuleError, match="of the first"):
        stage(other)
