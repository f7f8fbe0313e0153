"""Files that appear whole or not at all: the one way to write a file, under `spec.record` too."""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from spec.errors import RuleError


@contextmanager
def replacing(path: Path | str) -> Generator[Path]:
    """Yields a temporary path beside `path` to write to; it becomes `path` when the block ends well.

    The folder is made. When the block fails, nothing is left and an older file at `path` stays as it was.

    Raises:
      RuleError: the file cannot be written there.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise RuleError(
            "The file can be written.", f"{path}: {error.strerror or error}", "name a writable place"
        ) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def sync(path: Path | str) -> None:
    """Returns when a file's bytes, or a folder's names, are on the disk and survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
