"""Run folders of every kind for the tests of the page, out of passes that `pass_writer` makes; and a reader
of pages."""

import dataclasses
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from parity.bench import blocks, rows, sweep
from parity.judge.align import Measured
from parity.judge.verdict import EXIT_CODES, judge
from parity.report.equivalence import Equivalence, SeedRow
from parity.report.result import (
    BenchRow,
    Capture,
    LaunchRecord,
    Numerics,
    Result,
    RunRef,
    Seconds,
    Speed,
    write,
)
from parity.speed import statistics
from parity.speed.figures import TimePass, side_speed
from spec import record
from tests.parity import trace_writer
from tests.parity.pass_writer import (
    Content,
    make_content,
    small_job,
    small_spec,
    write_pass,
    write_windows,
)
from tests.parity.timed import block, called

Change = Callable[[Content], None]

_VOID = {"meta", "link", "br", "wbr"}


def save(folder: Path, **changes: Any) -> Path:
    """A run folder with this result; what is not given says that nothing was done."""
    ref = RunRef(
        folder=str(folder),
        name="tiny",
        problem_sha256="ab" * 32,
        precision="strict",
        device="cpu",
        world_size=1,
        modes={"torch": "eager", "jax": "jit"},
        edits={},
    )
    fields: dict[str, Any] = {
        "schema_version": 1,
        "command": "run",
        "verdict": None,
        "exit_code": 0,
        "reasons": [],
        "runs": [ref],
        "curves": {},
        "numerics": None,
        "comparisons": [],
        "speed": None,
        "capture": Capture(torch=None, jax=None, reasons={}),
        "bench": [],
        "launches": [],
        "seconds": Seconds(total=1.0, launches=0.9, start_up=0.5, compile=0.1, jobs=0.3, judge=0.1),
        "unmeasured": {"numerics": "one side runs alone", "speed": "no time pass was asked for"},
    }
    record.write_json(folder / "run.json", {"argv": ["run", "tiny"], "environment": {"cpu": {"model": "a"}}})
    write(Result(**fields | changes), folder / "result.json")
    return folder


def judged(folder: Path, change: Change = lambda _: None, **changes: Any) -> Path:
    """A run of two sides, the JAX side changed, judged by the table."""
    numerics = numerics_of(folder, change)
    return save(
        folder,
        verdict=numerics.verdict,
        exit_code=int(EXIT_CODES[numerics.verdict]),
        reasons=numerics.reasons,
        numerics=numerics,
        comparisons=[numerics],
        **changes,
    )


def numerics_of(folder: Path, change: Change = lambda _: None) -> Numerics:
    """The verdict about a clean torch pass and a changed JAX pass of a run folder."""
    sides = []
    for number, side in enumerate(("torch", "jax"), start=1):
        content = make_content(
            small_job(folder / "passes" / f"{number:03d}_{side}_run", side, small_spec(steps=4))
        )
        if side == "jax":
            change(content)
        sides.append(Measured(side, content.write()))
    return judge(*sides)


def timed(folder: Path) -> Speed:
    """Two time passes of each side, and their figures."""
    passes = {}
    for side, step_ms in (("torch", 2.0), ("jax", 1.0)):
        passes[side] = [
            _time_pass(folder / "passes" / f"{number:03d}_{side}_time", side, step_ms)
            for number in ((11, 14) if side == "torch" else (12, 13))
        ]
    ratio = statistics.ratio([one.step_ms for one in passes["torch"]], [one.step_ms for one in passes["jax"]])
    assert ratio is not None
    return Speed(
        torch=side_speed(passes["torch"]),
        jax=side_speed(passes["jax"]),
        ratio=ratio,
        verdict=statistics.verdict(ratio),
        rule=statistics.RULE,
        reasons={},
    )


def _time_pass(folder: Path, side: str, step_ms: float) -> TimePass:
    job = dataclasses.replace(small_job(folder, side), purpose="time", observe=())
    make_content(job).write()
    write_windows(folder, step_ms)
    return TimePass(folder)


def bench_rows(speed: Speed) -> list[BenchRow]:
    """What a benchmark says of both sides' own modes."""
    return [
        BenchRow(side=side, mode=mode, speed=getattr(speed, side), ratio_to_own=None, steps=30, is_own=True)
        for side, mode in (("torch", "eager"), ("jax", "jit"))
    ]


def failed_launch() -> LaunchRecord:
    """A launch that crashed, with its last words."""
    return LaunchRecord(
        side="jax",
        ended="crashed",
        exit_codes=[1],
        seconds=3.0,
        passes=["002_jax_run"],
        log="launches/002_jax.log",
        job_seconds={},
        compile_s={},
        start_up_s=None,
        message="jax in 002_jax_run crashed, exit codes [1]",
        log_tail=["out of memory <here>"],
    )


def other_gradients(content: Content) -> None:
    """Gradients of the JAX side one hundredth too long."""
    for key in [key for key in content.tensors[0] if key.startswith("grad/")]:
        content.tensors[0][key] = content.tensors[0][key] * 1.01


def other_batches(content: Content) -> None:
    content.steps[0][1]["batch_digest"] = "f" * 16


def not_finite(content: Content) -> None:
    content.set_value(2, "loss", float("nan"))


def same(folder: Path) -> Path:
    return judged(folder, speed=timed(folder), unmeasured={})


def different(folder: Path) -> Path:
    return judged(folder, other_gradients)


def not_comparable(folder: Path) -> Path:
    return judged(folder, other_batches)


def one_not_finite(folder: Path) -> Path:
    return judged(folder, not_finite)


def failed(folder: Path) -> Path:
    launch = failed_launch()
    write_pass(folder / "passes" / "001_torch_run", "torch")
    return save(folder, verdict="FAILED", exit_code=6, reasons=[launch.message], launches=[launch])


def one_side(folder: Path) -> Path:
    write_pass(folder / "passes" / "001_torch_run", "torch")
    return save(folder, command="train")


def bench(folder: Path) -> Path:
    speed = timed(folder)
    return save(folder, command="bench", speed=speed, bench=bench_rows(speed))


def swept(folder: Path, stop: int = 1000) -> Path:
    """A sweep of two contenders whose lines cross twice, broken off before batch `stop`."""
    axis = sweep.Axis(batches=(1, 4, 16, 64, 256), fitted=(1, 4, 64, 256))
    torch, jax = (1.0, 1.8, 4.0, 6.0, 20.0), (2.0, 2.0, 2.0, 8.0, 32.0)
    made = [
        block(
            folder,
            {("torch", "eager"): [[a, 1.1 * a]] * 2, ("jax", "jit"): [[b, 1.1 * b]] * 2},
            batch=batch,
            first=1 + 4 * number,
        )
        for number, (batch, a, b) in enumerate(zip(axis.batches, torch, jax, strict=True))
        if batch < stop
    ]
    called(folder, *made)
    return save(
        folder,
        command="bench",
        bench=rows.rows(folder, blocks.calls(folder)),
        sweep=sweep.results(axis, folder, blocks.calls(folder), "cpu"),
    )


def compared(folder: Path) -> Path:
    numerics = numerics_of(folder)
    return save(
        folder, command="compare", verdict="SAME", numerics=numerics, comparisons=[numerics], capture=None
    )


def equivalent(folder: Path) -> Path:
    for side in ("torch", "jax"):
        write_pass(folder / "passes" / f"seed0000_{side}_run", side)
    rows = [
        SeedRow(seed=seed, last={"torch": 3.0, "jax": 3.01}, difference=-0.003 * seed) for seed in range(4)
    ]
    found = Equivalence(
        outcome="EQUIVALENT",
        quantity="loss",
        margin=0.01,
        window=0.1,
        alpha=0.05,
        seeds=[*rows, SeedRow(seed=4, last={"torch": None, "jax": 3.0}, difference=None)],
        mean=-0.0045,
        spread=0.004,
        interval=[-0.009, -0.0001],
        p=0.02,
        seeds_needed=None,
        notes=["a note"],
    )
    return save(folder, command="equivalence", verdict="SAME", equivalence=found)


def nothing(folder: Path) -> Path:
    return save(folder, verdict="FAILED", exit_code=6)


def traced(folder: Path) -> Path:
    trace_writer.write_pass(folder, 21, "torch", "baseline:eager", trace_writer.launched_one_by_one())
    trace_writer.write_pass(folder, 22, "torch", "graph", trace_writer.launched_as_a_graph())
    trace_writer.write_pass(folder, 23, "jax", "jit", trace_writer.operations_on_a_cpu())
    return same(folder)


class Page(HTMLParser):
    """A page taken apart: its elements with their attributes, and the words of every section."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.html = html
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.sections: list[list[str]] = []
        self.misfits: list[str] = []
        self.feed(html)
        self.close()
        self.text = " ".join(self.words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self.sections.append([])
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.misfits.append(tag)

    def handle_data(self, data: str) -> None:
        if not data.strip() or not {"script", "style"}.isdisjoint(self.open):
            return
        self.words.append(re.sub(r"\s+", " ", data.strip()))
        if "section" in self.open and "h2" not in self.open:
            self.sections[-1].append(self.words[-1])

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]
