"""Bad input through the command line: exit code 2, a few lines on standard error, no run folder."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from parity import cli
from spec.data.shards import write_shard
from tests.parity.conftest import ROOT, Parity, command, environ

PAIR = ROOT / "examples" / "planted_mistake"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run tiy", "did you mean tiny"),
        ("run nope", "mend:  presets: tiny, "),
        (
            "run my_piar",
            "mend:  presets: tiny, toy-mlp, micro, mini, gpt2-124m; a pair is named by its folder",
        ),
        (f"run {PAIR} --devices 3", "fewer --devices or --micro-batches, or give batches()"),
        (f"run {PAIR} --micro-batches 5", "fewer --devices or --micro-batches, or give batches()"),
        ("run tiny --backend tensorflow", "take --backend torch,jax or one of them"),
        ("train tiny --backend nope", "take --backend torch or --backend jax"),
        ("compare . .", "name another run by its folder"),
        ("run tiny --device cuda --devices 64", "--devices 64"),
        ("run tiny --precision tf32 --device cpu", "needs a GPU"),
        ("run tiny --mode torch=graph --device cpu", "needs a CUDA device"),
        ("run tiny --steps -1", "--steps -1"),
        ("run tiny --mode jax=baseline:jit", "parity bench --baselines"),
        ("bench tiny --mode torch=baseline:eager,torch=eager", "parity bench --baselines"),
        ("run tiny --out /dev/null/runs", "--out a writable folder"),
        ("run tiny --json /no/such/folder/result.json", "--json"),
        ("run tiny --json here.json", "--json here.json exists"),
        ("compare 0001 0002 --json here.json", "--json here.json exists"),
        ("bench tiny --windows 0", "at least one window"),
        ("bench tiny --calls 0", "and one call"),
        ("bench tiny --calls x", "--calls takes a whole number"),
        ("bench tiny --baselines torch:nonsense", "torch:ddp"),
        ("bench toy-mlp --sweep batch=1,2 --global-batch 8", "--sweep batch=1,2 --global-batch 8"),
        ("bench toy-mlp --sweep batch=1..1000000000000", "fit into the host's memory"),
        ("compare 0001 last", "newest in"),
        ("data prepare /no/such/text --out shard.bin", "no such file"),
        ("run tiny --stepz 3", "--steps"),
        ("rum tiny", "run, train, bench"),
        ("train tiny", "--backend"),
        ("run tiny --save-every 0", "mend:  take 1 or more, or no --save-every"),
        ("run tiny --save-every 5 --keep 0", "mend:  take 1 or more, or no --keep"),
        ("train tiny --backend jax --keep 2", "add --save-every"),
        ("run tiny --resume last", "newest in"),
        ("train tiny --backend torch --resume .", "--save-every"),
        ("run tiny --handoff 40,20", "rising steps"),
        ("run tiny --steps 5 --handoff 5", "rising steps"),
        ("run tiny --backend jax --handoff 20", "two sides"),
        ("run tiny --handoff 20 --resume last", "leave one of them out"),
        ("run tiny --judge guess", "--judge guess"),
        ("run tiny --backend jax --judge measured", "two sides"),
        ("run gpt2-124m --device cpu --judge measured", "at most 30,000,000 parameters"),
        ("run toy-mlp --no-time --edit jax:gelu_erf=1", "jax:gelu_erf=1: the model has no such call"),
        ("run tiny --edit torch:decay_tensor@no.such=0", "the model has no such tensor"),
        (
            "run toy-mlp --edit jax:clip_eps=0.01 --edit jax:clip_eps=0.02",
            "--edit jax:clip_eps=0.01 --edit jax:clip_eps=0.02",
        ),
        ("run toy-mlp --edit jax:beta1=2", "beta1 is in [0, 1)."),
        ("run tiny --timeout-s nan", "--timeout-s nan"),
        ("explain last --timeout-s -1", "--timeout-s -1"),
        ("train tiny --backend jax --nodes 0", "--nodes 1 or more"),
        ("explain last", "newest in"),
        ("power 3", "newest in"),
        ("power . --timeout-s nan", "--timeout-s nan"),
        ("explain . --timeout-s -1", "--timeout-s -1"),
        ("power .", ": no run.json\n"),
        ("explain .", ": no run.json\n"),
        ("report .", ": no result.json\n"),
    ],
)
def test_bad_input_is_refused_in_a_few_lines(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    words: str,
    message: str,
) -> None:
    """In this process, as a new one takes longer than all the rest."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.json").write_text("kept")
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    code = cli.main(words.split())
    stdout, stderr = capfd.readouterr()
    assert code == 2, stdout + stderr
    check_refusal(tmp_path, stdout, stderr, message)
    assert (tmp_path / "here.json").read_text() == "kept"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("empty.txt", "0 bytes"),
        ("two.txt", "2 tokens, sequence length 64 + 1"),
        ("wrong.bin", "not 20240520"),
        ("wide.bin", "wide.bin, token"),
        ("nothing", "neither *.bin nor stepNNNNNN.safetensors"),
        ("nothing/*.bin", "matches no file"),
        ("nothing/*", "matches no file"),
        ("/dev/null", "a device or a pipe"),
        ("x" * 300, "too long"),
    ],
)
def test_bad_data_are_refused_before_a_folder_is_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    place: str,
    message: str,
) -> None:
    (tmp_path / "nothing").mkdir()
    (tmp_path / "empty.txt").touch()
    (tmp_path / "two.txt").write_text("ab")
    (tmp_path / "wrong.bin").write_bytes(bytes(2000))
    write_shard(tmp_path / "wide.bin", [np.full(1000, 50000)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    assert cli.main(["run", "tiny", "--data", place, "--steps", "2", "--no-time"]) == 2
    stdout, stderr = capfd.readouterr()
    check_refusal(tmp_path, stdout, stderr, message)
    assert "mend:  or " not in stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run tiy", "did you mean tiny"),
        ("run tiny --backend jax --handoff 20", "two sides"),
        ("run tiny --resume last", "newest in"),
    ],
)
def test_a_process_that_refuses_ends_with_code_2(
    parity: Parity, tmp_path: Path, words: str, message: str
) -> None:
    done = parity(words, code=2)
    check_refusal(tmp_path, done.stdout, done.stderr, message)


def check_refusal(folder: Path, stdout: str, stderr: str, message: str) -> None:
    assert message in stderr
    assert stdout == "" and "Traceback" not in stderr
    assert len(stderr.splitlines()) < 20
    assert not list(folder.glob("runs/0*"))


def test_a_shard_is_prepared_and_not_written_over(parity: Parity, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("some text")
    assert parity("data prepare text.txt --out text.bin").stdout == "text.bin: 9 tokens\n"
    assert "exists" in parity("data prepare text.txt --out text.bin", code=2).stderr


def test_doctor_says_what_there_is(parity: Parity) -> None:
    done = parity("doctor")
    assert done.stdout.startswith("usable sides: torch, jax\n")
    for capability in ("python", "torch", "jax", "GPUs", "loopback port", "C++ compiler", "run folders"):
        assert f"\n {capability} " in done.stdout


_TORCH = """
__version__ = "0"
class cuda:
    is_available = staticmethod(lambda: False)
distributed = cuda
"""
_MODULES = {"torch": _TORCH, "jax": '__version__ = "0"\nlocal_devices = list\n'}
_MODULES |= dict.fromkeys(("flax", "optax"), '__version__ = "0"\n')


@pytest.fixture
def quick_doctor(tmp_path: Path) -> None:
    """`parity doctor` in this folder meets stand-ins for the frameworks, which takes a second, not five."""
    for name, text in _MODULES.items():
        (tmp_path / f"{name}.py").write_text(text)


@pytest.mark.usefixtures("quick_doctor")
@pytest.mark.parametrize(("words", "code"), [("doctor", 0), ("compare 1 2", 2)])
def test_a_reader_that_leaves_changes_no_exit_code(tmp_path: Path, words: str, code: int) -> None:
    """As `parity doctor 2>&1 | head -1` does; 1 would say DIFFERENT."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(words), cwd=tmp_path, env=environ(), stdout=writing, stderr=subprocess.STDOUT, check=False
    )
    os.close(writing)
    assert done.returncode == code


@pytest.mark.usefixtures("quick_doctor")
def test_a_full_disk_behind_standard_output_is_told(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("doctor"), cwd=tmp_path, env=environ(), stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2 and "Standard output can be written." in done.stderr
    assert "Traceback" not in done.stderr


def test_doctor_names_the_line_that_installs_what_is_missing(parity: Parity, tmp_path: Path) -> None:
    """A module that fails to import stands in for a broken installation."""
    for name in ("torch", "jax"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is broken here')")
    done = parity("doctor", code=2)
    assert done.stdout.startswith("usable sides: none\n")
    assert "torch is broken here" in done.stdout
    assert "pip install -e '.[torch]'" in done.stdout
