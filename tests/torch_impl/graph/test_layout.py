"""Batches in one row of bytes: every nesting comes back, and whatever does not fit exactly is refused."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from spec.errors import RuleError
from torch_impl.graph.layout import ALIGN_BYTES, BatchLayout, RowWriter


class Pair(NamedTuple):
    image: Any
    label: Any


def nested() -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {
        "views": [
            rng.normal(size=(2, 3)).astype(np.float32),
            torch.arange(6, dtype=torch.int64).view(2, 3).t(),
        ],
        "pair": Pair(torch.randn(5).to(torch.bfloat16), (np.array(7, np.int32),)),
        "mask": np.array([True, False, True]),
    }


def round_trip(example: Any, batch: Any) -> Any:
    layout = BatchLayout(example)
    row = torch.full((layout.row_bytes,), 0xAB, dtype=torch.uint8)
    RowWriter(layout, row).write(batch)
    return layout.unflatten(row)


def test_every_leaf_comes_back_bit_for_bit() -> None:
    batch = nested()
    back = round_trip(nested(), batch)
    assert isinstance(back["pair"], Pair)
    np.testing.assert_array_equal(back["views"][0].numpy(), batch["views"][0])
    assert torch.equal(back["views"][1], batch["views"][1])
    assert torch.equal(back["pair"].image, batch["pair"].image)
    assert back["pair"].label[0].item() == 7
    assert back["mask"].tolist() == [True, False, True]


def test_leaves_start_at_aligned_places_and_do_not_overlap() -> None:
    layout = BatchLayout(nested())
    ends = 0
    for leaf in layout.leaves:
        assert leaf.start % ALIGN_BYTES == 0 and leaf.start >= ends
        ends = leaf.start + leaf.num_bytes
    assert ends <= layout.row_bytes and layout.row_bytes % ALIGN_BYTES == 0


def test_order_of_keys_does_not_matter() -> None:
    example = {"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}
    back = round_trip(example, {"b": np.full(2, 2, np.float32), "a": np.full(2, 1, np.float32)})
    assert back["a"].tolist() == [1, 1] and back["b"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("batch", "named"),
    [
        ({"x": np.zeros((1, 3), np.float32)}, "x is torch.float32 (1, 3)"),
        ({"x": np.zeros((4, 3), np.float64)}, "float64"),
        ({"x": np.zeros((3,), np.float32)}, "(3,)"),
        ({"x": torch.zeros(4, 1)}, "(4, 1)"),
        ({"y": np.zeros((4, 3), np.float32)}, "structure"),
        ({"x": np.zeros((4, 3), np.float32), "y": np.zeros(1)}, "structure"),
        ([np.zeros((4, 3), np.float32)], "structure"),
        ({"x": [np.zeros((4, 3), np.float32)]}, "structure"),
        ({"x": 3.0}, "float"),
    ],
)
def test_what_does_not_fit_exactly_is_refused_by_name(batch: Any, named: str) -> None:
    layout = BatchLayout({"x": np.zeros((4, 3), np.float32)})
    row = torch.zeros(layout.row_bytes, dtype=torch.uint8)
    with pytest.raises(RuleError) as refused:
        RowWriter(layout, row).write(batch)
    assert named in str(refused.value)


def test_other_shapes_pass_only_where_they_cannot_broadcast() -> None:
    layout = BatchLayout({"x": np.zeros((4, 3), np.float32)})
    layout.check_other({"x": np.zeros((2, 3), np.float32)})
    assert not layout.has_shapes_of({"x": np.zeros((2, 3), np.float32)})
    for shape in ((1, 3), (4, 1), (1, 1), (3,)):
        with pytest.raises(RuleError):
            layout.check_other({"x": np.zeros(shape, np.float32)})


def test_a_batch_without_tensors_is_refused() -> None:
    for empty in ({}, {"x": 1}, {"x": "text"}):
        with pytest.raises(RuleError):
            BatchLayout(empty)
