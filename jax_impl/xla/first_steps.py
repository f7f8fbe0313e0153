"""What must hold when the first steps run, and is an error that names the leaf or program where it does not.

Before the first: no two leaves of the state share memory, which would be given away twice. After each of the
first two: everything still lies on the devices asked for. Between them, in a worker: no other program was
made; an operation that somebody computes between steps queues up behind each of them. That a step is one
program which takes back its state as it gave it, in place, is proven from the program itself, in
`jax_impl/memory.py`. Must not: wait for a device.
"""

from typing import Any

import jax

from jax_impl.xla import compilations
from jax_impl.xla.process import refuse_two_nccl
from spec.errors import RuleError

CHECKED_STEPS = 2


class FirstSteps:
    """Checks of one trainer."""

    def __init__(self, mesh: jax.sharding.Mesh) -> None:
        self._devices = set(mesh.devices.flat)
        self._mark: int | None = None
        self._done = 0
        self.alone = False
        """Whether the process has nothing to compute but the step: a worker, which says so."""

    def before(self, state: Any) -> None:
        """To be called right before a step is launched.

        Raises:
          RuleError: two leaves share memory, or a program was made since the step before, in a process that
            is there for the step alone.
        """
        if self._done == 0:
            refuse_shared(state)
        elif self.alone and self._done < CHECKED_STEPS and self._mark is not None:
            strays = compilations.since(self._mark)
            if strays:
                raise RuleError(
                    "Between the first steps nothing else is computed on the device.",
                    f"programs made since the last step: {', '.join(dict.fromkeys(strays))}",
                    "compute on the host (NumPy) or before the first step; what is meant to be there "
                    "stands in `with jax_impl.xla.compilations.apart():`",
                )

    def after(self, results: Any) -> None:
        """To be called with the state and the metrics that a launch gave.

        Raises:
          RuleError: a leaf lies elsewhere than on the devices of the run, or two NCCLs are loaded.
        """
        if self._done >= CHECKED_STEPS:
            return
        if self._done == 0:
            # By now all libraries are loaded that a step needs.
            refuse_two_nccl()
        refuse_elsewhere(results, self._devices)
        self._done += 1
        self._mark = compilations.mark()


def refuse_shared(state: Any) -> None:
    """Makes sure that no two leaves of a state lie in the same memory.

    Raises:
      RuleError: both are named. XLA would refuse to be given a buffer twice, or wait for ever.
    """
    seen: dict[tuple[Any, int], str] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        for shard in leaf.addressable_shards:
            if not shard.data.nbytes:
                continue
            place = (shard.device, shard.data.unsafe_buffer_pointer())
            if place in seen:
                raise RuleError(
                    "Every leaf of a state has memory of its own.",
                    f"{seen[place]} and {leaf_name(path)} are one buffer on {shard.device}",
                    "copy one of them (jnp.copy)",
                )
            seen[place] = leaf_name(path)


def refuse_elsewhere(results: Any, devices: set[jax.Device]) -> None:
    """Makes sure that every leaf lies on the devices of the run and on no other.

    Raises:
      RuleError: the first that does not is named.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(results):
        if leaf.devices() != devices:
            found, asked = (sorted(map(str, group)) for group in (leaf.devices(), devices))
            raise RuleError(
                "Everything stays on the devices asked for.",
                f"{leaf_name(path)} lies on {', '.join(found)}, asked for {', '.join(asked)}",
                "look for a device_put, or for a default device, in the step",
            )


def leaf_name(path: tuple[Any, ...]) -> str:
    """`params/wte.weight`, from the path of a leaf in a tree."""
    return "/".join(str(getattr(k, "name", getattr(k, "key", getattr(k, "idx", k)))) for k in path)
