"""Pair: what a user's `pair.py` holds, checked when it is made."""

from dataclasses import dataclass, field
from pathlib import Path

from spec.errors import RuleError
from spec.mapping.links import Link
from spec.own_optimizer import OwnOptimizer
from spec.precision import find_profile
from spec.run import AdamW
from spec.schedule import Schedule

FILE = "pair.py"
INITS = ("torch", "jax", "spec", "own")
_HIDDEN = ("torch", "jax", "flax", "optax", "numpy", "spec", "parity")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The same model twice, and how it is trained. `parity run FOLDER` reads it from `FOLDER/pair.py`."""

    torch: str = "torch_side.py"
    """File with `build() -> nn.Module` and `loss(model, batch) -> (sum, count)`."""
    jax: str = "jax_side.py"
    """File with `build() -> nnx.Module or linen.Module` and `loss(model, batch) -> (sum, count)`."""
    steps: int = 20
    optimizer: AdamW | OwnOptimizer = field(default_factory=AdamW)
    schedule: Schedule = field(default_factory=lambda: Schedule(kind="constant", peak_lr=1e-3))
    micro_batches: int = 1
    precision: str = "strict"
    """f64, strict, tf32 or bf16."""
    init: str = "torch"
    """Whose first values both sides take: `torch` or `jax`; `spec` draws them anew, of torch's spread.
    `own` lets each side begin with what it built, and is refused unless that is the same to the bit."""
    seed: int = 0
    """Seeds torch's generator before `build`, and what `spec` draws."""
    devices: int = 1
    map: tuple[Link | tuple[str, str], ...] = ()
    """Tensors that correspond, (torch name, JAX name) or a whole `Link`; what is left out is found."""

    def __post_init__(self) -> None:
        find_profile(self.precision)
        if self.init not in INITS:
            raise RuleError(
                "First values come from a side, from spec, or from each side its own.",
                f"init {self.init!r}",
                f"take one of {', '.join(INITS)}",
            )
        for name in ("steps", "micro_batches", "devices"):
            if getattr(self, name) < 1:
                raise RuleError(f"{name} is at least 1.", f"{name} = {getattr(self, name)}")
        for file in (self.torch, self.jax):
            if Path(file).stem in _HIDDEN:
                raise RuleError(
                    "A side's file does not hide a package of its name.",
                    file,
                    f"call it {Path(file).stem}_side.py",
                )

    @property
    def links(self) -> tuple[Link, ...]:
        """The map as links; of a plain pair of names only those are known."""
        return tuple(
            item if isinstance(item, Link) else Link(torch=item[0], jax=item[1]) for item in self.map
        )
