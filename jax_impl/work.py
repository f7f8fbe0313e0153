"""Does one job: what a run is to be comes in as a file, and a folder of records goes out.

Must not: compute statistics, or judge. Counterpart: `torch_impl/work.py`.
"""

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from jax_impl import runtime
from jax_impl.describe import describe
from jax_impl.feed import Feed
from jax_impl.models.pair import load_side
from jax_impl.observe import INIT, Observer
from jax_impl.parallel import Ranks
from jax_impl.promote import Promotion, promoting
from jax_impl.trainer import Trainer
from jax_impl.xla import watch
from spec import protocol, record
from spec.data.batches import Batch, open_source
from spec.edits.idle import refuse_idle
from spec.job import PREPARED_BATCHES, Job
from spec.weights import load_tensors
from spec.worker import lockstep, tracing
from spec.worker.checkpoints import Checkpoints, resume
from spec.worker.manifest import Manifest, write_digest
from spec.worker.start import Start
from spec.worker.steps import StepLines


def do(job: Job, ranks: Ranks) -> None:
    """Does the job on all ranks and writes the pass folder; `spec/job.py` names the files.

    Raises:
      RuleError: the job cannot be done as asked.
    """
    protocol.refuse_what_is_not_done(job)
    if job.purpose == "describe" and job.spec.pair is not None:
        describe(job, ranks)
        return
    # The models of this project cast to nothing but what the profile says.
    with promoting(job.promote and job.spec.pair is not None) as promotion:
        _do(job, ranks, promotion)


def _do(job: Job, ranks: Ranks, promotion: Promotion | None) -> None:
    """A job of a trainer's."""
    problem, execution = job.spec.problem, job.spec.execution
    source = open_source(problem, job.batches)
    side = load_side(job.spec.pair, problem) if job.spec.pair else None
    trainer = Trainer(problem, execution, job.mode, job.edits, side, source, ranks)
    if job.spec.pair and job.spec.pair.initial:
        trainer.load(load_tensors(job.spec.pair.initial))
    trainer.first_steps.alone = True
    if (own := watch.current()) is not None:
        own.on_stall = partial(protocol.tell_stall, job, ranks.rank)
    resume(job, trainer)
    observer = Observer(job)
    probes = runtime.probes(problem.profile, ranks.device)
    manifest = Manifest(job, trainer, probes, runtime.environment(), observer, promotion)
    manifest.write()
    observer.after(trainer, INIT)
    found = None
    match job.purpose:
        case "run" | "handoff":
            _run(job, trainer, observer)
        case "lockstep":
            lockstep.make_steps(job, trainer, observer)
        case "time":
            _time(job, trainer)
        case "trace":
            found = _trace(job, trainer)
    if trainer.num_steps:
        write_digest(job, trainer)
        manifest.write()
    ranks.barrier()
    tracing.write(job, found, ranks.rank)


def _run(job: Job, trainer: Trainer, observer: Observer) -> None:
    """The steps from where the trainer stands. While the device is busy with one launch, the rows of the next
    are put on it; then the metrics of the launch before are read.
    """
    launches = list(_launches(job, trainer))
    with StepLines(job, trainer) as steps, Checkpoints(job, trainer, steps) as checkpoints:
        many = [trainer.feed.rows(number) for number in launches[0]] if launches else []
        staged = _stage(trainer, many) if launches else None
        for numbers, coming in zip(launches, [*launches[1:], []], strict=True):
            lockstep.keep_state(job, numbers[0], trainer)
            observer.before(trainer, numbers[0], many[0], many[0])
            _launch(trainer, staged, len(many))
            if job.edits and job.must_act and numbers is launches[0]:
                refuse_idle(job.side, job.edits, job.spec.problem, trainer.facts()["edited"], many[0])
            done, many = many, [trainer.feed.rows(number) for number in coming]
            staged = _stage(trainer, many) if many else None
            steps.note(numbers[0], *done)
            observer.after(trainer, numbers[-1])
            checkpoints.after(numbers[-1])


def _stage(trainer: Trainer, many: list[Batch]) -> Any:
    """The rows of one launch on the device."""
    many = [trainer.planted(rows) for rows in many]
    return trainer.stage(many[0]) if len(many) == 1 else trainer.stage_steps(many)


def _launch(trainer: Trainer, staged: Any, num_steps: int) -> None:
    if num_steps == 1:
        trainer.launch(staged)
    else:
        trainer.launch_steps(staged)


def _launches(job: Job, trainer: Trainer) -> Iterator[list[int]]:
    """The steps of each launch: as many as the mode says, but alone those that are looked at and the rest; a
    checkpoint is made at the end of a launch.
    """
    kept = job.keep_states.steps if job.keep_states else ()
    seen = {*kept, *(job.observed_at(entry)[1] for entry in job.observe)}
    number, every = trainer.next_step, job.save_every or job.steps
    while number < job.steps:
        many = list(range(number, number + trainer.steps_per_launch))
        whole = many[-1] < job.steps and not seen & set(many) and number // every == many[-1] // every
        yield many if whole else [number]
        number += len(many) if whole else 1


def _time(job: Job, trainer: Trainer) -> None:
    """Warm-up, the first state put back, windows of back-to-back steps, then single calls on an idle device:
    `windows.jsonl`."""
    timing, ranks = job.timing, trainer.ranks
    start, prepared = _warmed_up(job, trainer)
    windows = Path(job.out) / "windows.jsonl" if ranks.rank == 0 else Path(os.devnull)
    with record.Lines(windows) as lines:
        lines.write(start.put_back())
        for _ in range(timing.windows):
            window = _window(trainer, prepared, timing.steps_per_window)
            lines.write({"kind": "window", **window, "ended": time.time()})
        for _ in range(timing.calls):
            lines.write({"kind": "dispatch", "us": _dispatch_us(trainer, prepared)})
        if trainer.compiled and "launch_us" not in trainer.compiled.reasons:
            for _ in range(timing.calls):
                lines.write({"kind": "launch", "us": _launch_us(trainer, prepared)})
        peak_mem_bytes, reason = runtime.peak_memory()
        lines.write({"kind": "memory", "peak_mem_bytes": peak_mem_bytes, "reason": reason})


def _warmed_up(job: Job, trainer: Trainer) -> tuple[Start, Feed]:
    """Makes the launches of warm-up; the state before them, and the rows that are repeated."""
    problem = job.spec.problem
    start = Start(job, trainer)
    prepared = Feed(open_source(problem, job.batches), problem, trainer.ranks, cycle=PREPARED_BATCHES)
    # Two launches at least: a window reads the metrics of the one before.
    for _ in range(max(2, job.timing.warmup_steps // trainer.steps_per_launch)):
        _launch_next(trainer, prepared)
    return start, prepared


def _trace(job: Job, trainer: Trainer) -> tracing.Found | None:
    """What a `time` job does, its first steps after warm-up traced, and no clock read."""
    timing, ranks, per_launch = job.timing, trainer.ranks, trainer.steps_per_launch
    start, prepared = _warmed_up(job, trainer)
    warmup = trainer.num_steps // per_launch
    start.put_back()
    instrument = tracing.instrument(ranks.rank, _own_profiler)
    ranks.fence(trainer.state.train_state)
    instrument.start()
    # The first is dropped and the last has no next one to be timed against.
    for _ in range(max(3, timing.traced_steps // per_launch)):
        with instrument.step(trainer.num_steps):
            _launch_next(trainer, prepared)
        trainer.metrics(trainer.num_steps - 1 - per_launch)
    ranks.synchronize(trainer.state.train_state)
    found = instrument.stop()
    assert trainer.compiled is not None
    launch_calls = "launch_us" not in trainer.compiled.reasons
    per_window = max(1, timing.steps_per_window // per_launch)
    while trainer.num_steps < timing.launches(warmup, per_window, launch_calls) * per_launch:
        _launch_next(trainer, prepared)
        trainer.metrics(trainer.num_steps - 1 - per_launch)
    return found


def _own_profiler(reason: str) -> tracing.Instrument:
    from jax_impl.profile import Profiler

    return Profiler(reason)


def _launch_next(trainer: Trainer, prepared: Feed) -> None:
    many = _next_rows(trainer, prepared)
    _launch(trainer, _stage(trainer, many), len(many))


def _next_rows(trainer: Trainer, prepared: Feed) -> list[Batch]:
    """The rows of the next launch."""
    return [prepared.rows(trainer.num_steps + i) for i in range(trainer.steps_per_launch)]


def _window(trainer: Trainer, prepared: Feed, num_steps: int) -> dict[str, float]:
    """Wall time of back-to-back steps, their metrics read one launch late as a training loop does."""
    per_launch = trainer.steps_per_launch
    launches = max(1, num_steps // per_launch)
    trainer.ranks.fence(trainer.state.train_state)
    started = time.perf_counter()
    staged = _stage(trainer, _next_rows(trainer, prepared))
    for launch in range(launches):
        _launch(trainer, staged, per_launch)
        if launch + 1 < launches:
            staged = _stage(trainer, _next_rows(trainer, prepared))
        trainer.metrics(trainer.num_steps - 1 - per_launch)
    trainer.ranks.synchronize(trainer.state.train_state)
    return {"steps": launches * per_launch, "wall_s": time.perf_counter() - started}


def _dispatch_us(trainer: Trainer, prepared: Feed) -> float:
    """Host time a step of one dispatch on an idle device."""
    many = _next_rows(trainer, prepared)
    trainer.ranks.fence(trainer.state.train_state)
    started = time.perf_counter()
    _launch(trainer, _stage(trainer, many), len(many))
    return (time.perf_counter() - started) * 1e6 / len(many)


def _launch_us(trainer: Trainer, prepared: Feed) -> float:
    """Host time a step of the one call that launches, its rows on the device and that device idle."""
    many = _next_rows(trainer, prepared)
    staged = _stage(trainer, many)
    trainer.ranks.fence((trainer.state.train_state, staged))
    started = time.perf_counter()
    _launch(trainer, staged, len(many))
    return (time.perf_counter() - started) * 1e6 / len(many)
