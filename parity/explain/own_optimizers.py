"""`parity explain` where each side brings its own optimizer: their update rules, named and compared.

The catalogue's edits cannot reach such an optimizer, but what it does can be told from outside. Must not:
choose rules; `update_rule` does.
"""

import contextlib
import time
from pathlib import Path

from parity.explain.settings import Told
from parity.explain.update_rule.explain import SAME_GRADIENT, rules_of
from parity.explain.worker import Worker
from parity.progress import Progress
from parity.report import causes
from parity.report.rules import UpdateRules
from spec.errors import RuleError, few
from spec.run import SIDES


def explain(told: Told, out: Path, progress: Progress, timeout_s: float, began: float) -> causes.Explanation:
    """Finds both rules; the record of what they are and how they differ.

    Raises:
      RuleError: one side trains parameters that the other does not.
    """
    _refuse_unlike(told)
    progress.say("both sides: the run in float64 with every update, and with batches and values held out")
    with contextlib.ExitStack() as stack:
        workers = {side: Worker(side, out / f"{side}.log", timeout_s) for side in SIDES}
        for worker in workers.values():
            stack.callback(worker.close)
        rules, confirmed = rules_of(told, workers, out)
    outcome, left = _outcome(rules, confirmed)
    return causes.Explanation(
        outcome=outcome,  # type: ignore[arg-type]
        summary=_summary(outcome, left, rules),
        edits=[],
        steps=[],
        left=left,
        folder=str(out),
        reproduction=None,
        passes=sum(worker.jobs for worker in workers.values()),
        seconds=round(time.monotonic() - began, 3),
        update_rules=rules,
    )


def _refuse_unlike(told: Told) -> None:
    trained = {
        side.job.side: [row["name"] for row in side.manifest["facts"]["parameters"] if row["trainable"]]
        for side in (told.torch, told.jax)
    }
    for side, other in (SIDES, SIDES[::-1]):
        if alone := [name for name in trained[side] if name not in trained[other]]:
            raise RuleError(
                "Update rules are told where both sides train the same parameters.",
                f"in {side} alone: {few(alone, between=', ')}",
                "train it on both sides, or stop its gradient on both: detach(), lax.stop_gradient",
            )


def _outcome(rules: UpdateRules, confirmed: bool) -> tuple[str, str | None]:
    worst = max(rules.gradient_rel.values())
    if worst > SAME_GRADIENT:
        left = f"grad of step 0 (rms {worst:.1e}): the models differ; with AdamW in pair.py that is explained"
        return ("in part" if confirmed and rules.differences else "none"), left
    if confirmed:
        return ("confirmed" if rules.differences else "equal"), None
    unknown = [
        f"{side}, whose nearest leaves {rule.residual:.1e} of the update"
        for side, rule in rules.rules.items()
        if not rule.reproduces
    ]
    return "none", f"no rule of the family reproduces {' and '.join(unknown)}"


def _summary(outcome: str, left: str | None, rules: UpdateRules) -> str:
    causes_found = "; ".join(rules.differences)
    match outcome:
        case "confirmed":
            return causes_found
        case "in part":
            return f"{causes_found}; left: {left}"
        case "none":
            return str(left)
    return "both optimizers are one update rule, with the same constants"


def lines(explanation: causes.Explanation) -> list[str]:
    """What people read below the verdict."""
    rules = explanation.update_rules
    assert rules is not None
    found = [""]
    for number, text in enumerate(rules.differences, start=1):
        found.append(f"{number}. {text}")
    for side, rule in rules.rules.items():
        found += ["", f"{side}: {'' if rule.reproduces else 'NOT IDENTIFIED; '}{rule.shown}"]
        found.append(
            f"   replayed from its gradients it leaves {rule.residual:.1e} of the worst tensor's update, "
            f"{rule.held_out:.1e} held out"
        )
        if not rule.is_near:
            continue
        if rule.decay and any(rule.decay.values()):
            decayed = [name for name, decay in rule.decay.items() if decay]
            found.append(f"   decayed: {', '.join(decayed)}")
        found += [f"   {'as well' if rule.reproduces else 'next'}: {words}" for words in rule.others]
    found += ["", f"{'step':>6}  {'lr torch':>14}  {'lr jax':>14}  {'update torch':>14}  {'update jax':>14}"]
    for row in rules.rows:
        cells = [rules.rate(row, side) for side in SIDES]
        cells += [f"{row.update_norm[side]:.7g}" for side in SIDES]
        found.append(f"{row.step:>6}  " + "  ".join(f"{cell:>14}" for cell in cells))
    worst = max(rules.gradient_rel.values())
    found += ["", f"first gradients: {worst:.1e} apart, held out too; {rules.steps} steps followed"]
    return found
