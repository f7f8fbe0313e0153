"""Ranks agree over a store: threads stand for processes, one of which may stay silent."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist

from torch_impl.graph.handshake import Handshake, RankLost


def together(
    world_size: int, act: Callable[[Handshake], Any], timeout_s: float, silent: int = -1
) -> list[Any]:
    store, results = dist.HashStore(), [None] * world_size

    def run(rank: int) -> None:
        try:
            results[rank] = act(Handshake(rank, world_size, store, timeout_s))  # type: ignore[arg-type]
        except RankLost as error:
            results[rank] = error  # type: ignore[call-overload]

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world_size) if rank != silent]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive(), "a rank waits for ever"
    return results


def test_all_ranks_see_every_failure() -> None:
    answers = together(3, lambda h: h.failures("no such op" if h._rank == 1 else None), 20)
    assert answers == [["rank 1: no such op"]] * 3


def test_no_failure_is_an_empty_list() -> None:
    assert together(2, lambda h: (h.failures(None), h.failures(None)), 20) == [([], [])] * 2


def test_a_silent_rank_is_named_and_the_others_go_on() -> None:
    started = time.perf_counter()
    answers = together(3, lambda h: h.failures(None), 0.3, silent=2)
    assert answers[0] == answers[1] == ["rank 2: no answer in 0.3 s"]
    assert time.perf_counter() - started < 10


def test_a_late_rank_takes_the_same_decision() -> None:
    def act(handshake: Handshake) -> list[str]:
        if handshake._rank == 1:
            time.sleep(0.6)
        return handshake.failures(None)

    answers = together(2, act, 0.2)
    assert answers[0] == answers[1] == ["rank 1: no answer in 0.2 s"]


def test_a_silent_rank_0_is_an_error_and_not_a_wait() -> None:
    answers = together(2, lambda h: h.failures(None), 0.1, silent=0)
    assert isinstance(answers[1], RankLost)


def test_the_slowest_rank_decides_and_names_that_a_rank_lacks_are_left_out() -> None:
    times = [{"flat": 1.0, "buckets": 3.0}, {"flat": 2.0, "buckets": 1.0, "more": 0.1}]
    assert together(2, lambda h: h.slowest(times[h._rank]), 20) == [{"buckets": 3.0, "flat": 2.0}] * 2


def test_alone_it_agrees_with_itself() -> None:
    handshake = Handshake(0, 1, None)
    assert handshake.failures("x") == ["rank 0: x"] and handshake.slowest({"a": 1.0}) == {"a": 1.0}
    with pytest.raises(AssertionError):
        Handshake(0, 2, None)
