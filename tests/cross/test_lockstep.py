"""PyTorch against JAX in float64, tensor by tensor: logits and all activations, loss, gradients, update.

Two right sides differ by the order of sums: 1e-16 times some tens. 1e-13 leaves room and sees every mistake
that is no rounding; a clip epsilon of 1e-9 shows as 1e-9.
"""

from dataclasses import replace

import numpy as np
import pytest

from spec.edits import Edit
from spec.mapping.links import Link, table_links
from spec.run import AdamW
from tests.cross import lockstep
from tests.jax_impl.small import gpt_problem, mlp_problem

TOLERANCE = 1e-13

PROBLEMS = {
    "gpt": gpt_problem(precision="f64"),
    "gpt, sliced": gpt_problem(precision="f64", micro_batches=2),
    "mlp": mlp_problem(precision="f64"),
}


@pytest.fixture(params=PROBLEMS)
def sides(request, jax_x64) -> lockstep.Sides:
    return lockstep.make_sides(PROBLEMS[request.param])


def test_ten_steps_in_lockstep(sides) -> None:
    for number in range(10):
        found = lockstep.step(sides, number)
        assert found["batch"] == found["init"] == 0.0
        apart = {phase: distance for phase, distance in found.items() if not distance <= TOLERANCE}
        assert not apart, (number, apart)
    assert sides.torch.metrics().lr == sides.jax.metrics().lr
    assert sides.torch.facts()["parameters"] == sides.jax.facts()["parameters"]


def test_ten_free_steps_have_the_same_losses(sides) -> None:
    for number in range(10):
        rows = sides.torch.feed.rows(number)
        sides.torch.step(rows)
        sides.jax.step(rows)
        one, other = sides.torch.metrics(), sides.jax.metrics()
        assert one.loss == pytest.approx(other.loss, rel=1e-13)
        assert one.grad_norm == pytest.approx(other.grad_norm, rel=1e-12)
        assert (one.lr, one.skipped, one.tokens) == (other.lr, other.skipped, other.tokens)


@pytest.mark.parametrize(("precision", "tolerance"), [("strict", 5e-6), ("bf16", 2e-2)])
@pytest.mark.parametrize("make", [gpt_problem, mlp_problem], ids=["gpt", "mlp"])
def test_the_first_step_in_other_profiles(make, precision, tolerance) -> None:
    """Ten or so roundings of 6e-8 or 4e-3 on the way through the model and back. The parameters are left out:
    Adam's first step is the sign of a gradient, whatever its size."""
    found = lockstep.step(lockstep.make_sides(make(precision=precision)), 0)
    assert found["batch"] == found["init"] == 0.0
    assert max(found[phase] for phase in ("act", "loss", "grad", "norm", "clipped", "m")) < tolerance, found
    assert found["v"] < 2 * tolerance
    assert max(found.values()) > 0


CLIPPED_GPT = gpt_problem(precision="f64", optimizer=AdamW(max_norm=0.5))
CLIPPED_MLP = PROBLEMS["mlp"]
PLANTED = {
    "gelu_erf": (1.0, "act", CLIPPED_GPT),
    "layernorm_eps": (1e-6, "act", CLIPPED_GPT),
    # Of the step alone, which is the same for every model; this one compiles in a fifth of the time.
    "loss_scale": (1.0 + 1e-9, "loss", CLIPPED_MLP),
    "clip_eps": (1e-9, "clipped", CLIPPED_MLP),
    "adam_eps": (1e-7, "param", CLIPPED_MLP),
    "weight_decay": (0.1 + 1e-6, "param", CLIPPED_MLP),
    "schedule_offset": (1, "param", CLIPPED_MLP),
}
"""Edits of the JAX side, each with the first phase that must not be the same."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_shows_first_where_it_is_made(jax_x64, name) -> None:
    value, phase, problem = PLANTED[name]
    found = lockstep.step(lockstep.make_sides(problem, (Edit(name=name, value=value),)), 0)
    assert lockstep.first_divergence(found, TOLERANCE) == phase, found


def test_a_missing_transpose_of_a_square_matrix_is_caught(jax_x64, monkeypatch) -> None:
    """Its shape tells nothing; the first activation behind it does."""
    monkeypatch.setattr("jax_impl.state._links", _all_but_square)
    found = lockstep.step(lockstep.make_sides(gpt_problem(precision="f64")), 0)
    # Exported as wrongly as it was loaded, so it looks like the same weight.
    assert found["init"] == 0.0
    assert lockstep.first_divergence(found, TOLERANCE) == "act"


def _all_but_square(state, phase, held) -> tuple[Link, ...]:
    links = table_links(state.rows)
    return tuple(replace(x, axes=()) if x.torch_shape == x.torch_shape[::-1] else x for x in links)


def test_distances_have_a_floor_and_split_off_zero_gradients() -> None:
    rows = {row.name: row for row in gpt_problem().parameter_table()}
    key = "grad/blocks.0.attn.qkv.bias"
    one = {key: np.ones(48), "grad/ln_f.bias": np.zeros(16)}
    one[key][16:32] = 1e-17
    other = {name: array.copy() for name, array in one.items()}
    other[key][20] = -1e-17
    found = lockstep.distances(one, other, rows)
    assert (found["grad/ln_f.bias"], found[key]) == (0.0, 0.0)
    assert 1e-18 < found[f"{key}, zero gradient"] < 1e-16
    other[key][0] += 1e-12
    assert 1e-13 < lockstep.distances(one, other, rows)[key] < 1e-12
    other["grad/ln_f.bias"][3] = 1e-19
    assert 1e-14 < lockstep.distances(one, other, rows)["grad/ln_f.bias"] < 1e-13
    with pytest.raises(AssertionError):
        lockstep.distances(one, {key: other[key]}, rows)
