"""Optimizers of users' own compared before training, by what they make of equal parameters and gradients."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import optax
import pytest
import torch

from parity.pairs.updates import told
from spec.pairs.updates import UPDATES, save_updates
from spec.weights import Tensors

_GENERATOR = np.random.default_rng(3)
SHAPES = {"a.weight": (100, 60), "a.bias": (100,)}
PARAMS = {name: _GENERATOR.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}
GRADS = {name: _GENERATOR.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def of_torch(make: Callable[..., torch.optim.Optimizer]) -> Callable[[Sequence[Tensors]], Iterator[Tensors]]:
    def answer(gradients: Sequence[Tensors]) -> Iterator[Tensors]:
        held = {name: torch.nn.Parameter(torch.tensor(array)) for name, array in PARAMS.items()}
        optimizer = make(list(held.values()))
        for grads in gradients:
            for name, parameter in held.items():
                parameter.grad = torch.tensor(grads[name])
            optimizer.step()
            yield {name: parameter.detach().numpy().copy() for name, parameter in held.items()}

    return answer


def of_jax(transformation: optax.GradientTransformation) -> Callable[[Sequence[Tensors]], Iterator[Tensors]]:
    def answer(gradients: Sequence[Tensors]) -> Iterator[Tensors]:
        params: Tensors = dict(PARAMS)
        own = transformation.init(params)
        for grads in gradients:
            changes, own = transformation.update(grads, own, params)
            params = optax.apply_updates(params, changes)
            yield {name: np.asarray(array) for name, array in params.items()}

    return answer


def compared(
    folder: Path, torch_makes: Callable[..., torch.optim.Optimizer], jax_makes: optax.GradientTransformation
) -> list[str]:
    for side, answer in (("torch", of_torch(torch_makes)), ("jax", of_jax(jax_makes))):
        (folder / side).mkdir()
        save_updates(folder / side / UPDATES, PARAMS, GRADS, answer)
    return told(folder / "torch", folder / "jax", "strict")


def stopped_at(step: int) -> optax.Schedule:
    return optax.join_schedules([optax.constant_schedule(1e-2), optax.constant_schedule(0.0)], [step])


def test_one_rule_is_not_spoken_of(tmp_path: Path) -> None:
    def makes(params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(params, lr=1e-2, betas=(0.9, 0.99), weight_decay=0.1)

    assert compared(tmp_path, makes, optax.adamw(1e-2, 0.9, 0.99, weight_decay=0.1)) == []


@pytest.mark.parametrize(
    ("jax_makes", "words"),
    [
        # Biases decay on one side.
        (optax.adamw(1e-2, 0.9, 0.99, weight_decay=0.1), "takes away 0 of a.bias in torch, 0.001 in jax"),
        (optax.adamw(1e-2, 0.9, 0.99, weight_decay=0.0), "takes away 0.001 of a.weight in torch, 0 in jax"),
        (optax.adam(optax.linear_schedule(0.0, 1e-2, 2), 0.9, 0.99), "takes away 0.001 of a.weight in torch"),
    ],
)
def test_decay_is_told_in_numbers(
    tmp_path: Path, jax_makes: optax.GradientTransformation, words: str
) -> None:
    def makes(params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        groups = [{"params": params[:1], "weight_decay": 0.1}, {"params": params[1:], "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.99))

    (found,) = compared(tmp_path, makes, jax_makes)
    assert "where gradients are zero" in found and words in found
    assert "; 1 of 2 tensors differ" in found


def test_numbers_on_one_side_alone_are_told(tmp_path: Path) -> None:
    def makes(params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(params, lr=1e-2, eps=0.0)

    (found,) = compared(tmp_path, makes, optax.adam(1e-2))
    assert "where gradients are zero, update 0 of a." in found and "not finite on one side alone" in found


@pytest.mark.parametrize(
    ("jax_makes", "number"),
    [
        (optax.adam(1.1e-2, 0.9, 0.99), 0),
        (optax.adam(1e-2, 0.8, 0.99), 1),
        (optax.adam(stopped_at(2), 0.9, 0.99), 2),
    ],
)
def test_the_first_update_that_differs_is_named(
    tmp_path: Path, jax_makes: optax.GradientTransformation, number: int
) -> None:
    def makes(params: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(params, lr=1e-2, betas=(0.9, 0.99))

    (found,) = compared(tmp_path, makes, jax_makes)
    assert f"on equal gradients, update {number} of a." in found and ", counted from 0, is" in found
    assert found.endswith("2 of 2 tensors differ")
