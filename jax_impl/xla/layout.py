"""Many arrays as a few flat ones and back; PyTorch's flat memory is in `torch_impl/memory.py`.

A program pays the host for every argument and result: on an H200, a step of 230 arrays took 1.5 ms to launch
and one of 4 took 0.5 ms (`benchmarks/results/jax_step`), so all parameters are one array. To put gradients
together and take weights apart costs the device two copies, which with a large model take longer than a
launch; there every matrix can be an array of its own. Between GPUs XLA puts small reductions together, up to
31 MB, by two more copies: arrays of about that size are reduced where they lie. Must not: compute, or change
an order once made.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from spec.params import ParamSpec

Pieces = tuple[Any, ...]
"""The flat arrays that hold all parameters, or one array for each of these, in the layout's order."""


BUCKET = 31_457_287 // 4
"""Elements of float32 that XLA reduces at once by default: xla_gpu_all_reduce_combine_threshold_bytes."""


class Layout:
    """Which parameters lie together in a flat array, and where.

    Args:
      rows: the parameters. Decayed ones come first, so that where an element lies says whether it decays.
      shapes: shape of each, in this framework's layout.
      arrays: one of `spec.jit.ARRAYS`: all in `one`, or each decayed parameter `apart` and the rest together,
        or decayed ones that follow each other in `buckets` and the rest with the first of them.
    """

    def __init__(
        self, rows: Sequence[ParamSpec], shapes: Mapping[str, tuple[int, ...]], arrays: str = "one"
    ) -> None:
        self.shapes = dict(shapes)
        decayed = [row.name for row in rows if row.decayed]
        rest = [row.name for row in rows if not row.decayed]
        pieces = {
            "one": [[*decayed, *rest]],
            "apart": [*([name] for name in decayed), rest],
            "buckets": self._buckets(decayed, rest),
        }[arrays]
        self.pieces = tuple(tuple(names) for names in pieces if names)
        """Names of each flat array, in the order in which they lie in it."""
        self.sizes = tuple(sum(self._size(name) for name in names) for names in self.pieces)
        """Elements of each flat array."""
        self._num_decayed = [
            sum(self._size(name) for name in names if name in set(decayed)) for names in self.pieces
        ]

    def flatten(self, arrays: Mapping[str, Any]) -> Pieces:
        """The flat arrays; NumPy's where all are."""
        host = all(isinstance(array, np.ndarray) for array in arrays.values())
        together = np.concatenate if host else jnp.concatenate
        return tuple(together([arrays[name].ravel() for name in names]) for names in self.pieces)

    def gather(self, arrays: Iterable[tuple[str, np.ndarray]], dtype: Any) -> Pieces:
        """Flat arrays on the host of arrays that come one by one, by name, so that none is held twice."""
        pieces = tuple(np.empty(size, dtype) for size in self.sizes)
        views = self.split(pieces)
        for name, array in arrays:
            views[name][...] = array
        return pieces

    def split(self, pieces: Pieces) -> dict[str, Any]:
        """The arrays of flat ones by name, in their shapes; views where they are NumPy's."""
        found = {}
        for names, flat_N in zip(self.pieces, pieces, strict=True):
            start = 0
            for name in names:
                stop = start + self._size(name)
                found[name] = flat_N[start:stop].reshape(self.shapes[name])
                start = stop
        return found

    def decayed(self) -> Pieces:
        """Which elements of each flat array decay, inside a trace: (N,), bool, or one bool for all."""
        return tuple(
            jnp.arange(size) < count if 0 < count < size else bool(count)
            for size, count in zip(self.sizes, self._num_decayed, strict=True)
        )

    def _buckets(self, decayed: Sequence[str], rest: Sequence[str]) -> list[list[str]]:
        """The decayed names in their order, as many together as a bucket holds, and at least one.

        The backward pass ends with the first parameters and with sums for the rest, so these are reduced as
        one, the last: no small array travels alone, and none waits for another layer's.
        """
        buckets: list[list[str]] = [[]]
        room = BUCKET
        for name in decayed:
            if self._size(name) > room and buckets[-1]:
                buckets.append([])
                room = BUCKET
            buckets[-1].append(name)
            room -= self._size(name)
        first, *later = buckets
        return [*later, [*first, *rest]]

    def _size(self, name: str) -> int:
        return math.prod(self.shapes[name])
