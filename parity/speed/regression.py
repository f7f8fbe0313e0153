"""Is a figure worse than it was? Limits as they are typed, and one figure of two runs held against them.

A figure fails where it is beyond its limit AND its interval says that it is more than noise. Must not: choose
which runs are held against each other.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parity.report.speeds import Ratio, SpeedChange
from parity.speed.figures import TimePass
from parity.speed.statistics import ratio, spread
from spec.errors import RuleError

FIGURES: Mapping[str, tuple[str, float | None]] = {
    "step_ms.median": ("ms", 50.0),
    "step_ms.p90": ("ms", 90.0),
    "dispatch_us.median": ("us", 50.0),
    "launch_us.median": ("us", 50.0),
    "peak_mem_bytes": ("bytes", None),
}
"""What can be held against a saved run: its unit, and the percentile of its samples; None for one number."""

_UNITS = {
    "ms": {"us": 1e-3, "ms": 1.0, "s": 1e3},
    "us": {"us": 1.0, "ms": 1e3, "s": 1e6},
    "bytes": {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30},
}


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How much worse a figure may be."""

    figure: str
    text: str
    """As it was typed."""
    share: float | None
    """Of what it was; None where `amount` is given."""
    amount: float | None
    """In the unit of the figure."""

    def allows(self, before: float, now: float) -> bool:
        """Whether a figure is within it."""
        if self.share is not None:
            return now <= before * (1 + self.share)
        assert self.amount is not None
        return now <= before + self.amount


def parse_limits(texts: Sequence[str]) -> tuple[Limit, ...]:
    """The limits of `--fail-if`, such as `step_ms.median:5%` or `dispatch_us.median:20us`.

    Raises:
      RuleError: an unknown figure, or no limit in its unit.
    """
    return tuple(_parse(text) for text in texts)


def _parse(text: str) -> Limit:
    figure, _, limit = text.partition(":")
    if figure not in FIGURES:
        raise RuleError(
            "A guarded figure is a known one.", f"--fail-if {text}", f"take of {', '.join(FIGURES)}"
        )
    unit = FIGURES[figure][0]
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%|[A-Za-z]+)", limit)
    if not match or (match[2] != "%" and match[2] not in _UNITS[unit]):
        raise RuleError(
            "A limit is a share in % or an amount in the figure's unit.",
            f"--fail-if {text}",
            f"for example {figure}:5% or {figure}:2{'MB' if unit == 'bytes' else unit}",
        )
    number = float(match[1])
    is_share = match[2] == "%"
    return Limit(
        figure=figure,
        text=limit,
        share=number / 100 if is_share else None,
        amount=None if is_share else number * _UNITS[unit][match[2]],
    )


def change(
    figure: str,
    before: Sequence[TimePass],
    now: Sequence[TimePass],
    limits: Sequence[Limit],
    *,
    side: str,
    mode: str,
    batch: int,
) -> SpeedChange | None:
    """One figure of one contender in two runs; None where one of them did not measure it.

    Args:
      limits: all that were typed; those of other figures are passed over.
    """
    percentile = FIGURES[figure][1]
    if percentile is None:
        values = [_peak_memory(passes) for passes in (before, now)]
        if None in values:
            return None
        was, found = float(values[0] or 0), float(values[1] or 0)
        compared = None if not was else Ratio(median=found / was, ci95=[found / was] * 2, passes=[])
    else:
        samples = [[_samples(figure, one) for one in passes] for passes in (before, now)]
        compared = ratio(samples[1], samples[0], percentile)
        if compared is None:
            return None
        was, found = (_at(percentile, passes) for passes in samples)
    broken = [limit.text for limit in limits if limit.figure == figure and not limit.allows(was, found)]
    beyond_noise = found != was if compared is None else not compared.ci95[0] <= 1 <= compared.ci95[1]
    return SpeedChange(
        side=side,
        mode=mode,
        batch=batch,
        figure=figure,
        before=was,
        now=found,
        ratio=compared,
        limit=", ".join(broken or [limit.text for limit in limits if limit.figure == figure]) or None,
        beyond_limit=bool(broken),
        beyond_noise=beyond_noise,
        failed=bool(broken) and beyond_noise and found > was,
    )


def measured(figure: str, passes: Sequence[TimePass]) -> bool:
    """Whether passes of one contender have a figure."""
    if FIGURES[figure][1] is None:
        return _peak_memory(passes) is not None
    return any(_samples(figure, one) for one in passes)


def _samples(figure: str, one: TimePass) -> list[float]:
    kind = figure.partition("_")[0]
    return one.step_ms if kind == "step" else one.calls_us(kind)


def _at(percentile: float, passes: Sequence[Sequence[float]]) -> float:
    found = spread([sample for one in passes for sample in one])
    assert found is not None, "a ratio was formed of them"
    return found.median if percentile == 50.0 else found.p90


def _peak_memory(passes: Sequence[TimePass]) -> int | None:
    found = [item.get("peak_mem_bytes") for one in passes for item in one.records if item["kind"] == "memory"]
    return min((value for value in found if value is not None), default=None)
