"""The page's part about a test of equivalence: every seed, the mean, and the margin stated beforehand.

Must not: compute; the numbers are the result's.
"""

from dataclasses import dataclass
from functools import partial

from parity.report import seeds
from parity.report.charts import interval
from parity.report.equivalence import Equivalence
from parity.report.page.picture import Picture, both
from parity.report.result import Result


@dataclass(frozen=True)
class Section:
    """What the page shows of the seeds."""

    picture: Picture | None
    heads: list[str]
    rows: list[list[str]]
    notes: list[str]


def section(result: Result) -> Section | None:
    """Picture and table; None for a command that compared no seeds."""
    found = result.equivalence
    if found is None:
        return None
    heads, rows = seeds.table(found)
    return Section(_picture(found), heads, rows, found.notes)


def _picture(found: Equivalence) -> Picture | None:
    values = [100 * row.difference for row in found.seeds if row.difference is not None]
    if not values:
        return None
    told = ", ".join(f"{value:+.3g}" for value in values)
    draw = partial(
        interval.draw,
        values,
        None if found.mean is None else 100 * found.mean,
        [100 * end for end in found.interval],
        100 * found.margin,
        words=f"difference of the last {found.quantity}, torch - jax, %",
        title="Differences of the seeds and the margin",
        description=f"Differences in %: {told}; the margin is {100 * found.margin:.3g} %.",
    )
    return both(
        draw,
        f"Each mark is one seed. The bar is the {100 * (1 - 2 * found.alpha):.0f} % interval of their mean, "
        "the stroke the mean; the sides are equivalent where the whole bar lies between the dashed lines.",
    )
