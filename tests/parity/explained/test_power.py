"""What `parity power` says of mistakes that change nothing, without a run."""

from dataclasses import replace

import pytest

from parity.power import why_not_of_schedule
from spec.presets import PRESETS
from spec.schedule import Schedule

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
