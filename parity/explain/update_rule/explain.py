"""Why two sides with optimizers of their own differ: each one's update rule, and where the two part.

A rule is confirmed where it gives the updates of other batches and first values as well, every constant
fixed. Must not: print.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.explain.settings import Told
from parity.explain.update_rule.differences import differences, in_words
from parity.explain.update_rule.fits import Fit, judged
from parity.explain.update_rule.followed import Followed, follow
from parity.explain.update_rule.forms import Rule
from parity.explain.update_rule.identify import Identified, identify
from parity.explain.update_rule.observed import Observed
from parity.explain.update_rule.shapes import shape_of
from parity.explain.update_rule.storing import replayed, stored_as
from parity.explain.update_rule.written import clips_all
from parity.explain.worker import Worker
from parity.report import causes
from parity.report.rules import RateRow, RuleFound, UpdateRules
from spec.run import SIDES

_ALWAYS_CLIPPED = ", in every step: the limit is known only together with the learning rate or eps"
SAME_GRADIENT = 1e-9
"""First gradients of one model, both computed in float64, are nearer than this."""


@dataclass(frozen=True)
class Side:
    """What is known of one side."""

    found: Identified
    held_out: Fit
    lost: float | None = None
    """Of parameters that are rounded: the share of updates that vanish."""

    @property
    def holds(self) -> bool:
        """Whether the rule reproduces both what it was told from and what was held out."""
        return self.found.best.reproduces and self.held_out.reproduces


def rules_of(told: Told, workers: dict[str, Worker], out: Path) -> tuple[UpdateRules, bool]:
    """Both sides' rules and their differences, and whether both are confirmed."""
    followed = follow(told, workers, out)
    sides: dict[str, Side] = {}
    # Where parameters are rounded, no rule can be fitted: that of the other side is tried first.
    for side in sorted(SIDES, key=lambda side: bool(stored_as(followed.steps["seen"][side]))):
        other = sides.get(_other(side))
        sides[side] = (other and _rounding(followed, side, other)) or _side(followed, side)
    sides = {side: sides[side] for side in SIDES}
    seen = followed.steps["seen"]
    found = {side: known.found for side, known in sides.items()}
    stored = [
        f"parameters are kept in {known.found.best.rule.stored} in {side}: {known.lost:.1%} of the updates "
        f"are rounded to zero ({_unmoved(seen[side]):.1%} of the parameters never moved, "
        f"{_unmoved(seen[_other(side)]):.1%} in {_other(side)})"
        for side, known in sides.items()
        if known.found.best.rule.stored and known.lost is not None
    ]
    confirmed = all(side.holds for side in sides.values())
    apart = [*stored, *differences(found, seen, lambda name: _stacked(told, name))] if confirmed else []
    rules = UpdateRules(
        rules={side: _record(known, seen[side]) for side, known in sides.items()},
        differences=apart,
        rows=[_row(step, found, seen) for step in _steps(told, found, seen["torch"].num_steps)],
        steps=seen["torch"].num_steps,
        gradient_rel=followed.gradient_rel,
    )
    return rules, confirmed


def _other(side: str) -> str:
    return "jax" if side == "torch" else "torch"


def _side(followed: Followed, side: str) -> Side:
    found = identify(followed.steps["seen"][side])
    return Side(found, judged(found.best.rule, followed.steps["held_out"][side]))


def _rounding(followed: Followed, side: str, other: Side) -> Side | None:
    """The other side's rule with parameters rounded, where that is what this side does to the bit."""
    seen, held = (followed.steps[name][side] for name in ("seen", "held_out"))
    dtype = stored_as(seen)
    if not dtype or not other.holds:
        return None
    here, there = (replayed(other.found.best.rule, dtype, steps) for steps in (seen, held))
    if not (here.reproduces and there.reproduces):
        return None
    fits = [Fit(kept.rule, 1 - kept.equal, 0.0) for kept in (here, there)]
    return Side(Identified(fits[0], ()), fits[1], here.lost)


def _unmoved(seen: Observed) -> float:
    return float((seen.params_SN[1:] == seen.params_SN[1]).all(0).mean())


def _record(side: Side, seen: Observed) -> RuleFound:
    fit, rule = side.found.best, side.found.best.rule
    always = rule.form.clips and clips_all(rule, seen)
    words = in_words(rule, seen.names) + (_ALWAYS_CLIPPED if always else "")
    others = dict.fromkeys(in_words(other.rule, seen.names) for other in side.found.others)
    return RuleFound(
        words=words,
        optimizer=rule.form.kind,
        constants=rule.values,
        written=sorted(rule.rounded),
        decay=dict(zip(seen.names, rule.decay_T.tolist(), strict=True)),
        decay_form=rule.form.decay,
        eps_place=rule.form.place,
        bias_correction=rule.form.correction,
        rates=rule.rates_S.tolist(),
        stored=rule.stored,
        lost=side.lost,
        reproduces=side.holds,
        residual=causes.finite(fit.residual),
        held_out=causes.finite(side.held_out.residual),
        others=[text for text in others if text != words],
    )


def _steps(told: Told, found: dict[str, Identified], followed: int) -> list[int]:
    """Those at which schedules go wrong: 0, 1, the end of warm-up, the last and the one after it."""
    last = told.spec.problem.steps - 1
    ends = {_warm(identified.best.rule) for identified in found.values()}
    return sorted(step for step in {0, 1, *ends, last, last + 1} if step < followed)


def _warm(rule: Rule) -> int:
    """The step of the highest rate."""
    rates_S = rule.rates_S
    return int(np.argmax(rates_S)) if shape_of(rates_S).warmup else 0


def _row(step: int, found: dict[str, Identified], seen: dict[str, Observed]) -> RateRow:
    return RateRow(
        step=step,
        rates={side: float(identified.best.rule.rates_S[step]) for side, identified in found.items()},
        update_norm={
            side: float(np.linalg.norm(observed.updates_SN[step])) for side, observed in seen.items()
        },
    )


def _stacked(told: Told, name: str) -> str:
    """JAX's name of a torch tensor, where it is another or holds several layers."""
    assert told.spec.pair is not None
    for link in told.spec.pair.links:
        if link.torch == name:
            is_layer = link.jax_part is not None and link.jax_part.axis == 0
            return f" ({link.jax}{', stacked' if is_layer else ''} in jax)"
    return ""
