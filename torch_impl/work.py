"""Does one job: what a run is to be comes in as a file, and a folder of records goes out.

Must not: compute statistics, or judge. Counterpart: `jax_impl/work.py`.
"""

import os
import sys
import time
from pathlib import Path

import torch

from spec import protocol, record
from spec.data.batches import open_source
from spec.edits.idle import refuse_idle
from spec.job import PREPARED_BATCHES, Job
from spec.weights import load_tensors
from spec.worker import lockstep, tracing
from spec.worker.checkpoints import Checkpoints, resume
from spec.worker.manifest import Manifest, write_digest
from spec.worker.start import Start
from spec.worker.steps import StepLines
from torch_impl import runtime
from torch_impl.describe import describe
from torch_impl.feed import Feed
from torch_impl.graph import report
from torch_impl.models.pair import load_side
from torch_impl.observe import INIT, Observer
from torch_impl.parallel import Ranks
from torch_impl.promote import Promotion, promoting
from torch_impl.trainer import Trainer


def do(job: Job, ranks: Ranks) -> None:
    """Does the job on all ranks and writes the pass folder; `spec/job.py` names the files.

    Raises:
      RuleError: the job cannot be done as asked.
    """
    protocol.refuse_what_is_not_done(job)
    if job.purpose == "describe" and job.spec.pair is not None:
        describe(job, ranks)
        return
    if "torch._dynamo" in sys.modules:
        # Programs of jobs done before count against dynamo's limit. Loading it just to ask takes seconds.
        torch._dynamo.reset()
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
    compiled = trainer.compiled
    if compiled is not None and compiled.whole is not None:
        if ranks.rank == 0:
            report.write(compiled.whole, Path(job.out), compiled.proven)
        # The next job of this process needs its memory.
        compiled.whole.close()
    ranks.barrier()
    tracing.write(job, found, ranks.rank)


def _run(job: Job, trainer: Trainer, observer: Observer) -> None:
    """The steps from where the trainer stands; metrics of a step are read after the next was dispatched."""
    with StepLines(job, trainer) as steps, Checkpoints(job, trainer, steps) as checkpoints:
        for step in range(trainer.next_step, job.steps):
            rows = trainer.feed.rows(step)
            lockstep.keep_state(job, step, trainer)
            observer.before(trainer, step, rows, rows)
            trainer.step(rows)
            if job.edits and job.must_act and trainer.num_steps == 1:
                refuse_idle(job.side, job.edits, job.spec.problem, trainer.facts()["edited"], rows)
            steps.note(step, rows)
            observer.after(trainer, step)
            checkpoints.after(step)


def _time(job: Job, trainer: Trainer) -> None:
    """Warm-up, the first state put back, windows of back-to-back steps, then single calls on an idle device:
    `windows.jsonl`."""
    timing, ranks = job.timing, trainer.ranks
    start, prepared = _warmed_up(job, trainer)
    windows = Path(job.out) / "windows.jsonl" if ranks.rank == 0 else Path(os.devnull)
    with record.Lines(windows) as lines:
        lines.write(start.put_back())
        for _ in range(timing.windows):
            wall_s = _window_s(trainer, prepared, timing.steps_per_window)
            window = {"kind": "window", "steps": timing.steps_per_window, "wall_s": wall_s}
            lines.write(window | {"ended": time.time()})
        for _ in range(timing.calls):
            lines.write({"kind": "dispatch", "us": _dispatch_us(trainer, prepared)})
        if trainer.compiled and "launch_us" not in trainer.compiled.reasons:
            for _ in range(timing.calls):
                lines.write({"kind": "launch", "us": _launch_us(trainer, prepared)})
        peak_mem_bytes, reason = runtime.peak_memory()
        lines.write({"kind": "memory", "peak_mem_bytes": peak_mem_bytes, "reason": reason})


def _warmed_up(job: Job, trainer: Trainer) -> tuple[Start, Feed]:
    """Makes the steps of warm-up; the state before them, and the rows that are repeated."""
    problem = job.spec.problem
    start = Start(job, trainer)
    prepared = Feed(open_source(problem, job.batches), problem, trainer.ranks, cycle=PREPARED_BATCHES)
    # Two at least: a window reads the metrics of the step before.
    for _ in range(max(2, job.timing.warmup_steps)):
        trainer.step(prepared.rows(trainer.num_steps))
    return start, prepared


def _trace(job: Job, trainer: Trainer) -> tracing.Found | None:
    """What a `time` job does, its first steps after warm-up traced, and no clock read."""
    timing, ranks = job.timing, trainer.ranks
    start, prepared = _warmed_up(job, trainer)
    warmup = trainer.num_steps
    start.put_back()
    instrument = tracing.instrument(ranks.rank, _own_profiler)
    ranks.fence()
    instrument.start()
    for _ in range(timing.traced_steps):
        rows = prepared.rows(trainer.num_steps)
        with instrument.step(trainer.num_steps):
            trainer.step(rows)
        trainer.metrics(trainer.num_steps - 2)
    ranks.synchronize()
    found = instrument.stop()
    assert trainer.compiled is not None
    launch_calls = "launch_us" not in trainer.compiled.reasons
    while trainer.num_steps < timing.launches(warmup, timing.steps_per_window, launch_calls):
        trainer.step(prepared.rows(trainer.num_steps))
        trainer.metrics(trainer.num_steps - 2)
    return found


def _own_profiler(reason: str) -> tracing.Instrument:
    from torch_impl.profile import Profiler

    return Profiler(reason)


def _window_s(trainer: Trainer, prepared: Feed, num_steps: int) -> float:
    """Wall time of back-to-back steps, their metrics read one step late as a training loop does."""
    trainer.ranks.fence()
    started = time.perf_counter()
    for _ in range(num_steps):
        trainer.step(prepared.rows(trainer.num_steps))
        trainer.metrics(trainer.num_steps - 2)
    trainer.ranks.synchronize()
    return time.perf_counter() - started


def _dispatch_us(trainer: Trainer, prepared: Feed) -> float:
    """Host time of one call of `step` on an idle device."""
    rows = prepared.rows(trainer.num_steps)
    trainer.ranks.fence()
    started = time.perf_counter()
    trainer.step(rows)
    return (time.perf_counter() - started) * 1e6


def _launch_us(trainer: Trainer, prepared: Feed) -> float:
    """Host time of the one call that launches the step, its rows staged and the device idle."""
    batch = trainer.stage(prepared.rows(trainer.num_steps))
    trainer.ranks.fence()
    started = time.perf_counter()
    trainer.launch(batch)
    return (time.perf_counter() - started) * 1e6
