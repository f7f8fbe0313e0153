"""Text as bytes, Python's own documentation by default."""

import hashlib
import sys
from pathlib import Path

import pytest

from spec.data.text import open_text
from spec.errors import RuleError


def test_the_default_is_the_documentation_of_this_python() -> None:
    topics = pytest.importorskip("pydoc_data.topics").topics
    text = open_text()
    assert text.num_tokens > 100_000
    first, last = min(topics), max(topics)
    data = text.read(0, text.num_tokens).tobytes()
    assert data.startswith(topics[first].encode())
    assert data.endswith(topics[last].encode())
    assert text.describe() == {
        "kind": "text",
        "path": "pydoc_data.topics",
        "sha256": hashlib.sha256(data).hexdigest(),
        "tokens": len(data),
    }


def test_a_file_is_read_byte_by_byte(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(bytes(range(256)))
    text = open_text(str(path))
    assert text.read(10, 13).tolist() == [10, 11, 12]
    assert text.sha256 == hashlib.sha256(bytes(range(256))).hexdigest()
    assert text.locate(5) == f"{path}, byte 5"


def test_missing_and_empty_texts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty.txt").touch()
    for path, says in (
        (tmp_path / "x", "no such file"),
        (tmp_path, "a folder"),
        (Path("/dev/null"), "a device or a pipe"),
        (tmp_path / "empty.txt", "0 bytes"),
    ):
        with pytest.raises(RuleError, match=says) as caught:
            open_text(str(path))
        assert str(path) in str(caught.value)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(RuleError, match=r"no pydoc_data\.topics"):
        open_text()
