"""What two ranks do together; started by torchrun with the name of a case, it prints `ok` or fails.

A program of its own, so that its end (after an exception, a signal) can be watched from outside.
"""

import faulthandler
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from spec.run import Execution
from tests.gpu.steps import Setup, capture, differences, inductor, preset, run_captured, run_eagerly
from torch_impl import parallel
from torch_impl.graph.capture import CaptureRefused
from torch_impl.graph.plan import FLAT, Plan
from torch_impl.parallel import Ranks

STEPS = range(50)


def agreed(ranks: Ranks, state: dict[str, Tensor]) -> None:
    """Both ranks hold the same bits."""
    for name, tensor in state.items():
        bits = tensor.contiguous().view(-1).view(torch.uint8).clone()
        ranks.broadcast(bits)
        mine = tensor.contiguous().view(-1).view(torch.uint8)
        assert torch.equal(bits, mine), f"rank {ranks.rank} holds other bits of {name} than rank 0"


def compare(ranks: Ranks, name: str, plan: Plan, compiled: bool, precision: str = "strict") -> dict[str, Any]:
    """Eager and captured runs by one plan, bit for bit."""
    eager, graph = preset(name, ranks, precision=precision), preset(name, ranks, precision=precision)
    expected = run_eagerly(
        eager, inductor(eager.step, eager.problem) if compiled else eager.step, STEPS, plan
    )
    captured = capture(graph, inductor(graph.step, graph.problem) if compiled else None, plan)
    got = run_captured(graph, captured, STEPS)
    torch.cuda.synchronize()
    record = captured.record()
    found = differences(eager.state(), graph.state())
    captured.step.close()
    assert not found, f"rank {ranks.rank}: {found}"
    assert got == expected
    agreed(ranks, graph.state())
    return record


def flat(ranks: Ranks) -> None:
    """One all-reduce, eager kernels."""
    (graph,) = compare(ranks, "tiny", FLAT, compiled=False)["graphs"]
    assert graph["nodes_by_kind"].keys() == {"kernel"}, graph["nodes_by_kind"]
    assert len(graph["collectives"]) == 1, graph["collectives"]


def flat_compiled(ranks: Ranks) -> None:
    """One all-reduce, inductor's kernels."""
    (graph,) = compare(ranks, "tiny", FLAT, compiled=True)["graphs"]
    assert graph["nodes_by_kind"].keys() == {"kernel"}, graph["nodes_by_kind"]


def overlapped(ranks: Ranks) -> None:
    """Buckets of gradients beside backward; micro has 20 MB of them."""
    record = compare(ranks, "micro", Plan("whole", 4), compiled=False)
    (graph,) = record["graphs"]
    assert graph["nodes_by_kind"].keys() == {"kernel"}, graph["nodes_by_kind"]
    beside = [row["compute_beside"] for row in graph["collectives"]]
    assert len(beside) > 2 and max(beside) > 10, beside


def not_finite(ranks: Ranks) -> None:
    """A NaN on rank 1 alone leaves both ranks as they were."""
    setup = preset("toy-mlp", ranks)
    captured = capture(setup)
    run_captured(setup, captured, range(3))
    before = setup.state()
    rows = setup.rows(3)
    if ranks.rank == 1:
        rows["x"][0, 0] = float("nan")
    captured.step(rows)
    captured.step.metrics()
    changed = set(differences(before, setup.state()))
    assert changed == {"skipped"}, changed
    run_captured(setup, captured, range(4, 6))
    agreed(ranks, setup.state())
    assert (int(setup.arena.applied), int(setup.arena.skipped)) == (5, 1)
    captured.step.close()


def one_rank_fails(ranks: Ranks) -> None:
    """Rank 1 cannot capture: both are told why, both go on eagerly to the same weights, and capture later."""
    setup, reference = preset("toy-mlp", ranks), preset("toy-mlp", ranks)
    good = setup.step.loss

    def failing(module: nn.Module, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        if ranks.rank == 1:
            raise ValueError("no such thing on rank 1")
        return good(module, batch)

    object.__setattr__(setup.step, "loss", failing)
    try:
        capture(setup)
    except CaptureRefused as refused:
        assert "rank 1" in str(refused) and "no such thing" in str(refused), refused
    else:
        raise AssertionError("captured what one rank cannot")
    object.__setattr__(setup.step, "loss", good)
    expected = run_eagerly(reference, reference.step, range(5))
    assert run_eagerly(setup, setup.step, range(5)) == expected
    captured = capture(setup)
    run_captured(setup, captured, range(5, 8))
    agreed(ranks, setup.state())
    captured.step.close()


def busy_before(ranks: Ranks) -> None:
    """Eager collectives in flight right before capture, again and again."""
    setup = preset("toy-mlp", ranks)
    for _ in range(20):
        for _ in range(5):
            dist.all_reduce(torch.ones(1 << 20, device=ranks.device), async_op=True)
        captured = capture(setup)
        captured.step(setup.rows(0))
        captured.step.metrics()
        captured.step.close()


def soak(ranks: Ranks) -> None:
    """1000 launches, then the same state on both ranks and the same as eager steps."""
    eager, graph = preset("tiny", ranks, 1000), preset("tiny", ranks, 1000)
    expected = run_eagerly(eager, eager.step, range(1000))
    captured = capture(graph)
    assert run_captured(graph, captured, range(1000)) == expected
    assert not differences(eager.state(), graph.state())
    agreed(ranks, graph.state())
    captured.step.close()


def _running(ranks: Ranks) -> tuple[Setup, Any]:
    setup = preset("tiny", ranks)
    captured = capture(setup)
    for number in range(5):
        captured.step(setup.rows(number))
    return setup, captured


def end_normally(ranks: Ranks) -> None:
    """Nobody closes anything but the ranks."""
    _running(ranks)


def end_by_exception(ranks: Ranks) -> None:
    """One rank fails in mid-run."""
    _running(ranks)
    if ranks.rank == 1:
        raise ValueError("in mid-run")


def end_by_interrupt(ranks: Ranks) -> None:
    """Ctrl-C on every rank."""
    _running(ranks)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(20)


def end_by_sigterm(ranks: Ranks) -> None:
    """What a scheduler sends."""
    _running(ranks)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)


CASES = {
    f.__name__: f
    for f in (
        *(flat, flat_compiled, overlapped, not_finite, one_rank_fails, busy_before, soak),
        *(end_normally, end_by_exception, end_by_interrupt, end_by_sigterm),
    )
}


def main(names: list[str]) -> None:
    """Runs cases in one group of processes; a case that hangs says where."""
    faulthandler.dump_traceback_later(100, exit=True)
    world_size = int(os.environ["WORLD_SIZE"])
    ranks = parallel.join(Execution(device="cuda", world_size=world_size))
    try:
        for name in names:
            started = time.perf_counter()
            CASES[name](ranks)
            torch._dynamo.reset()
            if ranks.rank == 0:
                print(f"{name}: ok in {time.perf_counter() - started:.1f} s", flush=True)
    finally:
        ranks.close()


if __name__ == "__main__":
    main(sys.argv[1:])
