"""Kernels, mapped memory and rewritten graphs on a real device."""

import numpy as np
import pytest
import torch

from torch_impl.graph import kernels
from torch_impl.graph.capture import capture
from torch_impl.graph.driver import call
from torch_impl.graph.launch import instantiate
from torch_impl.graph.layout import BatchLayout
from torch_impl.graph.nodes import walk
from torch_impl.graph.rewrite import to_kernels
from torch_impl.graph.rings import InputRing, MetricsRing

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda", 0)


def test_gather_takes_the_slot_of_the_tick_and_sees_what_the_host_wrote_last() -> None:
    layout = BatchLayout({"x": np.zeros(5000, np.int32), "y": np.zeros(3, np.float64)})
    ring = InputRing(layout, 3, DEVICE)
    row = torch.zeros(layout.row_bytes, dtype=torch.uint8, device=DEVICE)
    batch, tick = layout.unflatten(row), torch.zeros((), dtype=torch.int64, device=DEVICE)
    launch = kernels.gather(row, ring.slots, tick)
    for number in range(8):
        x, y = np.arange(5000, dtype=np.int32) * number, np.array([number, np.nan, -0.0])
        ring.write(number, {"x": x, "y": y})
        tick.fill_(number)
        launch.run(torch.cuda.current_stream())
        assert np.array_equal(batch["x"].cpu().numpy(), x)
        assert batch["y"].cpu().numpy().tobytes() == y.tobytes()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_published_metrics_arrive_without_a_cuda_call_and_count_the_tick(dtype: torch.dtype) -> None:
    ring = MetricsRing(6, dtype, 4, DEVICE, stall_s=5)
    metrics = torch.randn(6, dtype=dtype, device=DEVICE)
    tick = torch.zeros((), dtype=torch.int64, device=DEVICE)
    launch, expected = kernels.publish(ring.slots, metrics, tick), metrics.cpu()
    for number in range(10):
        launch.run(torch.cuda.current_stream())
        assert torch.equal(torch.tensor(ring.read(number + 1), dtype=dtype), expected)
    assert int(tick) == 10


def test_fill_and_copy_write_every_byte_and_no_other() -> None:
    rng = np.random.default_rng(0)
    memory = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8, device=DEVICE)
    other = torch.randint(0, 256, (1 << 20,), dtype=torch.uint8, device=DEVICE)
    expected, source = memory.cpu().numpy(), other.cpu().numpy()
    stream = torch.cuda.current_stream()
    for _ in range(200):
        size = int(2 ** rng.integers(0, 3))
        start, width = int(rng.integers(0, 1000)) * size, int(rng.integers(0, 60000)) * size
        height, pitch = int(rng.integers(1, 4)), width + int(rng.integers(0, 64)) * size
        value = int(rng.integers(0, 1 << (8 * size)))
        pattern = value * {1: 0x01010101, 2: 0x00010001, 4: 1}[size]
        kernels.fill(memory.data_ptr() + start, pitch, width, height, pattern).run(stream)
        row = np.frombuffer(value.to_bytes(size, "little") * (width // size), np.uint8)
        for line in range(height):
            expected[start + line * pitch : start + line * pitch + width] = row
        to, since, count = (int(rng.integers(0, n)) for n in (400000, 400000, 500000))
        kernels.copy(memory.data_ptr() + to, other.data_ptr() + since, count).run(stream)
        expected[to : to + count] = source[since : since + count]
    assert np.array_equal(memory.cpu().numpy(), expected)


def with_fills_and_copies(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
    """x = 1 + fills; y a copy; memset and memcpy nodes between kernels, on two streams."""
    side = torch.cuda.Stream()
    stream = torch.cuda.current_stream().cuda_stream
    call("cuMemsetD32Async", x.data_ptr(), 0x3F800000, x.numel(), stream)  # 1.0
    x.add_(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call("cuMemcpyDtoDAsync", y.data_ptr(), x.data_ptr(), x.nbytes, side.cuda_stream)
        y.mul_(3)
    call("cuMemsetD8Async", z.data_ptr() + 3, 0x5A, 1001, stream)
    call("cuMemsetD16Async", z.data_ptr() + 2048, 0x1234, 500, stream)
    call("cuMemsetD2D8Async", z.data_ptr() + 8192, 64, 0x77, 33, 5, stream)
    torch.cuda.current_stream().wait_stream(side)
    x.add_(y)


def test_a_rewritten_graph_is_kernels_alone_and_computes_the_same() -> None:
    results = []
    for rewrite in (False, True):
        x, y = torch.zeros(1000, device=DEVICE), torch.zeros(1000, device=DEVICE)
        z = torch.zeros(1 << 14, dtype=torch.uint8, device=DEVICE)
        stream = torch.cuda.Stream()
        kernels.functions(0)
        pool = torch.cuda.graph_pool_handle()
        graph = capture(lambda x=x, y=y, z=z: with_fills_and_copies(x, y, z), stream, pool)
        before = walk(graph.raw_cuda_graph())
        assert before.by_kind()["memset"] == 4 and before.by_kind()["memcpy"] == 1
        if rewrite:
            done = to_kernels(graph.raw_cuda_graph(), 0)
            after = walk(graph.raw_cuda_graph())
            assert after.by_kind() == {"kernel": len(before.nodes)} and not done.left
            assert len(after.edges) == len(before.edges)
            assert dict(done.rewritten) == {"memset": 4, "memcpy": 1}
        executable = instantiate(graph, torch.cuda.current_stream())
        for _ in range(3):
            executable.launch()
        torch.cuda.synchronize()
        results.append((x.clone(), y.clone(), z.clone()))
        executable.destroy()
        graph.reset()
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert results[0][0][0].item() == 8.0


def test_names_of_kernels_are_found() -> None:
    x = torch.zeros(8, device=DEVICE)
    graph = capture(lambda: x.add_(1), torch.cuda.Stream(), torch.cuda.graph_pool_handle())
    (node,) = walk(graph.raw_cuda_graph()).nodes
    assert node.kind == "kernel" and "elementwise" in node.name
    graph.reset()
