"""`parity power`: makes every mistake of the catalogue in turn on the torch side of a saved run, and says
which the run would have caught.

The run is made again with each mistake, at its own precision, length, data and processes, and judged against
the JAX side's saved pass as the run was. Must not: judge by another rule than the run's.
"""

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from parity import folders
from parity.cluster import Cluster
from parity.commands import side_commands
from parity.explain.settings import Told
from parity.judge.align import Measured
from parity.judge.verdict import found_nothing, judge
from parity.launch import SideFailed, check_timeout, launch
from parity.options import Power as Options
from parity.progress import Progress
from parity.report import causes, deliver
from parity.report.result import Numerics, Verdict
from spec.edits import CATALOGUE, Edit, Kind, constants, show, tell
from spec.edits.idle import UNTURNED, why_idle
from spec.edits.weights import NAMES as OF_WEIGHTS
from spec.edits.weights import fits
from spec.errors import ExitCode, RuleError
from spec.job import Job
from spec.params import ParamSpec
from spec.run import Problem

_CONTROL = "000_control"
_REASONS = {
    "clip_eps": ", no step of which was clipped",
    "max_norm": ", no step of which was clipped",
    "rope_theta": ", no position of which is rotated",
    "loss_mean": ", whose micro-batches have as many tokens each",
}


def power(options: Options) -> ExitCode:
    """Measures the power of a run that found nothing; returns SAME.

    Raises:
      RuleError: there is no such run, or the run itself found a difference.
    """
    began, progress = time.monotonic(), Progress()
    check_timeout(options.timeout_s)
    deliver.check_target(options.json)
    told = Told.read(folders.find(options.run, Path(options.out)))
    if told.own_optimizers:
        raise RuleError(
            "Mistakes are made where the optimizer is the built-in AdamW.",
            f"{told.folder}: an optimizer of one's own",
            "take AdamW in pair.py",
        )
    _verdict_of(told, told.torch)
    out = folders.create_part(told.folder / "power")
    mistakes = list(catalogue_of(told.spec.problem))
    jobs = [_job(told, out / _CONTROL, ())]
    jobs += [
        _job(told, out / f"{number:03d}_{edit.name}", (edit,))
        for number, edit in enumerate(mistakes, start=1)
    ]
    progress.say(f"torch: the run made again with {len(mistakes)} mistakes in turn")
    broken = _make(jobs, told, out, options.timeout_s, progress)
    control = _verdict_of(told, Measured("torch", Path(jobs[0].out)))
    rows = _rows(mistakes, jobs, broken, told)
    measured = causes.Power(
        control=control,
        caught=sum(bool(row.caught) for row in rows.values()),
        missed=sum(row.caught is False for row in rows.values()),
        rows=list(rows.values()),
        folder=str(out),
        seconds=round(time.monotonic() - began, 3),
    )
    for job in jobs:
        shutil.rmtree(Path(job.out) / "tensors", ignore_errors=True)
    deliver.add_to_result(told.folder, power=measured)
    deliver.deliver_part(measured, lines(measured), options.json)
    return ExitCode.SAME


def _rows(
    mistakes: list[Edit], jobs: list[Job], broken: dict[str, str], told: Told
) -> dict[str, causes.PowerRow]:
    """What became of every mistake, by name; of several values the first that is not the model's own."""
    control, passes = Path(jobs[0].out), list(zip(mistakes, jobs[1:], strict=True))
    # Whether a pass that looked for the base of rotary positions met one; one that broke off may have.
    turned = any(
        edit.name == "rope_theta" and (job.out in broken or edit.name in _edited(Path(job.out)))
        for edit, job in passes
    )
    rows: dict[str, causes.PowerRow] = {}
    for edit, job in passes:
        if job.out in broken:
            rows[edit.name] = _broken(edit, broken[job.out])
        elif not _as_it_is(edit, Path(job.out)):
            rows.setdefault(edit.name, row_of(edit, Path(job.out), control, told, turned))
    return rows | {row.edit: row for row in _refused()}


def _verdict_of(told: Told, torch: Measured) -> Verdict:
    """That of a torch pass against the JAX side's saved one, between which nothing may differ."""
    found = judge(torch, told.jax)
    if not found_nothing(found):
        raise RuleError(
            "Power is of a run that found nothing.",
            f"{told.folder}: {found.verdict}, {'; '.join(found.reasons[:1])}",
            "parity explain finds its cause",
        )
    return found.verdict


def catalogue_of(problem: Problem) -> Iterator[Edit]:
    """Typical mistakes of every kind: one where the right value is known, two where a model has its own."""
    own = constants(problem)
    parameters = problem.parameter_table()
    for name, kind in CATALOGUE.items():
        if kind.reach == "refused":
            continue
        values = [value for value in kind.values if value != getattr(own, name, None)]
        if name in OF_WEIGHTS:
            found = [edit for value in values if (edit := _fitting(name, kind, value, parameters))]
            yield found[0] if found else Edit(name=name, value=values[0])
        elif kind.targeted:
            # The tensors that the least is known of: of those that do not decay, the first.
            yield Edit(name=name, value=1, target=next((p.name for p in parameters if not p.decayed), ""))
        else:
            inside = kind.reach == "model" and (problem.workload == "pair" or not hasattr(own, name))
            yield from (Edit(name=name, value=value) for value in values[: 2 if inside else 1])


def _fitting(name: str, kind: Kind, value: float, parameters: tuple[ParamSpec, ...]) -> Edit | None:
    for row in parameters:
        edit = Edit(name=name, value=value, target=row.name if kind.targeted else "")
        if fits(edit, row.name, row.shape):
            return edit
    return None


def _job(told: Told, out: Path, edits: tuple[Edit, ...]) -> Job:
    """The run pass of the torch side, with a mistake, in eager mode where a model is edited."""
    job = told.torch.job
    mode = "eager" if any(CATALOGUE[edit.name].reach == "model" for edit in edits) else job.mode
    return replace(job, out=str(out), edits=(*job.edits, *edits), must_act=False, mode=mode)


def _make(jobs: list[Job], told: Told, out: Path, timeout_s: float, progress: Progress) -> dict[str, str]:
    """Makes the passes, in as few launches as there are passes that break off; why those did, by folder."""
    execution, broken = told.spec.execution, {}
    while jobs:
        files = [job.write() for job in jobs]
        passes = [file.parent for file in files]
        commands = side_commands("torch", files, execution.device, execution.world_size, Cluster())

        def look(passes: list[Path] = passes) -> None:
            done = sum((folder / "done.json").exists() for folder in passes)
            progress.move(f"torch: {done} of {len(passes)} passes")

        ended = launch(commands, passes, out / "torch.log", timeout_s, on_look=look)
        progress.say(f"torch: {ended.how} after {ended.seconds:.1f} s")
        if ended.how == "interrupted":
            raise KeyboardInterrupt
        if ended.how == "done":
            break
        if ended.failed_pass is None or ended.failed_pass == out / _CONTROL:
            raise SideFailed(
                "The torch side makes its pass again.",
                f"it {ended.how}: {' | '.join(ended.log_tail[-3:])}",
                f"read {out}",
            )
        error = ended.error or {"numbers": ended.how}
        broken[str(ended.failed_pass)] = str(error["numbers"])
        jobs = jobs[passes.index(ended.failed_pass) + 1 :]
    return broken


def _as_it_is(edit: Edit, folder: Path) -> bool:
    """Whether a model had just the value that was to be a mistake."""
    return f"{edit.value:.12g}" in _edited(folder).get(edit.name, [])


def _edited(folder: Path) -> dict[str, list[str]]:
    return folders.read_json(folder / "manifest.json")["facts"]["edited"]


def row_of(edit: Edit, folder: Path, control: Path, told: Told, turned: bool) -> causes.PowerRow:
    """What became of one mistake; `turned` is whether positions turn queries and keys in the model."""
    found = judge(Measured("torch", folder), told.jax)
    caught: bool | None = not found_nothing(found)
    where, difference = _where(found), _difference(found)
    if not caught and edit.name == "rope_layout" and not turned:
        # It reorders the terms of a sum: bits change, and nothing is mistaken.
        caught, where = None, why_idle(edit, told.spec.problem) or UNTURNED
    elif not caught and _bits(folder) != _bits(control):
        where, difference = "it changes bits, and stays within the tolerances", _loss(found)
    elif not caught:
        caught, where = _why_nothing(edit, folder, told.spec.problem)
    return causes.PowerRow(
        edit=show(edit), what=tell(edit), caught=caught, where=where, difference=difference
    )


def _loss(found: Numerics) -> float | None:
    return found.loss.max_rel if found.loss else None


def _where(found: Numerics) -> str:
    first = found.first_divergence
    if first is None:
        return found.verdict
    return f"{first.phase} of step {first.step}" + (f", {first.tensor}" if first.tensor else "")


def _difference(found: Numerics) -> float | None:
    return found.first_divergence.difference if found.first_divergence else None


def _bits(folder: Path) -> tuple[bytes, bytes]:
    """Every loss, norm and rate, and the state at the end, of rank 0."""
    return (folder / "steps.rank0.jsonl").read_bytes(), (folder / "digest.rank0.json").read_bytes()


def _why_nothing(edit: Edit, folder: Path, problem: Problem) -> tuple[bool | None, str]:
    """Why a mistake changes not a bit of this run: null where there is nothing in the model to mistake."""
    inside = CATALOGUE[edit.name].reach in ("model", "weights")
    if inside and (why := why_idle(edit, problem, _edited(folder))):
        return None, why
    if edit.name == "label_shift":
        return None, "the batch has no labels by position"
    reason = _REASONS.get(edit.name) or why_not_of_schedule(edit.name, problem)
    return False, f"not catchable: it changes no bit of this run{reason}"


def why_not_of_schedule(name: str, problem: Problem) -> str:
    """Why an edit of the learning rates changes none that the run takes; empty where it is not known."""
    schedule, steps = problem.schedule, problem.steps
    rates = {schedule.learning_rate(t) for t in range(steps)}
    # The first step after warm-up still takes the peak, wherever the decay ends.
    decays_from = schedule.warmup_steps + 1
    if name == "warmup_offset" and not schedule.warmup_steps:
        return ", whose learning rate has no warm-up"
    if name == "schedule_end" and (schedule.kind == "constant" or schedule.final_lr == schedule.peak_lr):
        return ", whose learning rate does not decay"
    if name == "schedule_end" and steps <= decays_from:
        return f", whose last step is {steps - 1}: the learning rate decays from step {decays_from} on"
    if name == "schedule_offset" and len(rates) == 1:
        return ", whose learning rate does not change"
    return ""


def _broken(edit: Edit, why: str) -> causes.PowerRow:
    return causes.PowerRow(
        edit=show(edit), what=tell(edit), caught=None, where=f"it breaks the model: {why}", difference=None
    )


def _refused() -> Iterator[causes.PowerRow]:
    for name, kind in CATALOGUE.items():
        if kind.reach == "refused":
            yield causes.PowerRow(edit=name, what=kind.what, caught=None, where=kind.torch, difference=None)


def lines(measured: causes.Power) -> list[str]:
    """What people read: the count first, then what is missed, then what is caught."""
    count = measured.caught + measured.missed
    found = [f"POWER  {measured.caught} of {count} known mistakes would have been caught", ""]
    order = {False: 0, True: 1, None: 2}
    words = {False: "missed", True: "caught", None: "-"}
    width = max(len(row.edit) for row in measured.rows)
    for row in sorted(measured.rows, key=lambda row: order[row.caught]):
        far = f" ({row.difference:.1e})" if row.difference is not None else ""
        found.append(f"{words[row.caught]:8} {row.edit:{width}}  {row.where}{far}")
    return [*found, "", f"{measured.seconds:.0f} s: {measured.folder}"]
