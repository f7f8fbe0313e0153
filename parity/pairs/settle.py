"""From a pair's outline to a run of it: batches written, both sides described, tensors matched, first values
chosen.

Must not: train, or import a file of the pair.
"""

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parity.cluster import Cluster
from parity.commands import side_commands
from parity.launch import SideFailed, launch, raise_told
from parity.pairs import first_values, read, record, updates
from parity.plan import Plan
from parity.progress import Progress
from parity.report.result import PairRecord
from spec import codec
from spec.description import DESCRIPTION, DRAWS, INITIAL, MATCH, VALUES, Described, Description
from spec.errors import RuleError
from spec.job import Job
from spec.own_optimizer import NOT_EDITED, UNCOMPARED, OwnOptimizer
from spec.pairs.match import Match
from spec.params import ParamSpec
from spec.run import SIDES, DataSpec, Execution
from spec.weights import Tensors, init_parameters, load_tensors, save_tensors
from spec.workloads.pair import PairSizes

PAIR = "pair"
"""Folder, in a run's, of what its sides said of their models and of the first values."""
_BATCHES = "batches"
_COMPUTED = "loss and its gradients can be computed"
"""In the rule that a model breaks which cannot run in float64; it is then asked in float32."""


@dataclass(frozen=True, kw_only=True)
class Settled:
    """A pair that can be run, or why it cannot."""

    plan: Plan
    match: Match | None = None
    """None where one side runs alone, and for a preset."""
    first_values: tuple[str, ...] = ()
    """How the first values of two sides differ that bring their own."""
    updates: tuple[str, ...] = ()
    """How the updates of two optimizers differ that each side brings."""

    @property
    def refusals(self) -> list[str]:
        """Why nothing can be run."""
        return [*(record.refusals(self.match) if self.match else ()), *self.first_values]

    @property
    def doubt(self) -> str:
        """Why a difference need not be one of the models; empty where nothing is doubted."""
        return record.doubt(self.match) if self.match else ""

    @property
    def notes(self) -> list[str]:
        """What a reader of the verdict should know."""
        own = isinstance(self.plan.spec.problem.optimizer, OwnOptimizer)
        return [
            *(record.notes(self.match) if self.match else ()),
            *self.updates,
            *((UNCOMPARED, NOT_EDITED) if own else ()),
        ]

    @property
    def record(self) -> PairRecord | None:
        """For the result."""
        if self.plan.pair is None:
            return None
        return record.pair_record(self.plan.pair.folder, self.plan.pair.pair.init, self.match)


def settle(plan: Plan, folder: Path, progress: Progress) -> Settled:
    """Completes the plan of a pair; `folder` keeps the batches, the descriptions and the first values.

    A preset is complete as it is.

    Raises:
      RuleError: something of the user's must be mended; file and line are named.
      SideFailed: a process crashed.
    """
    if plan.pair is None:
        return Settled(plan=plan)
    batches = folder / _BATCHES
    read.write_batches(Path(plan.pair.folder), batches, plan.spec.problem.steps)
    init = plan.pair.pair.init
    plan = _with(plan, data=DataSpec(kind="folder", path=str(batches)))
    described = _describe_all(plan, folder / PAIR, progress)
    first = codec.read_json((described.get("torch") or described["jax"]) / DESCRIPTION, Description)
    own = isinstance(plan.spec.problem.optimizer, OwnOptimizer)
    match, differ = None, []
    if len(described) == 2:
        match = codec.read_json(described["jax"] / MATCH, Match)
        if match.unmatched_torch or match.unmatched_jax:
            return Settled(plan=plan, match=match)
        if init == "own" and (values := _own_values(described)):
            return Settled(plan=plan, match=match, first_values=tuple(values))
        differ = updates.told(described["torch"], described["jax"], first.precision) if own else []
        for words in differ:
            progress.say(words)
    table = _table(first, init, match)
    if own:
        table = tuple(replace(row, decayed=False) for row in table)
    plan = _with(plan, sizes=PairSizes(pair=plan.spec.name, parameters=table))
    initial = folder / PAIR / INITIAL
    save_tensors(initial, initial_values(plan, init, described, match))
    links = match.links if match else ()
    plan = with_files(plan, links=links, described=None, initial=str(initial), over_one=first.over_one)
    return Settled(plan=plan, match=match, updates=tuple(differ))


def _describe_all(plan: Plan, folder: Path, progress: Progress) -> dict[str, Path]:
    """The folder of each side's description; in float64, or in float32 where a model cannot."""
    try:
        return _describe_in("f64", plan, folder / "f64", progress)
    except SideFailed:
        raise
    except RuleError as error:
        if _COMPUTED not in error.rule:
            raise
        progress.say(
            f"pair: not in float64, {error.numbers.partition(': ')[2][:200]}; asked again in float32"
        )
        return _describe_in("strict", plan, folder / "strict", progress)


def _describe_in(precision: str, plan: Plan, folder: Path, progress: Progress) -> dict[str, Path]:
    """Torch first: the JAX side is matched with what it wrote. On the CPU, in one process a side."""
    described: dict[str, Path] = {}
    for side in plan.backends:
        asked = with_files(
            described_as(plan, precision), described=str(described["torch"]) if described else None
        )
        job = describe_job(asked, side, folder / side)
        progress.say(f"{side}: describe {plan.spec.name}")
        try:
            do([job], plan.timeout_s)
        except RuleError as error:
            if error.rule != DRAWS or len(plan.backends) == 1:
                raise
            raise _only_in(job, error, plan) from None
        described[side] = Path(job.out)
    return described


def _only_in(job: Job, error: RuleError, plan: Plan) -> RuleError:
    """What a model that draws random numbers breaks, and whether the other side's model draws some too."""
    other = next(side for side in SIDES if side != job.side)
    files = job.spec.pair and replace(job.spec.pair, described=None)
    asked = replace(
        job,
        side=other,
        spec=replace(job.spec, pair=files),
        mode="eager" if other == "torch" else "jit",
        out=f"{job.out}_asks_{other}",
    )
    where = f"stochastic op only in {job.side}"
    try:
        do([asked], plan.timeout_s)
    except RuleError as again:
        where = f"in {other} too: {again.numbers}" if again.rule == DRAWS else where
    return RuleError(error.rule, f"{error.numbers}; {where}", error.mend)


def described_as(plan: Plan, precision: str) -> Plan:
    """The plan with the problem that a model is described for."""
    return _with(plan, precision=precision, micro_batches=1)


def describe_job(plan: Plan, side: str, out: Path) -> Job:
    """Describes the side's model, on the CPU, in one process."""
    return Job(
        side=side,
        purpose="describe",
        spec=replace(plan.spec, execution=Execution()),
        mode="eager" if side == "torch" else "jit",
        steps=0,
        out=str(out),
    )


def do(jobs: list[Job], timeout_s: float) -> None:
    """Does description jobs of one side in one launch.

    Raises:
      RuleError: something of the user's must be mended; file and line are named.
      SideFailed: the process crashed.
    """
    job, passes = jobs[0], [Path(job.out) for job in jobs]
    out = passes[0]
    commands = side_commands(job.side, [job.write() for job in jobs], "cpu", 1, Cluster())
    ended = launch(commands, passes, out / "launch.log", timeout_s)
    if ended.how == "interrupted":
        raise KeyboardInterrupt
    if ended.how == "done":
        return
    if ended.error:
        raise_told(ended.error)
    raise SideFailed(
        f"The {job.side} side describes a model and ends well.",
        f"it {ended.how}: {' | '.join(ended.log_tail[-3:])[:400]}",
        f"read {out}",
    )


def _with(plan: Plan, **changes: object) -> Plan:
    """The plan with another problem."""
    problem = dataclasses.replace(plan.spec.problem, **changes)  # type: ignore[arg-type]
    return replace(plan, spec=replace(plan.spec, problem=problem))


def with_files(plan: Plan, **changes: object) -> Plan:
    """The plan with other files of its pair."""
    assert plan.spec.pair is not None
    files = dataclasses.replace(plan.spec.pair, **changes)  # type: ignore[arg-type]
    return replace(plan, spec=replace(plan.spec, pair=files))


def _table(description: Description, init: str, match: Match | None) -> tuple[ParamSpec, ...]:
    """The parameter table as the first side tells it."""
    zero_gradients = match.zero_gradients if match else {}
    turned = description.side == "jax"
    return tuple(_row(row, init, zero_gradients.get(row.name), turned) for row in description.parameters)


def _row(row: Described, init: str, zero_gradient: tuple[int, int] | None, turned: bool) -> ParamSpec:
    linear = turned and row.path.endswith("kernel") and len(row.shape) == 2
    kind, std = "given", 0.0
    if init == "spec":
        kind = "normal" if row.std else "ones" if row.mean else "zeros"
        # Two digits: the spread of a tensor is what counts, not the draw that showed it.
        std = float(f"{row.std:.1e}")
    return ParamSpec(
        name=row.name,
        shape=row.shape[::-1] if linear else row.shape,
        init=kind,
        init_std=std,
        decayed=row.decayed,
        layout="linear" if linear else "vector",
        zero_gradient=zero_gradient,
    )


def initial_values(plan: Plan, init: str, described: dict[str, Path], match: Match | None) -> Tensors:
    """`param/NAME` and `buffer/NAME`, under the canonical names, of the source that the pair names."""
    if "torch" in described:
        values = _of(load_tensors(described["torch"] / VALUES), ("param", "buffer"))
    else:
        values = load_tensors(described["jax"] / INITIAL)
    if init == "jax" and match is not None:
        values |= load_tensors(described["jax"] / INITIAL)
    if init == "spec":
        problem = plan.spec.problem
        drawn = init_parameters(problem.parameter_table(), problem.seed_weights)
        values |= {f"param/{name}": array for name, array in drawn.items()}
    return {name: _narrow(array) for name, array in values.items()}


def _own_values(described: dict[str, Path]) -> list[str]:
    torch, jax = load_tensors(described["torch"] / VALUES), load_tensors(described["jax"] / INITIAL)
    return first_values.refusals(_of(torch, ("param",)), jax)


def _of(values: Tensors, phases: tuple[str, ...]) -> Tensors:
    return {key: array for key, array in values.items() if key.partition("/")[0] in phases}


def _narrow(array: np.ndarray) -> np.ndarray:
    """In float32 where that loses nothing: models were asked in float64."""
    narrow = array.astype(np.float32) if array.dtype == np.float64 else array
    return narrow if np.array_equal(narrow, array, equal_nan=array.dtype.kind == "f") else array
