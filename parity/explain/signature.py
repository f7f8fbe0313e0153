"""What the first difference looks like, from its numbers: the words of the catalogue's signatures.

A signature orders what is tried and is told to whoever reads the report; it never decides. Must not: know an
edit.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.explain.residuals import Key, Left, Reference
from parity.judge.measures import rms
from spec.data.folder import batch_file
from spec.weights import Tensors, load_tensors

_ALIKE = 1e-3
"""Spread up to which numbers are called one number."""
_MANY = 8
"""Elements from which on a pattern in them is told."""


@dataclass(frozen=True)
class Signature:
    """What one difference looks like."""

    name: str
    """As the catalogue writes it."""
    words: str
    """With its numbers."""


def signatures(left: Left, reference: Reference, states: Path, beta2: float) -> list[Signature]:
    """Every signature that the first difference has, the most telling first."""
    if not left.failing:
        return []
    first = left.failing[0]
    state = load_tensors(batch_file(states, first.step))
    found = [
        *_alone(left),
        *_ratio(left, reference),
        *_parallel(left, first, state),
        *_over_steps(left, first, beta2),
        *_rows(left, first, reference),
        *_positions(left, first),
        *_borders(left, first),
        *_small_gradients(left, first, reference),
        *_few(left, first),
    ]
    return found or [Signature("elementwise", f"{first}: no pattern in its elements")]


def _phases(left: Left) -> set[str]:
    return {key.phase for key in left.failing}


def _alone(left: Left) -> Iterator[Signature]:
    phases = _phases(left)
    if phases == {"buffer"}:
        yield Signature("running statistics alone", "only running statistics differ")
    if left.phase == "lr":
        steps = sorted({key.step for key in left.failing if key.phase == "lr"})
        yield Signature(
            "learning rates alone", f"learning rates differ at steps {steps}; what goes in is equal"
        )
    if left.phase == "loss" and "act" in left.phases:
        yield Signature("loss alone", "every activation is equal, the loss is not")
    if left.phase == "grad" and "act" in left.phases:
        yield Signature("gradients alone", "activations and loss are equal, gradients are not")


def _ratio(left: Left, reference: Reference) -> Iterator[Signature]:
    """All failing tensors of the phase and step are one number times the other side's."""
    first = left.failing[0]
    keys = [key for key in left.failing if key.phase == first.phase and key.step == first.step]
    shares, misses = [], []
    for key in keys:
        found = _share(left, reference, key)
        if found is None:
            continue
        shares.append(found[0])
        misses.append(found[1])
    if not shares:
        return
    spread = max(shares) - min(shares)
    if max(misses) < 0.05 and spread <= max(_ALIKE * abs(shares[0]), 1e-12):
        yield Signature(
            "one ratio for all tensors",
            f"{first.phase} of step {first.step}: torch / jax = "
            f"{_ratio_words(float(np.mean(shares)))} in all {len(shares)} tensors",
        )
        return
    own, count = _share(left, reference, first), left.differences[first].size
    if own is not None and own[1] < _ALIKE and count >= _MANY:
        yield Signature(
            "one ratio for all elements",
            f"{first}: torch / jax = {_ratio_words(own[0])} in all {count} elements",
        )


def _share(left: Left, reference: Reference, key: Key) -> tuple[float, float] | None:
    """(share, part not explained by it): a - b as a multiple of b."""
    try:
        b = reference.values(key).ravel()
    except KeyError:
        return None
    d = left.differences[key].ravel()
    if d.size != b.size:
        return None
    b = b / max(rms(b), 1e-300)
    share = float(d @ b) / max(float(b @ b), 1e-300)
    whole = rms(d)
    return (share, rms(d - share * b) / whole) if whole else None


def _ratio_words(share: float) -> str:
    """1 + share; the distance from 1 by itself where the digits of the sum would hide it."""
    if abs(share) >= _ALIKE:
        return f"{1 + share:.9g}"
    return f"1 {'-' if share < 0 else '+'} {abs(share):.3g}"


def _rows(left: Left, first: Key, reference: Reference) -> Iterator[Signature]:
    """Every row is the other side's times a number of its own: what normalises a row differs.

    A row of one element is that whatever differs, so nothing is told of it.
    """
    d = left.differences[first]
    b = reference.values(first)
    if first.phase != "act" or d.ndim < 2 or d.shape != b.shape or d.shape[-1] in (1, d.size):
        return
    d_NC, b_NC = d.reshape(-1, d.shape[-1]), b.reshape(-1, d.shape[-1]) / max(rms(b), 1e-300)
    share_N = (d_NC * b_NC).sum(1) / np.maximum((b_NC * b_NC).sum(1), 1e-300)
    if (
        rms(d_NC - share_N[:, None] * b_NC) > 0.05 * rms(d)
        or np.ptp(share_N) < _ALIKE * np.abs(share_N).max()
    ):
        return
    words = f"{first}: each row is the other side's times a number of its own, torch / jax from "
    words += f"{_ratio_words(share_N.min())} to {_ratio_words(share_N.max())}"
    if share_N.min() >= 0 or share_N.max() <= 0:
        words += ", all on one side of 1: as an eps does, largest where inputs are small; large rows hide it"
        yield Signature("largest where inputs are small", words)
    else:
        words += ", on both sides of 1: as rounding of sums does"
        yield Signature("largest where means are large", words)


def _parallel(left: Left, first: Key, state: Tensors) -> Iterator[Signature]:
    if first.phase not in ("m", "v", "param"):
        return
    cosines = []
    for key in left.failing:
        weights = state.get(f"param/{key.tensor}")
        if (key.phase, key.step) != (first.phase, first.step) or weights is None:
            continue
        d, w = left.differences[key].ravel(), weights.ravel().astype(np.float64)
        if d.size == w.size and rms(w) and rms(d):
            cosines.append(float(d @ w) / (rms(d) * rms(w) * d.size))
    if cosines and abs(float(np.median(cosines))) > 0.9:
        yield Signature(
            "parallel to the weights",
            f"{first.phase} of step {first.step}: along the weights, cosine {np.median(cosines):.4f} in "
            f"{len(cosines)} tensors",
        )


def _over_steps(left: Left, first: Key, beta2: float) -> Iterator[Signature]:
    """Shrinks from step to step as 1 - sqrt(1 - beta2^t) does."""
    if first.phase != "param":
        return
    sizes: dict[int, list[float]] = {}
    for key, far in left.rms.items():
        if key.phase == "param":
            sizes.setdefault(key.step, []).append(far)
    steps = sorted(sizes)
    if len(steps) < 2 or np.median(sizes[steps[-1]]) > 0.5 * np.median(sizes[steps[0]]):
        return
    shown = ", ".join(f"{step}: {np.median(sizes[step]):.1e}" for step in steps)
    now = ", ".join(f"{math.sqrt(1 - beta2 ** (step + 1)):.3f}" for step in steps)
    yield Signature(
        "decays as the correction of v",
        f"updates part less and less (by step {shown}; sqrt(1 - beta2^t) {now})",
    )


def _positions(left: Left, first: Key) -> Iterator[Signature]:
    """(B, T, ...) whose difference is nothing at position 0."""
    d = left.differences[first]
    if first.phase != "act" or d.ndim != 3 or d.shape[1] < 4:
        return
    by_position = [rms(d[:, t]) for t in range(d.shape[1])]
    start, second, later = (
        by_position[0],
        by_position[1],
        float(np.mean(by_position[len(by_position) // 2 :])),
    )
    if start < 1e-3 * max(by_position):
        yield Signature(
            "grows with position",
            f"{first}: {start:.1e} at position 0, {second:.1e} at 1, {later:.1e} in the later half",
        )


def _borders(left: Left, first: Key) -> Iterator[Signature]:
    """(B, C, H, W) whose difference lies on the edges."""
    d = left.differences[first]
    if first.phase != "act" or d.ndim != 4 or min(d.shape[2:]) < 3:
        return
    inside, whole = rms(d[:, :, 1:-1, 1:-1]), rms(d)
    if inside < 1e-6 * whole:
        yield Signature("on borders", f"{first}: {whole:.1e} on the border, {inside:.1e} inside")


def _small_gradients(left: Left, first: Key, reference: Reference) -> Iterator[Signature]:
    """Updates that part most where they are not the learning rate in full."""
    if first.phase != "param":
        return
    d, update = np.abs(left.differences[first]).ravel(), np.abs(reference.values(first)).ravel()
    if d.size != update.size or d.size < 8:
        return
    order = np.argsort(update)
    quarter = max(1, d.size // 4)
    small, large = rms(d[order[:quarter]]), rms(d[order[-quarter:]])
    if small > 2 * large:
        yield Signature(
            "largest where gradients are small",
            f"{first}: {small:.1e} where updates are smallest, {large:.1e} where they are largest",
        )


def _few(left: Left, first: Key) -> Iterator[Signature]:
    d = left.differences[first]
    share = float(np.count_nonzero(np.abs(d) > 1e-12)) / max(1, d.size)
    if d.size >= 8 and 0 < share < 0.25:
        yield Signature("few elements", f"{first}: {share:.1%} of the elements differ")
