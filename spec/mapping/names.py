"""How alike two names are: words that mean the same in both frameworks count as one.

Must not: decide; a pair that names do not tell apart is settled by what the models compute.
"""

import re
from functools import cache

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_MEANS = {
    "kernel": "weight",
    "embedding": "weight",
    "scale": "weight",
    "embeddings": "embed",
    "wte": "embed",
    "query": "q",
    "key": "k",
    "value": "v",
    "running": "",
    "variance": "var",
    "attention": "attn",
    "dense": "linear",
    "fc": "linear",
    "lin": "linear",
    "ln": "norm",
    "bn": "norm",
    "layernorm": "norm",
    "batchnorm": "norm",
    "layer": "layers",
    "block": "layers",
    "blocks": "layers",
    "output": "out",
    "downsample": "shortcut",
    "classifier": "head",
}


def words(path: str) -> list[str]:
    """The words of a path in one spelling: `encoder.layers_0.query.kernel` -> encoder, layers, q, weight."""
    return [word for word in map(_meaning, _WORD.findall(path)) if word and not word.isdigit()]


def numbers(path: str) -> tuple[int, ...]:
    """The numbers in a path, in order."""
    return tuple(int(word) for word in _WORD.findall(path) if word.isdigit())


def pattern(path: str) -> str:
    """The path without its numbers: alike for all layers of a stack."""
    return re.sub(r"\d+", "*", path)


def parent(path: str) -> str:
    """The path of the module that holds a tensor."""
    return path.rpartition(".")[0]


def leaf(path: str) -> str:
    """The last word of a path, without the number of a layer of a stack."""
    return path.rpartition(".")[2].partition("[")[0]


@cache
def distance(one: str, other: str) -> float:
    """0 for the same words, 1 for none in common; the last word counts as much as the rest."""
    a, b = words(one), words(other)
    a, b = _joined(a, b), _joined(b, a)
    shared = sum(min(a.count(word), b.count(word)) for word in set(a))
    whole = 1 - 2 * shared / max(1, len(a) + len(b))
    last = float(a[-1:] != b[-1:])
    return (whole + last) / 2


def _joined(own: list[str], other: list[str]) -> list[str]:
    """Words with neighbours made one where the other path has them as one: `cell.i.r` beside `cell.ir`."""
    made: list[str] = []
    for word in own:
        if made and made[-1] + word in other and not {made[-1], word} <= set(other):
            made[-1] += word
        else:
            made.append(word)
    return made


def _meaning(word: str) -> str:
    return _MEANS.get(word.lower(), word.lower())
