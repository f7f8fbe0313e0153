"""What a side's own loop logs as the learning rate, held against the rates that its updates take."""

from collections.abc import Callable
from pathlib import Path

import pytest

from parity.judge.align import Measured
from parity.judge.verdict import judge
from spec import record
from spec.errors import RuleError
from spec.pairs import user_code
from tests.parity.pass_writer import make_content, small_job, small_spec

RATE = small_spec().problem.schedule.learning_rate


def skews(folder: Path, logged: Callable[[int], float] | None) -> list[str]:
    """Those of a run whose JAX side logs this, and whose torch side logs nothing."""
    contents = [make_content(small_job(folder / side, side)) for side in ("torch", "jax")]
    for line in contents[1].steps[0] if logged else ():
        line |= record.float_fields("logged_lr", logged(line["step"]))  # type: ignore[misc]
    found = judge(*(Measured(content.job.side, content.write()) for content in contents))
    assert found.verdict == "SAME"
    return found.log_skew


@pytest.mark.parametrize("logged", [None, RATE, lambda step: RATE(step) * (1 + 1e-7)])
def test_a_right_log_is_not_mentioned(tmp_path: Path, logged: Callable[[int], float] | None) -> None:
    assert skews(tmp_path, logged) == []


@pytest.mark.parametrize(("shift", "words"), [(1, "after"), (-1, "before")])
def test_a_log_that_is_one_step_off_is_named(tmp_path: Path, shift: int, words: str) -> None:
    (line,) = skews(tmp_path, lambda step: RATE(max(0, step + shift)))
    assert line.startswith(f"LOG-SKEW: jax logs the learning rate of the step {words} (")


def test_a_log_of_other_rates_is_counted(tmp_path: Path) -> None:
    (line,) = skews(tmp_path, lambda step: RATE(step) * (2 if step == 2 else 1))
    assert line == (
        "LOG-SKEW: jax logs other learning rates than are applied, at 1 of 4 steps: "
        f"{2 * RATE(2):g} at step 2, where {RATE(2):g} is applied"
    )


def test_a_function_that_raises_is_named(tmp_path: Path) -> None:
    path = tmp_path / "jax_side.py"
    path.write_text("def logged_lr(step):\n    return [0.1][step]\n")
    logged = user_code.logged_lr(user_code.load(path, []))
    assert logged is not None and logged(0) == 0.1
    with pytest.raises(RuleError, match=r"logged_lr\(step\) gives a learning rate") as error:
        logged(1)
    assert "jax_side.py:2" in error.value.numbers and "IndexError" in error.value.numbers


def test_a_function_is_tried_at_the_first_and_the_last_step() -> None:
    asked: list[int] = []

    def logged(step: int) -> float:
        asked.append(step)
        return 0.1

    user_code.try_logged_lr(logged, 5)
    user_code.try_logged_lr(None, 5)
    assert asked == [0, 4]
