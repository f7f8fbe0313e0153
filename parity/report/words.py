"""Figures as people read them. Must not: know which table they stand in."""

from parity.report.result import Result, SideSpeed
from parity.report.speeds import Ratio, Spread


def figure(side: SideSpeed | None, name: str) -> str:
    """A figure of a side with its spread, `-` where it was not measured."""
    value = getattr(side, name, None)
    if value is None:
        return "-"
    if isinstance(value, Spread):
        return f"{compact(value.median)} ({compact(value.p10)}-{compact(value.p90)}, n {value.n})"
    return compact(value)


def newest_call(result: Result) -> str:
    """`call 2`, the one whose figures `speed` has; empty where there was one call at most."""
    return f"call {result.invocations[-1].number}" if len(result.invocations) > 1 else ""


def compact(value: float) -> str:
    """Four significant digits, and no exponent for large values."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def allowed(value: float) -> str:
    """`1.5e-06`, `0.25`: two digits, so that what lies beyond a tolerance does not look allowed."""
    return f"{value:.2g}" if 0.01 <= value < 100 else f"{value:.1e}".replace(".0e", "e")


def ratio(value: Ratio | None) -> str:
    """`1.461 (1.339-1.617) SLOWER`; `-` for none."""
    if value is None:
        return "-"
    low, high = value.ci95
    return f"{value.median:.3f} ({low:.3f}-{high:.3f}) {value.verdict or ''}".rstrip()
