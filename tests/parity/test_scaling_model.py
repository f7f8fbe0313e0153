"""The cost model of the scaling study: its formulas against published values and sums done by hand."""

import math
from statistics import NormalDist

import pytest

from benchmarks.scaling import model
from benchmarks.scaling.model import Link, Node
from spec.errors import RuleError

NORMAL = [10 + NormalDist().inv_cdf((i + 0.5) / 20_000) for i in range(20_000)]


@pytest.mark.parametrize(("ranks", "published"), [(2, 0.56419), (5, 1.16296), (10, 1.53875), (100, 2.50759)])
def test_the_last_of_n_normals_is_as_late_as_published(ranks: int, published: float) -> None:
    """Harter, Biometrika 48 (1961), table 1; shifted, since no launch takes less than nothing."""
    assert model.last_ms(NORMAL, ranks) == pytest.approx(10 + published, abs=1e-3)


def test_of_two_values_the_later_one_comes_unless_all_are_early() -> None:
    draws = [1.0] * 50 + [3.0] * 50
    for ranks in (1, 2, 5, 30):
        assert model.last_ms(draws, ranks) == pytest.approx(3.0 - 2.0 / 2**ranks)
        assert model.last_ms(draws, ranks, 2.0) == pytest.approx(3.0 - 1.0 / 2**ranks)
    assert model.last_ms(draws, 7, 9.0) == 9.0


def test_beyond_the_sample_the_tail_is_exponential() -> None:
    """The last of N exponential times of mean 1 comes at 1 + 1/2 + ... + 1/N."""
    draws = [-math.log(1 - (i + 0.5) / 200) for i in range(200)]
    for ranks in (1000, 10_000):
        harmonic = sum(1 / k for k in range(1, ranks + 1))
        assert model.last_ms(draws, ranks) == pytest.approx(harmonic, rel=0.05)
    seen = [model.last_ms(draws, ranks) for ranks in (1, 10, 200, 201, 1000, 100_000)]
    assert seen == sorted(seen) and seen[2] < max(draws) < seen[-1]


def test_equal_launches_have_no_tail_and_few_draws_are_refused() -> None:
    assert model.last_ms([2.0] * 10, 10_000) == 2.0
    with pytest.raises(RuleError, match="4 dispatch times, at least 5"):
        model.last_ms([1.0] * 4, 2)


def test_a_step_is_its_host_or_its_device_and_what_waiting_adds() -> None:
    draws = [1.0] * 50 + [3.0] * 50
    found = model.step(2.5, draws, 2)
    assert (found.host, found.device) == (2.0, 2.5)
    assert found.total == pytest.approx(0.25 * 2.5 + 0.75 * 3.0)
    assert model.step(9.0, draws, 64).skew == 0.0
    assert model.device_ms(found.total, draws, 2) == pytest.approx(2.5)
    assert model.device_ms(2.5, draws, 2) is None, "two launches alone take 2.5"


def test_a_ring_moves_its_bytes_twice_and_hops_twice_around() -> None:
    link = Link(bytes_per_ms=100.0, latency_ms=0.5)
    assert model.ring_ms(1000.0, 1, link) == 0.0
    assert model.ring_ms(1000.0, 2, link) == pytest.approx(10.0 + 1.0)
    assert model.ring_ms(1000.0, 4, link) == pytest.approx(15.0 + 3.0)


def test_between_nodes_each_device_moves_its_share() -> None:
    node = Node(devices=8, between=Link(bytes_per_ms=40e6, latency_ms=0.01))
    assert model.between_nodes_ms(800e6, 8, node) == 0.0
    # 100 MB a device, half of it there and half back, then one hop each way.
    assert model.between_nodes_ms(800e6, 16, node) == pytest.approx(2.5 + 0.02)
    # 10,000 devices are 1250 nodes, a tree of 11 levels.
    assert model.between_nodes_ms(800e6, 10_000, node) == pytest.approx(5.0 * 1249 / 1250 + 0.22)


def test_two_sizes_or_two_counts_give_the_link_back() -> None:
    link = Link(bytes_per_ms=250e6, latency_ms=0.011)
    for kinds in ([(500e6, 2), (23e6, 2)], [(500e6, 2), (500e6, 4)], [(5e8, 2), (5e8, 8), (1e7, 4)]):
        found = model.solve_link([(size, n, model.ring_ms(size, n, link)) for size, n in kinds])
        assert found is not None
        assert found.bytes_per_ms == pytest.approx(250e6) and found.latency_ms == pytest.approx(0.011)


def test_one_kind_of_all_reduce_gives_no_link_and_no_latency_is_negative() -> None:
    assert model.solve_link([(1e6, 2, 1.0), (1e6, 2, 1.1)]) is None
    assert model.solve_link([(1e6, 1, 1.0), (2e6, 2, 0.0)]) is None
    found = model.solve_link([(1e6, 2, 0.5), (2e6, 2, 2.0)])
    assert found is not None and found.latency_ms == 0.0 and found.bytes_per_ms > 0
