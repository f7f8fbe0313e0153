"""Text as a stream of byte tokens: every byte is a token in [0, 256).

The default is the documentation text inside every Python, so that a fresh machine trains on real text without
a download. It differs between Python versions, so its hash is recorded.
"""

import hashlib
from functools import cached_property
from pathlib import Path

import numpy as np

from spec.errors import RuleError

PYDOC_TOPICS = "pydoc_data.topics"
"""What `describe` gives as the path of the text that ships with Python."""


class Text:
    """A text in memory or mapped from a file; the stream interface of `spec.data.rows.TokenStream`."""

    def __init__(self, path: str, tokens_N: np.ndarray) -> None:
        self.path = path
        self._tokens_N = tokens_N
        self.num_tokens = len(tokens_N)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Tokens [start, stop) as uint8, a view."""
        return self._tokens_N[start:stop]

    def locate(self, position: int) -> str:
        """Where a token stands, in words."""
        return f"{self.path}, byte {position}"

    @cached_property
    def sha256(self) -> str:
        """Hex hash of the bytes."""
        return hashlib.sha256(self._tokens_N.data).hexdigest()

    def describe(self) -> dict[str, object]:
        """What a manifest says of this text."""
        return {"kind": "text", "path": self.path, "sha256": self.sha256, "tokens": self.num_tokens}


def open_text(path: str | None = None) -> Text:
    """A text file, or Python's own documentation text when `path` is None.

    Raises:
      RuleError: the file is missing or empty, or this Python came without its documentation.
    """
    if path is None:
        return Text(PYDOC_TOPICS, np.frombuffer(pydoc_topics(), np.uint8))
    file = Path(path)
    if not file.is_file():
        found = "a folder" if file.is_dir() else "a device or a pipe" if file.exists() else "no such file"
        # A device or a pipe gives its bytes once; rows are cut from anywhere, by every process.
        raise RuleError("A text is a regular file.", f"{path}: {found}", "name a text file")
    if file.stat().st_size == 0:
        raise RuleError("A text is not empty.", f"{path}: 0 bytes", "name another text file")
    return Text(path, np.asarray(np.memmap(file, np.uint8, mode="r")))


def pydoc_topics() -> bytes:
    """The help topics of this Python, in the order of their names, a line break between, as UTF-8."""
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise RuleError(
            "The default text ships with Python.",
            f"this Python has no {PYDOC_TOPICS}",
            "name a text file with --data, or install Python's full standard library",
        ) from None
    return "\n".join(topics[name] for name in sorted(topics)).encode()
