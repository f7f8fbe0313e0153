"""The whole step in one graph against eager steps, on one GPU: bit for bit in the strict profile."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from spec.errors import RuleError
from tests.gpu.steps import (
    alone,
    capture,
    conv_rows,
    conv_setup,
    differences,
    inductor,
    of_side,
    preset,
    run_captured,
    run_eagerly,
)
from torch_impl.graph.capture import CaptureRefused
from torch_impl.graph.forms import Options
from torch_impl.graph.random import Dropout, advance
from torch_impl.models import Side

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match"),
]
STEPS = range(50)


def check_equal(make: Any, compiled: bool, **options: Any) -> dict[str, Any]:
    """Eager and captured runs of one problem; the record of the capture."""
    eager, graph = make(), make()
    program = inductor(eager.step, eager.problem) if compiled else eager.step
    expected = run_eagerly(eager, program, STEPS)
    before = graph.state()
    captured = capture(graph, inductor(graph.step, graph.problem) if compiled else None, **options)
    assert not differences(before, graph.state()), "capture changed the state"
    got = run_captured(graph, captured, STEPS)
    record = captured.record()
    captured.step.ledger.check()
    found = differences(eager.state(), graph.state())
    captured.step.close()
    assert not found, found
    assert got == expected
    return record


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", ["toy-mlp", "tiny"])
def test_graph_equals_eager_bit_for_bit(name: str, compiled: bool) -> None:
    record = check_equal(lambda: preset(name, alone(), precision="strict"), compiled)
    (graph,) = record["graphs"]
    assert graph["nodes_by_kind"].keys() == {"kernel"} and not graph["not_kernels"]
    assert graph["launched_by"] == "plain" and graph["launches_per_step"] == 1
    assert record["state_checksum"]["before"] == record["state_checksum"]["after"]


def test_a_users_module_with_batch_norm_and_own_dropout_is_captured_unchanged() -> None:
    record = check_equal(lambda: conv_setup(0.0, alone()), compiled=False)
    assert not record["uses_torch_generator"]


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_dropout_from_torchs_generator_gives_eagers_sequence(micro_batches: int) -> None:
    def make() -> Any:
        setup = conv_setup(0.3, alone(), micro_batches)
        torch.cuda.manual_seed(4)
        return setup

    eager = make()
    expected = run_eagerly(eager, eager.step, STEPS)
    graph = make()
    captured = capture(graph)
    got = run_captured(graph, captured, STEPS)
    (row,) = captured.record()["graphs"]
    found = differences(eager.state(), graph.state())
    captured.step.close()
    assert captured.step.uses_generator
    assert row["launched_by"] == "torch replay" and row["launches_per_step"] == 3
    assert got == expected and not found


def test_device_dropout_differs_between_launches_and_equals_eager() -> None:
    def dropout(p: float) -> nn.Module:
        return Dropout(p, seed=5, site=0)

    def make() -> Any:
        setup = conv_setup(0.3, alone(), dropout=dropout)
        loss = setup.step.loss

        def advancing(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
            advance(module)
            return loss(module, batch)

        object.__setattr__(setup.step, "loss", advancing)
        return setup

    record = check_equal(make, compiled=False)
    assert record["graphs"][0]["launched_by"] == "plain"
    # The same batch and weights again and again: only the masks can move the loss.
    setup = make()
    captured = capture(setup)
    losses, initial = set[float](), setup.arena.master.clone()
    for _ in range(4):
        setup.arena.master.copy_(initial)
        captured.step(conv_rows(0))
        losses.add(captured.step.metrics()[0])
    captured.step.close()
    assert len(losses) == 4


def test_a_step_that_is_not_finite_leaves_everything_as_it_was() -> None:
    setup = conv_setup(0.0, alone())
    captured = capture(setup)
    run_captured(setup, captured, range(3))
    before = setup.state()
    bad = conv_rows(3)
    bad["images"][2, 1, 4, 4] = np.nan
    captured.step(bad)
    metrics = captured.step.metrics()
    after = setup.state()
    assert np.isnan(metrics[0])
    changed = set(differences(before, after))
    assert changed == {"skipped"} and int(after["skipped"]) == 1
    run_captured(setup, captured, range(4, 6))
    assert int(setup.arena.applied) == 5
    captured.step.close()


def test_a_wait_of_the_host_is_refused_with_its_line_and_nothing_is_lost() -> None:
    setup = conv_setup(0.0, alone())
    good, calls = setup.step.loss, []

    def waiting(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        loss_sum, count = good(module, batch)
        calls.append(loss_sum.item())  # the host waits here
        return loss_sum, count

    object.__setattr__(setup.step, "loss", waiting)
    before = setup.state()
    with pytest.raises(CaptureRefused) as refused:
        capture(setup)
    assert "test_whole_step.py" in str(refused.value) and "the host waits here" in str(refused.value)
    assert not differences(before, setup.state())
    reference = conv_setup(0.0, alone())
    expected = run_eagerly(reference, reference.step, range(5))
    assert run_eagerly(setup, setup.step, range(5)) == expected
    # The next capture of this process works.
    object.__setattr__(setup.step, "loss", good)
    captured = capture(setup)
    run_captured(setup, captured, range(3))
    captured.step.close()


def test_odd_shapes_run_eagerly_and_are_counted_and_what_broadcasts_is_refused() -> None:
    def rows(number: int) -> dict[str, np.ndarray]:
        batch = conv_rows(number)
        return {name: values[:5] for name, values in batch.items()} if number == 3 else batch

    reference = conv_setup(0.0, alone())
    reference.rows = rows
    expected = run_eagerly(reference, reference.step, range(6))
    setup = conv_setup(0.0, alone())
    setup.rows = rows
    captured = capture(setup)
    got = run_captured(setup, captured, range(6))
    assert got == expected and captured.step.counts.eager == 1
    assert not differences(reference.state(), setup.state())
    for wrong in (
        {name: values[:1] for name, values in conv_rows(0).items()},
        {**conv_rows(0), "labels": conv_rows(0)["labels"].astype(np.int32)},
        {**conv_rows(0), "more": np.zeros(3)},
        setup.device_batch(0),
    ):
        with pytest.raises(RuleError):
            captured.step(wrong)
    captured.step.close()


def test_two_shapes_have_two_graphs_in_one_pool() -> None:
    def rows(number: int) -> dict[str, np.ndarray]:
        batch = conv_rows(number)
        return {name: values[:4] for name, values in batch.items()} if number % 3 else batch

    reference = conv_setup(0.0, alone())
    reference.rows = rows
    expected = run_eagerly(reference, reference.step, STEPS)
    setup = conv_setup(0.0, alone())
    setup.rows = rows
    captured = capture(setup)
    captured.step.capture(rows(1))
    assert run_captured(setup, captured, STEPS) == expected
    assert captured.step.counts.eager == 0 and len(captured.step.shapes) == 2
    assert not differences(reference.state(), setup.state())
    captured.step.close()


@pytest.mark.parametrize("on_device", [False, True])
def test_large_batches_come_through_a_copy_stream(on_device: bool) -> None:
    reference = conv_setup(0.0, alone())
    expected = run_eagerly(reference, reference.step, STEPS)
    setup = conv_setup(0.0, alone())
    captured = capture(setup, options=Options(staged_bytes=0, input_slots=2))
    if on_device:
        got = []
        for number in STEPS:
            captured.step(setup.device_batch(number))
            got.append(captured.step.metrics())
    else:
        got = run_captured(setup, captured, STEPS)
    (row,) = captured.record()["graphs"]
    captured.step.close()
    assert got == expected and row["launches_per_step"] == 2 and row["inputs"] == "StagedRing"
    assert not differences(reference.state(), setup.state())


def test_a_moved_parameter_is_named() -> None:
    setup = conv_setup(0.0, alone())
    captured = capture(setup)
    module = setup.arena.module
    assert isinstance(module.head, nn.Linear)
    module.head.weight = nn.Parameter(module.head.weight.detach().clone())
    with pytest.raises(RuleError, match=r"param/head\.weight"):
        captured.step.ledger.check()
    captured.step.close()


def test_backward_on_another_stream_before_does_no_harm_or_is_named() -> None:
    setup = conv_setup(0.0, alone())
    module = setup.arena.module
    loss_sum, _ = setup.step.loss(module, setup.device_batch(0))
    torch.autograd.grad(loss_sum, setup.arena.trainable, retain_graph=True)
    if not hasattr(torch.autograd.graph, "set_override_stale_capture_stream"):
        with pytest.raises(CaptureRefused, match="made on another stream, is still alive; delete it"):
            capture(setup)
        del loss_sum
    captured = capture(setup)
    reference = conv_setup(0.0, alone())
    loss_sum, _ = reference.step.loss(reference.arena.module, reference.device_batch(0))
    assert run_captured(setup, captured, range(5)) == run_eagerly(reference, reference.step, range(5))
    captured.step.close()


def test_a_loader_that_pins_memory_may_run_during_capture() -> None:
    data = torch.utils.data.TensorDataset(torch.randn(4096, 64))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, num_workers=0)
    setup = conv_setup(0.0, alone())
    import threading

    stop = threading.Event()

    def pin() -> None:
        while not stop.is_set():
            for (batch,) in loader:
                batch.to("cuda", non_blocking=True)
                if stop.is_set():
                    break

    thread = threading.Thread(target=pin)
    thread.start()
    try:
        captured = capture(setup)
    finally:
        stop.set()
        thread.join()
    run_captured(setup, captured, range(5))
    captured.step.close()


def test_a_parameter_that_the_loss_does_not_use_keeps_a_zero_gradient() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(32, 32), nn.Linear(32, 32)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    def loss(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        out = module(batch["x"]) - batch["y"]
        return out.square().sum(), torch.full((), out.numel(), device=out.device)

    problem = preset("toy-mlp", alone()).problem

    def make() -> Any:
        torch.manual_seed(0)
        return of_side(Side(Partly, loss), problem, alone())

    check_equal(make, compiled=False)
