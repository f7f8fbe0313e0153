"""A run that goes on from a checkpoint is the run that was never interrupted, to the bit, on both sides."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spec.checkpoint import checkpoints_in, open_checkpoint
from spec.checkpoint.find import FOLDER
from spec.data.batches import add_digests
from spec.run import Problem
from tests.cross.resuming import (
    Way,
    assert_goes_on,
    checkpoint_of,
    finish,
    kill_after_a_checkpoint,
    start,
    start_module,
    work,
)
from tests.jax_impl.jobs import error_of, manifest_of, steps_of
from tests.jax_impl.processes import ROOT
from tests.jax_impl.small import gpt_problem, mlp_problem

STEPS = 8
GPT, MLP = gpt_problem(micro_batches=2), mlp_problem()
EAGER, INDUCTOR, JIT, NOJIT = (
    Way("torch", "eager"),
    Way("torch", "inductor"),
    Way("jax", "jit"),
    Way("jax", "nojit"),
)


def slow(*values: object) -> Any:
    """For what compiles long, or runs operation by operation."""
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("way", "problem"),
    [
        (EAGER, GPT),
        (EAGER, MLP),
        (JIT, GPT),
        (JIT, MLP),
        slow(NOJIT, MLP),
        slow(INDUCTOR, MLP),
        slow(NOJIT, GPT),
        slow(INDUCTOR, GPT),
    ],
    ids=lambda value: str(value) if isinstance(value, Way) else value.workload,
)
def test_one_process_goes_on_to_the_bit(tmp_path: Path, way: Way, problem: Problem) -> None:
    whole = way.job(tmp_path / "whole", problem=problem, steps=STEPS, save_every=3)
    resume = str(tmp_path / "whole/checkpoints/step000003")
    assert work(whole, way.job(tmp_path / "on", problem=problem, steps=STEPS, resume=resume)) == 0
    assert_goes_on(tmp_path / "on", tmp_path / "whole", 3)
    last = open_checkpoint(checkpoint_of(tmp_path / "whole", STEPS))
    assert (last.position.step, last.position.applied, last.position.skipped) == (STEPS, STEPS, 0)
    assert last.written_by["side"] == way.side and last.written_by["mode"] == way.mode


@pytest.mark.parametrize("way", [EAGER, JIT], ids=str)
def test_saving_changes_nothing_and_keeps_what_it_is_told_to(tmp_path: Path, way: Way) -> None:
    plain = way.job(tmp_path / "plain", problem=MLP, steps=STEPS)
    saving = way.job(tmp_path / "saving", problem=MLP, steps=STEPS, save_every=3, keep=2)
    assert work(plain, saving) == 0
    assert_goes_on(tmp_path / "saving", tmp_path / "plain", 0)
    assert list(checkpoints_in(tmp_path / "saving" / FOLDER)) == [6, STEPS]


IN_PAIRS = [Way("torch", "eager", 2), Way("jax", "jit", 2), slow(Way("torch", "inductor", 2))]


@pytest.fixture(scope="module", params=IN_PAIRS, ids=str)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Way, Path]:
    """A whole run of two processes that saved, and one that went on from its third step."""
    way, folder = request.param, tmp_path_factory.mktemp("pair")
    settings = {"problem": MLP, "steps": STEPS}
    whole = way.job(folder / "whole", save_every=3, **settings)
    resumed = way.job(folder / "resumed", resume=str(folder / "whole/checkpoints/step000003"), **settings)
    assert finish(start(way, whole, resumed)) == [0, 0]
    return way, folder


def test_two_processes_go_on_to_the_bit(pair: tuple[Way, Path]) -> None:
    assert_goes_on(pair[1] / "resumed", pair[1] / "whole", 3, processes=2)


def test_another_number_of_processes_goes_on_with_the_same_rows(pair: tuple[Way, Path]) -> None:
    way, folder = pair
    alone = Way(way.side, way.mode)
    resume = checkpoint_of(folder / "whole", 3)
    assert work(alone.job(folder / "alone", problem=MLP, steps=STEPS, resume=resume)) == 0
    lines, ranks = steps_of(folder / "alone"), [steps_of(folder / "whole", rank)[3:] for rank in (0, 1)]
    assert [line["step"] for line in lines] == list(range(3, STEPS))
    for line, *of_ranks in zip(lines, *ranks, strict=True):
        assert line["batch_digest"] == add_digests(rank["batch_digest"] for rank in of_ranks)
        # Sums in another order: some roundings of float32.
        assert line["loss"] == pytest.approx(of_ranks[0]["loss"], rel=1e-6)
        assert line["lr_bits"] == of_ranks[0]["lr_bits"]


@pytest.mark.parametrize("way", [Way("torch", "eager", 2), slow(Way("jax", "jit", 2))], ids=str)
def test_every_rank_gets_its_own_buffers_back(tmp_path: Path, way: Way) -> None:
    arguments = ("tests.cross.own_buffers", way.side, str(tmp_path / "checkpoints"))
    assert finish(start_module(way, *arguments)) == [0, 0]


LONG = {"eager": 400, "jit": 400, "inductor": 400, "nojit": 60}
"""Steps of a run that is killed: it must still be under way when its first checkpoint is there."""


@pytest.mark.parametrize(
    "way",
    [
        EAGER,
        slow(JIT),
        slow(INDUCTOR),
        slow(NOJIT),
        slow(Way("torch", "eager", 2)),
        slow(Way("jax", "jit", 2)),
    ],
    ids=str,
)
def test_a_killed_run_goes_on_to_the_bit(tmp_path: Path, way: Way) -> None:
    settings = {"problem": mlp_problem(steps=LONG[way.mode]), "steps": LONG[way.mode]}
    saving = way.job(tmp_path / "killed", save_every=10, keep=3, **settings)
    step = kill_after_a_checkpoint(start(way, saving), tmp_path / "killed")
    killed = steps_of(tmp_path / "killed")
    assert step <= len(killed) < LONG[way.mode], "a checkpoint is never ahead of the record"
    resumed = way.job(tmp_path / "resumed", resume=checkpoint_of(tmp_path / "killed", step), **settings)
    assert finish(start(way, way.job(tmp_path / "whole", **settings), resumed)) == [0] * way.processes
    assert killed == steps_of(tmp_path / "whole")[: len(killed)]
    assert_goes_on(tmp_path / "resumed", tmp_path / "whole", step, way.processes)


@pytest.mark.parametrize(("writer", "reader"), [("torch", "jax"), ("jax", "torch")])
def test_either_side_goes_on_where_the_other_stopped(tmp_path: Path, writer: str, reader: str) -> None:
    ways = {"torch": EAGER, "jax": JIT}
    assert work(ways[writer].job(tmp_path / "whole", problem=GPT, steps=STEPS, save_every=4)) == 0
    resume = checkpoint_of(tmp_path / "whole", 4)
    assert work(ways[reader].job(tmp_path / "on", problem=GPT, steps=STEPS, resume=resume)) == 0
    begun, ended = manifest_of(tmp_path / "on"), open_checkpoint(resume)
    assert begun["first_step"] == 4
    for name, digest in begun["init_sha256"].items():
        assert ended.manifest.tensors[f"param/{name}"].sha256 == digest
    for line, other in zip(steps_of(tmp_path / "on"), steps_of(tmp_path / "whole")[4:], strict=True):
        assert line["loss"] == pytest.approx(other["loss"], rel=2e-6)
        assert line["batch_digest"] == other["batch_digest"]


@pytest.mark.parametrize("side", ["torch", "jax"])
def test_what_cannot_be_gone_on_from_is_code_2(tmp_path: Path, side: str) -> None:
    way = {"torch": EAGER, "jax": JIT}[side]
    assert work(way.job(tmp_path / "saved", problem=MLP, steps=4, save_every=2)) == 0
    good = checkpoint_of(tmp_path / "saved", 2)
    bad = {
        "no steps left": (way.job(tmp_path / "a", problem=MLP, steps=2, resume=good), "2 steps"),
        "another model": (way.job(tmp_path / "b", problem=GPT, steps=4, resume=good), "workload"),
        "seen before": (
            way.job(tmp_path / "c", problem=MLP, steps=4, resume=good, observe=("grad@0",)),
            "grad@0",
        ),
        "nothing there": (
            way.job(tmp_path / "d", problem=MLP, steps=4, resume=str(tmp_path)),
            "checkpoint.json",
        ),
    }
    for name, (job, part) in bad.items():
        assert work(job) == 2, name
        error = error_of(Path(job.out))
        assert part in error["rule"] + error["numbers"] + error["mend"], name


@pytest.mark.parametrize("way", [EAGER, JIT], ids=str)
def test_a_checkpoint_that_cannot_be_written_ends_the_run_and_says_so(tmp_path: Path, way: Way) -> None:
    """No file of this worker may grow beyond 32 KiB, as on a full disk; records and the job are smaller."""
    problem = gpt_problem(global_batch=2)
    out = tmp_path / "full"
    job = way.job(out, problem=problem, steps=STEPS, save_every=2)
    limit = "import resource as r, runpy; r.setrlimit(r.RLIMIT_FSIZE, (32768, 32768))"
    code = f"{limit}; runpy.run_module('{way.side}_impl', run_name='__main__')"
    command = [sys.executable, "-c", code, "work", str(job.write())]
    assert subprocess.run(command, cwd=ROOT, timeout=150, capture_output=True).returncode == 2
    error = error_of(out)
    assert "checkpoint" in error["rule"] and "step000002" in error["numbers"]
    assert not checkpoints_in(out / FOLDER)
    assert len(steps_of(out)) >= 2


@pytest.mark.parametrize("side", ["torch", "jax"])
def test_a_damaged_tensor_is_named_and_no_step_is_made(tmp_path: Path, side: str) -> None:
    way = {"torch": EAGER, "jax": JIT}[side]
    assert work(way.job(tmp_path / "saved", problem=MLP, steps=4, save_every=2)) == 0
    checkpoint = Path(checkpoint_of(tmp_path / "saved", 2))
    shard = next(checkpoint.glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    job = way.job(tmp_path / "on", problem=MLP, steps=4, resume=str(checkpoint))
    assert work(job) == 2
    assert shard.name in error_of(tmp_path / "on")["numbers"]
    assert not (tmp_path / "on" / "steps.rank0.jsonl").exists()
