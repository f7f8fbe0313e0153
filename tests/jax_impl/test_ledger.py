"""The ledger of command buffers, on text that XLA wrote for a step on an H200, and on breaks made up here."""

import jax
import numpy as np

from jax_impl.xla import program
from jax_impl.xla.ledger import NOT_WRITTEN, Thunk, ledger, read_ledger, read_thunks
from jax_impl.xla.options import mode_options
from spec.jit import jit_options
from tests.jax_impl.processes import ROOT
from tests.jax_impl.small import make_trainer, mlp_problem, train

# The first lines of one of this project's steps, by jaxlib 0.11.2, columns shortened.
WRITTEN = """\
000: kCommandBuffer [source | sink]
    001: kCustomKernel   [source         | next=002 (1)  ] wrapped_convert grid: [2048, 1, 1]
    002: kCustomKernel   [prev=001 (1)   | next=003 (1)  ] loop_convert_fusion_6 grid: [2048, 1, 1]
    003: kCustomKernel   [prev=002 (1)   | next=005 (2)  ] fusion_995 grid: [128, 1, 1]
    006: kCustomKernel   [prev=005 (1)   | next=007 (1)  ] loop_slice_fusion_5 grid: [2048, 1, 1]
    007: kCuDnn          [prev=006 (1)   | next=009 (2)  ] kCuDnn
"""
# Made up in the same format: a collective cuts the step in two, and a loop runs on the host.
BROKEN = """\
000: kCommandBuffer [source | sink]
    001: kCustomKernel one
    002: kCustomKernel two
003: kAllReduce
004: kCommandBuffer [source | sink]
    005: kCublasLtMatmul three
006: kWhile
    007: kCommandBuffer [source | sink]
        008: kCustomKernel four
    009: kCustomKernel five
010: kCustomKernel six
"""
USUAL = ("FUSION", "CUBLAS", "CUBLASLT", "CUDNN")


def test_a_step_in_one_buffer_has_nothing_outside() -> None:
    found = ledger(WRITTEN, USUAL, 5)
    assert (found["command_buffers"], found["thunks_in"], found["thunks_out"]) == (1, 5, 0)
    assert (found["kernels_in"], found["launches"], found["breaks"]) == (4, 1, {})
    assert found["updates"] is None and "graph_updates_per_step" in found["reasons"]["updates"]


def test_a_whole_step_that_xla_wrote_is_one_buffer() -> None:
    found = ledger((ROOT / "benchmarks/results/jax_step/a_thunks.txt").read_text(), USUAL, 5)
    assert (found["command_buffers"], found["thunks_in"], found["thunks_out"]) == (1, 378, 0)
    assert (found["kernels_in"], found["launches"], found["breaks"]) == (360, 1, {})


def test_every_break_has_its_reason() -> None:
    assert read_thunks(BROKEN)[-2:] == [Thunk("CustomKernel", False, 1), Thunk("CustomKernel", False, 0)]
    found = ledger(BROKEN, USUAL, 5)
    assert (found["command_buffers"], found["thunks_in"], found["thunks_out"]) == (3, 4, 3)
    assert (found["collectives_in"], found["collectives_out"], found["host_loops"]) == (0, 1, 1)
    assert found["launches"] is None and "loop on the host" in found["reasons"]["launches"]
    assert found["breaks"]["AllReduce"].startswith("COLLECTIVES is not among")
    assert found["breaks"]["While"].startswith("WHILE is not among")
    assert "fewer than 5" in found["breaks"]["CustomKernel"]
    assert "may be captured" in ledger(BROKEN, [*USUAL, "COLLECTIVES"], 5)["breaks"]["AllReduce"]


def test_the_changed_sequence_is_read_where_there_is_one(tmp_path) -> None:
    assert read_ledger(tmp_path, USUAL, 5) is None
    (tmp_path / "module_0000.jit_train_step.thunk_sequence.txt").write_text("001: kCustomKernel one\n")
    assert read_ledger(tmp_path, USUAL, 5)["thunks_out"] == 1
    changed = tmp_path / "module_0000.jit_train_step.thunk_sequence_after_thunk_passes.txt"
    changed.write_text(WRITTEN)
    assert read_ledger(tmp_path, USUAL, 5)["thunks_out"] == 0


def test_a_program_is_asked_for_its_thunks_as_it_is_compiled(monkeypatch) -> None:
    """What a GPU run does; here XLA's CPU compiler takes the same options."""
    monkeypatch.setattr(program.jax, "default_backend", lambda: "gpu")
    lowered = jax.jit(lambda row: row + 1).lower(jax.ShapeDtypeStruct((3,), "float32"))
    options = mode_options(jit_options("jit:all+min1+concurrent"))
    compiled, _ = program._compile(lowered, options)
    assert compiled(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    assert program._why_no_ledger() == NOT_WRITTEN


def test_on_a_cpu_it_is_null_with_the_reason() -> None:
    trainer = make_trainer(mlp_problem())
    train(trainer, 1)
    proven = trainer.compiled.proven
    assert proven["command_buffers"] is None
    assert "no command buffers" in proven["reasons"]["command_buffers"]
