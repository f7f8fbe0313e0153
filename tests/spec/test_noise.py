"""The noise of reruns: one rounding at most, rows only reordered, the same for everyone."""

import numpy as np

from spec import noise
from spec.data.batches import micro_slices

U = 2.0**-24


def state() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    weights = generator.standard_normal((64, 32)).astype(np.float32)
    return {"param/w": weights, "m/w": weights.copy(), "meta/applied": np.array(3)}


def test_parameters_move_by_a_rounding_and_nothing_else_moves() -> None:
    before = state()
    after = noise.moved(before, 0, U)
    moved = np.abs(after["param/w"].astype(np.float64) - before["param/w"])
    # Half a spacing more, since the sum is rounded to float32 again.
    assert (moved <= 2 * np.spacing(np.abs(before["param/w"])).astype(np.float64)).all()
    assert 0.2 < (moved > 0).mean() < 1
    assert after["m/w"] is before["m/w"]
    assert after["meta/applied"] == 3
    assert after["param/w"].dtype == np.float32


def test_noise_is_a_function_of_rerun_and_name() -> None:
    one, again, other = (noise.moved(state(), rerun, U)["param/w"] for rerun in (0, 0, 1))
    assert one.tobytes() == again.tobytes()
    assert one.tobytes() != other.tobytes()
    zero = {"param/b": np.zeros(8, np.float32)}
    assert not noise.moved(zero, 0, U)["param/b"].any(), "relative noise leaves zeros as they are"


def test_the_noise_has_the_size_that_is_asked_for() -> None:
    ones = {"param/w": np.ones(10_000)}
    x = (noise.moved(ones, 0, 2.0**-8)["param/w"] - 1) * 2**8
    assert np.abs(x).max() <= 1
    np.testing.assert_allclose(np.sqrt(np.mean(x**2)), 3**-0.5, rtol=0.02)
    assert abs(x.mean()) < 0.02


def test_rows_stay_within_their_micro_batch() -> None:
    rows = {"x": np.arange(12).reshape(12, 1), "y": np.arange(12)}
    slices = micro_slices(12, 3)
    found = noise.reordered(rows, 1, 5, slices)
    for cut in slices:
        assert sorted(found["y"][cut]) == list(range(cut.start, cut.stop))
    assert (found["x"][:, 0] == found["y"]).all(), "arrays move together"
    assert not np.array_equal(found["y"], rows["y"])
    assert not np.array_equal(found["y"], noise.reordered(rows, 2, 5, slices)["y"])
