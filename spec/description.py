"""What a side says of a user's model before it runs: its tensors, and what it computes on one batch.

The referee and the other side know a model by this alone, since neither imports its file. Must not: hold
values of tensors; those stand in the file beside it.
"""

from dataclasses import dataclass

DESCRIPTION = "description.json"
"""In the pass folder of a `describe` job."""
MATCH = "match.json"
"""Beside it, where a side was asked how its tensors match the other side's."""
VALUES = "values.safetensors"
"""Beside it: `param/NAME` and `buffer/NAME` as the model was built; `probe/NAME`, the weights at which it was
asked, and `grad/NAME`, the gradients there."""

INITIAL = "initial.safetensors"
"""`param/NAME` and `buffer/NAME` under the canonical names, once the tensors are matched."""

DRAWS = "A compared model draws no random numbers: the frameworks' generators differ."
"""The rule that a model with dropout breaks."""

PROBE_ROWS = 8
"""Rows of the first batch that a model is asked about."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """One parameter or buffer."""

    name: str
    """Under which states are exported by this side alone."""
    path: str
    """As the framework's users know it: `encoder.0.weight`, `encoder.layers.0.kernel`."""
    shape: tuple[int, ...]
    """In this framework's own layout."""
    dtype: str
    owner: str
    """Class of the module that holds it: Linear, Conv, BatchNorm ..."""
    trainable: bool = True
    decayed: bool = False
    mean: float = 0.0
    """Of its first values, and their standard deviation."""
    std: float = 0.0
    changes: bool = True
    """Whether a buffer was changed by one forward pass."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """One side's model."""

    side: str
    parameters: tuple[Described, ...]
    buffers: tuple[Described, ...]
    ties: tuple[tuple[str, ...], ...]
    """Groups of names that stand for one parameter."""
    loss_sum: float | None
    """On the first rows of the first batch, at the probe's weights; null where it is NaN or infinite."""
    loss_dtype: str
    count: float
    precision: str
    """The profile under which the model was asked."""
    over_one: tuple[str, ...] = ()
    """Functions that work between positions and never had more than one; seen on the torch side."""

    @property
    def num_params(self) -> int:
        """Elements of all parameters."""
        return sum(_size(row.shape) for row in self.parameters)


def _size(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size
