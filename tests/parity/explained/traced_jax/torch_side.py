"""The MLP in PyTorch."""

from tests.corpus.mlp_torch import build, loss

__all__ = ["build", "loss"]
