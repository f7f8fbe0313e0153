"""What a difference looks like, told from made-up differences."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from parity.explain.command import limits, unseen
from parity.explain.residuals import Key, Left
from parity.explain.search import Step, Tried
from parity.explain.signature import Signature, signatures
from parity.judge.measures import rms
from spec.data.folder import batch_file
from spec.edits import Edit
from spec.weights import save_tensors
from spec.workloads.pair import PairFiles, PairSizes

KEY = Key(0, "act", "norm")
RNG = np.random.default_rng(0)


@pytest.fixture
def looks(tmp_path: Path):  # type: ignore[no-untyped-def]
    """The signatures of one activation that is `torch` on one side and `jax` on the other."""

    def tell(torch: np.ndarray, jax: np.ndarray) -> list[Signature]:
        states = tmp_path / "states"
        states.mkdir(exist_ok=True)
        save_tensors(batch_file(states, 0), {"param/w": np.ones(1)})
        difference = (torch - jax) / rms(jax)
        left = Left({KEY: difference}, {KEY: rms(difference)}, {KEY: True})
        reference = SimpleNamespace(values=lambda key: jax, name=lambda key: key.tensor)
        return signatures(left, reference, states, 0.95)  # type: ignore[arg-type]

    return tell


def normalised(x_NC: np.ndarray, eps: float) -> np.ndarray:
    return x_NC / np.sqrt(np.square(x_NC).mean(1, keepdims=True) + eps)


def test_an_eps_scales_every_row_by_its_own_number_to_one_side(looks) -> None:  # type: ignore[no-untyped-def]
    x_NC = RNG.normal(size=(6, 16)) * np.array([1, 0.1, 0.01, 1, 0.1, 0.01])[:, None]
    (look,) = looks(normalised(x_NC, 1e-7), normalised(x_NC, 1e-5))
    assert look.name == "largest where inputs are small" and "large rows hide it" in look.words


def test_a_ratio_close_to_1_is_told_by_its_distance(looks) -> None:  # type: ignore[no-untyped-def]
    y_NC = RNG.normal(size=(3, 16))
    (look,) = looks(y_NC * (1 + 1e-7 * np.array([1, 2, 5]))[:, None], y_NC)
    assert "torch / jax from 1 + 1e-07 to 1 + 5e-07" in look.words
    (look,) = looks(y_NC * (1 - 3e-8), y_NC)
    assert "torch / jax = 1 - 3e-08 in all 1 tensors" in look.words


def test_a_row_of_one_element_is_no_multiple_of_the_other_side(looks) -> None:  # type: ignore[no-untyped-def]
    y_N1 = RNG.normal(size=(6, 1))
    (look,) = looks(y_N1 + RNG.normal(size=(6, 1)), y_N1)
    assert look.name == "elementwise"


def test_nothing_to_explain_says_what_the_run_cannot_show() -> None:
    def told(outcome: str, over_one: tuple[str, ...]) -> str:
        pair = PairFiles(torch="torch_side.py", jax="jax_side.py", over_one=over_one)
        problem = SimpleNamespace(sizes=PairSizes())
        found = SimpleNamespace(outcome=outcome)
        return unseen(found, SimpleNamespace(spec=SimpleNamespace(problem=problem, pair=pair)))  # type: ignore[arg-type]

    assert told("equal", ("lstm",)).startswith("; but one position cannot show what the model does")
    assert told("equal", ()) == told("none", ("lstm",)) == ""


def test_rounding_of_a_variance_scales_rows_to_both_sides(looks) -> None:  # type: ignore[no-untyped-def]
    y_NC = RNG.normal(size=(6, 16))
    (look,) = looks(y_NC * (1 + 1e-6 * np.array([1, -1, 2, -2, 3, -3]))[:, None], y_NC)
    assert look.name == "largest where means are large"


def test_one_ratio_is_no_ratio_for_each_row(looks) -> None:  # type: ignore[no-untyped-def]
    y_NC = RNG.normal(size=(6, 16))
    (look,) = looks(y_NC * 55.5, y_NC * 3072**0.5)
    assert look.name == "one ratio for all tensors" and "torch / jax = 1.00134" in look.words


def test_what_was_changed_in_the_whole_model_at_once_is_said_where_nothing_is_found() -> None:
    """One norm of several has another eps: no value for all of them closes the difference."""
    left = Left({}, {KEY: 1e-6}, {KEY: True})
    tried = [Tried(Edit(name=name, value=1e-5), left, 0, 0) for name in ("rmsnorm_eps", "layernorm_eps")]
    step = Step(KEY, 5e-6, [Signature("largest where inputs are small", "")], tried)
    (words,) = limits(step, {"rmsnorm_eps"})
    assert words.startswith("rmsnorm_eps in one place alone") and words.endswith("at norm")
    assert not list(limits(step, set())), "no call of the kind is in the model"
    step.confirmed = tried[:1]
    assert not list(limits(step, {"rmsnorm_eps"}))


def test_nothing_at_position_0_is_told_with_what_follows(looks) -> None:  # type: ignore[no-untyped-def]
    y_BTC = RNG.normal(size=(2, 8, 4))
    (look,) = looks(y_BTC + RNG.normal(size=y_BTC.shape) * (np.arange(8) > 0)[:, None], y_BTC)
    assert look.name == "grows with position" and "0.0e+00 at position 0" in look.words


def test_what_has_no_pattern_is_said_to_have_none(looks) -> None:  # type: ignore[no-untyped-def]
    y_NC = RNG.normal(size=(6, 16))
    (look,) = looks(y_NC + 1e-3 * RNG.normal(size=y_NC.shape), y_NC)
    assert look.name == "elementwise"
