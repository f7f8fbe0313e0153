"""The update rules of a user's own optimizers, as `parity explain` found them and `result.json` has them."""

from msgspec import Struct

NEAR = 0.1
"""Share of an update that a rule may leave for its constants to be told: beyond, they are what a fit of
something else came to."""


class RuleFound(Struct, kw_only=True):
    """What one side's optimizer does, told from float64 gradients and parameters of every step."""

    words: str
    """The rule with its constants, in one line."""
    optimizer: str
    """`sgd` or `adam`."""
    constants: dict[str, float]
    """beta1, beta2, eps or momentum; max_norm and clip_eps where the optimizer clips by itself."""
    written: list[str]
    """Constants whose short form reproduces the side as well."""
    decay: dict[str, float]
    """Of each tensor, by torch's name; 0 where none."""
    decay_form: str
    """`decoupled`, `l2` (added to the gradient) or `without lr`."""
    eps_place: str
    """`after` the bias correction, `before` it, or `inside` the root."""
    bias_correction: str
    """`on`, `off`, or `frozen` at that of the first step."""
    rates: list[float]
    """The learning rate of each step."""
    stored: str
    """Dtype that parameters are rounded to after each step; empty where they are not."""
    lost: float | None
    """Share of the updates that this rounds to zero; null where nothing is rounded."""
    reproduces: bool
    """Whether replaying it leaves rounding alone, on the run and held out."""
    residual: float
    """RMS of what is left / RMS of the update, at the worst tensor and step."""
    held_out: float
    """The same on other batches and first values, every constant fixed."""
    others: list[str]
    """Other rules that do as well, or the next nearest where none reproduces the side."""

    @property
    def is_near(self) -> bool:
        """Whether its constants mean something, learning rates and decays among them."""
        return self.reproduces or 0 <= self.residual <= NEAR

    @property
    def shown(self) -> str:
        """What is told of it in one line."""
        if self.reproduces:
            return self.words
        kind = "SGD" if self.optimizer == "sgd" else "Adam"
        return f"nearest: {self.words if self.is_near else f'a rule of the kind of {kind}, {UNTOLD}'}"


UNTOLD = f"whose constants are left out, since more than {NEAR:.0%} of an update is left"


class RateRow(Struct, kw_only=True):
    """One step of both sides."""

    step: int
    rates: dict[str, float]
    """Learning rate by side, as it follows from the updates."""
    update_norm: dict[str, float]
    """2-norm of the update of all parameters."""


class UpdateRules(Struct, kw_only=True):
    """Both sides' rules, and how they differ."""

    rules: dict[str, RuleFound]
    differences: list[str]
    """Each a cause, in words; none where a side's rule is not known."""
    rows: list[RateRow]
    """Steps 0, 1, the end of warm-up, the last of the run and the one after it."""
    steps: int
    """Steps that were followed."""
    gradient_rel: dict[str, float]
    """RMS of the difference of the first gradients of both sides / their RMS, at the worst tensor: of the
    run and held out."""

    def rate(self, row: RateRow, side: str) -> str:
        """A side's learning rate at a step, as it is told."""
        return f"{row.rates[side]:.7g}" if self.rules[side].is_near else "\u2013"
