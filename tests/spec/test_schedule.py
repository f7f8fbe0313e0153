"""The step table against formulas written out, and at the edges where schedules differ by one."""

import math

import numpy as np
import pytest

from spec.edits import constants, device_table, parse
from spec.errors import RuleError
from spec.presets import run_spec
from spec.schedule import Schedule, step_table


def test_warmup_then_cosine_at_the_edges() -> None:
    schedule = Schedule(kind="cosine", peak_lr=8.0, warmup_steps=4, decay_steps=12, final_lr=2.0)
    assert [schedule.learning_rate(t) for t in range(4)] == [2.0, 4.0, 6.0, 8.0]
    assert schedule.learning_rate(4) == 8.0
    assert schedule.learning_rate(8) == pytest.approx(2.0 + 6.0 * 0.5, rel=1e-15)
    assert schedule.learning_rate(6) == pytest.approx(2.0 + 3.0 * (1 + math.cos(math.pi / 4)), rel=1e-15)
    assert schedule.learning_rate(12) == schedule.learning_rate(1000) == 2.0


def test_linear_and_constant() -> None:
    linear = Schedule(kind="linear", peak_lr=1.0, warmup_steps=0, decay_steps=4)
    assert [linear.learning_rate(t) for t in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    constant = Schedule(kind="constant", peak_lr=0.5, warmup_steps=2)
    assert [constant.learning_rate(t) for t in range(4)] == [0.25, 0.5, 0.5, 0.5]


def test_corrections_keep_their_digits_in_float32() -> None:
    """`1 - beta**t` in float32 loses four digits for beta 0.9999; the table's entries are rounded once."""
    table = step_table(Schedule(kind="constant", peak_lr=1e-3), 0.9, 0.9999, 50, "float32")
    t = np.arange(1, 51, dtype=np.longdouble)
    exact = 1 - np.longdouble(0.9999) ** t
    assert np.max(np.abs(table[:, 2] / exact - 1)) <= 2.0**-24
    in_float32 = 1 - np.float32(0.9999) ** np.arange(1, 51, dtype=np.float32)
    assert np.max(np.abs(in_float32 / exact - 1)) > 1e-5


def test_learning_rates_are_float32_values_in_every_profile() -> None:
    schedule = Schedule(kind="cosine", peak_lr=1e-3, warmup_steps=3, decay_steps=20)
    single = step_table(schedule, 0.9, 0.95, 20, "float32")
    double = step_table(schedule, 0.9, 0.95, 20, "float64")
    assert double.dtype == np.float64 and np.array_equal(single[:, 0].astype(np.float64), double[:, 0])


def test_an_offset_edit_reads_a_later_rate_and_leaves_the_corrections() -> None:
    problem = run_spec("tiny").problem
    plain = device_table(problem, constants(problem))
    shifted = device_table(problem, constants(problem, [parse("schedule_offset=1")]))
    assert np.array_equal(shifted[:-1, 0], plain[1:, 0]) and shifted[-1, 0] == plain[-1, 0]
    assert np.array_equal(shifted[:, 1:], plain[:, 1:])


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "step", "peak_lr": 1.0},
        {"kind": "constant", "peak_lr": float("nan")},
        {"kind": "constant", "peak_lr": -1.0},
        {"kind": "linear", "peak_lr": 1.0, "warmup_steps": 5, "decay_steps": 4},
    ],
)
def test_impossible_schedules_are_refused(bad) -> None:
    with pytest.raises(RuleError):
        Schedule(**bad)
