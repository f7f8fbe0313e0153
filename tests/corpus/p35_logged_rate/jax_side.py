"""The MLP in flax, in a loop that logs the rate of the step after."""

from tests.corpus.mlp_jax import build, loss
from tests.corpus.p35_logged_rate.pair import SCHEDULE

__all__ = ["build", "loss"]


def logged_lr(step: int) -> float:
    """As `log(lr=schedule(state.step))` does, where state.step has been counted up by then."""
    return SCHEDULE.learning_rate(step + 1)
