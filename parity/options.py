"""The command line as dataclasses: one class a subcommand, one documented field an option.

`command_line` makes the parser and the help from them. Must not: act, or check more than a type; `plan` does.
"""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, Suppress, UseAppendAction, arg, subcommand


@dataclass(frozen=True, kw_only=True)
class Output:
    """Where a command writes."""

    out: Annotated[str, arg(metavar="DIR")] = "runs"
    """Folder of run folders. A run makes a new numbered one there and never writes over another."""
    json: Annotated[str | None, arg(metavar="FILE|-")] = None
    """Write the result as JSON to a new file too, or alone to standard output."""


@dataclass(frozen=True, kw_only=True)
class Training(Output):
    """What is trained, and how: shared by run, train and bench."""

    preset: Positional[Annotated[str, arg(metavar="PRESET")]] = "tiny"
    """tiny, toy-mlp, micro, mini or gpt2-124m; or the folder of a pair of your own (parity init-pair)."""
    devices: Annotated[int | None, arg(metavar="N")] = None
    """Processes, one a device, over all hosts. The preset's own number when not given."""
    global_batch: Annotated[int | None, arg(metavar="N")] = None
    """Rows of one step over all devices. The preset's rows per device times the devices when not given."""
    micro_batches: Annotated[int | None, arg(metavar="N")] = None
    """Slices of each device's rows whose gradients are summed before the reduction."""
    steps: Annotated[int | None, arg(metavar="N")] = None
    """Training steps."""
    precision: Annotated[str | None, arg(metavar="P")] = None
    """f64, strict, tf32 or bf16."""
    mode: Annotated[str, arg(metavar="MODES")] = "auto"
    """How each side runs its step: auto, or pairs such as torch=eager,jax=jit. bench takes several a side."""
    data: Annotated[str | None, arg(metavar="PATH")] = None
    """A text file, a .bin token shard, or a folder or pattern of shards."""
    seed: Annotated[int | None, arg(metavar="N")] = None
    """Weights are drawn from N, rows from N + 1."""
    device: Annotated[str, arg(metavar="auto|cpu|cuda")] = "auto"
    """auto takes the GPUs where both sides can use them."""
    timeout_s: Annotated[float, arg(metavar="SECONDS")] = 600.0
    """A side that writes nothing for so long (no step, no file, no log line) is ended."""


@dataclass(frozen=True, kw_only=True)
class Resumable(Training):
    """What of a training can be saved and gone on with: shared by run and train."""

    save_every: Annotated[int | None, arg(metavar="N")] = None
    """Each side writes a checkpoint every N steps and after the last one, into the run folder."""
    keep: Annotated[int | None, arg(metavar="N")] = None
    """How many of its newest checkpoints a side keeps; all when not given."""
    resume: Annotated[str | None, arg(metavar="RUN|CKPT")] = None
    """Go on in a new run folder, the other options given as they were. RUN is a run folder, its number or
    `last`: each side goes on from its own checkpoints, at the newest step that all sides have one of. CKPT is
    a checkpoint folder: every side goes on from that one, whichever side wrote it."""


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """What a saved run's speed is held against: shared by run and bench."""

    against: Annotated[str | None, arg(metavar="RUN|last")] = None
    """Set the speed beside that of a saved run: a run folder, its number, or `last`, the newest timed one of
    the same problem, processes and modes."""
    fail_if: Annotated[tuple[str, ...], arg(metavar="FIGURE:LIMIT"), UseAppendAction] = ()
    """Exit with 3 where a figure is beyond what it was by more than LIMIT and by more than noise, such as
    step_ms.median:5%, dispatch_us.median:20us or peak_mem_bytes:10MB. May be given several times."""
    across_devices: bool = False
    """Set runs beside each other that were made on other devices or hosts."""


@dataclass(frozen=True, kw_only=True)
class Run(Guarded, Resumable):
    """Train a preset on both sides, judge whether they did the same, and time them.

    Exit code: 0 same, 1 different, 2 usage, 3 slower than --fail-if allows, 4 inconclusive, 5 not comparable,
    6 a side crashed or hung.
    """

    backend: Annotated[str, arg(metavar="SIDES")] = "torch,jax"
    """torch,jax; with one of them there is no verdict."""
    edit: Annotated[tuple[str, ...], arg(metavar="SIDE:NAME=VALUE"), UseAppendAction] = ()
    """Plant a named change on one side, such as jax:clip_eps=1e-6."""
    handoff: Annotated[str | None, arg(metavar="S1,S2,...")] = None
    """Train once more, changing sides: torch before step S1, jax from there, torch from S2, and so on, each
    from the other's checkpoint; judged against the whole run of each side."""
    judge: Annotated[str, arg(metavar="table|measured")] = "table"
    """table: by tolerances measured before. measured: by this run's own floors and float64 truths, at steps
    that both sides make from the same states; takes about three times as long."""
    time: bool = True
    """Also measure speed, the sides in turn."""
    trace: bool = False
    """Trace a few steps of each side too, in processes of their own after the timed ones: calls that launch a
    step, kernels, gaps, communication that nothing covers, and a file for ui.perfetto.dev."""


@dataclass(frozen=True, kw_only=True)
class Train(Resumable):
    """Train a preset on one side. No verdict; exit code 0, 2 or 6."""

    backend: Annotated[str, arg(metavar="SIDE")]
    """torch or jax."""
    edit: Annotated[tuple[str, ...], arg(metavar="SIDE:NAME=VALUE"), UseAppendAction] = ()
    """Plant a named change, such as torch:weight_decay=0."""
    time: bool = True
    """Also measure speed."""
    nodes: Annotated[int, arg(metavar="N")] = 1
    """Hosts. Start the same command on each, with its own --node-rank."""
    node_rank: Annotated[int, arg(metavar="R")] = 0
    """This host's number, from 0."""
    rendezvous: Annotated[str | None, arg(metavar="HOST:PORT")] = None
    """An address on host 0 that every host reaches; needed when there are several."""


@dataclass(frozen=True, kw_only=True)
class Bench(Guarded, Training):
    """Time this project's step beside baseline steps written as users write them.

    Exit code: 0, 2 usage, 3 slower than --fail-if allows, 6 a side crashed, hung or was interrupted.
    """

    backend: Annotated[str, arg(metavar="SIDES")] = "torch,jax"
    """torch,jax or one of them."""
    baselines: Annotated[str, arg(metavar="SIDE:NAME,...")] = ""
    """Beside our own step: torch:eager, torch:ddp, torch:compile, torch:reduce-overhead, jax:jit; or all that
    this device can run."""
    into: Annotated[str | None, arg(metavar="RUN")] = None
    """Measure into the folder of an earlier benchmark (a run folder, its number, or `last`): further
    baselines, further windows, or what is left of a sweep. Device, versions and problem must be as they
    were."""
    sweep: Annotated[str | None, arg(metavar="batch=A..B")] = None
    """Measure at several batches, in rows a device: batch=1..256 doubles, batch=1,4,16 lists them."""
    warmup_steps: Annotated[int | None, arg(metavar="N")] = None
    """Steps before the first window of a pass; 5 on a CPU and 20 on a GPU when not given."""
    windows: Annotated[int, arg(metavar="N")] = 10
    """Timed windows a pass; every contender has two passes."""
    steps_per_window: Annotated[int, arg(metavar="N")] = 10
    """Back-to-back steps a window."""
    calls: Annotated[int | None, arg(metavar="N")] = None
    """Single calls on an idle device that dispatch_us, and launch_us, are sampled from in a pass; 20 on a CPU
    and 100 on a GPU when not given. Each makes a step: fewer are enough where a step is long."""
    trace: bool = False
    """Trace a few steps of every contender too, in processes of their own after the timed ones."""


@dataclass(frozen=True, kw_only=True)
class Compare(Output):
    """Judge two saved runs: each side against itself, or across where they share none. Needs no framework.

    Their speeds are set beside each other where both were timed. Exit code: as that of run; 3 where RUN_B is
    slower than RUN_A by more than --fail-if allows.
    """

    run_a: Positional[Annotated[str, arg(metavar="RUN_A")]]
    """A run folder, its number, or `last`."""
    run_b: Positional[Annotated[str, arg(metavar="RUN_B")]]
    """A run folder, its number, or `last`."""
    fail_if: Annotated[tuple[str, ...], arg(metavar="FIGURE:LIMIT"), UseAppendAction] = ()
    """Exit with 3 where a figure of RUN_B is beyond that of RUN_A by more than LIMIT and by more than noise,
    such as step_ms.median:5%. May be given several times."""
    across_devices: bool = False
    """Set speeds beside each other that were measured on other devices or hosts."""


@dataclass(frozen=True, kw_only=True)
class Saved(Output):
    """A saved run of both sides that is asked about: shared by explain and power."""

    run: Positional[Annotated[str, arg(metavar="RUN")]] = "last"
    """A run folder, its number, or `last`."""
    timeout_s: Annotated[float, arg(metavar="SECONDS")] = 600.0
    """A side that takes longer for one pass is ended."""


@dataclass(frozen=True, kw_only=True)
class Explain(Saved):
    """Find the cause of a difference and confirm it: which change makes one side the other.

    Where float64 shows no difference in meaning, or no change explains it, the step that differs is made in
    every mode, and the edge that carries it is named: a side's arithmetic, its compiler, its capture.

    Exit code: 0 every difference is explained, 1 something is left, 2 usage, 6 a side crashed or hung.
    """

    attribute: bool = False
    """Do that where a change explains everything too."""


@dataclass(frozen=True, kw_only=True)
class Power(Saved):
    """Say which known mistakes a run would have caught, by making each of them on one side.

    Exit code: 0, 2 usage, 6 a side crashed or hung.
    """


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw a saved run as one page, report.html in its folder, readable offline and on paper.

    Run and bench do it when they end. Exit code: 0, 2 usage.
    """

    run: Positional[Annotated[str, arg(metavar="RUN")]] = "last"
    """A run folder, its number, or `last`."""
    out: Annotated[str, arg(metavar="DIR")] = "runs"
    """Folder of run folders."""


@dataclass(frozen=True, kw_only=True)
class Equivalence(Training):
    """Train many seeds on both sides, and test whether their last losses agree within a margin.

    For long runs, whose curves part by rounding. Exit code: 0 equivalent, 1 different, 2 usage,
    4 inconclusive, 5 not comparable, 6 a side crashed or hung.
    """

    margin: Annotated[str, arg(metavar="P%")]
    """Largest relative difference of the last losses that counts as none, such as 1%. Stated beforehand: it
    stands in run.json before the first seed runs."""
    seeds: Annotated[int, arg(metavar="N")] = 10
    """How many seeds, at least 10: --seed N and those that follow."""
    edit: Annotated[tuple[str, ...], arg(metavar="SIDE:NAME=VALUE"), UseAppendAction] = ()
    """Plant a named change on one side, such as jax:beta2=0.9."""
    resume: Annotated[str | None, arg(metavar="RUN")] = None
    """Go on with a test that was stopped, in a new run folder, the other options given as they were: the
    seeds that a side finished are taken over."""


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Make a token shard out of a text, one token a byte."""

    text: Positional[Annotated[str, arg(metavar="TEXT")]]
    """A text file."""
    out: Annotated[str, arg(metavar="SHARD.bin")]
    """The shard to write; an existing file is left alone."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """Prepare training data."""

    # tyro makes subcommands of a union only, so the single action is paired with one that nobody sees.
    action: Annotated[Prepare, subcommand("prepare", prefix_name=False)] | Annotated[None, Suppress]
    """What to do."""


@dataclass(frozen=True, kw_only=True)
class InitPair:
    """Write a pair that works: pair.py, torch_side.py and jax_side.py, to be changed into your own."""

    dir: Positional[Annotated[str, arg(metavar="DIR")]]
    """The folder; files that are there are left alone."""


@dataclass(frozen=True, kw_only=True)
class Doctor:
    """Say what this machine can do: each capability ok or missing, with the line that installs it."""

    out: Annotated[str, arg(metavar="DIR")] = "runs"
    """Folder of run folders, tried for writing."""


Command = (
    Annotated[Run, subcommand("run")]
    | Annotated[Train, subcommand("train")]
    | Annotated[Bench, subcommand("bench")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Explain, subcommand("explain")]
    | Annotated[Power, subcommand("power")]
    | Annotated[Equivalence, subcommand("equivalence")]
    | Annotated[Report, subcommand("report")]
    | Annotated[Data, subcommand("data")]
    | Annotated[InitPair, subcommand("init-pair")]
    | Annotated[Doctor, subcommand("doctor")]
)


COMMANDS: dict[str, type] = {
    "run": Run,
    "train": Train,
    "bench": Bench,
    "compare": Compare,
    "explain": Explain,
    "power": Power,
    "equivalence": Equivalence,
    "report": Report,
    "data prepare": Prepare,
    "init-pair": InitPair,
    "doctor": Doctor,
}
"""Every subcommand by the words that call it."""
