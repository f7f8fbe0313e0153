"""Which tensors of a phase belong together, and in which order they are computed.

Gradients are made from those of the layers after them, so theirs is the reverse of the parameter table's.
Activations carry the paths of modules, which the links of a user's pair translate; what a module gives with
its channels last is turned to the other side's channels first. Must not: read values.
"""

from dataclasses import dataclass

import numpy as np

from parity.judge.steps import Steps
from spec.mapping.names import parent


@dataclass(frozen=True)
class Named:
    """One tensor, or some of its rows, on both sides."""

    a: str
    b: str
    channels_last: bool = False
    """Whether b's last axis is a's second."""
    rows: tuple[tuple[int, int], ...] = ()
    """Ranges [start, stop) of its first axis; () for all of it."""
    title: str = ""

    def turned(self, array: np.ndarray) -> np.ndarray:
        """b's values in a's layout."""
        return np.moveaxis(array, -1, 1) if self.channels_last else array

    def cut(self, array: np.ndarray) -> np.ndarray:
        """The rows."""
        if not self.rows:
            return array
        return np.concatenate([array[start:stop] for start, stop in self.rows])


@dataclass(frozen=True)
class Shared:
    """The tensors of a phase."""

    both: list[Named]
    alone: list[tuple[str, str]]
    """(label of a side that has it, name), those of another shape on the other side included."""


def shared(a: Steps, b: Steps, step: int, phase: str) -> Shared:
    """The tensors of a phase of a step that both sides have, in order, and those of one alone."""
    if phase == "act":
        return Shared(_activations(a, b, step), [])
    names_a, names_b = set(a.names(step, phase)), set(b.names(step, phase))
    table = a.measured.parameters
    ordered = [*table, *sorted(names_a - table.keys())]
    if phase in ("grad", "clipped"):
        ordered.reverse()
    alike = {n for n in names_a & names_b if a.shape(step, phase, n) == b.shape(step, phase, n)}
    both = [part for name in ordered if name in alike for part in _parts(a, name)]
    # Buffers of one side are its constants and counters; running statistics were matched before.
    alone = [] if phase == "buffer" else sorted((names_a | names_b) - alike)
    return Shared(both, [(a.label if name in names_a else b.label, name) for name in alone])


def _parts(a: Steps, name: str) -> list[Named]:
    """A tensor as a whole; rows whose exact gradient is zero apart from the rest."""
    row = a.measured.parameters.get(name)
    span = row.zero_gradient if row else None
    if row is None or span is None:
        return [Named(name, name, title=name)]
    start, stop = span
    rest = tuple(cut for cut in ((0, start), (stop, row.shape[0])) if cut[0] < cut[1])
    parts = [Named(name, name, rows=rest, title=name)] if rest else []
    return [*parts, Named(name, name, rows=(span,), title=f"{name}[{start}:{stop}]")]


def _activations(a: Steps, b: Steps, step: int) -> list[Named]:
    translated = {_translate(b, name): name for name in b.names(step, "act")}
    order = {name: place for place, name in enumerate(_computed_order(a, b))}
    names = sorted(
        (name for name in a.names(step, "act") if _translate(a, name) in translated),
        key=lambda name: (order.get(_translate(a, name), len(order)), name),
    )
    found = []
    for name in names:
        other = translated[_translate(a, name)]
        one, two = a.shape(step, "act", name), b.shape(step, "act", other)
        if one == two:
            found.append(Named(name, other, title=name))
        elif len(one) > 2 and one == (two[0], two[-1], *two[1:-1]):
            found.append(Named(name, other, channels_last=True, title=name))
    return found


def _computed_order(a: Steps, b: Steps) -> list[str]:
    """Torch notes the order of calls; the order in a compiled program is nobody's."""
    order = (b if b.measured.job.side == "torch" else a).activation_order()
    return [_translate(a, name) for name in order]


def _translate(side: Steps, name: str) -> str:
    """The path of a module in the names of the torch side."""
    pair = side.measured.job.spec.pair
    if side.measured.job.side == "torch" or pair is None:
        return name
    modules = {parent(link.jax): parent(link.torch) for link in pair.links}
    path, mark, call = name.partition("#")
    return modules.get(path, path) + mark + call
