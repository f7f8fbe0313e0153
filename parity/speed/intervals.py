"""Sets of intervals on one clock: their union, what of one another leaves open, their length, their gaps."""

from collections.abc import Iterable
from itertools import pairwise

Interval = tuple[float, float]
"""Begin and end."""


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same points as disjoint intervals in order; what touches is joined, and what is empty is gone."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        elif begin < end:
            joined.append((begin, end))
    return joined


def within(intervals: Iterable[Interval], begin: float, end: float) -> list[Interval]:
    """What of the intervals lies between two times."""
    cut = ((max(first, begin), min(last, end)) for first, last in intervals)
    return [(first, last) for first, last in cut if first < last]


def without(intervals: Iterable[Interval], covers: Iterable[Interval]) -> list[Interval]:
    """What of the intervals no cover covers."""
    covers, left = union(covers), list[Interval]()
    position = 0
    for begin, end in union(intervals):
        while position < len(covers) and covers[position][1] <= begin:
            position += 1
        for first, last in covers[position:]:
            if first >= end:
                break
            if begin < first:
                left.append((begin, first))
            begin = max(begin, last)
        if begin < end:
            left.append((begin, end))
    return left


def length(intervals: Iterable[Interval]) -> float:
    """The length of the union."""
    return sum(end - begin for begin, end in union(intervals))


def gaps(intervals: Iterable[Interval]) -> list[float]:
    """Lengths of what lies open between the first begin and the last end."""
    return [after[0] - before[1] for before, after in pairwise(union(intervals))]
