"""What an optimizer of a user's own makes of given parameters and gradients, asked before training.

Both sides answer from the probe's weights, once where gradients are zero, so that decay alone acts, and once
with the gradients that torch found there, times `FACTORS`. Must not: judge; the referee does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from spec.weights import Tensors, save_tensors

UPDATES = "updates.safetensors"
"""In the pass folder of a `describe` job: `undriven/K/NAME` and `driven/K/NAME`, what update K added to the
first elements of a parameter, and `param/NAME`, what these were at first; canonical names, flat."""

OPTIMIZER_UPDATES = "optimizer() makes an optimizer that updates from parameters and gradients alone."
"""The rule that one breaks which raises, or needs more, such as a closure."""

FACTORS = (1.0, -0.5, 2.0, 1.0)
"""Of the gradients of each update: of changing size and direction, so that averages of them show."""

_SAMPLE = 4096
"""Elements of a parameter: a rule acts on all alike, or on whole rows and matrices."""

Answer = Callable[[Sequence[Tensors]], Iterator[Tensors]]
"""A fresh optimizer's parameters after each update from given gradients, always from the same parameters."""


def save_updates(
    file: Path, params: Mapping[str, np.ndarray], gradients: Mapping[str, np.ndarray], answer: Answer
) -> None:
    """Asks an optimizer and writes down what it does.

    Args:
      params: the parameters that are trained, by canonical name, as `answer` begins with them.
      gradients: of the same names.
    """
    undriven = [{name: np.zeros_like(array) for name, array in gradients.items()} for _ in FACTORS]
    driven = [{name: factor * array for name, array in gradients.items()} for factor in FACTORS]
    first = {name: _sample(params[name]) for name in gradients}
    kept = {f"param/{name}": array for name, array in first.items()}
    for kind, asked in (("undriven", undriven), ("driven", driven)):
        before = first
        for number, made in enumerate(answer(asked)):
            after = {name: _sample(made[name]) for name in gradients}
            kept |= {f"{kind}/{number}/{name}": after[name] - before[name] for name in after}
            before = after
    save_tensors(file, kept)


def _sample(array: np.ndarray) -> np.ndarray:
    return np.array(array, np.float64).ravel()[:_SAMPLE]
