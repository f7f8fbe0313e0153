"""Equivalence over seeds: the statistics against scipy, the rule on written passes, and the real command."""

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import special

from parity.equivalence import rule, statement
from parity.equivalence.beta import incomplete_beta, proportion_bounds, student_cdf, student_quantile
from parity.equivalence.conclusion import conclude
from parity.equivalence.statement import Statement
from parity.report import console
from parity.report import seeds as lines
from parity.report.equivalence import Equivalence
from parity.report.result import Result
from spec import record
from spec.environment import describe_environment
from spec.errors import RuleError
from spec.pairs import Pair
from spec.pairs.materialise import Outline
from tests.parity.conftest import command, environ
from tests.parity.pass_writer import make_content, small_job, small_spec
from tests.parity.results import empty_result

SEEDS = tuple(range(10))


def test_incomplete_beta_is_scipys() -> None:
    for a in (0.5, 1.0, 4.5, 60.0):
        for b in (0.5, 3.0, 200.0):
            for x in (0.0, 1e-6, 0.03, 0.4, 0.5, 0.9, 0.9999, 1.0):
                assert incomplete_beta(a, b, x) == pytest.approx(special.betainc(a, b, x), abs=2e-13), (
                    a,
                    b,
                    x,
                )


def test_student_is_scipys() -> None:
    for df in (1, 2, 9, 29, 500):
        for p in (0.025, 0.05, 0.5, 0.8, 0.95, 0.999):
            assert student_quantile(p, df) == pytest.approx(special.stdtrit(df, p), rel=1e-9, abs=1e-12)
        for t in (-3.0, 0.0, 0.7, 12.0):
            assert student_cdf(t, df) == pytest.approx(special.stdtr(df, t), abs=1e-13)
    # As printed in any table.
    assert round(student_quantile(0.95, 9), 3) == 1.833


def test_bounds_of_a_proportion_are_exact() -> None:
    assert proportion_bounds(0, 100) == pytest.approx((0.0, 1 - 0.025 ** (1 / 100)))
    low, high = proportion_bounds(3, 50)
    # What defines them: each tail has 2.5 % there.
    assert special.bdtrc(2, 50, low) == pytest.approx(0.025)
    assert special.bdtr(3, 50, high) == pytest.approx(0.025)
    assert proportion_bounds(7, 7)[1] == 1.0


def test_interval_decides() -> None:
    spread = np.linspace(-1, 1, 10) * 1e-3
    reach = special.stdtrit(9, 0.95) * spread.std(ddof=1) / math.sqrt(10)
    for mean, outcome in ((0.0, "EQUIVALENT"), (0.0098, "INCONCLUSIVE"), (-0.02, "DIFFERENT")):
        found = rule.test(list(mean + spread), 0.01)
        assert found.outcome == outcome
        assert (found.low, found.high) == pytest.approx((mean - reach, mean + reach))
        assert (found.p <= rule.ALPHA) == (outcome == "EQUIVALENT")
    equal = rule.test([0.0] * 10, 0.01)
    assert (equal.outcome, equal.p, equal.seeds_needed) == ("EQUIVALENT", 0.0, 2)


def test_a_difference_as_large_as_the_margin_is_rarely_called_either() -> None:
    generator = np.random.default_rng(5)
    drawn = [rule.test(list(generator.normal(0.01, 0.004, 10)), 0.01).outcome for _ in range(200)]
    # 5 % of 200 each.
    assert 2 < drawn.count("EQUIVALENT") < 20
    assert 2 < drawn.count("DIFFERENT") < 20


@pytest.mark.parametrize("mean", [0.004, 0.0])
def test_seeds_needed_decide_as_often_as_is_said(mean: float) -> None:
    needed = rule.seeds_needed(mean, 0.02, 0.01)
    assert needed is not None
    generator = np.random.default_rng(6)
    drawn = [rule.test(list(generator.normal(mean, 0.02, needed)), 0.01).outcome for _ in range(150)]
    assert 0.7 < drawn.count("EQUIVALENT") / 150 < 0.9


def test_no_number_of_seeds_decides_at_the_margin() -> None:
    assert rule.seeds_needed(0.01, 0.02, 0.01) is None


def test_last_window_is_a_tenth() -> None:
    assert rule.last_window(np.arange(40.0)) == 37.5
    assert rule.last_window(np.array([3.0, 7.0])) == 7.0
    assert rule.relative(1.1, 0.9) == pytest.approx(0.2)
    assert rule.relative(0.0, 0.0) == 0.0


def stated(**changes: object) -> Statement:
    known: dict[str, object] = {
        "margin": 0.01,
        "seeds": SEEDS,
        "problem": small_spec().problem,
        "execution": "1 x cpu, torch eager, jax jit",
    }
    return Statement(**known | changes)  # type: ignore[arg-type]


def written(folder: Path, factors: list[float], broken: str = "") -> dict[int, dict[str, Path]]:
    """Passes whose last losses on the torch side are those of jax, times a factor a seed."""
    passes: dict[int, dict[str, Path]] = {}
    for seed, factor in zip(SEEDS, factors, strict=True):
        for side in ("torch", "jax"):
            content = make_content(replace(small_job(folder / f"{seed}_{side}", side), observe=()))
            last = content.job.steps - 1
            content.set_value(last, "loss", (4 + 0.1 * seed) * (factor if side == "torch" else 1.0))
            if side == broken and seed == 3:
                content.steps[0][1]["batch_digest"] = "f" * 16
            passes.setdefault(seed, {})[side] = content.write()
    return passes


def test_written_seeds_are_concluded(tmp_path: Path) -> None:
    jitter = np.linspace(-1, 1, 10)
    for name, factors, outcome in (
        ("near", 1 + 1e-3 * jitter, "EQUIVALENT"),
        ("far", 1.05 + 1e-3 * jitter, "DIFFERENT"),
        ("wide", 1 + 0.05 * jitter, "INCONCLUSIVE"),
    ):
        refusals, found = conclude(stated(), written(tmp_path / name, list(factors)))
        assert found is not None and (refusals, found.outcome) == ([], outcome)
        assert lines.headline(found).startswith(f"{outcome}  loss, torch - jax: ")
        assert len(lines.table(found)[1]) == len(found.seeds) == 10
        assert bool(found.notes) == (outcome == "INCONCLUSIVE")
    assert found.seeds_needed is not None and found.seeds_needed > 10
    printed = console.text(record_of(found))
    assert printed.startswith("INCONCLUSIVE  loss, torch - jax: ")
    assert f"note: about {found.seeds_needed} seeds would decide" in printed


def record_of(found: Equivalence) -> Result:
    return empty_result(
        "equivalence", verdict="INCONCLUSIVE", exit_code=4, reasons=found.notes, equivalence=found
    )


def test_a_lost_loss_decides_nothing_and_is_named(tmp_path: Path) -> None:
    _, found = conclude(stated(), written(tmp_path, [math.nan, *[1.0] * 9]))
    assert found is not None and (found.outcome, found.mean) == ("INCONCLUSIVE", None)
    assert "seed 0 (torch)" in found.notes[0]
    assert lines.table(found)[1][0][1] == "not finite"


def test_sides_that_were_not_given_the_same_are_not_tested(tmp_path: Path) -> None:
    refusals, found = conclude(stated(), written(tmp_path, [1.0] * 10, broken="jax"))
    assert found is None
    assert refusals[0].startswith("seed 3: batch of step 1")


def test_another_test_is_refused_with_both_values(tmp_path: Path) -> None:
    run = {"spec": {}, "backends": [], "edits": {}, "environment": {}}
    record.write_json(tmp_path / "run.json", run | stated().told())
    before = statement.read_statement(tmp_path)
    statement.refuse_another(before, stated(), tmp_path)
    with pytest.raises(RuleError, match=r"margin: 0.01 in .*, now 0.02"):
        statement.refuse_another(before, stated(margin=0.02), tmp_path)
    with pytest.raises(RuleError, match=r"problem.seed_data: 1 in .*, now 9"):
        statement.refuse_another(before, stated(problem=replace(small_spec().problem, seed_data=9)), tmp_path)
    record.write_json(tmp_path / "run.json", run)
    with pytest.raises(RuleError, match="is none"):
        statement.read_statement(tmp_path)


def test_a_pair_that_was_edited_since_is_refused_and_its_file_named(tmp_path: Path) -> None:
    for name in ("pair.py", "torch_side.py", "jax_side.py"):
        (tmp_path / name).write_text(name)
    outline = Outline(folder=str(tmp_path), pair=Pair(), rows=8, arrays={})
    before = stated(files=statement.hash_files(outline))
    (tmp_path / "jax_side.py").write_text("edited")
    with pytest.raises(RuleError, match=r"files\.jax_side\.py: \w{12} in .*, now \w{12}"):
        statement.refuse_another(before, stated(files=statement.hash_files(outline)), tmp_path)
    assert statement.hash_files(None) == {}


def test_files_of_one_name_in_two_folders_both_count(tmp_path: Path) -> None:
    for name in ("pair.py", "one/side.py", "other/side.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    pair = Pair(torch="one/side.py", jax="other/side.py")
    hashed = statement.hash_files(Outline(folder=str(tmp_path), pair=pair, rows=8, arrays={}))
    assert set(hashed) == {"pair.py", "one/side.py", "other/side.py"}


def test_other_versions_are_refused_with_both(tmp_path: Path) -> None:
    now = describe_environment()
    statement.refuse_other_machine(now, describe_environment(), "cpu", tmp_path)
    before = now | {"packages": now["packages"] | {"torch": "2.11.0"}}
    with pytest.raises(RuleError, match=r"torch 2\.11\.0, now 2\."):
        statement.refuse_other_machine(before, now, "cpu", tmp_path)


@pytest.mark.parametrize("text", ["1", "0.01", "0%", "100%", "-1%", "nan%", "%", "1e%"])
def test_a_margin_is_a_percentage(text: str) -> None:
    with pytest.raises(RuleError, match="percentage"):
        statement.parse_margin(text)
    assert statement.parse_margin("2.5%") == 0.025
    with pytest.raises(RuleError, match="at least 10"):
        statement.check_seeds(9)


def parity(folder: Path, words: str) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        command(f"equivalence {words} --json -"),
        cwd=folder,
        env=environ(),
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


# Slow: every command trains ten seeds on both sides.
@pytest.mark.slow
def test_both_sides_are_equivalent_and_a_stopped_test_goes_on(tmp_path: Path) -> None:
    code, result = parity(tmp_path, "toy-mlp --steps 30 --margin 1%")
    assert (code, result["verdict"], result["equivalence"]["outcome"]) == (0, "SAME", "EQUIVALENT")
    (run,) = (tmp_path / "runs").glob("0001_*")
    assert json.loads((run / "run.json").read_text())["equivalence"]["margin"] == 0.01
    # As if it had been killed: one pass is not finished, one has not begun.
    (run / "passes/seed0009_jax_run/done.json").unlink()
    (run / "passes/seed0004_torch_run/done.json").unlink()
    code, again = parity(tmp_path, "toy-mlp --steps 30 --margin 1% --resume 1")
    assert (code, again["equivalence"]["seeds"]) == (0, result["equivalence"]["seeds"])
    assert [launch["passes"] for launch in again["launches"]] == [
        ["seed0004_torch_run"],
        ["seed0009_jax_run"],
    ]


# Slow: every command trains ten seeds on both sides.
@pytest.mark.slow
def test_a_planted_change_is_different(tmp_path: Path) -> None:
    code, result = parity(tmp_path, "toy-mlp --steps 30 --margin 1% --edit jax:weight_decay=5")
    assert (code, result["equivalence"]["outcome"]) == (1, "DIFFERENT")
    assert result["equivalence"]["interval"][0] > 0.01
