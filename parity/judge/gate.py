"""May two passes be compared at all? Only what the tool itself supplied is asked: the problem, the bytes of
the batches and of the initial parameters, and the proof that the precision profile held.

What a side did of its own is evidence and no matter for the gate.
"""

from collections.abc import Iterator
from typing import Any

from parity.folders import not_whole
from parity.judge.align import Measured
from parity.same_work import tables_apart
from spec import codec


def differences(a: Measured, b: Measured) -> list[str]:
    """Why the two cannot be compared, each reason naming its field; empty where they can.

    Raises:
      RuleError: a side's manifest does not say what is asked here.
    """
    for side in (a, b):
        if missing := [name for name in ("facts", "init_sha256", "probes") if name not in side.manifest]:
            raise not_whole(side.folder / "manifest.json", f"no {', '.join(missing)}")
    problem = list(_problem(a, b))
    if problem:
        return problem
    return [*_steps(a, b), *_batches(a, b), *_initial_parameters(a, b), *_probes(a), *_probes(b)]


def _problem(a: Measured, b: Measured) -> Iterator[str]:
    problem_a, problem_b = a.job.spec.problem, b.job.spec.problem
    if problem_a.sha256() == problem_b.sha256():
        return
    flat_a, flat_b = flat(codec.to_dict(problem_a)), flat(codec.to_dict(problem_b))
    if None not in (flat_a.get("data.path"), flat_b.get("data.path")):
        # What two paths hold is compared by the digests of the batches.
        del flat_a["data.path"], flat_b["data.path"]
    for field in flat_a | flat_b:
        if flat_a.get(field) == flat_b.get(field):
            continue
        if field == "sizes.parameters":
            yield f"problem.{field}: {tables_apart(flat_a.get(field) or (), flat_b.get(field) or ())}"
        else:
            yield f"problem.{field}: {a.label} {flat_a.get(field)!r}, {b.label} {flat_b.get(field)!r}"


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A problem's fields by path: `{"schedule": {"kind": ...}}` as `{"schedule.kind": ...}`."""
    found: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        elif name != "type":
            found[f"{prefix}{name}"] = value
    return found


def _steps(a: Measured, b: Measured) -> Iterator[str]:
    if not (a.curve.num_steps and b.curve.num_steps):
        spans = [f"{curve.first_step} to {curve.stop - 1}" for curve in (a.whole_curve, b.whole_curve)]
        yield f"no step in common: {a.label} has {spans[0]}, {b.label} {spans[1]}"


def _batches(a: Measured, b: Measured) -> Iterator[str]:
    pairs = zip(a.curve.batch_digests, b.curve.batch_digests, strict=False)
    for step, (one, other) in enumerate(pairs, start=a.curve.first_step):
        if one != other:
            yield f"batch of step {step}: digest {one} in {a.label}, {other} in {b.label}"
            return


def _initial_parameters(a: Measured, b: Measured) -> Iterator[str]:
    if not a.from_equal_bits:
        # At their first shared step the sides had been apart: what they held then is evidence.
        return
    hashes_a, hashes_b = a.manifest["init_sha256"], b.manifest["init_sha256"]
    for name in a.parameters:
        one, other = hashes_a.get(name), hashes_b.get(name)
        if one != other:
            hashes = f"{str(one)[:12]} in {a.label}, {str(other)[:12]} in {b.label}"
            yield f"initial value of {name}: sha256 {hashes}"
            return


def _probes(side: Measured) -> Iterator[str]:
    for probe in side.manifest["probes"]:
        if not probe["ok"]:
            yield (
                f"precision probe {probe['name']} of {side.label}: expected {probe['expected']}, "
                f"got {probe['got']}"
            )
