"""Many arrays as one flat array and back; PyTorch's flat memory is in `torch_impl/memory.py`.

A program pays the host for every argument and result: on an H200, a step of 230 arrays took 1.5 ms to launch
and one of 4 took 0.5 ms (`benchmarks/results/jax_step`). Decayed parameters come first, so that where an
element lies says whether it decays. Must not: compute, or change an order once made.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from spec.params import ParamSpec


class Layout:
    """Where each parameter lies in a flat array.

    Args:
      rows: the parameters.
      shapes: shape of each, in this framework's layout.
    """

    def __init__(self, rows: Sequence[ParamSpec], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.names = tuple(row.name for row in sorted(rows, key=lambda row: not row.decayed))
        self.shapes = dict(shapes)
        self._places: dict[str, tuple[int, int]] = {}
        start = 0
        for name in self.names:
            size = math.prod(self.shapes[name])
            self._places[name] = start, start + size
            start += size
        self.size = start
        self.num_decayed = sum(math.prod(shapes[row.name]) for row in rows if row.decayed)

    def flatten(self, arrays: Mapping[str, Any]) -> Any:
        """One flat array; a NumPy array where all of them are."""
        if all(isinstance(array, np.ndarray) for array in arrays.values()):
            return np.concatenate([arrays[name].ravel() for name in self.names])
        return jnp.concatenate([arrays[name].ravel() for name in self.names])

    def gather(self, arrays: Iterable[tuple[str, np.ndarray]], dtype: Any) -> np.ndarray:
        """One flat array on the host of arrays that come one by one, by name, so that none is held twice."""
        flat_N = np.empty(self.size, dtype)
        for name, array in arrays:
            start, stop = self._places[name]
            flat_N[start:stop] = array.ravel()
        return flat_N

    def split(self, flat_N: Any) -> dict[str, Any]:
        """The arrays of a flat one by name, in their shapes; views where it is a NumPy array."""
        return {
            name: flat_N[start:stop].reshape(self.shapes[name])
            for name, (start, stop) in self._places.items()
        }

    def decayed(self) -> jax.Array:
        """Which elements decay, inside a trace: (N,), bool."""
        return jnp.arange(self.size) < self.num_decayed
