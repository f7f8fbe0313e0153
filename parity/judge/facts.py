"""What the sides declare about their own step before a number is computed, and whether their replicas agree.

A side that decays another list of parameters, or keeps them in another dtype, differs in meaning whatever
its losses are.
"""

from collections.abc import Iterator
from typing import Any

from parity.judge.align import Measured
from parity.judge.evidence import Evidence


def declared(a: Measured, b: Measured) -> Iterator[Evidence]:
    """Differences between the declared facts of two sides."""
    facts_a, facts_b = a.manifest["facts"], b.manifest["facts"]
    yield from _parameters(a, b, _by_name(facts_a), _by_name(facts_b))
    # A user's models may tie in their own ways; what is tied counts once in the parameters.
    ties = () if a.job.spec.pair else ("ties",)
    for name in (*ties, "precision", "num_params"):
        if facts_a.get(name) != facts_b.get(name):
            yield _differ(a, b, name, facts_a.get(name), facts_b.get(name))


def _by_name(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in facts["parameters"]}


def _parameters(
    a: Measured, b: Measured, rows_a: dict[str, dict[str, Any]], rows_b: dict[str, dict[str, Any]]
) -> Iterator[Evidence]:
    for name in dict.fromkeys([*rows_a, *rows_b]):
        if name not in rows_a or name not in rows_b:
            absent = b if name in rows_a else a
            yield Evidence(
                step=0,
                phase="facts",
                tensor=name,
                class_="unmatched",
                message=f"{absent.label} has no parameter {name}",
            )
            continue
        for field in ("shape", "dtype", "decayed", "trainable"):
            one, other = rows_a[name][field], rows_b[name][field]
            # Whether an optimizer of the users' own decays a parameter is null: not known, and no difference.
            if one != other and None not in (one, other):
                yield _differ(a, b, field, one, other, tensor=name)


def _differ(
    a: Measured, b: Measured, field: str, one: Any, other: Any, tensor: str | None = None
) -> Evidence:
    what = f"{field} of {tensor}" if tensor else field
    return Evidence(
        step=0,
        phase="facts",
        tensor=tensor,
        class_="semantics",
        values={a.label: str(one), b.label: str(other)},
        message=f"declared {what}: {a.label} {one}, {b.label} {other}",
    )


def replicas(side: Measured) -> Iterator[Evidence]:
    """Ranks of one side whose last state is not that of its rank 0, to the bit."""
    digests = side.end_digests
    for rank, digest in digests.items():
        for phase in ("param", "m", "v"):
            if digest[phase] != digests[0][phase]:
                yield Evidence(
                    step=int(digest["step"]),
                    phase="replicas",
                    tensor=phase,
                    class_="state",
                    message=f"{side.label}: {phase} of rank {rank} is not that of rank 0 after the last step",
                )
