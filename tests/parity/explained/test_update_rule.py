"""Update rules told from gradients and parameters alone: made by the papers' formulas, or by torch."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from parity.explain import own_optimizers
from parity.explain.settings import Told
from parity.explain.update_rule.differences import differences, rates
from parity.explain.update_rule.fits import judged
from parity.explain.update_rule.identify import Identified, identify
from parity.explain.update_rule.observed import Observed
from parity.explain.update_rule.shapes import shape_of
from parity.explain.update_rule.storing import replayed, stored_as
from parity.judge.align import Measured
from parity.progress import Progress
from spec.errors import RuleError
from tests.parity.pass_writer import make_content, small_job, small_spec

SHAPES = {"a.weight": (8, 6), "a.bias": (8,), "norm.weight": (8,), "b.weight": (3, 8)}
Tensors = dict[str, np.ndarray]


def followed(step: Callable[[Tensors, Tensors, int], Tensors], steps: int = 9, seed: int = 0) -> Observed:
    """Steps of an optimizer, `step(parameters, gradients, t) -> parameters`, on gradients of any size."""
    generator = np.random.default_rng(seed)
    usual = {name: generator.normal(size=shape) for name, shape in SHAPES.items()}
    params, grads = [{name: generator.uniform(-0.3, 0.3, shape) for name, shape in SHAPES.items()}], []
    for t in range(steps):
        size = 0.1 * generator.uniform(0.3, 2.0)
        grads.append(
            {name: size * (0.5 * usual[name] + generator.normal(size=s)) for name, s in SHAPES.items()}
        )
        params.append(step(params[-1], grads[-1], t))
    return Observed.of(params, grads)


def adam(
    rate: Callable[[int], float],
    decay: float,
    *,
    l2: bool = False,
    before: bool = False,
    frozen: bool = False,
) -> Callable[[Tensors, Tensors, int], Tensors]:
    """Adam with betas 0.9 and 0.98; matrices alone decay."""
    m: Tensors = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    v: Tensors = {name: np.zeros(shape) for name, shape in SHAPES.items()}

    def step(params: Tensors, grads: Tensors, t: int) -> Tensors:
        after = {}
        for name, p in params.items():
            own = decay if p.ndim > 1 else 0.0
            g = grads[name] + own * p * l2
            m[name] = 0.9 * m[name] + 0.1 * g
            v[name] = 0.98 * v[name] + 0.02 * g * g
            c1, c2 = (0.1, 0.02) if frozen else (1 - 0.9 ** (t + 1), 1 - 0.98 ** (t + 1))
            root = (np.sqrt(v[name]) + 1e-5) / np.sqrt(c2) if before else np.sqrt(v[name] / c2) + 1e-5
            after[name] = p - rate(t) * m[name] / c1 / root - rate(t) * own * p * (not l2)
        return after

    return step


def warm_cosine(over: int, late: int = 0) -> Callable[[int], float]:
    """Two steps of warm-up, then a cosine."""

    def rate(t: int) -> float:
        t += late
        return 1e-3 * (t / 2 if t < 2 else 0.5 * (1 + np.cos(np.pi * min(1.0, (t - 2) / over))))

    return rate


def constant(t: int) -> float:
    """The rate of every step."""
    return 1e-3


def test_decay_mask_schedule_and_constants_are_told_to_rounding() -> None:
    found = identify(followed(adam(warm_cosine(6), 0.1))).best
    assert found.reproduces and found.residual < 1e-12
    assert found.rule.values == {"beta1": 0.9, "beta2": 0.98, "eps": 1e-5}
    assert found.rule.decay_T.tolist() == [0.0, 0.1, 0.1, 0.0]  # by name: a.bias, a.weight, b.weight, norm
    assert found.shape.words == "warm-up t / 2, then cosine from 0.001 over 6 steps from step 2 on"
    again = followed(adam(warm_cosine(6), 0.1), seed=1)
    assert judged(found.rule, again).reproduces, "constants hold on other gradients and parameters"
    assert not judged(found.rule, followed(adam(warm_cosine(6), 0.11), seed=1)).reproduces


@pytest.mark.parametrize(
    ("words", "torch", "jax"),
    [
        ("added to the gradient (L2) in torch", adam(constant, 0.1, l2=True), adam(constant, 0.1)),
        ("before the bias correction in jax", adam(constant, 0.1), adam(constant, 0.1, before=True)),
        ("its counter is frozen in torch", adam(constant, 0.1, frozen=True), adam(constant, 0.1)),
    ],
)
def test_two_forms_are_told_apart(words: str, torch: Callable, jax: Callable) -> None:
    seen = {"torch": followed(torch), "jax": followed(jax)}
    found = {side: identify(observed) for side, observed in seen.items()}
    assert all(one.best.reproduces for one in found.values())
    said = differences(found, seen, lambda name: "")
    assert len(said) == 1 and words in said[0]


@pytest.mark.slow  # Nothing fits, so that the whole family is tried.
def test_what_is_of_no_known_form_is_not_called_one() -> None:
    def sign(params: Tensors, grads: Tensors, t: int) -> Tensors:
        return {
            name: p - 1e-3 * np.sign(grads[name]) * np.abs(grads[name]) ** 0.3 for name, p in params.items()
        }

    found = identify(followed(sign, steps=6))
    assert not found.best.reproduces and found.best.residual > 1e-3


def test_parameters_that_are_rounded_lose_updates() -> None:
    whole = adam(constant, 0.0)
    rule = identify(followed(whole)).best.rule
    narrow = adam(constant, 0.0)

    def rounding(params: Tensors, grads: Tensors, t: int) -> Tensors:
        return {k: p.astype("bfloat16").astype(float) for k, p in narrow(params, grads, t).items()}

    seen = followed(rounding)
    assert stored_as(seen) == "bfloat16" and stored_as(followed(whole)) == ""
    stored = replayed(rule, "bfloat16", seen)
    still = seen.params_SN[2:] == seen.params_SN[1:-1]
    assert stored.equal == 1.0 and stored.lost > 0.05
    assert abs(stored.lost - still.mean()) < 0.1


def test_rates_are_told_by_step_denominator_and_warmup() -> None:
    def table(rate: Callable[[int], float]) -> np.ndarray:
        return np.array([rate(t) for t in range(11)])

    assert (
        "off by one step: torch takes in step t what jax takes in step t + 1"
        in rates(table(warm_cosine(8, late=1)), table(warm_cosine(8)))[0]
    )
    assert "another denominator" in rates(table(warm_cosine(7)), table(warm_cosine(8)))[0]
    edge = table(warm_cosine(8))
    edge[:2] = [0.5e-3, 1e-3]
    assert "warm-up alone differ, at steps 0, 1" in rates(edge, table(warm_cosine(8)))[0]
    assert "torch / jax = 0.5 in every step" in rates(0.5 * edge, edge)[0]
    assert rates(edge, edge) == []
    assert not shape_of(np.random.default_rng(0).uniform(size=9)).known


def test_a_rate_that_drops_is_constants_one_after_another() -> None:
    """Rounding in a constant beginning is no warm-up."""
    rates = np.array([0.01] * 10 + [0.005] * 6) + 1e-17 * np.random.default_rng(1).normal(size=16)
    assert shape_of(rates).words == "constant 0.01, from step 10 on 0.005"


def test_sgd_whose_rate_drops_is_sgd() -> None:
    momentum: Tensors = {name: np.zeros(shape) for name, shape in SHAPES.items()}

    def step(params: Tensors, grads: Tensors, t: int) -> Tensors:
        for name, g in grads.items():
            momentum[name] = 0.9 * momentum[name] + g
        return {name: p - (0.01 if t < 6 else 0.005) * momentum[name] for name, p in params.items()}

    found = identify(followed(step, steps=12)).best
    assert found.reproduces and (found.rule.form.kind, found.rule.values) == ("sgd", {"momentum": 0.9})
    assert found.shape.words == "constant 0.01, from step 6 on 0.005"


def test_what_one_side_alone_trains_is_named_before_anything_is_followed(tmp_path: Path) -> None:
    passes = {}
    for side in ("torch", "jax"):
        content = make_content(small_job(tmp_path / side, side))
        content.manifest["facts"]["parameters"][0]["trainable"] = side == "jax"
        passes[side] = Measured(side, content.write())
    name = content.manifest["facts"]["parameters"][0]["name"]
    told = Told(folder=tmp_path, spec=small_spec(), edits={}, pair=None, **passes)
    with pytest.raises(RuleError, match=f"in jax alone: {name}\n"):
        own_optimizers.explain(told, tmp_path, Progress(quiet=True), 1.0, 0.0)


@pytest.mark.slow  # Imports PyTorch, and tells eight of its optimizers.
@pytest.mark.parametrize(
    ("name", "options", "clip"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}, None),
        ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}, None),
        ("SGD", {"lr": 0.1}, 1.0),
        ("Adam", {"lr": 1e-3, "weight_decay": 1e-2}, None),
        ("Adam", {"lr": 3e-4, "betas": (0.8, 0.98)}, 0.01),
        ("AdamW", {"lr": 1e-3}, None),
        ("AdamW", {"lr": 1e-3, "weight_decay": 0.1}, 0.5),
        ("RAdam", {"lr": 1e-3}, None),
    ],
)
def test_torchs_own_optimizers_are_told(name: str, options: dict, clip: float | None) -> None:
    found = _of_torch(name, options, clip)
    if name == "RAdam":
        assert not found.best.reproduces, "no member of the family"
        return
    rule = found.best.rule
    assert found.best.reproduces and np.allclose(rule.rates_S, options["lr"], rtol=1e-9)
    decay = options.get("weight_decay", 0.01 if name == "AdamW" else 0.0)
    assert set(rule.decay_T.tolist()) == {decay}
    assert rule.form.clips == (clip is not None)
    if clip is not None:
        assert (rule.values["max_norm"], rule.values["clip_eps"]) == (clip, 1e-6)
    if name != "SGD":
        assert (rule.values["beta1"], rule.values["beta2"]) == options.get("betas", (0.9, 0.999))
        assert rule.values["eps"] == 1e-8 and rule.form.decay == (
            "l2" if name == "Adam" and decay else "decoupled"
        )
    else:
        assert rule.values["momentum"] == options.get("momentum", 0.0)


def _of_torch(name: str, options: dict, clip: float | None) -> Identified:
    import torch

    made: list[torch.optim.Optimizer] = []
    held = {key: torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64)) for key, shape in SHAPES.items()}

    def step(params: Tensors, grads: Tensors, t: int) -> Tensors:
        if not made:
            for key, parameter in held.items():
                parameter.data.copy_(torch.from_numpy(params[key]))
            made.append(getattr(torch.optim, name)(list(held.values()), **options))
        for key, parameter in held.items():
            parameter.grad = torch.from_numpy(grads[key].copy())
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(list(held.values()), clip)
        made[0].step()
        return {key: parameter.detach().numpy().copy() for key, parameter in held.items()}

    return identify(followed(step))
