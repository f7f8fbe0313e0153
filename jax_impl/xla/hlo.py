"""Reads the text of a compiled XLA program (`Compiled.as_text()`): what is updated in place, what is reduced.

Must not: run or change a program. The text is no promised format; what is not found here, its caller reports
as missing, so that a new spelling fails loudly.
"""

import math
import re
from dataclasses import dataclass

_ALIAS = re.compile(r"\{[\d, ]*\}: \((\d+), \{[\d, ]*\}, \w+-alias\)")
_HEADER = re.compile(r"^(?:ENTRY )?%?([\w.$-]+) \(.*\{\s*$")
_CALLED = re.compile(
    r"(?:calls|to_apply|body|condition|branch_computations|called_computations)="
    r"\{?(%?[^,}\s]+(?:, %[^,}\s]+)*)"
)
_WHILE_BODY = re.compile(r"\bwhile\(.*?\bbody=%?([\w.$-]+)")
_COLLECTIVE = re.compile(
    r"= (.*?) (all-reduce|reduce-scatter|all-gather|all-to-all|collective-permute|collective-broadcast)"
    r"(?:-done)?\("
)
_SHAPE = re.compile(r"\w+\[([\d,]*)\]")
_PLACES = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*\n*"
    r'|, metadata=\{(?:"(?:[^"\\]|\\.)*"|[^"{}])*\}'
    r'|fingerprint_before_lhs="[^"]*"',
    re.MULTILINE,
)


@dataclass(frozen=True)
class Collective:
    """One collective operation of a program."""

    kind: str
    elements: int
    """Elements that it delivers to one device."""
    loops: int
    """How many loops it stands in: their bodies, or something that such a body calls."""


def without_places(text: str) -> str:
    """The text without the places in Python that its operations come from, which differ where one program is
    called from another line."""
    return _PLACES.sub("", text)


def aliased_parameters(text: str) -> set[int]:
    """Numbers of the program's parameters whose memory an output takes over."""
    header = text.split("\n", 1)[0]
    return {int(number) for number in _ALIAS.findall(header)}


def collectives(text: str) -> list[Collective]:
    """Every collective of the program, in the order of its text.

    One that has a start and a done is read at its done: a start may show its operands beside its results.
    """
    computations = _computations(text)
    loops = _loops(computations)
    return [
        Collective(kind, _num_elements(shape), loops[name])
        for name, lines in computations.items()
        for line in lines
        for shape, kind in _COLLECTIVE.findall(line)
    ]


def _computations(text: str) -> dict[str, list[str]]:
    """Lines of each computation by its name."""
    computations: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if header := _HEADER.match(line):
            lines = computations.setdefault(header.group(1), [])
        else:
            lines.append(line)
    return computations


def _loops(computations: dict[str, list[str]]) -> dict[str, int]:
    """How many loops each computation stands in."""
    depths = dict.fromkeys(computations, 0)
    level = set(computations)
    while level:
        lines = [line for name in level for line in computations.get(name, ())]
        level = _reachable(computations, {body for line in lines for body in _WHILE_BODY.findall(line)})
        for name in level & depths.keys():
            depths[name] += 1
    return depths


def _reachable(computations: dict[str, list[str]], start: set[str]) -> set[str]:
    """The computations of `start` and all that they call."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for line in computations.get(name, ()):
            for group in _CALLED.findall(line):
                waiting += [called.strip().lstrip("%") for called in group.split(",")]
    return seen


def _num_elements(shape: str) -> int:
    """Elements of an array shape `f32[4,8]{1,0}`, or of all arrays of a tuple."""
    return sum(math.prod(int(n) for n in dims.split(",") if n) for dims in _SHAPE.findall(shape))
