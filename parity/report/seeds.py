"""The headline and the table of an equivalence test, one line a seed.

Must not: print.
"""

from parity.report.equivalence import Equivalence


def headline(found: Equivalence) -> str:
    """`EQUIVALENT  loss torch - jax: +0.012 % (90 % -0.08 to +0.10), margin 1 %, 10 seeds`."""
    where = ""
    if found.mean is not None:
        low, high = found.interval
        level = 100 * (1 - 2 * found.alpha)
        where = f" {_percent(found.mean)} % ({level:.0f} % {_percent(low)} to {_percent(high)}),"
    asked = f"margin {100 * found.margin:.3g} %, {len(found.seeds)} seeds"
    return f"{found.outcome}  {found.quantity}, torch - jax:{where} {asked}"


def table(found: Equivalence) -> tuple[list[str], list[list[str]]]:
    """Heads and lines."""
    heads = [f"last {found.quantity}", "torch", "jax", "difference, %"]
    lines = [
        [
            f"seed {row.seed}",
            *(_value(row.last.get(side)) for side in ("torch", "jax")),
            "-" if row.difference is None else _percent(row.difference),
        ]
        for row in found.seeds
    ]
    return heads, lines


def _value(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.7g}"


def _percent(value: float) -> str:
    return f"{100 * value:+.3g}"
