"""What a graph's nodes and edges tell, on graphs small enough to know the answer."""

from torch_impl.graph.nodes import GraphView, Node
from torch_impl.graph.picture import draw

K = Node("kernel", "gemm")
NCCL = Node("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL")

# 0 -> 1 -> 2 -> 3 (compute), 0 -> 4 (all-reduce) -> 3; 5 is a memset before everything.
OVERLAPPED = GraphView([K, K, K, K, NCCL, Node("memset")], [(0, 1), (1, 2), (2, 3), (0, 4), (4, 3), (5, 0)])
STRAIGHT = GraphView([K, NCCL, K], [(0, 1), (1, 2)])


def test_nodes_are_counted_by_kind() -> None:
    assert OVERLAPPED.by_kind() == {"kernel": 5, "memset": 1}
    assert OVERLAPPED.collectives == [4]


def test_a_collective_on_a_branch_may_run_beside_that_branch_alone() -> None:
    (row,) = OVERLAPPED.overlap()
    assert row["beside"] == [1, 2] and row["name"] == NCCL.name
    assert OVERLAPPED.unordered(1) == [4]


def test_a_collective_in_the_line_overlaps_nothing() -> None:
    (row,) = STRAIGHT.overlap()
    assert row["beside"] == []
    assert STRAIGHT.is_straight() and not OVERLAPPED.is_straight()


def test_a_graph_is_known_again_by_its_nodes_and_edges() -> None:
    edges = list(reversed(OVERLAPPED.edges))
    assert GraphView(OVERLAPPED.nodes, edges).sha256() == OVERLAPPED.sha256()
    assert GraphView(OVERLAPPED.nodes, edges[1:]).sha256() != OVERLAPPED.sha256()
    assert GraphView([K, K, K], STRAIGHT.edges).sha256() != STRAIGHT.sha256()


def test_levels_are_longest_paths() -> None:
    assert OVERLAPPED.levels() == [1, 2, 3, 4, 2, 0]


def test_collectives_are_not_counted_as_compute_beside_each_other() -> None:
    view = GraphView([K, NCCL, NCCL], [(0, 1), (0, 2)])
    assert [row["beside"] for row in view.overlap()] == [[], []]


def test_the_drawing_holds_every_node_and_parses() -> None:
    import xml.etree.ElementTree as ElementTree

    root = ElementTree.fromstring(draw(OVERLAPPED))
    bars = [element for element in root.iter() if element.tag.endswith("rect")]
    assert len(bars) == len(OVERLAPPED.nodes)
    assert "5 kernel, 1 memset" in draw(OVERLAPPED) and draw(GraphView([], []))
