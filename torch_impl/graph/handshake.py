"""Ranks agree, or learn which rank did not answer: nobody waits for ever and nobody goes alone.

It goes over the key-value store of the process group, not over collectives: a rank that fails cannot take
part in a collective, and the others would hang in it. Rank 0 collects and decides, so that all take the
same decision even where one answers late. Must not: know what is agreed on.
"""

import json
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist


class Store(Protocol):
    """What is used of `torch.distributed.Store`."""

    def set(self, key: str, value: str) -> None:
        """Sets a key."""
        ...

    def get(self, key: str) -> bytes:
        """The value of a key that is there."""
        ...

    def wait(self, keys: list[str], timeout: timedelta) -> None:
        """Waits until keys are there; raises after the time-out."""
        ...


class RankLost(RuntimeError):
    """Rank 0 gave no verdict in time."""


class Handshake:
    """Questions that all ranks ask in the same order.

    Args:
      store: shared by the ranks, under a prefix of its own.
      timeout_s: how long rank 0 waits for a rank.
    """

    def __init__(self, rank: int, world_size: int, store: Store | None, timeout_s: float = 120.0) -> None:
        assert store is not None or world_size == 1, "several ranks need a store"
        self._rank, self._world_size, self._store, self._timeout_s = rank, world_size, store, timeout_s
        self.alone = world_size == 1
        """Whether no other rank has to agree."""
        self._asked = 0

    def gather(self, answer: Any) -> list[Any]:
        """The answers of all ranks, JSON values, in order; `{"silent": seconds}` for one that gave none.

        Raises:
          RankLost: rank 0 is silent.
        """
        if self._store is None:
            return [answer]
        self._asked += 1
        prefix = f"{self._asked}/"
        self._store.set(f"{prefix}{self._rank}", json.dumps(answer))
        if self._rank == 0:
            answers = [self._answer_of(rank, prefix) for rank in range(self._world_size)]
            self._store.set(f"{prefix}all", json.dumps(answers))
            return answers
        # Rank 0 may wait out every other rank before it answers.
        if not self._there(f"{prefix}all", self._timeout_s * (self._world_size + 1)):
            raise RankLost(f"rank 0 did not answer question {self._asked} of the capture handshake")
        return json.loads(self._store.get(f"{prefix}all"))

    def failures(self, failure: str | None) -> list[str]:
        """Every rank says what failed, None for nothing; the failures of all ranks, in words."""
        found = []
        for rank, answer in enumerate(self.gather({"failure": failure})):
            if "silent" in answer:
                found.append(f"rank {rank}: no answer in {answer['silent']:g} s")
            elif answer["failure"] is not None:
                found.append(f"rank {rank}: {answer['failure']}")
        return found

    def slowest(self, values: dict[str, float]) -> dict[str, float]:
        """The largest value of each name over all ranks; names that a rank lacks are left out."""
        answers = [answer for answer in self.gather(values) if "silent" not in answer]
        names = set.intersection(*(set(answer) for answer in answers))
        return {name: max(answer[name] for answer in answers) for name in sorted(names)}

    def _answer_of(self, rank: int, prefix: str) -> Any:
        if not self._there(f"{prefix}{rank}", self._timeout_s):
            return {"silent": self._timeout_s}
        assert self._store is not None
        return json.loads(self._store.get(f"{prefix}{rank}"))

    def _there(self, key: str, timeout_s: float) -> bool:
        assert self._store is not None
        try:
            self._store.wait([key], timedelta(seconds=timeout_s))
        except RuntimeError:
            return False
        return True


def default_handshake(rank: int, world_size: int, name: str, timeout_s: float = 120.0) -> Handshake:
    """A handshake over the store of the default process group; alone, one that agrees with itself."""
    if world_size == 1:
        return Handshake(rank, world_size, None, timeout_s)
    store = dist.PrefixStore(f"whole-step-graph/{name}", dist.distributed_c10d._get_default_store())
    return Handshake(rank, world_size, store, timeout_s)
