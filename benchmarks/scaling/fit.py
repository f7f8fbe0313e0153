"""The cost model fitted on measured points, and what it predicts for other numbers of devices.

Every number says where it comes from: measured, fitted, assumed, predicted, or missing with the reason. Must
not: read files.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from benchmarks.scaling import model
from benchmarks.scaling.model import Link, Node
from benchmarks.scaling.points import Family, Point, best

HIDDEN_FROM = 0.95
"""Where the last launch takes this share of a step, the step does not tell the device's time."""

Source = Literal["measured", "fitted", "assumed", "predicted", "missing"]


class Known(Struct, kw_only=True):
    """A number, and how it is known."""

    value: float | None
    source: Source
    how: str
    """What it was taken from; of a missing one, why."""


class Fit(Struct, kw_only=True, omit_defaults=True):
    """The model of one family on one preset."""

    preset: str
    family: Family
    devices: list[int]
    """The counts that it was fitted on."""
    gradient_bytes: int
    host_ms: Known
    """On the largest count, which stands for all that were not measured."""
    compute_ms: Known
    exposed_ms: dict[int, Known]
    """By number of devices."""
    slowed_ms: dict[int, Known]
    """By number of devices: what the device takes longer than `compute_ms` beside what is exposed, since an
    all-reduce that is hidden takes bandwidth and multiprocessors from what hides it."""
    bandwidth_gb_per_s: Known
    latency_us: Known
    """Of one hop."""
    host_by_count_ms: dict[int, Known] = {}
    """Where it was measured; a host that other ranks share launches more slowly the more there are."""
    draws_ms: dict[int, tuple[float, ...]] = {}
    """Launches of one rank by number of devices; a file leaves them out, since they stand in the runs."""

    def launching(self, devices: int) -> tuple[Known, tuple[float, ...]]:
        """Host time and launches on so many devices: its own, or else those of the largest count."""
        if own := self.draws_ms.get(devices):
            return self.host_by_count_ms[devices], own
        return self.host_ms, self.draws_ms[max(self.draws_ms)]

    @property
    def link(self) -> Link | None:
        """The link within a node, where it could be fitted."""
        if self.bandwidth_gb_per_s.value is None or self.latency_us.value is None:
            return None
        return Link(self.bandwidth_gb_per_s.value * 1e6, self.latency_us.value / 1e3)


class Predicted(Struct, kw_only=True, omit_defaults=True):
    """A step on so many devices, by the model."""

    preset: str
    family: Family
    devices: int
    step_ms: Known
    host_ms: Known
    compute_ms: Known
    exposed_ms: Known
    slowed_ms: Known
    skew_ms: Known
    ci95_ms: tuple[float, float] | None = None
    """Of step_ms, from windows drawn anew; what is assumed is not varied. None where it was not asked for."""


def without_draws(one: Fit) -> Fit:
    """A fit as files hold it."""
    return msgspec.structs.replace(one, draws_ms={})


def missing(why: str) -> Known:
    """A number that there is not."""
    return Known(value=None, source="missing", how=why)


def fit(points: Iterable[Point]) -> list[Fit]:
    """The model of every preset and family, from all points given."""
    chosen = best(points)
    found = []
    for preset, family in dict.fromkeys((preset, family) for preset, family, _ in chosen):
        own = {n: one for (of, name, n), one in chosen.items() if (of, name) == (preset, family)}
        found.append(_alone(preset, family, own))
    links = {family: _link(found, chosen, family) for family in {one.family for one in found}}
    for one in found:
        # An all-reduce cannot be told where the host hides it; its bytes take the same links as torch's.
        family = one.family if links[one.family][0] else "torch"
        link, how = links.get(family, (None, "the family was not measured"))
        _set_link(one, link, how)
    return found


def _alone(preset: str, family: Family, own: Mapping[int, Point]) -> Fit:
    """What a family's own points tell; the link is put in later."""
    last = own[max(own)]
    busy_ms = own[1].busy_ms if 1 in own else None
    draws = {n: host_draws(one, busy_ms) for n, one in sorted(own.items())}
    hosts = {n: _host(own[n], draws[n]) for n in draws}
    compute = (
        _device_time(own[1], busy_ms) if 1 in own else missing("its step on one device was not measured")
    )
    exposed = {n: _exposed(one, compute, busy_ms) for n, one in sorted(own.items()) if n > 1}
    unknown = missing("")
    return Fit(
        preset=preset,
        family=family,
        devices=sorted(own),
        gradient_bytes=last.gradient_bytes,
        host_ms=hosts[max(own)],
        compute_ms=compute,
        exposed_ms=exposed,
        slowed_ms={n: _slowed(own[n], compute, known, busy_ms) for n, known in exposed.items()},
        bandwidth_gb_per_s=unknown,
        latency_us=unknown,
        host_by_count_ms=hosts,
        draws_ms=draws,
    )


def host_draws(point: Point, busy_ms: float | None) -> tuple[float, ...]:
    """The dispatch times, as steps back to back tell them.

    Made smaller where such steps take less than single calls suggest. Larger where the host sets the pace
    and they take more: it then fetches metrics too, which no call to a step does.
    """
    if len(point.draws_ms) < model.FEWEST_DRAWS:
        return ()
    ratio = point.step_ms.median / model.last_ms(point.draws_ms, point.devices)
    factor = ratio if _host_paced(point, busy_ms) else min(1.0, ratio)
    return tuple(draw * factor for draw in point.draws_ms)


def _host_paced(point: Point, busy_ms: float | None) -> bool:
    """Whether launching takes longer than what a trace on one device saw the device do."""
    return busy_ms is not None and busy_ms < model.last_ms(point.draws_ms, point.devices)


def _host(point: Point, draws: Sequence[float]) -> Known:
    if not draws:
        return missing(f"fewer than {model.FEWEST_DRAWS} dispatch times on {_where(point)}")
    how = f"mean of {len(draws)} dispatch times on {_where(point)}"
    if draws == point.draws_ms:
        return Known(value=sum(draws) / len(draws), source="measured", how=how)
    factor = draws[0] / point.draws_ms[0]
    why = "back to back, steps take less" if factor < 1 else "metrics are fetched between launches"
    scaled = f"{how}, times {factor:.2f}: {why}"
    return Known(value=sum(draws) / len(draws), source="fitted", how=scaled)


def _where(point: Point) -> str:
    return f"{point.devices} device{'s' * (point.devices > 1)} ({point.mode})"


def _device_time(point: Point, busy_ms: float | None) -> Known:
    """The device's time in a step of this point."""
    draws = host_draws(point, busy_ms)
    if not draws:
        return missing(f"fewer than {model.FEWEST_DRAWS} dispatch times on {_where(point)}")
    if _host_paced(point, busy_ms):
        # Such a step tells of the device only that it was not slower.
        if point.devices > 1:
            return missing(f"on {_where(point)} launching takes longer than what the device does")
        return Known(value=busy_ms, source="measured", how=f"device_busy_ms, traced on {_where(point)}")
    last = model.last_ms(draws, point.devices)
    if last < HIDDEN_FROM * point.step_ms.median:
        value = model.device_ms(point.step_ms.median, draws, point.devices)
        how = f"step_ms on {_where(point)} without waiting for launches"
        return Known(value=value, source="fitted", how=how)
    return missing(f"on {_where(point)} launching takes as long as the step, and no trace was made")


def _exposed(point: Point, compute: Known, busy_ms: float | None) -> Known:
    """The part of the all-reduce that nothing hides, on the devices of this point."""
    if point.exposed_ms is not None:
        how = f"exposed_communication_ms of a trace on {point.devices} devices"
        return Known(value=point.exposed_ms, source="measured", how=how)
    device = _device_time(point, busy_ms)
    if device.value is None or compute.value is None:
        return missing(device.how if device.value is None else compute.how)
    how = f"device time on {point.devices} devices less that on one"
    return Known(value=max(0.0, device.value - compute.value), source="fitted", how=how)


def _slowed(point: Point, compute: Known, exposed: Known, busy_ms: float | None) -> Known:
    """What the device takes on the devices of this point that neither compute on one nor `exposed` tells."""
    device = _device_time(point, busy_ms)
    for known in (device, compute, exposed):
        if known.value is None:
            return missing(known.how)
    how = f"device time on {point.devices} devices less compute and exposed"
    return Known(value=max(0.0, device.value - compute.value - exposed.value), source="fitted", how=how)  # type: ignore[operator]


def _link(
    fits: Sequence[Fit], chosen: Mapping[tuple[str, Family, int], Point], family: Family
) -> tuple[Link | None, str]:
    """A family's link within a node over all its presets, and how it was found or why not."""
    traced = [
        (float(one.gradient_bytes), n, one.collective_ms)
        for (_, name, n), one in chosen.items()
        if name == family and n > 1 and one.collective_ms is not None
    ]
    if link := model.solve_link(traced):
        return link, f"traced collectives of {len(traced)} points of {family}"
    exposed = [
        (float(one.gradient_bytes), n, known.value)
        for one in fits
        for n, known in one.exposed_ms.items()
        if one.family == family and known.value is not None
    ]
    if link := model.solve_link(exposed):
        return link, f"exposed parts of {len(exposed)} points of {family}, as if nothing were hidden"
    return None, "bandwidth and latency need all-reduces of two sizes or numbers of devices"


def _set_link(one: Fit, link: Link | None, how: str) -> None:
    if link is None:
        one.bandwidth_gb_per_s = one.latency_us = missing(how)
        return
    one.bandwidth_gb_per_s = Known(value=link.bytes_per_ms / 1e6, source="fitted", how=how)
    one.latency_us = Known(value=link.latency_ms * 1e3, source="fitted", how=how)


def exposed_ms(one: Fit, devices: int, node: Node) -> Known:
    """The exposed all-reduce on so many devices: that of the largest fitted count, as the ring grows."""
    told = {n: known.value for n, known in one.exposed_ms.items() if known.value is not None}
    inside = min(devices, node.devices)
    between = model.between_nodes_ms(one.gradient_bytes, devices, node)
    if devices == 1:
        return Known(value=0.0, source="assumed", how="one device reduces with nobody")
    if not told and one.link is not None:
        value = model.ring_ms(one.gradient_bytes, inside, one.link) + between
        return Known(value=value, source="assumed", how="the whole all-reduce: no point tells what hides it")
    if not told:
        reasons = [known.how for known in one.exposed_ms.values()]
        return missing(reasons[-1] if reasons else "it was measured on one device alone")
    base = max(told)
    if one.link is None:
        grown = (inside - 1) / inside / ((base - 1) / base)
        share, how = 1.0, f"{base} devices', scaled by 2(N-1)/N: no link could be fitted"
    else:
        at_base = model.ring_ms(one.gradient_bytes, base, one.link)
        grown = model.ring_ms(one.gradient_bytes, inside, one.link) / at_base
        share, how = min(1.0, told[base] / at_base), f"{base} devices', as the fitted ring grows"
    if between:
        how += f"; between nodes {share * between:.3g} ms, of assumed links"
    return Known(value=told[base] * grown + share * between, source="predicted", how=how)


def slowed_ms(one: Fit, devices: int) -> Known:
    """What hidden all-reduces slow down on so many devices: as on the largest fitted count that tells."""
    told = {n: known for n, known in one.slowed_ms.items() if known.value is not None}
    if devices == 1 or not told:
        why = "one device reduces with nobody" if devices == 1 else "no point tells it"
        return Known(value=0.0, source="assumed", how=why)
    base = devices if devices in told else max(told)
    if base == devices:
        return told[base]
    return Known(value=told[base].value, source="assumed", how=f"as on {base} devices")


def predict(one: Fit, devices: int, node: Node) -> Predicted:
    """The step on so many devices at the same batch a device."""
    exposed, slowed = exposed_ms(one, devices, node), slowed_ms(one, devices)
    host, draws = one.launching(devices)
    lacking = [known for known in (host, one.compute_ms, exposed) if known.value is None]
    if lacking:
        step = skew = missing(lacking[0].how)
    else:
        device = one.compute_ms.value + slowed.value + exposed.value  # type: ignore[operator]
        found = model.step(device, draws, devices)
        tail = devices > len(draws)
        beyond = ", beyond them an assumed exponential tail" if tail else ""
        how = f"last of {devices} independent draws of {len(draws)} dispatch times{beyond}"
        skew = Known(value=found.skew, source="assumed" if tail else "predicted", how=how)
        step = Known(
            value=found.total, source="predicted", how="max(host, compute + slowed + exposed) + skew"
        )
    return Predicted(
        preset=one.preset,
        family=one.family,
        devices=devices,
        step_ms=step,
        host_ms=host,
        compute_ms=one.compute_ms,
        exposed_ms=exposed,
        slowed_ms=slowed,
        skew_ms=skew,
    )
