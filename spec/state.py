"""What a state consists of, by key: `phase/name`, names and layout being the parameter table's.

What every rank has of its own (the model's buffers, a generator) lies under `phase/name` for rank 0 and under
`phase.rankR/name` for the others. Must not: know how a framework holds any of it.
"""

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from spec.errors import RuleError

LOADED_PHASES = ("param", "m", "v", "buffer")
"""The phases that make up a state; the others are only looked at."""

COUNTERS = ("meta/applied", "meta/skipped")

Arrays = Mapping[str, np.ndarray]


class Renamed(Arrays):
    """Some tensors of a mapping under other keys, each read when it is asked for.

    Args:
      keys: the key in `tensors` by the key here.
    """

    def __init__(self, tensors: Arrays, keys: dict[str, str]) -> None:
        self._tensors, self._keys = tensors, keys

    def __getitem__(self, key: str) -> np.ndarray:
        return self._tensors[self._keys[key]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def of_phase(tensors: Arrays, phase: str) -> Arrays:
    """The tensors of one phase under their names alone."""
    prefix = f"{phase}/"
    return Renamed(tensors, {key.removeprefix(prefix): key for key in tensors if key.startswith(prefix)})


def own_key(key: str, rank: int) -> str:
    """Where a rank's own value of `phase/name` lies."""
    phase, _, name = key.partition("/")
    return f"{phase}.rank{rank}/{name}" if rank else key


def of_rank(tensors: Arrays, rank: int) -> Arrays:
    """The state as one rank has it: its own values where there are some, else those of rank 0."""
    shared = [key for key in tensors if ".rank" not in key.partition("/")[0]]
    return Renamed(
        tensors, {key: own_key(key, rank) if own_key(key, rank) in tensors else key for key in shared}
    )


def check_names(phase: str, held: Collection[str], given: Collection[str]) -> None:
    """Refuses tensors that are not exactly those of the model.

    Args:
      held: names in the model.

    Raises:
      RuleError: a name is missing or unknown.
    """
    misfits = sorted(set(held) ^ set(given))
    if misfits:
        name = misfits[0]
        raise RuleError(
            "A state has the tensors of the model, no more and no fewer.",
            f"{phase}/{name} is {'missing' if name in held else 'not in the model'} ({len(misfits)} such)",
            "was it written for another model?",
        )


def check_shape(phase: str, name: str, held: tuple[int, ...], given: tuple[int, ...]) -> None:
    """Refuses a tensor of another shape than the model's.

    Raises:
      RuleError: the shapes differ.
    """
    if given != held:
        raise RuleError(
            "A tensor of a state has the shape of the model's.",
            f"{phase}/{name} is {given}, in the model {held}",
            "was it written for other sizes?",
        )
