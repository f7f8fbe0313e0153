"""Standard streams whose reader may leave, as `head -1` does: what is left is dropped, the exit code stays.

Without it a broken pipe would end the process with 1, which says DIFFERENT, amid whatever it did. Must not:
print.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Generator
from typing import Any

from spec.errors import RuleError


class _Lasting:
    """A text stream that goes on into nothing once nobody reads it."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As of any text stream."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """As of any text stream."""
        self._try(self._stream.flush)

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
        except OSError as error:
            self._drop()
            # A full disk behind standard output loses a result that somebody asked for.
            if not isinstance(error, BrokenPipeError) and self._stream.fileno() == 1:
                raise RuleError(
                    "Standard output can be written.", f"{error.strerror}", "make room, or write it elsewhere"
                ) from None

    def _drop(self) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def lasting_output() -> Generator[None]:
    """Writes to standard output and standard error never fail for want of a reader."""
    before = sys.stdout, sys.stderr
    # A stream that was closed before Python began is None.
    sys.stdout, sys.stderr = (_Lasting(one or io.StringIO()) for one in before)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
