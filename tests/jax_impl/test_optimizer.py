"""Norm, clipping, AdamW and the table of learning rates against NumPy and optax in float64."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jax_impl.optimizer import adamw, clip_coefficient, global_norm
from spec.edits import constants
from spec.schedule import Schedule, step_table
from tests.jax_impl.small import mlp_problem
from tests.torch_impl.references import adamw_in_numpy

CONSTANTS = constants(mlp_problem())


def test_norm_of_a_million_float32_is_right_to_the_last_digits() -> None:
    values = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    truth = np.sqrt(np.sum(values.astype(np.float64) ** 2))
    assert abs(float(global_norm(jnp.asarray(values))) / truth - 1) < 3e-7


def test_clip_coefficient(jax_x64) -> None:
    def clip(norm: float, max_norm: float | None, eps: float = 0.0) -> float:
        return float(clip_coefficient(jnp.asarray(norm), max_norm, eps))

    assert clip(4.0, 1.0) == 0.25
    assert clip(1.0, 1.0) == 1.0
    assert clip(0.5, 1.0) == 1.0
    assert clip(0.0, 1.0) == 1.0
    assert clip(1.0, 1.0, eps=1.0) == 0.5
    assert clip(1e9, None) == 1.0
    assert np.isnan(clip(float("nan"), 1.0))
    assert clip(float("inf"), 1.0) == 0.0
    assert clip(3.0, 0.7) == 0.7 / 3.0


def test_adamw_is_its_formula_on_both_groups(jax_x64) -> None:
    generator, optimizer = np.random.default_rng(0), mlp_problem().optimizer
    param, grad, m = (generator.standard_normal(100) for _ in range(3))
    v = generator.standard_normal(100) ** 2
    lr, t = 1e-2, 7
    scalars = [jnp.asarray(x) for x in (lr, 1 - optimizer.beta1**t, 1 - optimizer.beta2**t)]
    for decayed in (True, False):
        found = adamw(*(jnp.asarray(a) for a in (param, grad, m, v)), *scalars, CONSTANTS, decayed)
        expected = adamw_in_numpy(param, grad, m, v, lr, t, optimizer, decayed)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(one), other, rtol=1e-14, atol=1e-16)


@pytest.mark.parametrize("kind", ["constant", "cosine", "linear"])
@pytest.mark.parametrize("warmup_steps", [0, 1, 5])
def test_table_is_optaxs_schedules(jax_x64, kind, warmup_steps) -> None:
    """Every row, first, last and the ends of warm-up and decay among them; the table rounds to float32."""
    schedule = Schedule(kind=kind, peak_lr=3e-3, warmup_steps=warmup_steps, decay_steps=20, final_lr=3e-4)
    steps = 20 - warmup_steps
    after = {
        "constant": optax.constant_schedule(3e-3),
        "cosine": optax.cosine_decay_schedule(3e-3, steps, alpha=0.1),
        "linear": optax.linear_schedule(3e-3, 3e-4, steps),
    }[kind]
    # Update 0 already moves: optax's own warm-up would start at 0.
    warmup = optax.linear_schedule(3e-3 / max(1, warmup_steps), 3e-3, max(1, warmup_steps - 1))
    expected = optax.join_schedules([warmup, after], [warmup_steps])
    rates = step_table(schedule, 0.9, 0.95, 30, "float64")[:, 0]
    np.testing.assert_allclose(rates, [float(expected(t)) for t in range(30)], rtol=6e-8)
