"""Charges a difference: which edge between the two sides carries it.

Meaning first: where both sides agree in float64 as they are written, no edge but rounding is left. Then, on
each side, its arithmetic (from its float64 to the mode that compiles nothing), its compiler, its capture. An
edge carries the difference where it lies between the modes that the run took and is larger than rounding can
be. Must not: start a process, or measure.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from parity.attribution.edges import Apart, Comparison
from parity.attribution.passes import EXCESS, PROMOTED, TRUTH, WRITTEN, Ways
from parity.explain.settings import Told
from parity.report.attribution import Attribution, Edge

_CAPTURED = "inductor", "graph+inductor"
_NEARER = 1.1
"""Times that a compiled step is nearer to its truth than the written one before it is told."""
_WIDTH = 36
_TF32 = (2.0**-13, 2.0**-9)
"""Between these lies the error of a product whose inputs are rounded to 2^-11."""


def attribute(told: Told, step: int, out: Path, timeout_s: float, say: Callable[[str], None]) -> Attribution:
    """Makes a step in every way and charges its difference.

    Args:
      step: the one that differs first in the run.
      out: a new folder for the passes.

    Raises:
      RuleError, SideFailed: a side could not make the step at all.
    """
    began = time.monotonic()
    with contextlib.closing(Ways(told, step, out, timeout_s, say)) as ways:
        ways.make()
        charging = _Charging(told, ways, Comparison(ways.made))
        edges = charging.edges()
        found = charging.further(edges)
    carried = [one for one in edges if one.word == "carries"]
    # Without a number it is not finite on one side.
    carried.sort(key=lambda one: float("inf") if one.floors is None else one.floors, reverse=True)
    whole = charging.whole()
    return Attribution(
        step=step,
        modes=charging.modes,
        bound=charging.bound,
        whole=_finite(whole.floors) if whole else None,
        edges=edges,
        carried_by=[one.edge for one in carried],
        summary=_summary(carried, whole, charging.bound, found),
        notes=charging.notes(),
        folder=str(out),
        seconds=round(time.monotonic() - began, 3),
    )


class _Charging:
    """The edges of one step."""

    def __init__(self, told: Told, ways: Ways, comparison: Comparison) -> None:
        self._told, self._ways, self._compared = told, ways, comparison
        self.bound = comparison.bound
        execution = told.spec.execution
        self.modes = {side: execution.mode(side) for side in ("torch", "jax")}

    def edges(self) -> list[Edge]:
        """Every edge, from meaning outwards."""
        graph = self.modes["torch"].startswith("graph")
        inductor = self.modes["torch"].endswith("inductor")
        kernels, captured = ("eager", "graph") if self.modes["torch"] == "graph" else _CAPTURED
        jit = not self.modes["jax"].startswith("nojit")
        return [
            *self._of_meaning(),
            *self._of_arithmetic("torch"),
            self._edge("torch compiler", "torch eager", "torch inductor", inductor),
            self._edge("torch capture", f"torch {kernels}", f"torch {captured}", graph),
            *self._of_arithmetic("jax"),
            self._edge("jax compiler", "jax nojit", "jax jit", jit),
        ]

    def whole(self) -> Apart | None:
        """The two sides as they ran."""
        mode = self.modes["torch"]
        return self._compared.apart(
            f"torch {mode}", "jax jit" if self.modes["jax"] != "nojit" else "jax nojit"
        )

    def further(self, edges: list[Edge]) -> list[str]:
        """What else is known of a compiler that carries: whether it changes meaning, or keeps too much."""
        told = []
        for edge in list(edges):
            side, _, what = edge.edge.partition(" ")
            if what == "compiler" and edge.word in ("carries", "differs"):
                edge.reason = "; ".join(self._of_compiler(side, edge, edges))
                told.append(f"{edge.edge}: {edge.reason}")
            if what == "precision" and edge.word == "carries" and self._like_tf32(edge):
                names = {
                    "torch": "torch.backends.cuda.matmul.allow_tf32",
                    "jax": "jax_default_matmul_precision",
                }
                edge.reason = f"as large as TF32 makes it, about 2^-11: {names[side]}"
                told.append(f"{edge.edge}: {edge.reason}")
        return told

    def notes(self) -> list[str]:
        """What these edges cannot show."""
        execution, found = self._told.spec.execution, []
        if execution.world_size > 1:
            found.append(
                f"the run had {execution.world_size} processes; here one makes their micro-batches: what a "
                "reduction between processes adds is not seen"
            )
        if execution.device == "cpu":
            found.append("on a CPU there is no TF32 and no graph: what a GPU adds is not seen")
        return found

    def _of_meaning(self) -> list[Edge]:
        """`semantics`, and for a pair `casts`: where the sides' own casts alone differ."""
        written = f"torch {TRUTH}", f"jax {TRUTH}"
        promoted = f"torch {PROMOTED}", f"jax {PROMOTED}"
        as_written, meant = self._compared.apart(*written), self._compared.apart(*promoted)
        missing = self._missing(*written)
        if self._told.pair is None:
            return [self._meaning(*written)]
        if as_written is not None and as_written.equal:
            return [self._meaning(*written), self._edge("casts", *written, True)]
        if meant is None:
            reason = "casts cannot be told from meaning"
            return [self._meaning(*written), self._null("casts", *written, reason)]
        if as_written is None or not meant.equal:
            reason = missing or "told from meaning only where meanings agree"
            return [self._meaning(*promoted), self._null("casts", *written, reason)]
        return [self._meaning(*promoted), self._edge("casts", *written, True)]

    def _of_arithmetic(self, side: str) -> list[Edge]:
        """From a side's float64 to the mode that compiles nothing. Where a user's casts cannot be had in
        float64, the two sides' modes are compared with each other instead, in one edge."""
        plain = {"torch": "torch eager", "jax": "jax nojit"}
        missing = self._missing(f"torch {TRUTH}", f"jax {TRUTH}")
        if not missing:
            return [self._edge(f"{side} precision", f"{side} {TRUTH}", plain[side], True)]
        if side == "torch":
            return []
        edge = self._edge("precision", plain["torch"], plain["jax"], True)
        edge.reason = f"float64 with the casts that are written cannot be had: {missing}"
        return [edge]

    def _missing(self, *ways: str) -> str:
        """Why some of these could not be had; empty where all of them were."""
        return "; ".join(f"{way}: {why}" for way, why in self._ways.made.missing.items() if way in ways)

    def _meaning(self, one: str, other: str) -> Edge:
        edge = self._edge("semantics", one, other, True)
        apart = self._compared.apart(one, other)
        if apart is None:
            return edge
        if apart.equal:
            edge.word = "clean"
        elif edge.word == "clean":
            edge.reason = "differs in float64, below the noise of the profile"
        return edge

    def _edge(self, name: str, one: str, other: str, in_run: bool) -> Edge:
        apart = self._compared.apart(one, other)
        if apart is None:
            return self._null(name, one, other, self._missing(one, other), in_run)
        beyond = apart.floors > self.bound
        return Edge(
            edge=name,
            between=[one, other],
            in_run=in_run,
            floors=_finite(apart.floors),
            word="clean" if not beyond else "carries" if in_run else "differs",
            where=apart.where,
            rms_rel=_finite(apart.rms_rel),
            errors={way: _finite(value) for way, value in apart.value.items()},
            reason="" if apart.floors < float("inf") else "one of the two alone is not finite",
        )

    def _null(self, name: str, one: str, other: str, reason: str, in_run: bool = True) -> Edge:
        return Edge(
            edge=name,
            between=[one, other],
            in_run=in_run,
            floors=None,
            word="not run",
            where=None,
            rms_rel=None,
            reason=reason,
        )

    def _of_compiler(self, side: str, edge: Edge, edges: list[Edge]) -> list[str]:
        plain, compiled = edge.between
        found = []
        truth = self._ways.compiled_truth(side)
        added = self._ways.without_excess(side)
        self._compared = Comparison(self._ways.made)
        exact = self._compared.apart(f"{side} {TRUTH}", truth)
        before, after = edge.errors.get(plain), edge.errors.get(compiled)
        same_meaning = next(one.word == "clean" for one in edges if one.edge == "semantics")
        nearer = bool(before) and after is not None and after * _NEARER < before
        if self._compared.truth(side) == f"{side} {PROMOTED}" and same_meaning and nearer:
            times = f"{before / after:.3g} times " if before and after else ""
            found.append(
                f"the compiled step is {times}nearer to its float64 than the one that is written: "
                "roundings that are written were left out"
            )
        elif exact is not None and not exact.equal:
            found.append(f"in float64 too ({exact.rms_rel:.1e}), so the compiled step means something else")
        if added:
            kept = self._edge(f"{side} compiler, {WRITTEN}", plain, f"{compiled}, {WRITTEN}", False)
            edges.insert(edges.index(edge) + 1, kept)
            flag = {"jax": "xla_allow_excess_precision", "torch": "emulate_precision_casts"}[side]
            if kept.word == "clean":
                found.append(
                    f"{flag} carries it: without {EXCESS} the edge is clean ({kept.floors:.2g} floors)"
                )
        elif side == "jax" and found and "left out" in found[0]:
            found.append(
                "xla_allow_excess_precision is False, and does not reach it; lax.reduce_precision does"
            )
        return found

    def _like_tf32(self, edge: Edge) -> bool:
        execution, problem = self._told.spec.execution, self._told.spec.problem
        if execution.device != "cuda" or problem.profile.compute != "float32" or edge.rms_rel is None:
            return False
        return _TF32[0] <= edge.rms_rel <= _TF32[1]


def _summary(carried: list[Edge], whole: Apart | None, bound: float, further: list[str]) -> str:
    if not carried:
        if whole is not None and whole.floors <= bound:
            return (
                f"this step alone does not differ ({whole.floors:.2g} floors between the sides as they ran, "
                f"{bound:.2g} may be rounding): what differs adds up over steps"
            )
        return "no edge stands out alone: the difference is spread over several"
    head = carried[0]
    # The largest is not always where it is seen first.
    found = f"{_floors(head)}, first at {head.where}"
    words = f"{head.edge} carries it: {found}, between {' and '.join(head.between)}"
    others = ", ".join(f"{one.edge} ({_floors(one)})" for one in carried[1:])
    reasons = [text.partition(": ")[2] for text in further if text.startswith(f"{head.edge}: ")]
    return "; ".join([words, *filter(None, reasons), *([f"besides {others}"] if others else [])])


def _floors(edge: Edge) -> str:
    return f"{edge.floors:,.3g} floors" if edge.floors is not None else "not finite on one side"


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None


def lines(found: Attribution) -> list[str]:
    """What people read: what carries the difference, then one line an edge."""
    head = "CHARGED" if found.carried_by else "NOT CHARGED"
    heads = f"  {'edge':{_WIDTH}} {'floors':>8}  {'':8}  between"
    shown = [f"{head}  {found.summary}", "", heads]
    for edge in found.edges:
        number = "-" if edge.floors is None else f"{edge.floors:.3g}"
        where = edge.where if edge.where else edge.reason
        between = " - ".join(edge.between)
        shown.append(f"  {edge.edge:{_WIDTH}} {number:>8}  {edge.word:8}  {between}: {where}")
    shown += [f"  note: {note}" for note in found.notes]
    return [*shown, f"  step {found.step} in every way, {found.seconds:.0f} s: {found.folder}"]
