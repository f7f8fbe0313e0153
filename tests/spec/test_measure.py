"""Every figure has one definition, and mfu knows only the devices it has a source for."""

import pytest

from spec.measure import FIGURES, PEAK_FLOPS, mfu
from spec.precision import UNIT_ROUNDOFF


def test_every_figure_is_defined_with_a_unit_that_its_name_agrees_with() -> None:
    assert {
        "step_ms",
        "launch_us",
        "dispatch_us",
        "launch_calls_per_step",
        "launch_api_us_per_step",
        "graph_updates_per_step",
        "graph_update_calls_by_api",
        "kernels_per_step",
        "device_busy_ms",
        "device_idle_share",
        "launch_calls_by_api",
        "gap_us",
        "exposed_communication_ms",
        "launch_latency_us",
        "mfu",
        "peak_mem_bytes",
        "compile_s",
        "capture_s",
    } == FIGURES.keys()
    for name, figure in FIGURES.items():
        words = name.split("_")
        unit = next((word for word in words if word in ("ms", "us", "s", "bytes")), "1")
        assert (figure.name, figure.unit) == (name, unit)
        assert figure.meaning.endswith(".")


def test_mfu_is_the_share_of_the_peak() -> None:
    # 989.4 TFLOP/s for 10 ms are 9.894e12 operations.
    share, reason = mfu(9.894e12 / 4, 10.0, "NVIDIA H200", "bfloat16")
    assert share == pytest.approx(0.25, rel=1e-12)
    assert reason is None


def test_mfu_of_an_unknown_device_or_dtype_is_null_with_a_reason() -> None:
    assert mfu(1e12, 1.0, "NVIDIA H2000", "bfloat16") == (None, _unknown("NVIDIA H2000"))
    share, reason = mfu(1e12, 1.0, "NVIDIA H200", "float8")
    assert share is None
    assert "float8" in str(reason)


def _unknown(device: str) -> str:
    return f"no peak known for the device {device!r}; known: {', '.join(PEAK_FLOPS)}"


@pytest.mark.parametrize("device", PEAK_FLOPS)
def test_peaks_are_dense_and_rise_as_precision_falls(device: str) -> None:
    peaks = PEAK_FLOPS[device]
    assert peaks.keys() == UNIT_ROUNDOFF.keys() - {"float16"}, "no profile computes in float16"
    assert peaks["float64"] <= peaks["float32"] < peaks["tf32"]
    assert peaks["bfloat16"] == pytest.approx(2 * peaks["tf32"], rel=1e-3)
