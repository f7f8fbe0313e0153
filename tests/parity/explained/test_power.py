"""What `parity power` says of mistakes that change nothing, without a run."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from parity import power
from parity.power import row_of, why_not_of_schedule
from spec.edits import Edit
from spec.params import ParamSpec
from spec.presets import PRESETS
from spec.run import DataSpec
from spec.schedule import Schedule
from spec.workloads.pair import PairSizes

_COSINE = Schedule(kind="cosine", peak_lr=1e-3, warmup_steps=3, decay_steps=20)
_CONSTANT = Schedule(kind="constant", peak_lr=1e-3)


@pytest.mark.parametrize(
    ("name", "schedule", "steps", "words"),
    [
        ("schedule_end", _COSINE, 3, "last step is 2: the learning rate decays from step 4 on"),
        ("schedule_end", _COSINE, 4, "last step is 3: the learning rate decays from step 4 on"),
        ("schedule_end", _COSINE, 5, ""),
        ("schedule_end", replace(_CONSTANT, warmup_steps=3), 5, "learning rate does not decay"),
        ("schedule_offset", _COSINE, 3, ""),
        ("schedule_offset", _CONSTANT, 3, "learning rate does not change"),
        ("warmup_offset", _CONSTANT, 3, "learning rate has no warm-up"),
        ("clip_eps", _CONSTANT, 3, ""),
    ],
)
def test_the_reason_is_that_of_the_runs_own_rates(
    name: str, schedule: Schedule, steps: int, words: str
) -> None:
    problem = replace(PRESETS["toy-mlp"]().problem, schedule=schedule, steps=steps)
    assert why_not_of_schedule(name, problem).endswith(words)
    assert bool(why_not_of_schedule(name, problem)) == bool(words)


@pytest.mark.parametrize(
    ("tensor", "turned", "caught", "words"),
    [
        ("q_proj.weight", False, None, "turns no queries and keys by position"),
        ("q_proj.weight", True, False, "it changes bits, and stays within the tolerances"),
        ("fc.weight", False, None, "the model has no such tensor"),
    ],
)
def test_one_order_for_queries_and_keys_is_no_miss_where_nothing_turns_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tensor: str, turned: bool, caught: bool, words: str
) -> None:
    """The run stays SAME with it, and its last bits change."""
    for name in ("edited", "control"):
        (tmp_path / name).mkdir()
        for file in ("steps.rank0.jsonl", "digest.rank0.json"):
            (tmp_path / name / file).write_text(name)
    same = SimpleNamespace(verdict="SAME", loss=None, first_divergence=None)
    monkeypatch.setattr(power, "judge", lambda torch, jax: same)
    monkeypatch.setattr(power, "Measured", lambda side, folder: None)
    parameters = (ParamSpec(name=tensor, shape=(8, 8), init="normal"),)
    problem = replace(
        PRESETS["toy-mlp"]().problem,
        workload="pair",
        sizes=PairSizes(parameters=parameters),
        data=DataSpec(kind="folder", path="unread"),
    )
    told = SimpleNamespace(jax=None, spec=SimpleNamespace(problem=problem))
    edit = Edit(name="rope_layout", value=4)
    found = row_of(edit, tmp_path / "edited", tmp_path / "control", told, turned)  # type: ignore[arg-type]
    assert found.caught is caught and words in found.where
