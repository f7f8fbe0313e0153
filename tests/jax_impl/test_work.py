"""Jobs through the worker's own door, in this process: the files of every purpose, and every bad input."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from jax_impl.__main__ import main
from spec import codec, record, trace
from spec.data.batches import batch_digest, open_source, write_batches
from spec.data.folder import batch_file
from spec.edits import Edit
from spec.job import Job, Timing
from spec.run import AdamW, DataSpec
from spec.weights import init_parameters, load_tensors, save_tensors, state_digest, tensor_sha256
from tests.jax_impl.jobs import STEPS, error_of, job, manifest_of, steps_of
from tests.jax_impl.small import GPT, STATE, bare, gpt_problem, make_trainer, mlp_problem, train


def work(*jobs: Job) -> int:
    """The exit code of a worker that does these jobs."""
    return main(["work", *(str(each.write()) for each in jobs)])


@pytest.fixture(scope="module")
def passes(tmp_path_factory) -> Path:
    """One worker that does a job of every purpose; lockstep starts from a state of the run."""
    root = tmp_path_factory.mktemp("passes")
    trainer = make_trainer(gpt_problem())
    train(trainer, 2)
    state = trainer.export(STATE) | {"meta/applied": np.array(trainer.applied)}
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
    ran = purpose not in ("describe", "init")
    assert (manifest["side"], manifest["purpose"], manifest["mode_asked"]) == ("jax", purpose, "jit")
    assert manifest["mode_ran"] == ("jit" if ran else None)
    assert all(probe["ok"] for probe in manifest["probes"])
    assert [entry["name"] for entry in manifest["facts"]["parameters"]] == [
        row.name for row in gpt_problem().parameter_table()
    ]
    assert manifest["environment"]["jax"]
    assert manifest["facts"]["compiler_options"] == ({"xla_allow_excess_precision": False} if ran else None)
    if ran:
        assert manifest["compile_s"] > 0
        assert manifest["capture"]["programs_compiled"] == 1
    else:
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
    lines = steps_of(passes / "run")
    for step, line in enumerate(lines):
        trainer.step(trainer.feed.rows(step))
        metrics = trainer.metrics()
        assert line["step"] == step
        for name in ("loss", "grad_norm", "lr"):
            assert record.from_bits(line[f"{name}_bits"]) == line[name] == getattr(metrics, name)
        assert (line["skipped"], line["tokens"]) == (0, metrics.tokens)
        assert line["batch_digest"] == batch_digest(source.rows(step, 0, 8), first_row=0)
    assert len(lines) == STEPS
    digest = json.loads((passes / "run" / "digest.rank0.json").read_text())
    assert (digest["step"], digest["param"]) == (STEPS, state_digest(bare(trainer.export(["param"]))))


def test_what_is_observed_is_there_and_changes_nothing(passes) -> None:
    tensors = passes / "run" / "tensors"
    assert sorted(file.name for file in tensors.iterdir()) == [
        "init.safetensors",
        "step000000.safetensors",
        "step000003.safetensors",
    ]
    first = load_tensors(tensors / "step000000.safetensors")
    phases: dict[str, set[str]] = {}
    for key in first:
        phases.setdefault(key.partition("/")[0], set()).add(key.partition("/")[2])
    assert set(phases) == {"batch", "act", "grad", "clipped", "param"}
    assert phases["batch"] == {"tokens", "labels"}
    inside = {f"blocks.0{part}" for part in ("", ".ln1", ".attn", ".attn.qkv", ".attn.proj", ".ln2", ".mlp")}
    inside |= {"blocks.0.mlp.fc", "blocks.0.mlp.proj"}
    assert phases["act"] == {"wte", "ln_f", "output", *inside}
    assert first["act/output"].shape == (8, GPT.seq_len, GPT.vocab)
    assert steps_of(passes / "run") == steps_of(passes / "plain")
    digests = [(passes / name / "digest.rank0.json").read_text() for name in ("run", "plain")]
    assert digests[0] == digests[1]
    assert manifest_of(passes / "run")["reasons"]["observation"].endswith("equal to the bit, at steps [0]")
    assert "only the timed program ran" in manifest_of(passes / "plain")["reasons"]["observation"]


def test_the_observed_gradient_is_that_of_the_observed_batch(passes) -> None:
    first = load_tensors(passes / "run" / "tensors" / "step000000.safetensors")
    line = steps_of(passes / "run")[0]
    norm = np.sqrt(sum(np.square(a, dtype=np.float64).sum() for a in bare(first, "grad").values()))
    assert norm == pytest.approx(line["grad_norm"], rel=1e-6)
    clip = min(1.0, 1.0 / norm)
    for name, clipped in bare(first, "clipped").items():
        np.testing.assert_allclose(clipped, first[f"grad/{name}"] * clip, rtol=1e-6, atol=1e-12)


def test_lockstep_is_one_step_from_the_state(passes) -> None:
    (line,) = steps_of(passes / "lockstep")
    assert line == steps_of(passes / "run")[2]
    trainer = make_trainer(gpt_problem())
    train(trainer, 2)
    trainer.look(trainer.feed.rows(2))
    train(trainer, 1, start=2)
    written = load_tensors(passes / "lockstep" / "tensors" / "step000002.safetensors")
    for key, array in trainer.export(["param", "grad"]).items():
        assert written[key].tobytes() == array.tobytes(), key


def test_time_writes_raw_samples(passes) -> None:
    samples = list(record.read_lines(passes / "time" / "windows.jsonl"))
    assert [sample["kind"] for sample in samples] == (
        ["start"] + ["window"] * 3 + ["dispatch"] * 5 + ["launch"] * 5 + ["memory"]
    )
    assert samples[0]["initial"] is True
    assert all(sample["steps"] == 4 and sample["wall_s"] > 0 for sample in samples[1:4])
    assert all(sample["us"] > 0 for sample in samples[4:14])
    assert samples[-1]["peak_mem_bytes"] is None
    assert samples[-1]["reason"]
    assert json.loads((passes / "time" / "digest.rank0.json").read_text())["step"] == 2 + 3 * 4 + 5 + 5


def test_a_mode_without_one_launch_writes_no_launch_samples(tmp_path) -> None:
    timing = Timing(warmup_steps=1, windows=1, steps_per_window=1, calls=1)
    asked = job(tmp_path / "time", "time", problem=mlp_problem(), mode="nojit", timing=timing)
    assert work(asked) == 0
    kinds = [sample["kind"] for sample in record.read_lines(tmp_path / "time" / "windows.jsonl")]
    assert kinds == ["start", "window", "dispatch", "memory"]
    assert "many calls" in manifest_of(tmp_path / "time")["reasons"]["launch_us"]


@pytest.mark.parametrize("mode", ["jit", "jit:k2"])
def test_a_traced_pass_does_what_a_timed_one_does(tmp_path, mode) -> None:
    timing = Timing(warmup_steps=4, windows=2, steps_per_window=4, calls=2, traced_steps=6)
    asked = [
        job(tmp_path / purpose, purpose, problem=mlp_problem(), mode=mode, timing=timing)
        for purpose in ("time", "trace")
    ]
    assert work(*asked) == 0
    found = trace.read(tmp_path / "trace")
    assert found.program == trace.program_of(tmp_path / "time")
    assert [step.number for step in found.steps] == ([4, 5, 6, 7, 8, 9] if mode == "jit" else [4, 6, 8])


def test_written_batches_are_read_instead(tmp_path) -> None:
    other = dataclasses.replace(mlp_problem(), seed_data=9)
    write_batches(tmp_path / "batches", open_source(other), STEPS, 8)
    given = job(tmp_path / "given", problem=mlp_problem(), batches=str(tmp_path / "batches"))
    assert work(given, job(tmp_path / "other", problem=other)) == 0
    assert steps_of(tmp_path / "given") == steps_of(tmp_path / "other")


def test_an_edit_reaches_the_step(tmp_path) -> None:
    edits = (Edit(name="schedule_offset", value=1),)
    jobs = (
        job(tmp_path / "edited", problem=mlp_problem(), edits=edits),
        job(tmp_path / "plain", problem=mlp_problem()),
    )
    assert work(*jobs) == 0
    edited, plain = steps_of(tmp_path / "edited"), steps_of(tmp_path / "plain")
    assert [line["lr"] for line in edited[:3]] == [line["lr"] for line in plain[1:]]


def test_an_edit_that_met_nothing_is_refused_after_a_step_where_it_must_act(tmp_path) -> None:
    edits = (Edit(name="rmsnorm_eps", value=0.5),)
    tried = job(tmp_path / "tried", problem=mlp_problem(), edits=edits)
    planted = job(tmp_path / "planted", problem=mlp_problem(), edits=edits, must_act=True)
    assert work(tried) == 0, "a search tries what there is not"
    assert work(planted) == 2
    error = json.loads((tmp_path / "planted" / "error.json").read_text())
    assert error["numbers"] == "jax:rmsnorm_eps=0.5: the model has no such call"
    assert not steps_of(tmp_path / "planted")


def test_a_loss_that_is_not_finite_is_written_down(tmp_path) -> None:
    problem = mlp_problem()
    source = open_source(problem)
    for step in range(3):
        batch = source.rows(step, 0, 8)
        batch["x"][0, 0] = np.nan if step == 1 else batch["x"][0, 0]
        save_tensors(batch_file(tmp_path / "batches", step), {f"batch/{k}": a for k, a in batch.items()})
    observe = tuple(f"{phase}@{step}" for phase in STATE for step in (0, 1))
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


def test_no_clipping_travels_through_a_job(tmp_path) -> None:
    problem = mlp_problem(optimizer=AdamW(max_norm=None))
    assert work(job(tmp_path / "run", problem=problem, observe=("grad@0", "clipped@0"))) == 0
    tensors = load_tensors(batch_file(tmp_path / "run" / "tensors", 0))
    assert tensors["grad/fc1.bias"].tobytes() == tensors["clipped/fc1.bias"].tobytes()


BAD = {
    "processes": "1 started, 2 devices asked for",
    "no states": "no stepNNNNNN.safetensors",
    "wrong state": "is missing",
    "no counter": "no meta/applied",
    "vocabulary": "vocabulary 61",
    "no batches": "no such folder",
    "no batches inside": "under batch/",
    "a state for a run": "purpose run",
    "edited baseline": "stock",
    "inside a baseline": "observe grad",
    "another width": "not in both",
}
"""Bad jobs by name, with a part of the message."""


def _bad_job(name: str, root: Path) -> Job:
    (root / "empty").mkdir()
    uncounted = {"param/ln_f.bias": np.zeros(3, np.float32)}
    save_tensors(batch_file(root / "uncounted", 0), uncounted)
    save_tensors(batch_file(root / "wrong", 0), uncounted | {"meta/applied": np.zeros((), np.int32)})
    changes = {
        "processes": {"world_size": 2},
        "no states": {"purpose": "lockstep", "state": str(root / "empty")},
        "wrong state": {"purpose": "lockstep", "state": str(root / "wrong")},
        "no counter": {"purpose": "lockstep", "state": str(root / "uncounted")},
        "vocabulary": {"problem": dataclasses.replace(gpt_problem(), data=DataSpec(kind="text"))},
        "no batches": {"batches": str(root / "nowhere")},
        "no batches inside": {"batches": str(root / "wrong")},
        "a state for a run": {"state": str(root / "wrong")},
        "edited baseline": {"mode": "baseline:jit", "edits": (Edit(name="clip_eps", value=1.0),)},
        "inside a baseline": {"mode": "baseline:jit", "observe": ("clipped@0",), "problem": mlp_problem()},
        "another width": {"problem": gpt_problem(precision="f64")},
    }
    return job(root / "bad", **changes[name])


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_code_2_with_rule_and_numbers(tmp_path, name) -> None:
    bad = _bad_job(name, tmp_path)
    assert work(bad) == 2
    error = error_of(Path(bad.out))
    assert (error["code"], error["rank"]) == (2, 0)
    assert BAD[name] in error["rule"] + error["numbers"] + error["mend"]
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
    monkeypatch.setattr("jax_impl.trainer.init_parameters", lambda *_: 1 / 0)
    assert work(job(tmp_path / "crash")) == 6
    error = error_of(tmp_path / "crash")
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
