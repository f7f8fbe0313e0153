"""RunSpec: one training run, described once.

`problem` is what is computed; it is hashed and must be equal for two runs to be compared. `execution` is how;
it may differ.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass

from spec import codec
from spec.errors import RuleError
from spec.jit import jit_options
from spec.own_optimizer import OwnOptimizer
from spec.params import ParamSpec
from spec.precision import Profile, find_profile
from spec.schedule import Schedule
from spec.workloads import WORKLOADS, Sizes, parameter_table
from spec.workloads.pair import PairFiles

TORCH_MODES = ("eager", "inductor", "graph", "graph+inductor")
JAX_MODES = ("jit", "nojit")
"""`jit` may be told more, after a colon; see `spec/jit.py`."""
AUTO_MODES = {
    "cpu": {"torch": "eager", "jax": "jit"},
    "cuda": {"torch": "graph+inductor", "jax": "jit:concurrent"},
}
"""What the mode `auto` means, by device and side."""
BASELINES = {"torch": ("eager", "ddp", "compile", "reduce-overhead"), "jax": ("jit",)}
SIDES = ("torch", "jax")


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """AdamW with decoupled decay on the decayed group, after clipping by global norm."""

    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.1
    max_norm: float | None = 1.0
    """Gradients are scaled by min(1, max_norm / norm); None leaves them as they are."""

    def __post_init__(self) -> None:
        if not (0 <= self.beta1 < 1 and 0 <= self.beta2 < 1):
            raise RuleError("AdamW's betas lie in [0, 1).", f"beta1 {self.beta1}, beta2 {self.beta2}")
        if not (self.eps > 0 and self.weight_decay >= 0):
            raise RuleError(
                "AdamW's eps is positive and its decay not negative.",
                f"eps {self.eps}, weight_decay {self.weight_decay}",
            )
        if self.max_norm is not None and not self.max_norm > 0:
            raise RuleError(
                "The clipping norm is positive.", f"max_norm {self.max_norm}", "use None for no clipping"
            )


@dataclass(frozen=True, kw_only=True)
class DataSpec:
    """Where rows come from."""

    kind: str
    """`text` (bytes of a text), `shards` (.bin token shards), `synthetic`, or `folder` (batches written
    before)."""
    path: str | None = None
    """File, folder or pattern; None with `text` is the documentation text inside every Python
    (`pydoc_data.topics`)."""
    ragged: bool = False
    """Rows have differing lengths in [T/2, T]; labels beyond are ignored."""

    def __post_init__(self) -> None:
        if self.kind not in ("text", "shards", "synthetic", "folder"):
            raise RuleError("Data are text, shards, synthetic or a folder of batches.", repr(self.kind))
        if self.kind in ("shards", "folder") and not self.path:
            raise RuleError(f"Data of kind {self.kind} have a path.", "no path", "give --data PATH")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What is computed, independent of framework, processes and mode."""

    workload: str
    sizes: Sizes
    optimizer: AdamW | OwnOptimizer
    schedule: Schedule
    data: DataSpec
    global_batch: int
    """Rows of one step over all processes."""
    micro_batches: int = 1
    """Slices of each process's rows whose gradients are summed before the reduction."""
    precision: str = "strict"
    seed_weights: int = 0
    seed_data: int = 1
    steps: int

    def __post_init__(self) -> None:
        find_profile(self.precision)
        if self.workload not in WORKLOADS:
            raise RuleError(
                "A workload is a known one.", repr(self.workload), f"take one of {', '.join(WORKLOADS)}"
            )
        if type(self.sizes) is not WORKLOADS[self.workload]:
            raise RuleError(
                "The sizes are the workload's.", f"{self.workload} with {type(self.sizes).__name__}"
            )
        for name in ("global_batch", "micro_batches", "steps"):
            if getattr(self, name) < 1:
                raise RuleError(f"{name} is at least 1.", f"{name} = {getattr(self, name)}", "take more")
        if self.workload == "pair" and self.data.kind != "folder":
            raise RuleError(
                "A pair trains on its own batches.", f"data {self.data.kind}", "write them in batches(step)"
            )
        if self.workload == "mlp" and self.data.kind not in ("synthetic", "folder"):
            raise RuleError(
                "The mlp workload takes synthetic rows or a folder of batches.",
                f"data {self.data.kind}",
                "text and token shards are for a GPT, such as tiny",
            )
        if min(self.seed_weights, self.seed_data) < 0:
            numbers = f"weights {self.seed_weights}, data {self.seed_data}"
            raise RuleError("Seeds are not negative.", numbers, "take 0 or more")

    @property
    def profile(self) -> Profile:
        """The row of the precision table."""
        return find_profile(self.precision)

    def parameter_table(self) -> tuple[ParamSpec, ...]:
        """The parameters in canonical order."""
        return parameter_table(self.sizes)

    @property
    def num_params(self) -> int:
        """Elements of all parameters."""
        return sum(row.size for row in self.parameter_table())

    def sha256(self) -> str:
        """Hash of the problem. The data path is left out: what it holds is compared by the digests of the
        batches."""
        plain = codec.to_dict(
            dataclasses.replace(self, data=dataclasses.replace(self.data, path=self.data.path and "given"))
        )
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Execution:
    """How the problem is run; never changes what is computed."""

    device: str = "cpu"
    """`cpu` or `cuda`."""
    world_size: int = 1
    """Ranks, one a device, over all hosts."""
    torch_mode: str = "eager"
    jax_mode: str = "jit"
    jax_one_process: bool = False
    """One process of JAX holds all devices of the run, on one host. By default each has a process. Passes of
    the mode `jit:oneprocess` have it set."""
    stall_s: float = 540.0
    """How long the JAX side's ranks wait for one that stands still, before they name it and end."""

    def __post_init__(self) -> None:
        if self.device not in ("cpu", "cuda"):
            raise RuleError("The device is cpu or cuda.", repr(self.device))
        if not self.stall_s > 0:
            raise RuleError("A time-out is positive.", f"stall_s = {self.stall_s:g}", "take seconds above 0")
        if self.world_size < 1:
            raise RuleError("A run has at least one device.", f"devices = {self.world_size}")
        check_mode("torch", self.torch_mode, self.device, self.world_size)
        check_mode("jax", self.jax_mode, self.device, self.world_size)

    def mode(self, side: str) -> str:
        """The mode that one side is asked for."""
        return self.torch_mode if side == "torch" else self.jax_mode

    def processes(self, side: str) -> int:
        """How many processes of a side run, over all hosts."""
        return 1 if side == "jax" and self.jax_one_process else self.world_size


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run: the problem and how to execute it."""

    name: str
    """The preset or pair it came from; a label, not compared."""
    problem: Problem
    execution: Execution
    pair: PairFiles | None = None
    """Where a user's own models stand and how they correspond; None for the models of this project."""

    def __post_init__(self) -> None:
        problem, world_size = self.problem, self.execution.world_size
        if problem.global_batch % (world_size * problem.micro_batches):
            mend = f"take a multiple of {world_size * problem.micro_batches} for --global-batch"
            if problem.workload == "pair":
                mend = "take fewer --devices or --micro-batches, or give batches() as many more rows"
            raise RuleError(
                "Processes times micro-batches divide the global batch.",
                f"global batch {problem.global_batch}, processes {world_size}, "
                f"micro-batches {problem.micro_batches}",
                mend,
            )
        if problem.precision == "tf32" and self.execution.device == "cpu":
            raise RuleError("The tf32 profile needs a GPU.", "device cpu", "take --precision strict")


def check_device(name: str) -> None:
    """Refuses a device, other than `auto`, that no mode is known for.

    Raises:
      RuleError: it is neither cpu nor cuda.
    """
    if name not in AUTO_MODES:
        raise RuleError("The device is auto, cpu or cuda.", f"--device {name}", "a GPU is cuda")


def check_mode(side: str, mode: str, device: str, world_size: int = 1) -> None:
    """Refuses a mode that the side does not have, or that these devices cannot run."""
    if side == "jax" and mode.startswith("jit:"):
        jit_options(mode)
        return
    modes = TORCH_MODES if side == "torch" else JAX_MODES
    known = (*modes, *(f"baseline:{name}" for name in BASELINES[side]))
    if mode not in known:
        raise RuleError(f"A {side} mode is a known one.", repr(mode), f"take one of {', '.join(known)}")
    if mode.startswith("graph") and device == "cpu":
        raise RuleError(
            "A CUDA graph needs a CUDA device.",
            f"--mode {side}={mode} on a CPU",
            "take torch=eager or torch=inductor",
        )
    if mode == "nojit" and world_size > 1:
        # Before the ranks join: one that refuses after that takes the others down with it.
        raise RuleError(
            "The mode nojit runs on one device: JAX spreads operations over devices by compiling them.",
            f"{world_size} devices",
            "take --mode jax=jit, or --devices 1",
        )


__all__ = [
    "AUTO_MODES",
    "BASELINES",
    "JAX_MODES",
    "SIDES",
    "TORCH_MODES",
    "AdamW",
    "DataSpec",
    "Execution",
    "OwnOptimizer",
    "Problem",
    "RunSpec",
    "Sizes",
]
