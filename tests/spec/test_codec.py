"""Jobs and specs survive the trip through JSON, and a misfit names its field."""

import dataclasses
import json

import pytest

from spec import codec
from spec.edits import Edit
from spec.errors import RuleError
from spec.job import Job, Keep, Perturb, read_job
from spec.presets import PRESETS, run_spec
from spec.run import RunSpec


def make_job(out: str, **changes: object) -> Job:
    job = Job(side="jax", purpose="run", spec=run_spec("tiny"), mode="jit", steps=3, out=out)
    return dataclasses.replace(job, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives(name: str) -> None:
    spec = run_spec(name)
    assert codec.from_dict(RunSpec, json.loads(json.dumps(codec.to_dict(spec)))) == spec


def test_job_survives(tmp_path) -> None:
    job = make_job(
        str(tmp_path),
        observe=("param@init", "grad@0", "m@last"),
        edits=(Edit(name="clip_eps", value=1e-6),),
        keep_states=Keep(steps=(0, 2), dtype="float32"),
    )
    assert read_job(job.write()) == job
    assert [job.observed_at(entry) for entry in job.observe] == [("param", -1), ("grad", 0), ("m", 2)]
    noise = make_job(
        str(tmp_path), purpose="lockstep", state="states", perturb=Perturb(reruns=8, roundoff=2.0**-24)
    )
    assert read_job(noise.write()) == noise


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"perturb": Perturb(reruns=8, roundoff=1e-7)}, "lockstep"),
        ({"purpose": "lockstep", "state": "s", "perturb": Perturb(reruns=0, roundoff=1e-7)}, "reruns=0"),
        ({"keep_states": Keep(steps=(3,), dtype="float32")}, "run of 3"),
        (
            {"purpose": "lockstep", "state": "s", "keep_states": Keep(steps=(0,), dtype="float32")},
            "lockstep of 3",
        ),
        ({"promote": True}, "strict"),
    ],
)
def test_what_only_another_job_does_is_refused(changes: dict[str, object], part: str) -> None:
    with pytest.raises(RuleError, match=part):
        make_job("out", **changes)


@pytest.mark.parametrize(
    ("path", "value", "names"),
    [
        (("steps",), "3", "$.steps: expected int"),
        (("steps",), True, "$.steps: expected int"),
        (("spec", "problem", "optimizer", "beta1"), None, "$.spec.problem.optimizer.beta1: expected float"),
        (("spec", "problem", "optimizer", "eps"), 10**400, "$.spec.problem.optimizer.eps: expected float"),
        (("spec", "problem", "colour"), 1, "$.spec.problem.colour"),
        (("spec", "problem", "sizes"), 5, "$.spec.problem.sizes"),
        (("observe",), "grad@0", "$.observe: expected list"),
        (("edits",), [{"name": "clip_eps"}], "missing $.edits[0].value"),
    ],
)
def test_a_misfit_names_file_and_field(tmp_path, path, value, names) -> None:
    file = make_job(str(tmp_path)).write()
    data = json.loads(file.read_text())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(json.dumps(data))
    with pytest.raises(RuleError) as caught:
        read_job(file)
    assert names in caught.value.numbers and str(file) in caught.value.numbers


def test_missing_and_damaged_files(tmp_path) -> None:
    with pytest.raises(RuleError, match="exists"):
        read_job(tmp_path / "none.json")
    (tmp_path / "cut.json").write_text('{"side": "jax", ')
    with pytest.raises(RuleError, match="JSON"):
        read_job(tmp_path / "cut.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"side": "tensorflow"},
        {"purpose": "dance"},
        {"steps": -1},
        {"purpose": "lockstep"},
        {"mode": "eager"},
        {"observe": ("grad",)},
        {"observe": ("mood@0",)},
        {"observe": ("grad@3",)},
        {"observe": ("param@0",), "purpose": "time"},
    ],
)
def test_impossible_jobs_are_refused(tmp_path, changes) -> None:
    with pytest.raises(RuleError):
        make_job(str(tmp_path), **changes)
