"""Damaged checkpoints are refused with a RuleError, or are the original to the bit: never a crash, never a
wrong number. Everything is a function of a case's number, so a failure repeats."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from spec.checkpoint import open_checkpoint
from spec.errors import RuleError
from tests.spec.checkpoint import small
from tests.spec.checkpoint.damages import DAMAGES, reseal

STEP = 7


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    small.write(tmp_path / "whole", STEP)
    return tmp_path / "whole" / f"step{STEP:06d}"


def _damaged(whole: Path, damage: Callable[[Random, Path], None], number: int) -> Path:
    folder = whole.parent.parent / "damaged"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    damage(Random(number), folder)
    return folder


def _check(whole: Path, cases: range) -> None:
    """Every damage in turn; what it came to is counted, so that a damage that does nothing shows."""
    refused: Counter[str] = Counter()
    for number in cases:
        damage = DAMAGES[number % len(DAMAGES)]
        folder = _damaged(whole, damage, number)
        try:
            assert small.same(open_checkpoint(folder), STEP), f"case {number}: {damage.__name__}: wrong load"
        except RuleError as error:
            refused[damage.__name__] += 1
            assert str(folder) in error.numbers, f"case {number}: {damage.__name__}: {error}"
            assert error.mend
            assert len(error.message()) < 2000
    for damage in DAMAGES:
        share = refused[damage.__name__] / (len(cases) / len(DAMAGES))
        assert share > 0.6, f"{damage.__name__} is refused in {share:.0%} of the cases: does it do damage?"


def _check_sealed(whole: Path, cases: range) -> None:
    """Descriptions that make no sense under a hash that agrees: each is refused, or opens and reads."""
    refused = 0
    for number in cases:
        folder = _damaged(whole, reseal, number)
        try:
            for array in open_checkpoint(folder).tensors.values():
                assert array.nbytes < 1000, f"case {number}"
        except RuleError:
            refused += 1
    assert refused > 0.6 * len(cases)


def test_damage_is_refused_or_harmless(whole: Path) -> None:
    _check(whole, range(550))
    _check_sealed(whole, range(250))


@pytest.mark.slow  # 10,000 folders are copied, damaged and read, and 2,000 that are sealed again.
def test_damage_is_refused_or_harmless_ten_thousand_times(whole: Path) -> None:
    _check(whole, range(550, 10_550))
    _check_sealed(whole, range(250, 2250))
