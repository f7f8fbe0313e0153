"""Rows of tokens cut from a stream at random places, and what every source of rows can do.

Must not: keep state between calls. Row i of step s is a function of (seed, s, i).

Legend: B rows asked for, T sequence length, U = T + 1.
"""

from typing import Protocol

import numpy as np

from spec import philox
from spec.errors import RuleError
from spec.workloads.gpt import IGNORE_LABEL

Batch = dict[str, np.ndarray]
"""Arrays by name, rows first: `tokens` and `labels` (B, T) int32, or `x` (B, I) and `y` (B, O) float32."""

BatchSpec = dict[str, tuple[tuple[int, ...], np.dtype]]
"""Shape and dtype of each array of a batch."""


class RowSource(Protocol):
    """Where the rows of every global batch come from."""

    def rows(self, step: int, start: int, stop: int) -> Batch:
        """Rows [start, stop) of the global batch of `step`."""
        ...

    def describe(self) -> dict[str, object]:
        """The facts that a manifest records: kind, path, size, hash."""
        ...

    def batch_spec(self, num_rows: int) -> BatchSpec:
        """Shape and dtype of each array of `num_rows` rows."""
        ...


class TokenStream(Protocol):
    """A long sequence of tokens: `spec.data.text.Text` or `spec.data.shards.Shards`."""

    num_tokens: int

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens [start, stop), one-dimensional, of an unsigned dtype."""
        ...

    def locate(self, position: int) -> str:
        """Where a token stands (file and position), in words."""
        ...

    def describe(self) -> dict[str, object]:
        """The facts that a manifest records."""
        ...


class StreamRows:
    """Rows that begin at a random token of a stream; the label of a token is the token after it."""

    def __init__(
        self, stream: TokenStream, *, vocab: int, seq_len: int, seed: int, ragged: bool = False
    ) -> None:
        if stream.num_tokens < seq_len + 1:
            raise RuleError(
                "A row and the token after it fit into the text.",
                f"{stream.describe()['path']}: {stream.num_tokens} tokens, sequence length {seq_len} + 1",
                "give a longer text or a smaller sequence length",
            )
        self._stream, self._seed = stream, seed
        self._vocab, self._seq_len, self._ragged = vocab, seq_len, ragged

    def rows(self, step: int, start: int, stop: int) -> Batch:
        """Rows [start, stop) of the global batch of `step`: `tokens` and `labels`, (B, T) int32.

        Raises:
          RuleError: a token of these rows is not in the vocabulary.
        """
        num_places = self._stream.num_tokens - self._seq_len
        places_B = philox.uniform_below(
            philox.key(self._seed, "row start", step), stop - start, num_places, offset=start
        )
        text_BU = np.empty((stop - start, self._seq_len + 1), np.int32)
        for text_U, place in zip(text_BU, places_B.tolist(), strict=True):
            text_U[:] = self._stream.read(place, place + self._seq_len + 1)
        self._check_vocabulary(text_BU, places_B)
        return token_batch(text_BU, row_lengths(self._seed, step, start, stop, self._seq_len, self._ragged))

    def _check_vocabulary(self, text_BU: np.ndarray, places_B: np.ndarray) -> None:
        if text_BU.size == 0 or text_BU.max() < self._vocab:
            return
        row, column = np.unravel_index(int((text_BU >= self._vocab).argmax()), text_BU.shape)
        where = self._stream.locate(int(places_B[row] + column))
        raise RuleError(
            "Every token of the text is in the vocabulary.",
            f"{where}: token {text_BU[row, column]}, vocabulary {self._vocab}",
            "take a larger vocabulary, or a text made for this one",
        )

    def describe(self) -> dict[str, object]:
        """The facts of the stream, and whether rows have differing lengths."""
        return {**self._stream.describe(), "ragged": self._ragged}

    def batch_spec(self, num_rows: int) -> BatchSpec:
        """`tokens` and `labels`, (num_rows, T) int32."""
        return token_batch_spec(num_rows, self._seq_len)


def row_lengths(seed: int, step: int, start: int, stop: int, seq_len: int, ragged: bool) -> np.ndarray | None:
    """Labels that count in rows [start, stop): (B,) int64 in [max(1, T // 2), T]; None where all T do."""
    if not ragged:
        return None
    shortest = max(1, seq_len // 2)
    key = philox.key(seed, "row length", step)
    return shortest + philox.uniform_below(key, stop - start, seq_len - shortest + 1, offset=start)


def token_batch(text_BU: np.ndarray, lengths_B: np.ndarray | None) -> Batch:
    """A batch of text_BU (int32): labels stand one to the right, IGNORE_LABEL beyond a row's length."""
    # Copies in every case: two views of one row would overlap, and labels are written to below.
    tokens_BT, labels_BT = text_BU[:, :-1].copy(), text_BU[:, 1:].copy()
    if lengths_B is not None:
        labels_BT[np.arange(labels_BT.shape[1]) >= lengths_B[:, None]] = IGNORE_LABEL
    return {"tokens": tokens_BT, "labels": labels_BT}


def token_batch_spec(num_rows: int, seq_len: int) -> BatchSpec:
    """The batch spec of `token_batch`."""
    return {name: ((num_rows, seq_len), np.dtype(np.int32)) for name in ("tokens", "labels")}
