"""From the words of the command line to what will be run; everything that can be refused is refused here.

Must not: start a side or write a file.
"""

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from parity import given_data, probe
from parity.cluster import Cluster
from parity.devices import check_processes, count_gpus
from parity.handoff import Stretch, parse_handoff
from parity.launch import check_timeout
from parity.options import Bench, Run, Train, Training
from parity.pairs import read
from parity.pairs.problem import from_pair, pair_files, refuse_lost_edits, refuse_lost_state
from parity.resume import Start, find_start
from spec import edits as catalogue
from spec.edits import Edit
from spec.edits.idle import refuse_idle
from spec.errors import RuleError, nearest
from spec.jit import jit_options
from spec.job import check_saving
from spec.own_optimizer import OwnOptimizer, refuse_compiled
from spec.pairs.materialise import Outline
from spec.presets import Preset, preset, run_spec
from spec.run import AUTO_MODES, BASELINES, SIDES, Execution, Problem, RunSpec, check_device, check_mode


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a command will run."""

    spec: RunSpec
    backends: tuple[str, ...]
    edits: dict[str, tuple[Edit, ...]] = field(default_factory=dict)
    timeout_s: float
    cluster: Cluster = field(default_factory=Cluster)
    save_every: int | None = None
    keep: int | None = None
    start: Start = field(default_factory=Start)
    handoff: tuple[Stretch, ...] = ()
    """The stretches of the run that changes sides; none where it was not asked for."""
    pair: Outline | None = None
    """A pair of the user's, whose models are yet to be described; see `parity.pairs.settle`."""
    notes: tuple[str, ...] = ()
    """What was decided for the user, said on standard error."""

    @property
    def local_processes(self) -> int:
        """Processes on this host."""
        return self.spec.execution.world_size // self.cluster.nodes


def make_plan(options: Run | Train | Bench) -> Plan:
    """Checks the options and completes them.

    Raises:
      RuleError: an unknown name, or a combination that cannot be run here.
    """
    backends = parse_backends(options.backend, alone=isinstance(options, Train))
    pair = read.outline(options.preset) if read.is_pair(options.preset) else None
    chosen = from_pair(pair, options) if pair else preset(options.preset, options.steps)
    for side in backends:
        probe.check_installed(side)
    device = _choose_device(options.device, backends)
    cluster = _cluster(options) if isinstance(options, Train) else Cluster()
    _check_alone(options, backends)
    modes = _modes(options, pair, device, backends)
    if cluster.nodes > 1 and any(jit_options(mode).one_process for mode in modes["jax"]):
        raise RuleError(
            "One process holds devices of one host.",
            f"--mode {options.mode} --nodes {cluster.nodes}",
            "leave the word oneprocess out",
        )
    devices, global_batch, notes = _devices(options, chosen, device, cluster)
    edits = _edits(options, pair, backends)
    if pair:
        global_batch = pair.rows
    spec = run_spec(
        Path(pair.folder).name if pair else options.preset,
        steps=options.steps,
        devices=devices,
        global_batch=global_batch,
        micro_batches=options.micro_batches,
        precision=options.precision,
        data=given_data.given(options),
        seed=options.seed,
        execution=Execution(
            device=device,
            torch_mode=modes["torch"][0],
            jax_mode=modes["jax"][0],
            # Before the referee ends a group in which nothing is written, its ranks say who stands still.
            stall_s=0.9 * options.timeout_s,
        ),
        chosen=chosen,
    )
    if not pair:
        _check_data(options, spec.problem)
        for side, own in edits.items():
            refuse_idle(side, own, spec.problem)
    plan = Plan(
        spec=dataclasses.replace(spec, pair=pair_files(pair, spec.problem.profile.compute)) if pair else spec,
        backends=backends,
        edits=edits,
        pair=pair,
        timeout_s=options.timeout_s,
        cluster=cluster,
        notes=notes if cluster.node_rank == 0 else (*notes, "losses and figures are recorded on host 0"),
    )
    return plan if isinstance(options, Bench) else _with_training(plan, options)


def _check_alone(options: Run | Train | Bench, backends: tuple[str, ...]) -> None:
    """What needs nothing but the options."""
    if isinstance(options, Train) and len(backends) != 1:
        raise RuleError("train runs one side.", f"--backend {options.backend}", "take parity run for both")
    check_timeout(options.timeout_s)


def _check_data(options: Run | Train | Bench, problem: Problem) -> None:
    """Refuses data that a side would refuse later, for what this command makes of them."""
    if not isinstance(options, Bench):
        given_data.check(problem, steps=problem.steps, timed=options.time)
    elif options.sweep is None:
        # A sweep never takes the problem's own rows: `parity.bench.sweep` checks the data for those it takes.
        given_data.check(problem, steps=0, timed=True)


def _modes(
    options: Run | Train | Bench, pair: Outline | None, device: str, backends: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """The modes of each side, as many and such as the command takes."""
    modes = parse_modes(options.mode, device)
    if pair and isinstance(pair.pair.optimizer, OwnOptimizer):
        if options.mode == "auto":
            # Nobody asked for a capture, which refuses optimizers that count or schedule on the host.
            modes["torch"] = ("eager",)
        for mode in modes["torch"] if "torch" in backends else ():
            # Its Trainer would refuse it too, much later.
            refuse_compiled(mode, f"--mode torch={mode}, on a pair's own optimizer", device)
    if not isinstance(options, Bench) and any(len(own) > 1 for own in modes.values()):
        raise RuleError("A run has one mode a side.", f"--mode {options.mode}", "parity bench takes several")
    baselines = [mode for side in backends for mode in modes[side] if mode.startswith("baseline:")]
    if baselines:
        raise RuleError(
            "A mode is one of this project's own step.",
            f"--mode {options.mode}",
            "parity bench --baselines times stock steps beside it",
        )
    return modes


def _with_training(plan: Plan, options: Run | Train) -> Plan:
    """The plan with what only runs that train can ask for."""
    check_saving(options.save_every, options.keep)
    problem, handoff = plan.spec.problem, options.handoff if isinstance(options, Run) else None
    saving = {"--save-every": options.save_every, "--handoff": handoff, "--resume": options.resume}
    refuse_lost_state(problem, {name: value for name, value in saving.items() if value is not None})
    if handoff is not None and options.resume is not None:
        raise RuleError(
            "A hand-off is judged against whole runs.",
            f"--handoff {handoff} --resume {options.resume}",
            "leave one of them out",
        )
    return dataclasses.replace(
        plan,
        save_every=options.save_every,
        keep=options.keep,
        start=find_start(options.resume, Path(options.out), plan.backends, problem),
        handoff=parse_handoff(handoff, plan.backends, problem.steps),
    )


def parse_backends(text: str, *, alone: bool = False) -> tuple[str, ...]:
    """The sides of `torch,jax`, in the order of `SIDES`; `alone` where the command runs one of them."""
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in SIDES]
    if unknown or len(set(names)) != len(names):
        mend = "take --backend torch or --backend jax" if alone else "take --backend torch,jax or one of them"
        raise RuleError("A backend is torch or jax, each once.", f"--backend {text}", mend)
    return tuple(side for side in SIDES if side in names)


def parse_modes(text: str, device: str) -> dict[str, tuple[str, ...]]:
    """The modes of each side from `auto` or `torch=eager,jax=jit`; a side left out takes auto's."""
    asked: dict[str, tuple[str, ...]] = {}
    for pair in text.split(",") if text != "auto" else ():
        side, equals, mode = pair.strip().partition("=")
        if side not in SIDES or not equals:
            raise RuleError(
                "Modes are auto, or a mode for a side.", f"--mode {text}", "for example --mode torch=inductor"
            )
        check_mode(side, mode, device)
        asked[side] = (*asked.get(side, ()), mode)
    return {side: asked.get(side, (AUTO_MODES[device][side],)) for side in SIDES}


def _edits(
    options: Run | Train | Bench, pair: Outline | None, backends: tuple[str, ...]
) -> dict[str, tuple[Edit, ...]]:
    """Edits by side, each one that its side can make."""
    edits = parse_edits(() if isinstance(options, Bench) else options.edit, backends)
    for side, edit in ((side, edit) for side, own in edits.items() for edit in own):
        catalogue.refuse(edit, side, pair=pair is not None)
    if pair:
        refuse_lost_edits(pair, edits)
    return edits


def parse_edits(texts: tuple[str, ...], backends: tuple[str, ...]) -> dict[str, tuple[Edit, ...]]:
    """Edits by side from `jax:clip_eps=1e-6`.

    Raises:
      RuleError: a side that does not run, no edit, or one constant twice, of which one value would be lost.
    """
    chosen: dict[str, tuple[Edit, ...]] = {side: () for side in backends}
    for text in texts:
        side, colon, edit = text.partition(":")
        if side not in backends or not colon:
            raise RuleError(
                "An edit names a side that runs.",
                f"--edit {text}, sides: {', '.join(backends)}",
                "for example --edit jax:clip_eps=1e-6",
            )
        parsed = catalogue.parse(edit)
        twice = [one for one in chosen[side] if (one.name, one.target) == (parsed.name, parsed.target)]
        if twice:
            raise RuleError(
                "A constant of a side has one value.",
                f"--edit {side}:{catalogue.show(twice[0])} --edit {text}",
                "leave one of them out",
            )
        chosen[side] += (parsed,)
    return chosen


def parse_baselines(text: str, backends: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """(side, mode) of each baseline of `torch:ddp,jax:jit`."""
    chosen = []
    for entry in text.split(",") if text else ():
        side, _, name = entry.strip().partition(":")
        if side not in backends or name not in BASELINES[side]:
            known = [f"{side}:{name}" for side in backends for name in BASELINES[side]]
            mend = f"{nearest(entry, known)}known: {', '.join(known)}"
            raise RuleError("A baseline is a known one of a side that runs.", entry, mend)
        chosen.append((side, f"baseline:{name}"))
    return tuple(chosen)


def _choose_device(asked: str, backends: tuple[str, ...]) -> str:
    if asked != "auto":
        check_device(asked)
        return asked
    # The frameworks are asked (seconds each) only where the driver sees a GPU at all.
    usable = count_gpus() and all(answer.gpus for answer in probe.ask_all(backends).values())
    return "cuda" if usable else "cpu"


def _devices(
    options: Training, chosen: Preset, device: str, cluster: Cluster
) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Devices, global batch and notes; a preset's own number of devices gives way to the GPUs there are."""
    devices, global_batch, notes = options.devices, options.global_batch, ()
    if devices is None and device == "cuda" and count_gpus() < chosen.devices:
        devices = max(1, count_gpus())
        # The same rows a step as on more devices: it stays the same problem.
        global_batch = global_batch or chosen.problem.global_batch * chosen.devices
        notes = (
            f"{options.preset} on {devices} of its {chosen.devices} devices, global batch {global_batch}",
        )
    total = chosen.devices if devices is None else devices
    if total < 1 or total % cluster.nodes:
        raise RuleError(
            "Every host runs the same number of processes, at least one.",
            f"--devices {total}, --nodes {cluster.nodes}",
            "--devices counts the processes of all hosts",
        )
    check_processes(device, total // cluster.nodes)
    return devices, global_batch, notes


def _cluster(options: Train) -> Cluster:
    nodes, node_rank, rendezvous = options.nodes, options.node_rank, options.rendezvous
    if nodes < 1 or not 0 <= node_rank < nodes:
        raise RuleError(
            "Hosts are numbered 0 to nodes - 1.",
            f"--nodes {nodes} --node-rank {node_rank}",
            "take --nodes 1 or more, and on each host its own --node-rank",
        )
    port = (rendezvous or "").rpartition(":")[2]
    if (nodes > 1 or rendezvous) and not port.isdigit():
        raise RuleError(
            "Several hosts meet at an address.",
            f"--nodes {nodes} --rendezvous {rendezvous}",
            "give --rendezvous HOST:PORT, the same on every host",
        )
    return Cluster(nodes=nodes, node_rank=node_rank, rendezvous=rendezvous)
