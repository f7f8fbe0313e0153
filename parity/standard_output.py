"""Standard output whose reader may leave, as `head -1` does: what is left is dropped, the exit code stays.

Without it a broken pipe would end the process with 1, which says DIFFERENT. Must not: print.
"""

import contextlib
import os
import sys
from collections.abc import Generator
from typing import Any


class _Lasting:
    """A text stream that goes on into nothing once nobody reads it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of any text stream."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        """As of any text stream."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._drop()

    def _drop(self) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def lasting_output() -> Generator[None]:
    """Writes to standard output never fail for want of a reader."""
    before = sys.stdout
    sys.stdout = lasting = _Lasting(before)  # type: ignore[assignment]
    try:
        yield
    finally:
        lasting.flush()
        sys.stdout = before
