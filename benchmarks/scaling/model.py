"""The cost model of a data-parallel step, as formulas of numbers alone.

    step = max(host, compute + slowed + exposed) + skew

A synchronous step is over when its device is through and the last of N ranks has launched. Times are in ms,
sizes in bytes. Must not: read files, or know where a number comes from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spec.errors import RuleError

TAIL_FROM = 0.9
"""Beyond the sample, launches above this quantile are taken to exceed it by exponential times."""
FEWEST_DRAWS = 5


@dataclass(frozen=True)
class Link:
    """What one device's link to the next costs."""

    bytes_per_ms: float
    latency_ms: float
    """Of one hop of one all-reduce."""


@dataclass(frozen=True)
class Node:
    """How devices are joined beyond one host; all of it assumed, not measured."""

    devices: int = 8
    """In one node."""
    between: Link = Link(bytes_per_ms=40e6, latency_ms=0.010)
    """Of a device to those of other nodes: 40 GB/s, that is 80 % of a 400 Gb/s adapter for each GPU, and
    10 us a hop."""


@dataclass(frozen=True)
class Step:
    """One step taken apart; all in ms."""

    host: float
    """Mean time in which one rank launches it."""
    device: float
    """Compute, what hidden all-reduces slow it down, and the part of them that nothing hides."""
    skew: float
    """What waiting for the last rank adds."""

    @property
    def total(self) -> float:
        """The step."""
        return max(self.host, self.device) + self.skew


def ring_ms(size: float, ranks: int, link: Link) -> float:
    """A ring all-reduce: reduce-scatter and all-gather, N - 1 hops each (Patarasuk and Yuan, 2009).

    Args:
      size: of the whole buffer, in bytes.
    """
    hops = 2 * (ranks - 1)
    return hops / ranks * size / link.bytes_per_ms + hops * link.latency_ms


def between_nodes_ms(size: float, ranks: int, node: Node) -> float:
    """What a hierarchical all-reduce adds to that within a node; 0 where one node holds all ranks.

    Every device all-reduces its share of the buffer with its likes of the other nodes: the bytes of a ring,
    the hops of a double binary tree (Sanders, Speck and Traeff, 2009; NCCL has it since 2.4).
    """
    nodes = math.ceil(ranks / node.devices)
    if nodes == 1:
        return 0.0
    transfer = 2 * (nodes - 1) / nodes * size / node.devices / node.between.bytes_per_ms
    return transfer + 2 * math.ceil(math.log2(nodes)) * node.between.latency_ms


def solve_link(times: Sequence[tuple[float, int, float]]) -> Link | None:
    """Bandwidth and latency from all-reduces of at least two kinds, by least squares of relative errors.

    Args:
      times: size in bytes, ranks, and time in ms of each.

    Returns:
      None where they do not tell the two apart, or fit no positive bandwidth. A latency that comes out
      negative is 0.
    """
    usable = [(size, ranks, ms) for size, ranks, ms in times if ms > 0 and ranks > 1 and size > 0]
    if len({(size, ranks) for size, ranks, _ in usable}) < 2:
        return None
    rows = np.array([[2 * (n - 1) / n * size / ms, 2 * (n - 1) / ms] for size, n, ms in usable])
    scale = np.linalg.norm(rows, axis=0)
    found, _, rank, _ = np.linalg.lstsq(rows / scale, np.ones(len(rows)), rcond=1e-6)
    per_byte, latency = found / scale
    if rank < 2:
        return None
    if latency < 0:
        per_byte, latency = rows[:, 0].sum() / (rows[:, 0] ** 2).sum(), 0.0
    return Link(1 / float(per_byte), float(latency)) if per_byte > 0 else None


def last_ms(draws_ms: Sequence[float], ranks: int, at_least: float = 0.0) -> float:
    """Expected max(at_least, last of `ranks` independent launches), drawn from the sample.

    Up to as many ranks as there are draws it is the bootstrap's expectation, computed exactly. Beyond, the
    sample knows no launch as late as the last, so that those above its 90th percentile u are taken as u plus
    an exponential time of their mean excess e. Of these, N ranks have a binomial number; the mean of the
    largest of k is e * (1 + 1/2 + ... + 1/k).

    Raises:
      RuleError: too few draws.
    """
    draws = np.sort(np.asarray(draws_ms, np.float64))
    if len(draws) < FEWEST_DRAWS:
        raise RuleError(
            "The last of several launches is drawn from a sample.",
            f"{len(draws)} dispatch times, at least {FEWEST_DRAWS}",
            "measure with more --calls",
        )
    within = _sampled(draws, min(ranks, len(draws)), at_least)
    return within if ranks <= len(draws) else max(within, _beyond(draws, ranks, at_least))


def _sampled(draws: np.ndarray, ranks: int, at_least: float) -> float:
    below = (np.arange(len(draws) + 1) / len(draws)) ** ranks
    return float(np.sum(np.maximum(draws, at_least) * np.diff(below)))


def _beyond(draws: np.ndarray, ranks: int, at_least: float) -> float:
    tail = float(np.quantile(draws, TAIL_FROM))
    excess = draws[draws > tail] - tail
    if not len(excess):
        return max(tail, at_least)
    mean, floor = float(excess.mean()), max(tail, at_least)
    share = (1 - TAIL_FROM) * math.exp(-(floor - tail) / mean)
    # Integral of P(max > t) from the floor on; sum over j of (1 - (1 - share)^j) / j is E of the harmonic
    # number of a binomial count.
    count = np.arange(1, ranks + 1)
    return floor + mean * float(np.sum(-np.expm1(count * math.log1p(-share)) / count))


def step(device: float, draws_ms: Sequence[float], ranks: int) -> Step:
    """A step of so many ranks.

    Args:
      device: compute as hidden all-reduces leave it, and the exposed part, in ms.
      draws_ms: times in which one rank launches a step.
    """
    host = float(np.mean(draws_ms))
    # Of equal numbers rounding can leave a skew below 0.
    return Step(host, device, max(0.0, last_ms(draws_ms, ranks, device) - max(host, device)))


def device_ms(step_ms: float, draws_ms: Sequence[float], ranks: int) -> float | None:
    """The device's time in a measured step: the inverse of `step`. None where launching takes as long."""
    if last_ms(draws_ms, ranks) >= step_ms:
        return None
    low, high = 0.0, step_ms
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if last_ms(draws_ms, ranks, middle) < step_ms else (low, middle)
    return high
