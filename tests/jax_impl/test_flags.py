"""XLA's flags: read from the installed jaxlib, refused by name before XLA ends the process, recorded."""

import json
import subprocess
import sys

import pytest

from jax_impl import runtime
from jax_impl.xla import flags
from spec.errors import RuleError
from spec.run import Execution
from tests.jax_impl.processes import ROOT
from tests.jax_impl.small import mlp_problem


def told(monkeypatch, text: str) -> dict:
    """What a process with these XLA_FLAGS answers."""
    monkeypatch.setenv("XLA_FLAGS", text)
    argv = [sys.executable, "-m", "jax_impl.xla.flags"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def test_defaults_are_those_that_xla_documents() -> None:
    usual = flags.defaults()
    assert len(usual) > 200
    assert usual["xla_allow_excess_precision"] is True
    assert usual["xla_gpu_graph_min_graph_size"] == 5
    assert usual["xla_gpu_nccl_termination_timeout_seconds"] == -1
    assert {"FUSION", "CUBLAS", "CONDITIONAL"} <= set(usual["xla_gpu_enable_command_buffer"])
    assert not {"WHILE", "COLLECTIVES"} & set(usual["xla_gpu_enable_command_buffer"])


@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        # Flags that public documentation still names.
        ("--xla_gpu_enable_async_collectives=true", "xla_gpu_disable_async_collectives"),
        ("--xla_gpu_graph_min_graph_sise=1", "xla_gpu_graph_min_graph_size"),
        ("--xla_gpu_command_buffer_scheduling_mode=SOON", "one of SERIALIZE, "),
    ],
)
def test_a_dead_flag_is_refused_with_the_nearest_that_lives(monkeypatch, text, nearest) -> None:
    monkeypatch.setenv("XLA_FLAGS", f"{text} --xla_gpu_graph_min_graph_size=1")
    with pytest.raises(RuleError, match="flags of the installed jaxlib") as caught:
        runtime.configure(mlp_problem(), Execution())
    assert caught.value.numbers == f"refused: {text}"
    assert nearest in caught.value.mend


def test_what_is_not_default_is_told(monkeypatch) -> None:
    answer = told(monkeypatch, "--xla_gpu_graph_min_graph_size=1 --xla_gpu_autotune_level=4")
    assert (answer["ok"], answer["found"]) == (True, "xla_gpu_graph_min_graph_size=1")
    answer = told(monkeypatch, "--xla_gpu_graph_level=0")
    assert not answer["ok"] and "xla_gpu_graph_level" in answer["found"] and answer["mend"]
