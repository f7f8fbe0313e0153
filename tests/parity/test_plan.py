"""What the words of the command line become, and which of them are refused before anything starts."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from parity import devices, plan, probe, turns
from parity.command_line import parse
from parity.options import Bench, Run, Train
from parity.plan import Plan, make_plan
from spec.data.batches import open_source, write_batches
from spec.data.folder import batch_file
from spec.data.prepare import prepare
from spec.edits import Edit
from spec.errors import RuleError
from spec.job import Timing
from spec.presets import preset
from spec.weights import save_tensors


def planned(words: str) -> Plan:
    command = parse(shlex.split(words))
    assert isinstance(command, (Run, Train, Bench))
    return make_plan(command)


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 0)


def gpus(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A machine with so many GPUs, which both frameworks can use."""
    monkeypatch.setattr(devices, "count_gpus", lambda: number)
    monkeypatch.setattr(plan, "count_gpus", lambda: number)
    monkeypatch.setattr(probe, "ask", lambda side, **_: probe.Answer(usable=True, gpus=number))


def test_the_options_of_a_run() -> None:
    made = planned(
        "run tiny --devices 2 --global-batch 16 --micro-batches 4 --steps 7 --precision f64 --seed 5 "
        "--mode torch=inductor --edit jax:clip_eps=1e-6 --timeout-s 9"
    )
    problem, execution = made.spec.problem, made.spec.execution
    assert (problem.global_batch, problem.micro_batches, problem.steps) == (16, 4, 7)
    assert (problem.precision, problem.seed_weights, problem.seed_data) == ("f64", 5, 6)
    assert (execution.world_size, execution.torch_mode, execution.jax_mode) == (2, "inductor", "jit")
    assert made.edits == {"torch": (), "jax": (Edit(name="clip_eps", value=1e-6),)}
    assert (made.backends, made.timeout_s, made.local_processes) == (("torch", "jax"), 9.0, 2)


def test_sides_run_in_one_order_whatever_is_typed() -> None:
    assert planned("run toy-mlp --backend jax,torch").backends == ("torch", "jax")


def test_a_preset_with_more_devices_than_gpus_stays_the_same_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu = planned("run tiny")
    gpus(monkeypatch, 1)
    on_one_gpu = planned("run tiny")
    assert on_one_gpu.spec.execution.device == "cuda"
    assert on_one_gpu.spec.execution.world_size == 1
    assert on_one_gpu.spec.problem.sha256() == on_cpu.spec.problem.sha256()
    assert "1 of its 2 devices" in on_one_gpu.notes[0]


def test_several_hosts_share_the_processes() -> None:
    made = planned(
        "train tiny --backend torch --devices 4 --nodes 2 --node-rank 1 --rendezvous 10.0.0.1:29500"
    )
    assert (made.local_processes, made.spec.execution.world_size, made.cluster.node_rank) == (2, 4, 1)


def test_one_process_for_all_devices_is_a_launch_of_its_own(tmp_path: Path) -> None:
    made = planned("bench toy-mlp --devices 2 --backend jax --mode jax=jit,jax=jit:oneprocess")
    both = [("jax", "jit"), ("jax", "jit:oneprocess")]
    assert [turn.processes for turn in turns.timed(made, tmp_path, both, Timing())] == [2, 1, 2]
    with pytest.raises(RuleError, match="devices of one host"):
        planned(
            "train tiny --backend jax --mode jax=jit:oneprocess --devices 2 --nodes 2 --node-rank 1 "
            "--rendezvous 10.0.0.1:29500"
        )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "text"),
        ("a.bin", "shards"),
        ("shards", "shards"),
        ("*.bin", "shards"),
        ("batches", "folder"),
    ],
)
def test_data_are_known_by_their_path(tmp_path: Path, name: str, kind: str) -> None:
    (tmp_path / "a.txt").write_text("text " * 20)
    for shard in ("a.bin", "shards/b.bin"):
        prepare(str(tmp_path / "a.txt"), tmp_path / shard)
    source = open_source(preset("tiny").problem)
    write_batches(tmp_path / "batches", source, steps=50, global_batch=8)
    data = planned(f"run tiny --data {tmp_path / name}").spec.problem.data
    assert (data.kind, data.path, data.ragged) == (kind, str(tmp_path / name), True)


def test_a_folder_of_batches_has_all_steps_and_rows_of_the_run(tmp_path: Path) -> None:
    write_batches(tmp_path, open_source(preset("tiny").problem), steps=6, global_batch=8)
    assert planned(f"run tiny --data {tmp_path} --steps 6").spec.problem.data.kind == "folder"
    with pytest.raises(RuleError, match="Every step has its batch"):
        planned(f"run tiny --data {tmp_path} --steps 7")
    with pytest.raises(RuleError, match="rows of the global batch"):
        planned(f"run tiny --data {tmp_path} --steps 6 --global-batch 16")
    # Beyond the batches that timing prepares and before the last step.
    batch_file(tmp_path, 4).unlink()
    with pytest.raises(RuleError, match=r"no step000004\.safetensors among 5 steps"):
        planned(f"run tiny --data {tmp_path} --steps 6")


def test_a_folder_of_batches_has_those_that_timing_prepares(tmp_path: Path) -> None:
    write_batches(tmp_path, open_source(preset("tiny").problem), steps=3, global_batch=8)
    assert planned(f"run tiny --data {tmp_path} --steps 3 --no-time").spec.problem.data.kind == "folder"
    for words in ("run tiny --steps 3", "train tiny --backend torch --steps 3", "bench tiny"):
        with pytest.raises(RuleError, match=r"no step000003\.safetensors") as caught:
            planned(f"{words} --data {tmp_path}")
        assert "timing repeats the first 4 batches" in caught.value.mend
    write_batches(tmp_path, open_source(preset("tiny").problem), steps=4, global_batch=8)
    for words in ("run tiny --steps 3", "bench tiny"):
        assert planned(f"{words} --data {tmp_path}").spec.problem.data.kind == "folder"
    # A prepared batch is opened, not only looked for.
    save_tensors(batch_file(tmp_path, 2), {"batch/tokens": np.zeros((8, 1), np.int32)})
    with pytest.raises(RuleError, match="same names, shapes and dtypes"):
        planned(f"bench tiny --data {tmp_path}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run tiy", "did you mean tiny"),
        ("run tiny --backend torch,tensorflow", "torch or jax"),
        ("run tiny --backend torch,torch", "torch or jax"),
        ("run tiny --backend ''", "torch or jax"),
        ("run tiny --steps -1", "at least one step"),
        ("run tiny --steps 0", "at least one step"),
        ("run tiny --devices 0", "at least one"),
        ("run tiny --devices 100000 --global-batch 400000", "max\\(8, 4 x cores\\)"),
        ("run tiny --device cuda --devices 2", "GPUs on this host: 0"),
        ("run tiny --device gpu", "auto, cpu or cuda"),
        ("run tiny --precision tf32", "needs a GPU"),
        ("run tiny --precision fp8", "one of the table's"),
        ("run tiny --mode torch=graph", "needs a CUDA device"),
        ("run tiny --mode torch=fast", "torch mode is a known one"),
        ("run tiny --mode graph", "a mode for a side"),
        ("run tiny --mode torch=eager,torch=inductor", "one mode a side"),
        ("run tiny --global-batch 7", "divide the global batch"),
        ("run tiny --edit clip_eps=1", "names a side"),
        ("run tiny --edit jax:nonsense=1", "one of the catalogue's"),
        ("run tiny --edit jax:clip_eps=much", "name=number"),
        ("run tiny --backend torch --edit jax:clip_eps=1", "names a side that runs"),
        ("run tiny --data /no/such/file", "data exist"),
        ("run toy-mlp --data /etc/hostname", "mlp workload"),
        ("run tiny --seed -1", "not negative"),
        ("run tiny --timeout-s 0", "positive"),
        ("run tiny --timeout-s nan", "--timeout-s nan"),
        ("run tiny --timeout-s inf", "--timeout-s inf"),
        ("train tiny --backend torch,jax", "one side"),
        ("train tiny --backend torch --nodes 2", "--rendezvous HOST:PORT"),
        ("train tiny --backend torch --nodes 2 --node-rank 2 --rendezvous h:1", "0 to nodes - 1"),
        ("train tiny --backend torch --nodes 2 --devices 3 --rendezvous h:1", "same number of processes"),
        ("train tiny --backend torch --rendezvous nowhere", "--rendezvous HOST:PORT"),
    ],
)
def test_what_cannot_be_run_is_refused(words: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        planned(words)


def test_more_devices_than_gpus_are_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2)
    with pytest.raises(RuleError, match="--devices 4, GPUs on this host: 2"):
        planned("run tiny --devices 4")


def test_a_missing_framework_is_named_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "missing_packages", lambda side: ["jax"] if side == "jax" else [])
    with pytest.raises(RuleError, match=r"pip install -e '\.\[jax\]'"):
        planned("run tiny")


@pytest.mark.parametrize("text", ["torch:nonsense", "torch", "tensorflow:jit", "jax:ddp"])
def test_unknown_baselines_are_refused(text: str) -> None:
    with pytest.raises(RuleError, match="baseline is a known one"):
        plan.parse_baselines(text, ("torch", "jax"))


@pytest.mark.parametrize(
    ("visible", "expected"), [(None, 4), ("", 0), ("-1", 0), ("0,1", 2), ("0,-1,1", 1), ("0,1,2,3,4,5", 4)]
)
def test_hidden_gpus_are_not_counted(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: int
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(devices, "describe_gpus", lambda: {"gpus": [{}] * 4})
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices.count_gpus() == expected
