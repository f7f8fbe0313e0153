"""The keys of a state: which tensors are whose, and jobs that may ask for checkpoints."""

import dataclasses

import numpy as np
import pytest

from spec.errors import RuleError
from spec.job import Job
from spec.presets import run_spec
from spec.state import check_names, check_shape, of_phase, of_rank, own_key

TENSORS = {
    name: np.array(number)
    for number, name in enumerate(
        [
            "param/a.weight",
            "param/b",
            "m/b",
            "buffer/mean",
            "buffer.rank1/mean",
            "buffer/var",
            "generator/cpu",
        ]
    )
}
JOB = Job(side="jax", purpose="run", spec=run_spec("toy-mlp"), mode="jit", steps=9, out="x")


def test_a_phase_is_read_under_names_alone() -> None:
    found = of_phase(TENSORS, "param")
    assert dict(found) == {"a.weight": 0, "b": 1} and len(found) == 2
    assert not of_phase(TENSORS, "v")
    assert dict(of_phase(TENSORS, "buffer")) == {"mean": 3, "var": 5}


def test_a_rank_has_its_own_values_where_there_are_some() -> None:
    assert of_rank(TENSORS, 0)["buffer/mean"] == 3
    assert of_rank(TENSORS, 1)["buffer/mean"] == 4
    assert of_rank(TENSORS, 1)["buffer/var"] == 5
    assert of_rank(TENSORS, 2)["buffer/mean"] == 3
    assert set(of_rank(TENSORS, 1)) == set(TENSORS) - {"buffer.rank1/mean"}
    assert own_key("buffer/mean", 0) == "buffer/mean" and own_key("buffer/mean", 1) in TENSORS


def test_misfits_are_named() -> None:
    check_names("m", {"a", "b"}, ["b", "a"])
    with pytest.raises(RuleError, match="m/b is missing"):
        check_names("m", {"a", "b"}, {"a"})
    with pytest.raises(RuleError, match="m/c is not in the model"):
        check_names("m", {"a"}, {"a", "c"})
    with pytest.raises(RuleError, match=r"m/a is \(2,\), in the model \(3,\)"):
        check_shape("m", "a", (3,), (2,))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"save_every": 0}, "--save-every 0"),
        ({"save_every": 2, "keep": 0}, "--keep 0"),
        ({"keep": 3}, "add --save-every"),
        ({"purpose": "time", "save_every": 2}, "purpose time"),
        ({"purpose": "init", "resume": "c"}, "resume c"),
    ],
)
def test_jobs_that_ask_for_what_makes_no_sense_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        dataclasses.replace(JOB, **changes)


def test_both_kinds_of_training_may_save_and_go_on() -> None:
    for purpose in ("run", "handoff"):
        job = dataclasses.replace(JOB, purpose=purpose, save_every=3, keep=1, resume="c")
        assert job.observed_at("m@last") == ("m", 8)
