"""The page's part about why the sides differ: what `parity explain` found, in words and tables.

Must not: explain; `parity explain` did, and the result has all of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from parity.report.attribution import Attribution, Edge
from parity.report.causes import CauseStep, Confirmed, Explanation
from parity.report.page.words import number
from parity.report.result import Result
from parity.report.rules import RuleFound, UpdateRules

_HEADS = {
    "confirmed": "Confirmed",
    "not identified": "Explained, but by several changes alike",
    "in part": "Explained in part",
    "none": "Not explained",
    "equal": "Nothing to explain in float64",
}
_WORDS = {"clean": "rounding", "carries": "carries it", "differs": "differs, but is not in this run"}
"""What an edge does, for who does not know the record's words."""


@dataclass(frozen=True)
class Table:
    """Rows of words under their heads."""

    title: str
    heads: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Cause:
    """One mistake peeled off: the difference that showed it, what closes it, and all that was tried."""

    first: str
    facts: list[tuple[str, str]]
    changes: Table | None
    """What was confirmed; None where nothing helps."""
    tried: Table
    """Folded away."""


@dataclass(frozen=True)
class Section:
    """What the page shows."""

    head: str
    summary: str
    causes: list[Cause]
    differences: list[str]
    """Of the sides' own optimizers."""
    tables: list[Table]
    """Update rules, learning rates, and which edge carries the difference."""
    notes: list[str]


def section(result: Result) -> Section | None:
    """The section; None where nobody asked why."""
    found = result.explanation
    if found is None:
        return None
    rules, charged = found.update_rules, found.attribution
    return Section(
        head=_HEADS[found.outcome],
        summary=found.summary,
        causes=[_cause(step) for step in found.steps],
        differences=rules.differences if rules else [],
        tables=[*(_rules(rules) if rules else ()), *([_edges(charged)] if charged else ())],
        notes=[*_notes(found), *(_charge(charged) if charged else ())],
    )


def _cause(step: CauseStep) -> Cause:
    facts = [("difference without a change", f"{_rms(step.before)} (RMS, over the tensor's scale)")]
    if step.confirmed:
        facts.append(("with it, on what was held out", _rms(step.after)))
    facts += [("looks like", words) for words in step.signatures]
    facts += [("helps here, but not on what was held out", edit) for edit in step.refuted]
    facts += [("not tried", words) for words in step.limits]
    tried = [
        [one.edit, str(one.closed), str(one.opened), _rms(one.left)]
        for one in sorted(step.tried, key=lambda one: (-one.closed, one.opened, one.left))
    ]
    tried += [[edit, "", "", f"broke off: {why}"] for edit, why in step.failed.items()]
    heads = ["change", "makes equal", "makes differ", "left of the difference"]
    title = f"{len(tried)} changes that were tried, the nearest first"
    return Cause(step.first, facts, _changes(step.confirmed), Table(title, heads, tried))


def _changes(confirmed: list[Confirmed]) -> Table | None:
    if not confirmed:
        return None
    rows = [
        [one.edit, one.what, ", ".join(one.was) or "\u2013", one.mend["torch"], one.mend["jax"]]
        for one in confirmed
    ]
    title = "Makes torch what jax is" if len(rows) == 1 else "Each makes torch what jax is: not told apart"
    return Table(title, ["change", "what it means", "torch had", "in torch", "in jax"], rows)


def _rules(rules: UpdateRules) -> Iterator[Table]:
    heads = ["side", "rule", "left of an update, replayed", "held out", "decays", "others"]
    yield Table(
        "What each side's own optimizer does",
        heads,
        [[side, *_rule(rule)] for side, rule in rules.rules.items()],
    )
    sides = list(rules.rules)
    heads = [
        "step",
        *(f"rate, {side}" for side in sides),
        *(f"2-norm of the update, {side}" for side in sides),
    ]
    yield Table(
        f"Learning rates, of {rules.steps} steps followed",
        heads,
        [
            [
                str(row.step),
                *(rules.rate(row, side) for side in sides),
                *(f"{row.update_norm[side]:.7g}" for side in sides),
            ]
            for row in rules.rows
        ],
    )


def _rule(rule: RuleFound) -> list[str]:
    decayed = [name for name, decay in rule.decay.items() if decay]
    if not rule.is_near:
        untold = [f"not identified; {rule.shown}", number(rule.residual), number(rule.held_out)]
        return [*untold, "\u2013", "\u2013"]
    return [
        rule.shown if rule.reproduces else f"not identified; {rule.shown}",
        number(rule.residual),
        number(rule.held_out),
        ", ".join(decayed) or "nothing",
        "; ".join(rule.others) or "\u2013",
    ]


def _edges(found: Attribution) -> Table:
    heads = ["between", "what lies there", "finding", "difference, in floors of rounding", "where", "more"]
    return Table(
        f"Step {found.step}, made in every way that the machine has",
        heads,
        [_edge(edge) for edge in found.edges],
    )


def _edge(edge: Edge) -> list[str]:
    return [
        " and ".join(edge.between),
        edge.edge,
        _WORDS.get(edge.word, edge.word),
        "\u2013" if edge.floors is None else f"{edge.floors:.3g}",
        edge.where or "\u2013",
        edge.reason or "\u2013",
    ]


def _charge(found: Attribution) -> Iterator[str]:
    yield (
        f"Charged to: {found.summary}." if found.carried_by else f"Not charged to any part: {found.summary}."
    )
    yield f"An edge is more than rounding beyond {found.bound:.3g} floors."
    yield from found.notes


def _notes(found: Explanation) -> Iterator[str]:
    if found.left:
        yield f"Left over: {found.left}."
    if found.reproduction:
        yield f"The step that differs, by itself: python {found.reproduction}/reproduce.py"
    if found.update_rules is not None:
        apart = max(found.update_rules.gradient_rel.values())
        yield f"The first gradients of both sides are {number(apart)} apart, held out too."
    yield f"{found.passes} passes in {found.seconds:.0f} s, kept in {found.folder}."


def _rms(value: float) -> str:
    """A residual; in the record -1 stands for what is not finite."""
    return "not finite" if value < 0 else number(value)
