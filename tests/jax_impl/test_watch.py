"""A rank that stands still or dies is named within a set time, and no process is left waiting."""

import time

import pytest

from jax_impl.xla.watch import describe_wait
from tests.jax_impl.processes import run_group

LIMIT_S = 3.0


def test_who_is_behind_is_told_from_the_steps_of_all() -> None:
    assert describe_wait([5, 4, 5], 2).startswith("rank 2 waits for rank 1; steps dispatched: rank 0: 5,")
    assert "waits for rank 0, 2;" in describe_wait([3, 4, 3], 1)
    assert "no rank is behind" in describe_wait([4, 4], 0)


def outcome(bad_rank: int, how: str) -> tuple[list[tuple[int, str]], float]:
    """Exit codes and outputs of both, and the seconds that it took."""
    started = time.monotonic()
    arguments = ["-m", "tests.jax_impl.stalled", str(bad_rank), how, str(LIMIT_S)]
    return run_group(arguments, timeout_s=100), time.monotonic() - started


def test_a_rank_that_stands_still_is_named_and_all_end() -> None:
    """The other ends by its own limit; the one that sleeps by JAX, once the other's heartbeat is missed."""
    ended, seconds = outcome(1, "asleep")
    assert ended[0][0] == 6 and ended[1][0] != 0
    assert (
        "rank 0 waits for rank 1; steps dispatched: rank 0: 5, rank 1: 4; no progress in 3 s" in ended[0][1]
    )
    assert seconds < 90


@pytest.mark.slow(reason="JAX waits for missing heartbeats for 10 s and more, in each of three cases")
@pytest.mark.parametrize(("bad_rank", "how"), [(0, "asleep"), (1, "killed"), (0, "killed")])
def test_every_other_way_ends_all_too(bad_rank, how) -> None:
    ended, seconds = outcome(bad_rank, how)
    assert all(code != 0 for code, _ in ended) and seconds < 90
    other = ended[1 - bad_rank][1]
    if how == "asleep" or bad_rank == 1:
        assert f"rank {1 - bad_rank} waits for rank {bad_rank}; steps dispatched:" in other
    else:
        # The meeting point died with rank 0: JAX ends the other by itself, and its exit code tells of rank 0.
        assert ended[0][0] == -9
