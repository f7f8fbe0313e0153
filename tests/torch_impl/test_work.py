"""Jobs through the worker's own door, in this process: the files of every purpose, and every bad input."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from spec import codec, record
from spec.data.batches import batch_digest, open_source, write_batches
from spec.data.folder import batch_file
from spec.edits import Edit
from spec.job import Job, Timing
from spec.run import AdamW, DataSpec
from spec.weights import init_parameters, load_tensors, save_tensors, state_digest, tensor_sha256
from tests.torch_impl.small import GPT, gpt_problem, make_trainer, mlp_problem, run_spec, train
from torch_impl.__main__ import main

STEPS = 4


def job(out: Path, purpose: str = "run", problem=None, world_size: int = 1, **changes) -> Job:
    settings = {
        "side": "torch",
        "purpose": purpose,
        "spec": run_spec(problem or gpt_problem(), world_size),
        "mode": "eager",
        "steps": STEPS,
        "out": str(out),
    }
    return Job(**settings | changes)


def work(*jobs: Job) -> int:
    """The exit code of a worker that does these jobs."""
    return main(["work", *(str(each.write()) for each in jobs)])


def steps_of(folder: Path, rank: int = 0) -> list[dict]:
    return list(record.read_lines(folder / f"steps.rank{rank}.jsonl"))


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


@pytest.fixture(scope="module")
def passes(tmp_path_factory) -> Path:
    """One worker that does a job of every purpose; lockstep starts from a state of the run."""
    root = tmp_path_factory.mktemp("passes")
    trainer = make_trainer(gpt_problem())
    train(trainer, 2)
    state = trainer.export(["param", "m", "v"]) | {"meta/applied": np.array(trainer.applied)}
    save_tensors(batch_file(root / "states", 2), state)
    everything = ("param@init", "batch@0", "act@0", "grad@0", "clipped@0", "param@0", "m@last", "param@last")
    code = work(
        job(root / "describe", "describe"),
        job(root / "init", "init", observe=("param@init",)),
        job(root / "run", "run", observe=everything),
        job(root / "plain", "run"),
        job(root / "lockstep", "lockstep", state=str(root / "states"), observe=("param@2", "grad@2")),
        job(root / "time", "time", timing=Timing(warmup_steps=2, windows=3, steps_per_window=4, calls=5)),
    )
    assert code == 0
    return root


@pytest.mark.parametrize("purpose", ["describe", "init", "run", "lockstep", "time"])
def test_every_purpose_ends_well(passes, purpose) -> None:
    folder = passes / purpose
    assert json.loads((folder / "done.json").read_text())["seconds"] > 0
    assert not (folder / "error.json").exists()
    assert (folder / "log.rank0.txt").read_text() == ""
    manifest = manifest_of(folder)
    assert (manifest["side"], manifest["purpose"], manifest["mode_asked"]) == ("torch", purpose, "eager")
    assert manifest["mode_ran"] == (None if purpose in ("describe", "init") else "eager")
    assert all(probe["ok"] for probe in manifest["probes"])
    assert [entry["name"] for entry in manifest["facts"]["parameters"]] == [
        row.name for row in gpt_problem().parameter_table()
    ]
    assert manifest["environment"]["torch"]
    assert manifest["compile_s"] is None
    assert "compile_s" in manifest["reasons"]


def test_initial_weights_are_the_specs(passes) -> None:
    problem = gpt_problem()
    expected = init_parameters(problem.parameter_table(), problem.seed_weights)
    manifest = manifest_of(passes / "describe")
    assert manifest["init_sha256"] == {name: tensor_sha256(array) for name, array in expected.items()}
    assert manifest["init_digest"] == state_digest(expected)
    written = load_tensors(passes / "init" / "tensors" / "init.safetensors")
    assert {key.removeprefix("param/"): array.tobytes() for key, array in written.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }


def test_a_run_is_the_trainers(passes) -> None:
    problem = gpt_problem()
    trainer, source = make_trainer(problem), open_source(problem)
    for step, line in enumerate(steps_of(passes / "run")):
        trainer.step(trainer.feed.rows(step))
        metrics = trainer.metrics()
        assert line["step"] == step
        for name in ("loss", "grad_norm", "lr"):
            assert record.from_bits(line[f"{name}_bits"]) == line[name] == getattr(metrics, name)
        assert (line["skipped"], line["tokens"]) == (0, metrics.tokens)
        assert line["batch_digest"] == batch_digest(source.rows(step, 0, 8), first_row=0)
    assert step == STEPS - 1
    digest = json.loads((passes / "run" / "digest.rank0.json").read_text())
    end = {key.removeprefix("param/"): array for key, array in trainer.export(["param"]).items()}
    assert (digest["step"], digest["param"]) == (STEPS, state_digest(end))


def test_what_is_observed_is_there_and_changes_nothing(passes) -> None:
    tensors = passes / "run" / "tensors"
    assert sorted(file.name for file in tensors.iterdir()) == [
        "init.safetensors",
        "step000000.safetensors",
        "step000003.safetensors",
    ]
    first = load_tensors(tensors / "step000000.safetensors")
    phases = {}
    for key in first:
        phases.setdefault(key.partition("/")[0], []).append(key.partition("/")[2])
    assert set(phases) == {"batch", "act", "grad", "clipped", "param"}
    assert set(phases["batch"]) == {"tokens", "labels"}
    assert {"wte", "blocks.0.ln1", "blocks.1.attn.qkv", "blocks.1.mlp", "ln_f", "output"} <= set(
        phases["act"]
    )
    assert first["act/output"].shape == (8, GPT.seq_len, GPT.vocab)
    assert steps_of(passes / "run") == steps_of(passes / "plain")
    digests = [(passes / name / "digest.rank0.json").read_text() for name in ("run", "plain")]
    assert digests[0] == digests[1]


def test_the_observed_gradient_is_that_of_the_observed_batch(passes) -> None:
    first = load_tensors(passes / "run" / "tensors" / "step000000.safetensors")
    line = steps_of(passes / "run")[0]
    norm = np.sqrt(
        sum(np.square(a, dtype=np.float64).sum() for k, a in first.items() if k.startswith("grad/"))
    )
    assert norm == pytest.approx(line["grad_norm"], rel=1e-6)
    clip = min(1.0, 1.0 / norm)
    for key in (key for key in first if key.startswith("grad/")):
        clipped = first[key.replace("grad/", "clipped/")]
        np.testing.assert_allclose(clipped, first[key] * clip, rtol=1e-6, atol=1e-12)


def test_lockstep_is_one_step_from_the_state(passes) -> None:
    (line,) = steps_of(passes / "lockstep")
    assert line == steps_of(passes / "run")[2]
    trainer = make_trainer(gpt_problem())
    train(trainer, 3)
    written = load_tensors(passes / "lockstep" / "tensors" / "step000002.safetensors")
    for key, array in trainer.export(["param", "grad"]).items():
        assert written[key].tobytes() == array.tobytes(), key


def test_time_writes_raw_samples(passes) -> None:
    samples = list(record.read_lines(passes / "time" / "windows.jsonl"))
    assert [sample["kind"] for sample in samples] == ["start"] + ["window"] * 3 + ["dispatch"] * 5 + [
        "memory"
    ]
    assert samples[0]["initial"] is True
    assert all(sample["steps"] == 4 and sample["wall_s"] > 0 for sample in samples[1:4])
    assert all(sample["us"] > 0 for sample in samples[4:9])
    assert samples[-1]["peak_mem_bytes"] is None
    assert samples[-1]["reason"]
    assert manifest_of(passes / "time")["reasons"]["launch_us"]
    assert json.loads((passes / "time" / "digest.rank0.json").read_text())["step"] == 2 + 3 * 4 + 5


def test_written_batches_are_read_instead(tmp_path) -> None:
    other = dataclasses.replace(gpt_problem(), seed_data=9)
    write_batches(tmp_path / "batches", open_source(other), STEPS, 8)
    assert (
        work(
            job(tmp_path / "given", batches=str(tmp_path / "batches")), job(tmp_path / "other", problem=other)
        )
        == 0
    )
    assert steps_of(tmp_path / "given") == steps_of(tmp_path / "other")


def test_an_edit_reaches_the_step(tmp_path) -> None:
    assert (
        work(
            job(tmp_path / "edited", edits=(Edit(name="schedule_offset", value=1),)), job(tmp_path / "plain")
        )
        == 0
    )
    edited, plain = steps_of(tmp_path / "edited"), steps_of(tmp_path / "plain")
    assert [line["lr"] for line in edited[:3]] == [line["lr"] for line in plain[1:]]


def test_an_edit_that_met_nothing_is_refused_after_a_step_where_it_must_act(tmp_path) -> None:
    edits = (Edit(name="rope_theta", value=0.5),)
    tried = job(tmp_path / "tried", edits=edits)
    planted = job(tmp_path / "planted", edits=edits, must_act=True)
    assert work(tried) == 0, "a search tries what there is not"
    assert work(planted) == 2
    error = json.loads((tmp_path / "planted" / "error.json").read_text())
    assert error["numbers"] == "torch:rope_theta=0.5: the model has no such call"
    assert not steps_of(tmp_path / "planted")


def test_a_loss_that_is_not_finite_is_written_down(tmp_path) -> None:
    problem = mlp_problem()
    source = open_source(problem)
    for step in range(3):
        batch = source.rows(step, 0, 8)
        batch["x"][0, 0] = np.nan if step == 1 else batch["x"][0, 0]
        save_tensors(batch_file(tmp_path / "batches", step), {f"batch/{k}": a for k, a in batch.items()})
    observe = tuple(f"{phase}@{step}" for phase in ("param", "m", "v") for step in (0, 1))
    asked = job(
        tmp_path / "run", problem=problem, steps=3, batches=str(tmp_path / "batches"), observe=observe
    )
    assert work(asked) == 0
    lines = steps_of(tmp_path / "run")
    assert [line["skipped"] for line in lines] == [0, 1, 1]
    assert lines[1]["loss"] is None
    assert np.isnan(record.from_bits(lines[1]["loss_bits"]))
    before, after = (load_tensors(batch_file(tmp_path / "run" / "tensors", step)) for step in (0, 1))
    assert all(after[key].tobytes() == array.tobytes() for key, array in before.items())


def _bad_jobs(root: Path) -> dict[str, tuple[Job, str]]:
    """name -> (job, a part of the message)."""
    (root / "empty").mkdir()
    uncounted = {"param/ln_f.bias": np.zeros(3, np.float32)}
    save_tensors(batch_file(root / "uncounted", 0), uncounted)
    save_tensors(batch_file(root / "wrong", 0), uncounted | {"meta/applied": np.zeros((), np.int64)})
    small = dataclasses.replace(gpt_problem(), data=DataSpec(kind="text"))
    return {
        "processes": (job(root / "a", world_size=2), "1 started, 2 asked for"),
        "no states": (job(root / "b", "lockstep", state=str(root / "empty")), "no stepNNNNNN.safetensors"),
        "wrong state": (job(root / "c", "lockstep", state=str(root / "wrong")), "is missing"),
        "no counter": (job(root / "k", "lockstep", state=str(root / "uncounted")), "no meta/applied"),
        "vocabulary": (job(root / "d", problem=small), "vocabulary 61"),
        "no batches": (job(root / "e", batches=str(root / "nowhere")), "no such folder"),
        "no batches inside": (job(root / "f", batches=str(root / "wrong")), "under batch/"),
        "a state for a run": (job(root / "j", state=str(root / "wrong")), "purpose run"),
        "edited baseline": (
            job(root / "g", mode="baseline:eager", edits=(Edit(name="clip_eps", value=1.0),)),
            "stock",
        ),
        "gradient of a baseline": (job(root / "h", mode="baseline:eager", observe=("grad@0",)), "clipped"),
    }


@pytest.mark.parametrize(
    "name",
    [
        "processes",
        "no states",
        "wrong state",
        "no counter",
        "vocabulary",
        "no batches",
        "no batches inside",
        "a state for a run",
        "edited baseline",
        "gradient of a baseline",
    ],
)
def test_bad_input_is_code_2_with_rule_and_numbers(tmp_path, name) -> None:
    bad, part = _bad_jobs(tmp_path)[name]
    assert work(bad) == 2
    error = json.loads((Path(bad.out) / "error.json").read_text())
    assert error["code"] == 2
    assert error["rank"] == 0
    assert part in error["rule"] + error["numbers"] + error["mend"]
    assert not (Path(bad.out) / "done.json").exists()


def test_the_first_failure_ends_the_worker(tmp_path) -> None:
    bad = job(tmp_path / "bad", "lockstep", state=str(tmp_path))
    after = job(tmp_path / "after")
    assert work(bad, after) == 2
    assert not (tmp_path / "after" / "done.json").exists()


def test_a_job_file_that_is_no_job_is_code_2(tmp_path, capfd) -> None:
    (tmp_path / "job.json").write_text(json.dumps({**codec.to_dict(job(tmp_path)), "purpose": "dance"}))
    assert main(["work", str(tmp_path / "job.json")]) == 2
    assert "'dance'" in capfd.readouterr().err


def test_an_exception_is_code_6_with_a_log(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("torch_impl.trainer.init_parameters", lambda *_: 1 / 0)
    assert work(job(tmp_path / "crash")) == 6
    error = json.loads((tmp_path / "crash" / "error.json").read_text())
    assert (error["code"], error["numbers"]) == (6, "ZeroDivisionError: division by zero")
    assert "Traceback" in (tmp_path / "crash" / "log.rank0.txt").read_text()


def test_by_hand(tmp_path, capsys) -> None:
    assert main(["toy-mlp", "--steps", "3", "--device", "cpu", "--out", str(tmp_path / "hand")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["step", "0", "1", "2", str(tmp_path / "hand")]
    assert len(steps_of(tmp_path / "hand")) == 3


def test_by_hand_a_wrong_name_is_code_2(capsys) -> None:
    assert main(["toy-mpl"]) == 2
    assert "did you mean toy-mlp?" in capsys.readouterr().err


def test_no_clipping_travels_through_a_job(tmp_path) -> None:
    problem = gpt_problem(optimizer=AdamW(max_norm=None))
    assert work(job(tmp_path / "run", problem=problem, observe=("grad@0", "clipped@0"))) == 0
    tensors = load_tensors(batch_file(tmp_path / "run" / "tensors", 0))
    assert tensors["grad/ln_f.bias"].tobytes() == tensors["clipped/ln_f.bias"].tobytes()
