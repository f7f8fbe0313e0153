"""The scaling study as one picture: a panel a preset, step time by number of devices, measured and modelled.

Must not: compute.
"""

from collections.abc import Iterator, Sequence

from benchmarks.scaling.points import FAMILIES
from benchmarks.scaling.report import Scaling
from parity.report.charts import axes, svg
from parity.report.charts.svg import Area, Point

WIDTH, PANEL, LEFT, TOP, BETWEEN = 760, 230, 62, 74, 62
STYLE = """
svg { background: #fff; }
text { fill: #1b1f24; font: 12px system-ui, "Liberation Sans", "DejaVu Sans", sans-serif; }
.tick, .label, .note { fill: #59636e; } .name { font-weight: 600; }
.axis { stroke: #59636e; } .grid { stroke: #d5dae0; } .band { fill: #f4f6f8; }
.s0 { --c: #b34700; } .s1 { --c: #0b62a8; } .s2 { --c: #3f7a3f; } .s3 { --c: #6b3fa0; }
.line { fill: none; stroke: var(--c); stroke-width: 1.6; stroke-dasharray: 6 4; }
.mark { fill: var(--c); stroke: var(--c); }
"""
"""A picture of its own has no page whose style it could take."""


def draw(found: Scaling) -> str:
    """The picture as a file of its own; presets that were measured on one device alone are left out."""
    shown = dict.fromkeys(row.preset for row in found.measured if row.devices > 1)
    presets = list(shown) or list(dict.fromkeys(row.preset for row in found.measured))
    parts = [svg.element("style", STYLE), *_legend()]
    for number, preset in enumerate(presets):
        top = TOP + number * (PANEL + BETWEEN)
        parts += _panel(found, preset, Area(LEFT, top, WIDTH - 14, top + PANEL))
    height = TOP + len(presets) * (PANEL + BETWEEN)
    words = "Marks are measured medians, dashed lines the model; right of the last mark nothing was measured."
    drawn = svg.picture(WIDTH, height, parts, f"step_ms by devices on {found.device}", words)
    return str(drawn).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


def _legend() -> Iterator[str]:
    x = 0.0
    for number, name in enumerate(FAMILIES):
        yield svg.line(x, 12, x + 34, 12, f"line s{number}")
        yield svg.marker(number, x + 17, 12, f"mark s{number}")
        yield svg.text(x + 40, 16, name, "name")
        x += 62 + 7.2 * len(name)
    yield svg.text(
        0,
        38,
        "marks: measured; dashed: MODEL of counts not measured, which is all there is on grey ground",
        "note",
    )


def _panel(found: Scaling, preset: str, area: Area) -> Iterator[str]:
    measured = {name: _measured(found, preset, name) for name in FAMILIES}
    modelled = {name: _modelled(found, preset, name) for name in FAMILIES}
    points = [point for group in (measured, modelled) for line in group.values() for point in line]
    x = axes.decades([devices for devices, _ in points], area.left, area.right)
    times = [ms for _, ms in points]
    if max(times) > 5 * min(times):
        y = axes.decades(times, area.bottom, area.top)
    else:
        # Few round numbers lie in less than a decade.
        y = axes.linear([0.0, *times], area.bottom, area.top)
    last = max(devices for line in measured.values() for devices, _ in line)
    yield svg.rect(x(last) + 7, area.top, area.right - x(last) - 7, area.bottom - area.top, "band")
    yield from axes.y_axis(y, area, f"{preset}: step_ms")
    yield from axes.x_axis(x, area, "devices")
    for number, name in enumerate(FAMILIES):
        yield from _line(number, modelled[name], measured[name], x, y)


def _line(
    number: int, modelled: Sequence[Point], measured: Sequence[Point], x: axes.Scale, y: axes.Scale
) -> Iterator[str]:
    if modelled:
        yield svg.polyline([(x(devices), y(ms)) for devices, ms in modelled], f"line s{number}")
    for devices, ms in measured:
        yield svg.marker(number, x(devices), y(ms), f"mark s{number}", 4.0)


def _measured(found: Scaling, preset: str, family: str) -> list[Point]:
    rows = [row for row in found.measured if (row.preset, row.family) == (preset, family)]
    return [(row.devices, row.step_ms.value) for row in rows if row.step_ms.value is not None]


def _modelled(found: Scaling, preset: str, family: str) -> list[Point]:
    """Where it is all there is: beside a mark a second value would contradict it."""
    known = {devices for devices, _ in _measured(found, preset, family)}
    own = [one.step for one in found.model if (one.step.preset, one.step.family) == (preset, family)]
    rows = [row for row in own if row.devices not in known]
    return [(row.devices, row.step_ms.value) for row in rows if row.step_ms.value is not None]
