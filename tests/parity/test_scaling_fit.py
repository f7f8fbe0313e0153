"""The scaling study fitted: runs made by formula are recovered, and what is missing says why."""

import pytest

from benchmarks.scaling.fit import Fit, exposed_ms, fit, predict
from benchmarks.scaling.model import Link, Node
from benchmarks.scaling.points import Family, Point
from benchmarks.scaling.uncertainty import intervals
from parity.report.speeds import Spread

BANDWIDTH, LATENCY = 300e6, 0.02
"""Bytes a ms, and ms a hop."""
SIZES = {"big": 600_000_000, "small": 30_000_000}
COMPUTE = {"big": 30.0, "small": 1.0}
STEADY = (0.05,) * 20
NODE = Node(8, Link(40e6, 0.01))


def ring(size: float, n: int) -> float:
    return 2 * (n - 1) / n * size / BANDWIDTH + 2 * (n - 1) * LATENCY


def spread(ms: float) -> Spread:
    return Spread(n=20, median=ms, p10=ms, p90=ms, mad=0.0)


def point(preset: str, devices: int, ms: float, family: Family = "torch", **changes) -> Point:
    usual = dict(
        preset=preset,
        devices=devices,
        family=family,
        mode="torch graph",
        step_ms=spread(ms),
        launch_us=None,
        dispatch_us=None,
        exposed_ms=None,
        busy_ms=None,
        collective_ms=None,
        peer=None,
        ratio_to_peer=None,
        windows_ms=((ms,) * 10,) * 2,
        draws_ms=STEADY,
        gradient_bytes=SIZES[preset],
        rows_per_device=8,
        precision="bf16",
        device="a GPU",
        code="c0ffee",
        folder=f"{preset}_{devices}",
        reasons={},
    )
    return Point(**usual | changes)  # type: ignore[arg-type]


def made(preset: str, devices: int) -> Point:
    """A step whose device decides and whose all-reduce nothing hides."""
    return point(preset, devices, COMPUTE[preset] + ring(SIZES[preset], devices))


def of(fits: list[Fit], preset: str, family: Family = "torch") -> Fit:
    return next(one for one in fits if (one.preset, one.family) == (preset, family))


def test_two_presets_on_two_counts_give_the_model_back_and_predict_the_rest() -> None:
    fits = fit([made(preset, n) for preset in SIZES for n in (1, 2)])
    for preset, size in SIZES.items():
        found = of(fits, preset)
        assert found.compute_ms.value == pytest.approx(COMPUTE[preset])
        assert found.exposed_ms[2].value == pytest.approx(ring(size, 2))
        assert found.bandwidth_gb_per_s.value == pytest.approx(300.0)
        assert found.latency_us.value == pytest.approx(20.0)
        assert {found.bandwidth_gb_per_s.source, found.compute_ms.source} == {"fitted"}
        for n in (4, 8):
            step = predict(found, n, NODE).step_ms
            assert step.value == pytest.approx(COMPUTE[preset] + ring(size, n)) and step.source == "predicted"
        far = predict(found, 16, NODE).step_ms.value
        between = size / 8 / 40e6 + 2 * 0.01
        assert far == pytest.approx(COMPUTE[preset] + ring(size, 8) + between)


def test_one_preset_on_one_larger_count_is_scaled_and_says_so() -> None:
    found = of(fit([made("big", 1), made("big", 2)]), "big")
    assert found.bandwidth_gb_per_s.value is None
    assert "two sizes" in found.bandwidth_gb_per_s.how and found.bandwidth_gb_per_s.source == "missing"
    exposed = exposed_ms(found, 8, NODE)
    assert exposed.value == pytest.approx(ring(SIZES["big"], 2) * (7 / 8) / (1 / 2))
    assert "no link could be fitted" in exposed.how


def test_traces_tell_the_exposed_share_of_the_all_reduce() -> None:
    """Half of each all-reduce is hidden, so half of it stays exposed."""
    points = []
    for preset, size in SIZES.items():
        half = ring(size, 2) / 2
        points += [
            made(preset, 1),
            point(preset, 2, COMPUTE[preset] + half, exposed_ms=half, collective_ms=ring(size, 2)),
        ]
    found = of(fit(points), "big")
    assert found.exposed_ms[2].source == "measured" and "traced" in found.latency_us.how
    assert found.bandwidth_gb_per_s.value == pytest.approx(300.0)
    assert exposed_ms(found, 8, NODE).value == pytest.approx(ring(SIZES["big"], 8) / 2)
    beyond = exposed_ms(found, 16, NODE).value
    assert beyond == pytest.approx(ring(SIZES["big"], 8) / 2 + (SIZES["big"] / 8 / 40e6 + 0.02) / 2)


def test_what_hidden_all_reduces_slow_down_stays() -> None:
    """On two devices the step takes 0.2 ms more than compute on one and what a trace calls exposed."""
    points = []
    for preset, size in SIZES.items():
        points += [
            made(preset, 1),
            point(preset, 2, COMPUTE[preset] + 0.2 + ring(size, 2), exposed_ms=ring(size, 2)),
        ]
    found = of(fit(points), "big")
    assert found.slowed_ms[2].value == pytest.approx(0.2)
    assert predict(found, 2, NODE).step_ms.value == pytest.approx(
        COMPUTE["big"] + 0.2 + ring(SIZES["big"], 2)
    )
    eight = predict(found, 8, NODE)
    assert eight.step_ms.value == pytest.approx(COMPUTE["big"] + 0.2 + ring(SIZES["big"], 8))
    assert eight.slowed_ms.source == "assumed" and "on 2 devices" in eight.slowed_ms.how
    assert predict(found, 1, NODE).slowed_ms.value == 0


def test_what_a_host_paced_step_takes_beside_its_launch_is_the_hosts() -> None:
    """Launches take 0.6 ms, the device 0.03: a step of 0.7 is the host's, as one of 1.05 on two devices."""
    host_paced = [
        point("small", 1, 0.7, "jax", busy_ms=0.03, draws_ms=(0.6,) * 40),
        point("small", 2, 1.05, "jax", draws_ms=(0.8,) * 40),
    ]
    graph = [made(preset, n) for preset in SIZES for n in (1, 2)]
    found = of(fit([*host_paced, *graph]), "small", "jax")
    assert found.host_by_count_ms[1].value == pytest.approx(0.7)
    assert found.host_ms.value == pytest.approx(1.05) and "metrics are fetched" in found.host_ms.how
    assert found.exposed_ms[2].value is None
    # The links are torch's, since nothing tells of this family's all-reduce.
    assert found.link == of(fit(graph), "small", "torch").link
    assert predict(found, 2, NODE).step_ms.value == pytest.approx(1.05)


def test_a_step_that_the_host_decides_takes_its_launch_and_the_wait_for_the_last() -> None:
    """Launches take 10 or 14 ms alike, the device 1.3: of N ranks the last has 14 but for one in 2^N."""
    draws = (10.0, 14.0) * 20
    eager = [
        point("small", 1, 12.0, "torch ddp", busy_ms=1.3, draws_ms=draws),
        point("small", 2, 13.0, "torch ddp", draws_ms=draws),
    ]
    graph = [made(preset, n) for preset in SIZES for n in (1, 2)]
    found = of(fit([*eager, *graph]), "small", "torch ddp")
    assert (found.compute_ms.value, found.compute_ms.source) == (1.3, "measured")
    assert found.exposed_ms[2].value is None and "launching takes longer" in found.exposed_ms[2].how
    step = predict(found, 4, NODE)
    assert (step.exposed_ms.value, step.exposed_ms.source) == (pytest.approx(ring(3e7, 4)), "assumed")
    assert step.host_ms.value == pytest.approx(12.0)
    assert step.step_ms.value == pytest.approx(14 - 4 / 2**4)
    far = predict(found, 10_000, NODE)
    assert far.skew_ms.source == "assumed" and "assumed exponential tail" in far.skew_ms.how


def test_a_count_that_was_measured_has_its_own_host_time() -> None:
    """Alone the host launches in 1 ms, beside another rank in 4; only what was not measured takes the 4."""
    alone = point("small", 1, 1.365, draws_ms=(1.0,) * 20)
    crowded = point("small", 2, 5.575, draws_ms=(4.0,) * 20)
    found = of(fit([alone, crowded]), "small")
    assert predict(found, 1, NODE).step_ms.value == pytest.approx(1.365)
    assert predict(found, 2, NODE).step_ms.value == pytest.approx(5.575)
    hosts = [predict(found, n, NODE).host_ms.value for n in (1, 2, 4)]
    assert hosts == pytest.approx([1.0, 4.0, 4.0])


def test_single_calls_that_take_longer_than_steps_are_made_smaller() -> None:
    point_of = point("small", 1, 12.0, "torch ddp", draws_ms=(16.0,) * 20, busy_ms=1.0)
    found = of(fit([point_of]), "small", "torch ddp")
    assert found.host_ms.value == pytest.approx(12.0) and found.host_ms.source == "fitted"


def test_what_is_missing_is_null_with_the_reason() -> None:
    lacks_one = predict(of(fit([made("big", 2)]), "big"), 4, NODE)
    assert lacks_one.step_ms.value is None
    assert lacks_one.step_ms.how == "its step on one device was not measured"
    lacks_two = predict(of(fit([made("big", 1)]), "big"), 4, NODE)
    assert lacks_two.step_ms.value is None and "on one device alone" in lacks_two.step_ms.how
    assert (lacks_two.exposed_ms.value, lacks_two.exposed_ms.source) == (None, "missing")
    no_calls = predict(of(fit([point("big", 1, 3.0, draws_ms=())]), "big"), 1, NODE)
    assert no_calls.step_ms.value is None and "fewer than 5 dispatch times" in no_calls.step_ms.how
    hidden = of(fit([point("big", 1, 3.0, draws_ms=(2.9,) * 20)]), "big")
    assert hidden.compute_ms.value is None and "no trace was made" in hidden.compute_ms.how


def test_an_interval_holds_what_passes_and_windows_leave_open() -> None:
    """One pass says 2, the other 3 ms of exposed all-reduce; on 4 devices it is (3/4) / (1/2) of that."""
    exact = [made("big", 1), made("big", 2)]
    low, high = intervals(exact, 4, NODE)["big", "torch"]
    assert low == pytest.approx(high) == pytest.approx(30.0 + 1.5 * ring(SIZES["big"], 2))
    unsure = point("big", 2, 32.5, windows_ms=((32.0,) * 6, (33.0,) * 6))
    assert intervals([made("big", 1), unsure], 4, NODE)["big", "torch"] == pytest.approx((33.0, 34.5))
    assert intervals([made("big", 2)], 4, NODE) == {}


def test_the_fastest_mode_of_a_family_stands_for_it() -> None:
    slow = point("big", 1, 40.0, mode="jax jit", family="jax")
    fast = point("big", 1, 35.0, mode="jax jit:concurrent", family="jax")
    found = of(fit([slow, fast]), "big", "jax")
    assert found.compute_ms.value == pytest.approx(35.0) and "jit:concurrent" in found.compute_ms.how
