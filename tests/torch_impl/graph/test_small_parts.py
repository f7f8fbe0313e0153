"""Teardown in order, failures explained by line, memset nodes read right: what needs no GPU of capture."""

from types import SimpleNamespace

import pytest
import torch

from torch_impl.graph import teardown
from torch_impl.graph.capture import explain
from torch_impl.graph.rewrite import memset_kernel


def test_live_graphs_close_youngest_first_and_once() -> None:
    order: list[str] = []
    owners = [object() for _ in range(3)]
    for name, owner in zip("abc", owners, strict=True):
        teardown.on_close(owner, lambda name=name: order.append(name))
    teardown.closed(owners[1])
    teardown.close_graphs()
    teardown.close_graphs()
    assert order == ["c", "a"]


def test_one_that_fails_to_close_keeps_none_from_closing() -> None:
    order: list[str] = []

    def fail() -> None:
        raise RuntimeError("stuck")

    owners = [object(), object()]
    teardown.on_close(owners[0], lambda: order.append("closed"))
    teardown.on_close(owners[1], fail)
    with pytest.raises(RuntimeError, match="stuck"):
        teardown.close_graphs()
    assert order == ["closed"]


def test_a_failure_names_the_line_of_the_users_code() -> None:
    def step_of_a_user() -> None:
        torch.zeros(3) @ torch.zeros(4)  # the line in question

    with pytest.raises(RuntimeError) as failed:
        step_of_a_user()
    text = explain(failed.value, "capture")
    assert "test_small_parts.py" in text and "torch.zeros(3) @ torch.zeros(4)" in text


def test_a_wait_of_the_host_is_explained() -> None:
    error = RuntimeError("called a synchronizing CUDA operation")
    assert "waits for a value of the device" in explain(error, "warm-up")


@pytest.mark.parametrize(
    ("element_size", "value", "pattern"),
    [
        (1, 0xAB, 0xABABABAB),
        (2, 0xABCD, 0xABCDABCD),
        (4, 0x01020304, 0x01020304),
        (1, 0xFFFFFFFF, 0xFFFFFFFF),
    ],
)
def test_a_memset_node_becomes_a_fill_of_the_same_bytes(element_size: int, value: int, pattern: int) -> None:
    node = SimpleNamespace(dst=4096, pitch=64, value=value, elementSize=element_size, width=10, height=3)
    launch = memset_kernel(node)
    assert launch.kernel == "fill"
    assert launch.values == (4096, 64, 10 * element_size, 3, pattern)
