"""The MLP in PyTorch, in a loop that logs the rate of the step."""

from tests.corpus.mlp_torch import build, loss
from tests.corpus.p35_logged_rate.pair import SCHEDULE

__all__ = ["build", "loss"]


def logged_lr(step: int) -> float:
    """As `scheduler.get_last_lr()` before `scheduler.step()` does."""
    return SCHEDULE.learning_rate(step)
