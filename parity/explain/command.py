"""`parity explain`: finds the causes of a difference, writes them into the run's result, and prints them."""

import contextlib
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path

from parity import folders
from parity.attribution import charge
from parity.explain import own_optimizers, reproduction
from parity.explain.residuals import Left
from parity.explain.search import Found, Search, Step
from parity.explain.settings import Setting, Told, as_it_was, held_out
from parity.explain.worker import Worker
from parity.judge.adequacy import between_positions
from parity.launch import SideFailed, check_timeout
from parity.measuring import MEASURED_PARAMETERS
from parity.options import Explain
from parity.progress import Progress
from parity.report import causes, deliver
from parity.report.result import write
from spec.edits import CATALOGUE, Edit, show, tell
from spec.errors import ExitCode, RuleError

_NOT_MEANING = ("equal", "none", "in part")
"""Outcomes that leave something for which no edit is to blame."""


def explain(options: Explain) -> ExitCode:
    """Explains a run; returns SAME where nothing is left unexplained, else DIFFERENT.

    Raises:
      RuleError: there is no such run, it has one side, or its model is too large.
    """
    began, progress = time.monotonic(), Progress()
    check_timeout(options.timeout_s)
    deliver.check_target(options.json)
    told = Told.read(folders.find(options.run, Path(options.out)))
    size = told.spec.problem.num_params
    if size > MEASURED_PARAMETERS:
        raise RuleError(
            f"A run that is explained has a model of at most {MEASURED_PARAMETERS:,} parameters.",
            f"{told.folder}: {size:,}",
            "run a smaller size of the same model",
        )
    out = folders.create_part(told.folder / "explain")
    if told.own_optimizers:
        explanation = own_optimizers.explain(told, out, progress, options.timeout_s, began)
        explanation.summary += unseen(explanation, told)
    else:
        explanation = _explain(told, out, progress, options.timeout_s, began)
        explanation.summary += unseen(explanation, told)
        if options.attribute or _is_charged(told, explanation):
            step = told.first_step if told.first_step is not None else 0
            explanation.attribution = charge.attribute(
                told, step, out / "attribution", options.timeout_s, progress.say
            )
    write(explanation, out / "explanation.json")
    deliver.add_to_result(told.folder, explanation=explanation)
    deliver.deliver_part(explanation, lines(explanation), options.json)
    return ExitCode.DIFFERENT if explanation.left else ExitCode.SAME


def unseen(explanation: causes.Explanation, told: Told) -> str:
    """What the run cannot show, to be added where nothing was found; empty where it shows all."""
    why = between_positions(told.spec) if explanation.outcome == "equal" else ""
    return f"; but {why}" if why else ""


def _is_charged(told: Told, explanation: causes.Explanation) -> bool:
    """Whether it is asked which part of a side carries what no meaning explains."""
    if told.first_step is None and explanation.outcome == "equal":
        # Nothing differed, in the run or in float64.
        return False
    return explanation.outcome in _NOT_MEANING or told.class_ == "precision"


def _explain(told: Told, out: Path, progress: Progress, timeout_s: float, began: float) -> causes.Explanation:
    """With a user's casts in float64 first; where that leaves nothing to explain, with them as they stand."""
    with contextlib.ExitStack() as stack:
        workers = {side: Worker(side, out / f"{side}.log", timeout_s) for side in ("torch", "jax")}
        for worker in workers.values():
            stack.callback(worker.close)
        specs = {"seen": as_it_was(told), "held_out": held_out(told, out / "held_out")}

        def settings(promote: bool) -> list[Setting]:
            where = out / ("promoted" if promote else "as_written")
            made = [
                Setting(name, told, spec, where / name, workers["torch"], promote=promote)
                for name, spec in specs.items()
            ]
            words = ", casts computed in float64 too" if promote else ""
            progress.say(f"jax: the run's steps in float64{words}, and with seed and batches held out")
            for job in (job for setting in made for job in setting.prepare()):
                workers["jax"].do(job)
            return made

        seen, held = settings(promote=told.pair is not None)
        found = Search(seen, held, progress.say).run()
        if told.pair is not None and not found.steps:
            try:
                one, other = settings(promote=False)
                found = Search(one, other, progress.say).run()
                seen, held = one, other
            except SideFailed:
                raise
            except RuleError as error:
                # Code that names a narrow type may not run in float64 as it stands.
                progress.say(f"casts as they stand cannot be had in float64: {error.numbers}")
        left = found.left if found.left.failing else found.held_out
        folder = None
        if left.failing:
            setting = seen if found.left.failing else held
            folder = reproduction.write(setting, found.edits, left.failing[0], out / "reproduction")
        return _record(found, seen, out, folder, seen.tries + held.tries, time.monotonic() - began)


def _record(
    found: Found, seen: Setting, out: Path, folder: Path | None, passes: int, seconds: float
) -> causes.Explanation:
    left, where = (found.left, "") if found.left.failing else (found.held_out, " of what was held out")
    several = any(len(step.confirmed) > 1 for step in found.steps)
    outcome = "confirmed"
    if left.failing:
        outcome = "in part" if found.edits else "none"
    elif not found.steps:
        outcome = "equal"
    elif several:
        outcome = "not identified"
    steps = []
    edits: tuple[Edit, ...] = ()
    for step in found.steps:
        steps.append(_step(step, edits, seen))
        edits = (*edits, *(one.edit for one in step.confirmed[:1]))
    explanation = causes.Explanation(
        outcome=outcome,  # type: ignore[arg-type]
        summary="",
        edits=[show(edit) for edit in found.edits],
        steps=steps,
        left=f"{left.failing[0]}{where}" if left.failing else None,
        folder=str(out),
        reproduction=str(folder) if folder else None,
        passes=passes,
        seconds=round(seconds, 3),
    )
    explanation.summary = _summary(explanation)
    return explanation


def _summary(explanation: causes.Explanation) -> str:
    edits = " and ".join(explanation.edits)
    match explanation.outcome:
        case "confirmed":
            last = explanation.steps[-1]
            return (
                f"torch with {edits} is jax, on held-out batches and seed too "
                f"({explanation.steps[0].before:.1e} before, {last.after:.1e} after)"
            )
        case "not identified":
            choices = [" or ".join(one.edit for one in step.confirmed) for step in explanation.steps]
            return f"this run does not tell apart: {'; '.join(choices)}"
        case "in part":
            return f"torch with {edits} is nearer to jax; left: {explanation.left}"
        case "none":
            return f"no edit of the catalogue explains {explanation.left}"
    return "in float64 the two sides are equal at every step looked at: no difference in meaning there"


def _step(step: Step, edits: tuple[Edit, ...], seen: Setting) -> causes.CauseStep:
    return causes.CauseStep(
        first=str(step.first),
        before=causes.finite(step.before),
        after=causes.finite(step.after),
        signatures=[look.words for look in step.signatures],
        confirmed=[
            confirmed(one.edit, seen.seen.get((*edits, one.edit), {}), seen.planted(one.edit))
            for one in step.confirmed
        ],
        refuted=[show(one.edit) for one in step.refuted],
        tried=[
            causes.EditTried(
                edit=show(one.edit), closed=one.closed, opened=one.opened, left=_rest(one.left, step)
            )
            for one in step.tried
        ],
        failed=step.failed,
        limits=list(
            limits(step, {name for one in step.tried for name in seen.seen.get((*edits, one.edit), {})})
        ),
    )


def limits(step: Step, met: Collection[str]) -> Iterator[str]:
    """What a step that found no cause could not try: an edit of a model reaches all calls of a kind at once.

    Args:
      met: kinds of edits that met a call in the model.
    """
    looks = {look.name for look in step.signatures}
    names = dict.fromkeys(
        one.edit.name
        for one in step.tried
        if one.edit.name in met
        and CATALOGUE[one.edit.name].reach == "model"
        and CATALOGUE[one.edit.name].signature in looks
    )
    if names and not step.confirmed:
        yield (
            f"{', '.join(names)} in one place alone: it was changed in the whole model at once, and where "
            f"one of several differs no value closes it; compare what both sides have at {step.first.tensor}"
        )


def _rest(left: Left, step: Step) -> float:
    return causes.finite(left.rms.get(step.first, 0.0))


def confirmed(edit: Edit, seen: dict[str, list[str]], planted: float | None) -> causes.Confirmed:
    """A cause in words, with how each side would be as the other is.

    Args:
      seen: what stood on the torch side where edits acted, by their names.
      planted: the value of the torch side's own edit of this constant.
    """
    was, kind = seen.get(edit.name, []), CATALOGUE[edit.name]
    if kind.factor and was:
        was = [f"{1.0 if planted is None else planted:g}"]
    change = replace(edit, value=_more(edit.value, float(was[0]))) if kind.factor and was else edit
    mend = {side: mended(change, side) for side in ("torch", "jax")}
    back = _as_torch_is(edit, was)
    return causes.Confirmed(
        edit=show(edit),
        what=tell(edit),
        was=was,
        mend={
            "torch": f"to be as jax is: {mend['torch']}",
            "jax": (f"to be as torch is: {back}; " if back else "") + f"what jax does now: {mend['jax']}",
        },
    )


def _as_torch_is(edit: Edit, was: list[str]) -> str:
    """How what stood on the torch side is written in JAX; empty where it was several things or no value."""
    if len(was) != 1:
        return ""
    form = CATALOGUE[edit.name].mend["jax"]
    if CATALOGUE[edit.name].factor:
        return mended(replace(edit, value=_more(float(was[0]), edit.value)), "jax") if edit.value else ""
    if isinstance(form, dict) and "{was}" in form.get(0, ""):
        return form[0].replace("{was}", was[0])
    try:
        return mended(replace(edit, value=float(was[0])), "jax")
    except (ValueError, KeyError):
        return ""


def _more(wanted: float, there: float) -> float:
    """What multiplies one factor into another, in six digits: it was solved for, not read."""
    return float(f"{wanted / there:.6g}") if there else wanted


def mended(edit: Edit, side: str) -> str:
    """How the edited form is written on a side, in one line."""
    form = CATALOGUE[edit.name].mend[side]
    text = form if isinstance(form, str) else form[edit.value]
    value, rest = f"{edit.value:.9g}", f"{1 - edit.value:.9g}"
    line = text.replace("{value}", value).replace("{one_minus}", rest)
    line = line.replace("{size}", f"{abs(edit.value):.9g}")
    return f"{line} ({edit.target})" if edit.target else line


def _jax_has(one: causes.Confirmed) -> str:
    """The value beside torch's; empty for an edit that is a form and has no constant of its own."""
    name, _, value = one.edit.partition("=")
    return f"; jax has: {value}" if CATALOGUE[name.partition("@")[0]].scale else ""


def lines(explanation: causes.Explanation) -> list[str]:
    """What people read: the verdict first."""
    words = {"confirmed": "CONFIRMED", "equal": "NOTHING TO EXPLAIN", "in part": "CONFIRMED IN PART"}
    head = words.get(explanation.outcome, explanation.outcome.upper())
    found = [f"{head}  {explanation.summary}"]
    if explanation.update_rules is not None:
        found += own_optimizers.lines(explanation)
    for number, step in enumerate(explanation.steps, start=1):
        found += ["", f"{number}. first difference: {step.first} (rms {step.before:.1e})"]
        found += [f"   looks like: {words}" for words in step.signatures]
        for one in step.confirmed:
            found.append(f"   cause: {one.edit}: {one.what}")
            if one.was:
                found.append(f"   torch had: {', '.join(one.was)}{_jax_has(one)}")
            found += [f"   {side}: {text}" for side, text in one.mend.items()]
        found += [f"   helps here, but not on what was held out: {edit}" for edit in step.refuted]
        nearest = sorted(step.tried, key=lambda one: (-one.closed, one.left))[:3]
        if not step.confirmed and nearest:
            found.append("   nearest: " + ", ".join(f"{one.edit} leaves {one.left:.1e}" for one in nearest))
        found += [f"   not tried: {words}" for words in step.limits]
    what = "passes" if explanation.update_rules is not None else "edited passes"
    found += ["", f"{explanation.passes} {what} in {explanation.seconds:.0f} s: {explanation.folder}"]
    if explanation.reproduction:
        found.append(f"reproduce: python {explanation.reproduction}/reproduce.py")
    if explanation.attribution:
        found += ["", *charge.lines(explanation.attribution)]
    return found
