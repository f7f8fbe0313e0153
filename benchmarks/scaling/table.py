"""The scaling study as Markdown. Must not: compute."""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.scaling.fit import Fit, Known
from benchmarks.scaling.report import Held, Loss, Measured, Modelled, Scaling
from parity.report.words import allowed


def markdown(found: Scaling) -> str:
    """The whole page, ASCII; an empty cell was not measured or cannot be told, and scaling.json says why."""
    return "\n".join([*_page(found), ""])


def _page(found: Scaling) -> Iterator[str]:
    yield f"# Scaling on {found.device}"
    yield "\nEmpty: not known; `scaling.json` has the reason, and of every number where it comes from."
    yield "`torch` and `jax` are this project's steps, `torch ddp` on one device is eager."
    yield from (f"\n**Warning**: {words}." for words in found.warnings)
    yield "\n## Measured\n"
    heads = "preset", "step", "devices", "step_ms", "launch_us", "exposed_ms", "T(1) / T(N)", "/ best peer"
    yield from _table(heads, [_measured(row) for row in found.measured])
    if found.left_out:
        others = (f"{mode} on {', '.join(map(str, counts))}" for mode, counts in found.left_out.items())
        yield "\nMeasured too, but left out, being slower modes of a step or baselines of one number of"
        yield f"devices alone (which can be the best peer): {'; '.join(others)}."
    if found.loss:
        yield "\n## The same global batch on one and on several devices\n"
        heads = (
            "preset",
            "devices",
            "rows",
            "pair",
            "verdict",
            "loss, largest relative difference",
            "tolerance",
        )
        yield from _table(heads, [_loss(row) for row in found.loss])
    if found.predictions:
        yield "\n## Predicted before it was measured\n"
        heads = "preset", "step", "devices", "predicted ms", "95 %", "measured ms", "error", "made"
        yield from _table(heads, [_held(row) for row in found.predictions])
    yield "\n## MODEL: fitted\n"
    times = "host ms", "compute ms", "exposed ms", "slowed ms"
    heads = "preset", "step", "fitted on", *times, "link GB/s", "hop us"
    yield from _table(heads, [_fit(row) for row in found.fits])
    yield "\n## MODEL: step_ms (T(1) / T(N)), computed and not measured\n"
    yield "Where a step was measured, the cell is how far off the model is there.\n"
    yield from _beyond(found)
    yield "\nIt assumes:\n"
    yield from (f"- {words}" for words in found.assumptions)
    node = found.assumed
    yield (
        f"- Nodes of {node.devices} devices; between them {node.gb_per_s:g} GB/s a device and "
        f"{node.latency_us:g} us a hop, all of it assumed."
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _measured(row: Measured) -> list[str]:
    ratio = row.ratio_to_peer
    peer = ""
    if row.peer and ratio:
        low, high = ratio.ci95
        peer = f"{row.peer.removeprefix('baseline:')}: {ratio.median:.3f} ({low:.3f}-{high:.3f})"
    known = row.step_ms, row.launch_us, row.exposed_communication_ms, row.efficiency
    return [row.preset, row.mode, str(row.devices), *map(_cell, known), peer]


def _loss(row: Loss) -> list[str]:
    compared = f"{row.max_rel:.1e}" if row.max_rel is not None else ""
    bound = f"{allowed(row.tolerance)} {row.tolerance_source}" if row.tolerance is not None else ""
    counts = str(row.devices), str(row.global_batch)
    return [row.preset, *counts, " / ".join(row.pair), row.verdict, compared, bound]


def _held(row: Held) -> list[str]:
    error = f"{100 * row.error:+.1f} %" if row.error is not None else ""
    sure = "{:.4g}-{:.4g}".format(*row.ci95_ms) if row.ci95_ms else ""
    known = _cell(row.predicted_ms), sure, _cell(row.measured_ms)
    return [row.preset, row.family, str(row.devices), *known, error, row.made_utc]


def _fit(row: Fit) -> list[str]:
    exposed, slowed = (
        ", ".join(f"{_cell(known)} on {n}" for n, known in told.items() if known.value)
        for told in (row.exposed_ms, row.slowed_ms)
    )
    counts = ", ".join(map(str, row.devices))
    times = _cell(row.host_ms), _cell(row.compute_ms), exposed, slowed
    link = _cell(row.bandwidth_gb_per_s), _cell(row.latency_us)
    return [row.preset, row.family, counts, *times, *link]


def _beyond(found: Scaling) -> Iterator[str]:
    """A row a family, a column a count."""
    counts = sorted({one.step.devices for one in found.model})
    rows: dict[tuple[str, str], list[str]] = {}
    for one in found.model:
        rows.setdefault((one.step.preset, one.step.family), []).append(_modelled(one))
    yield from _table(
        ["preset", "step", *(f"{n:,}" for n in counts)], [[*name, *cells] for name, cells in rows.items()]
    )


def _modelled(row: Modelled) -> str:
    if row.error is not None:
        # Adding 0 makes -0.0 a plain one.
        return f"off by {round(100 * row.error, 1) + 0.0:+.1f} %"
    share = f" ({row.efficiency.value:.2f})" if row.efficiency.value is not None else ""
    return _cell(row.step.step_ms) + share


def _cell(known: Known) -> str:
    if known.value is None:
        return ""
    digits = f"{known.value:.4g}" if known.value < 1000 else f"{known.value:,.0f}"
    return f"{digits} {known.source}" if known.source in ("fitted", "assumed") else digits
