"""Rows made of numbers alone: for speed, and for the mlp, whose target is a product of its inputs.

Must not: keep state between calls. Row i of step s is a function of (seed, s, i).

Legend: B rows asked for, T sequence length, U = T + 1, I input width, O output width.
"""

import numpy as np

from spec import philox
from spec.data.rows import Batch, BatchSpec, row_lengths, token_batch, token_batch_spec
from spec.workloads.mlp import MlpSizes


class SyntheticTokens:
    """Rows of tokens that are uniform over the vocabulary."""

    def __init__(self, *, vocab: int, seq_len: int, seed: int, ragged: bool = False) -> None:
        self._vocab, self._seq_len, self._seed, self._ragged = vocab, seq_len, seed, ragged

    def rows(self, step: int, start: int, stop: int) -> Batch:
        """Rows [start, stop) of the global batch of `step`: `tokens` and `labels`, (B, T) int32."""
        width = self._seq_len + 1
        text_N = philox.uniform_below(
            philox.key(self._seed, "row tokens", step),
            (stop - start) * width,
            self._vocab,
            offset=start * width,
        )
        lengths_B = row_lengths(self._seed, step, start, stop, self._seq_len, self._ragged)
        return token_batch(text_N.reshape(stop - start, width).astype(np.int32), lengths_B)

    def describe(self) -> dict[str, object]:
        """What decides the rows."""
        return {
            "kind": "synthetic",
            "path": None,
            "vocab": self._vocab,
            "seed": self._seed,
            "ragged": self._ragged,
        }

    def batch_spec(self, num_rows: int) -> BatchSpec:
        """`tokens` and `labels`, (num_rows, T) int32."""
        return token_batch_spec(num_rows, self._seq_len)


class SyntheticRegression:
    """Rows for the mlp: normal inputs, and the product of each input with its right neighbour as target."""

    def __init__(self, sizes: MlpSizes, *, seed: int) -> None:
        self._sizes, self._seed = sizes, seed

    def rows(self, step: int, start: int, stop: int) -> Batch:
        """Rows [start, stop) of the global batch of `step`: `x` (B, I) and `y` (B, O), float32."""
        d_in = self._sizes.d_in
        key = philox.key(self._seed, "row inputs", step)
        x_BI = philox.normals(key, (stop - start, d_in), std=1.0, offset=start * d_in)
        return {"x": x_BI, "y": neighbour_products(x_BI, self._sizes.d_out)}

    def describe(self) -> dict[str, object]:
        """What decides the rows."""
        return {"kind": "synthetic", "path": None, "seed": self._seed}

    def batch_spec(self, num_rows: int) -> BatchSpec:
        """`x` (num_rows, I) and `y` (num_rows, O), float32."""
        float32 = np.dtype(np.float32)
        return {"x": ((num_rows, self._sizes.d_in), float32), "y": ((num_rows, self._sizes.d_out), float32)}


def neighbour_products(x_BI: np.ndarray, d_out: int) -> np.ndarray:
    """y_j = x_j * x_((j + 1) mod I), cut off or repeated to `d_out` columns: float32 (B, O).

    The product of two float32 is exact in float64; it is rounded once.
    """
    exact_BI = x_BI.astype(np.float64) * np.roll(x_BI, -1, axis=1)
    columns_O = np.arange(d_out) % x_BI.shape[1]
    return exact_BI[:, columns_O].astype(np.float32, order="C")
