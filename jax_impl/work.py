"""Does one job: what a run is to be comes in as a file, and a folder of records goes out.

Must not: compute statistics, or judge. Counterpart: `torch_impl/work.py`.
"""

import os
import time
from pathlib import Path
from typing import Self

from jax_impl import runtime
from jax_impl.describe import describe
from jax_impl.feed import Feed
from jax_impl.models.pair import load_side
from jax_impl.observe import INIT, Observer
from jax_impl.parallel import Ranks
from jax_impl.promote import Promotion, promoting
from jax_impl.state import LOADED_PHASES
from jax_impl.trainer import Trainer
from spec import protocol, record
from spec.data.batches import Batch, open_source
from spec.environment import describe_environment
from spec.job import Job
from spec.weights import Tensors, load_tensors, state_digest, tensor_sha256

PREPARED_BATCHES = 4
"""Batches that a `time` job repeats."""


def do(job: Job, ranks: Ranks) -> None:
    """Does the job on all ranks and writes the pass folder; `spec/job.py` names the files.

    Raises:
      RuleError: the job cannot be done as asked.
    """
    protocol.refuse_what_is_not_done(job)
    if job.purpose == "describe":
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
    observer = Observer(job)
    manifest = _Manifest(job, trainer, observer, promotion)
    manifest.write()
    observer.after(trainer, INIT)
    match job.purpose:
        case "run":
            _run(job, trainer, observer)
        case "lockstep":
            _lockstep(job, trainer, observer)
        case "time":
            _time(job, trainer)
    if trainer.num_steps:
        _write_digest(job, trainer)
        manifest.write()
    ranks.barrier()


class _Manifest:
    """`manifest.json`, written by rank 0 before the first step and again after the last."""

    def __init__(self, job: Job, trainer: Trainer, observer: Observer, promotion: Promotion | None) -> None:
        self._job, self._trainer, self._observer, self._promotion = job, trainer, observer, promotion
        self._probes = runtime.probes(trainer.problem.profile, trainer.ranks.device)
        initial = _bare(trainer.export(["param"]))
        self._init_sha256 = {name: tensor_sha256(array) for name, array in initial.items()}
        self._init_digest = state_digest(initial)

    def write(self) -> None:
        """What is known by now."""
        if self._trainer.ranks.rank:
            return
        compiled = self._trainer.compiled
        reasons = dict(compiled.reasons) if compiled else {"compile_s": "no step was run"}
        reasons["observation"] = self._observer.agreement()
        manifest = {
            "side": "jax",
            "purpose": self._job.purpose,
            "mode_asked": self._job.mode,
            "mode_ran": compiled.mode_ran if compiled else None,
            "environment": describe_environment() | runtime.environment(),
            "facts": self._trainer.facts() | {"compiler_options": compiled.options if compiled else None},
            "init_sha256": self._init_sha256,
            "init_digest": self._init_digest,
            "probes": self._probes,
            "compile_s": compiled.compile_s if compiled else None,
            "capture": compiled.proven if compiled else None,
            "activations": self._observer.activations,
            "promotion": self._promotion.record() if self._promotion else None,
            "reasons": reasons,
        }
        record.write_json(Path(self._job.out) / "manifest.json", manifest)


def _run(job: Job, trainer: Trainer, observer: Observer) -> None:
    """Steps 0, 1, ...; the metrics of a step are read after the next was dispatched."""
    with _Steps(Path(job.out), trainer) as steps:
        for step in range(job.steps):
            rows = trainer.feed.rows(step)
            if job.keep is not None and step in job.keep.steps and trainer.ranks.rank == 0:
                protocol.keep_state(job, step, trainer.export(LOADED_PHASES), trainer.applied)
            observer.before(trainer, step, rows, rows)
            trainer.step(rows)
            steps.note(step, rows)
            observer.after(trainer, step)


def _lockstep(job: Job, trainer: Trainer, observer: Observer) -> None:
    """One step from each of the states in the job's folder, step N on the rows of step N; then the reruns."""
    for rerun, folder in protocol.attempts(job):
        observer.write_into(folder)
        with _Steps(folder, trainer) as steps:
            for step, tensors in protocol.states(job, rerun):
                trainer.load(tensors)
                rows = trainer.feed.rows(step)
                taken = protocol.taken(job, rows, step, rerun)
                observer.before(trainer, step, rows, taken)
                trainer.step(taken)
                steps.note(step, taken)
                observer.after(trainer, step)


class _Steps:
    """`steps.rankR.jsonl`, one line behind the device."""

    def __init__(self, folder: Path, trainer: Trainer) -> None:
        self._trainer = trainer
        self._lines = record.Lines(folder / f"steps.rank{trainer.ranks.rank}.jsonl")
        self._waiting: tuple[int, int, Batch] | None = None

    def note(self, step: int, rows: Batch) -> None:
        """Takes note of the step just dispatched, and writes the one before."""
        self._write()
        self._waiting = step, self._trainer.num_steps - 1, rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if kind is None:
            self._write()
        self._lines.close()

    def _write(self) -> None:
        if self._waiting is None:
            return
        step, dispatched, rows = self._waiting
        metrics = self._trainer.metrics(dispatched)
        self._lines.write(
            {
                "step": step,
                **record.float_fields("loss", metrics.loss),
                **record.float_fields("grad_norm", metrics.grad_norm),
                **record.float_fields("lr", metrics.lr),
                "skipped": metrics.skipped,
                "tokens": metrics.tokens,
                "batch_digest": self._trainer.feed.digest(rows),
            }
        )


def _time(job: Job, trainer: Trainer) -> None:
    """Warm-up, windows of back-to-back steps, then single calls on an idle device: `windows.jsonl`."""
    timing, problem, ranks = job.timing, job.spec.problem, trainer.ranks
    prepared = Feed(open_source(problem, job.batches), problem, ranks, cycle=PREPARED_BATCHES)
    # Two at least: a window reads the metrics of the step before.
    for _ in range(max(2, timing.warmup_steps)):
        trainer.step(prepared.rows(trainer.num_steps))
    windows = Path(job.out) / "windows.jsonl" if ranks.rank == 0 else Path(os.devnull)
    with record.Lines(windows) as lines:
        for _ in range(timing.windows):
            wall_s = _window_s(trainer, prepared, timing.steps_per_window)
            lines.write({"kind": "window", "steps": timing.steps_per_window, "wall_s": wall_s})
        for _ in range(timing.calls):
            lines.write({"kind": "dispatch", "us": _dispatch_us(trainer, prepared)})
        if trainer.compiled and "launch_us" not in trainer.compiled.reasons:
            for _ in range(timing.calls):
                lines.write({"kind": "launch", "us": _launch_us(trainer, prepared)})
        peak_mem_bytes, reason = runtime.peak_memory()
        lines.write({"kind": "memory", "peak_mem_bytes": peak_mem_bytes, "reason": reason})


def _window_s(trainer: Trainer, prepared: Feed, num_steps: int) -> float:
    """Wall time of back-to-back steps, their metrics read one step late as a training loop does."""
    trainer.ranks.fence(trainer.state.train_state)
    started = time.perf_counter()
    for _ in range(num_steps):
        trainer.step(prepared.rows(trainer.num_steps))
        trainer.metrics(trainer.num_steps - 2)
    trainer.ranks.synchronize(trainer.state.train_state)
    return time.perf_counter() - started


def _dispatch_us(trainer: Trainer, prepared: Feed) -> float:
    """Host time of one call of `step` on an idle device."""
    rows = prepared.rows(trainer.num_steps)
    trainer.ranks.fence(trainer.state.train_state)
    started = time.perf_counter()
    trainer.step(rows)
    return (time.perf_counter() - started) * 1e6


def _launch_us(trainer: Trainer, prepared: Feed) -> float:
    """Host time of the one call that launches the step, its rows on the device and that device idle."""
    batch = trainer.stage(prepared.rows(trainer.num_steps))
    trainer.ranks.fence((trainer.state.train_state, batch))
    started = time.perf_counter()
    trainer.launch(batch)
    return (time.perf_counter() - started) * 1e6


def _write_digest(job: Job, trainer: Trainer) -> None:
    """`digest.rankR.json`: hashes of the state that this rank ended with."""
    digests = {phase: state_digest(_bare(trainer.export([phase]))) for phase in ("param", "m", "v")}
    path = Path(job.out) / f"digest.rank{trainer.ranks.rank}.json"
    record.write_json(path, {"step": trainer.num_steps, **digests})


def _bare(tensors: Tensors) -> Tensors:
    """Tensors under their names alone, the phase taken off."""
    return {key.partition("/")[2]: array for key, array in tensors.items()}
