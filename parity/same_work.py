"""Whose speeds may stand beside each other: runs whose steps do the same work, and what differs if not.

Must not: look at times, devices or versions.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spec import codec
from spec.errors import few
from spec.run import Problem, RunSpec


def key(problem: Problem, *, any_steps: bool) -> str:
    """The hash of a problem but for the rows of a step, which a sweep varies.

    Args:
      any_steps: leave out how many steps the run has too. A benchmark repeats its first batches for as many
        steps as its windows have; the run's own number gives it other learning rates, from a table with other
        rows, and no other work.
    """
    return _reduced(problem, any_steps).sha256()


def differences(a: RunSpec, b: RunSpec, *, any_steps: bool) -> list[str]:
    """What sets the steps of two runs apart, such as `preset toy-mlp/micro` or `steps 10/50`."""
    found = []
    problems = [_reduced(one.problem, any_steps) for one in (a, b)]
    if problems[0].sha256() != problems[1].sha256():
        if a.name != b.name:
            found.append(f"{'pair' if a.pair and b.pair else 'preset'} {a.name}/{b.name}")
        entries = dict(_unequal(*(codec.to_dict(one) for one in problems)))
        if "steps" in entries:
            # The presets' schedules end with the run: no news beside the steps.
            entries = {
                name: told for name, told in entries.items() if name not in ("warmup_steps", "decay_steps")
            }
        # What a preset is made of need not be told beside its name.
        chosen = ("precision", "micro_batches", "steps") if a.name != b.name else tuple(entries)
        found += [f"{name} {entries[name]}" for name in chosen if name in entries]
    if a.execution.world_size != b.execution.world_size:
        found.append(f"devices {a.execution.world_size}/{b.execution.world_size}")
    return found


def tables_apart(a: Sequence[Mapping[str, Any]], b: Sequence[Mapping[str, Any]]) -> str:
    """What differs of two parameter tables as JSON has them: how many there are, and names of a few."""
    rows_a, rows_b = ({row["name"]: row for row in table} for table in (a, b))
    shared = [name for name in rows_a if name in rows_b]
    unequal = [
        f"{name}: {field} {rows_a[name].get(field)}/{rows_b[name].get(field)}"
        for name in shared
        for field in rows_a[name]
        if rows_a[name].get(field) != rows_b[name].get(field)
    ]
    parts = [
        ("only the first has", [name for name in rows_a if name not in rows_b]),
        ("only the second has", [name for name in rows_b if name not in rows_a]),
        ("unequal are", unequal),
    ]
    told = [f"{words} {few(names, most=3, between=', ')}" for words, names in parts if names]
    return "; ".join([f"{len(a)}/{len(b)} tensors", *(told or ["in another order"])])


def _reduced(problem: Problem, any_steps: bool) -> Problem:
    alike = dataclasses.replace(problem, global_batch=problem.micro_batches)
    if not any_steps:
        return alike
    schedule = dataclasses.replace(problem.schedule, warmup_steps=0, decay_steps=0)
    return dataclasses.replace(alike, schedule=schedule, steps=1)


def _unequal(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The entries that differ, by their last name; `global_batch` is made of `micro_batches` here.

    Of a path only whether there is one sets two problems apart, as in their hash.
    """
    for name in [*a, *(name for name in b if name not in a)]:
        one, other = a.get(name), b.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _unequal(one, other)
        elif name == "path" and (one is None) != (other is None):
            yield "data", "/".join("its own" if path is None else str(path) for path in (one, other))
        elif one != other and name == "parameters":
            yield name, tables_apart(one or (), other or ())
        elif one != other and name not in ("global_batch", "path"):
            yield name, f"{one}/{other}"
