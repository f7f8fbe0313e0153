"""Makes a token shard out of a text file: one token a byte, so a vocabulary of 256 reads it."""

from pathlib import Path

from spec.data.shards import write_shard
from spec.data.text import open_text

_PART = 1 << 24
"""Tokens tokenised at once."""


def prepare(text_path: str | None, out_path: Path | str) -> int:
    """Writes the shard and returns its number of tokens; None is the text that ships with Python.

    Raises:
      RuleError: the text is missing, empty or too long for one shard, or the output file exists.
    """
    text = open_text(text_path)
    return write_shard(
        out_path, (text.read(start, start + _PART) for start in range(0, text.num_tokens, _PART))
    )
