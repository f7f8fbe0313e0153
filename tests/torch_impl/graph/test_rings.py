"""Rings between host and device, the device's part played by NumPy as `kernels.cu` writes it."""

import threading
import time

import numpy as np
import pytest
import torch

from torch_impl.graph.layout import BatchLayout
from torch_impl.graph.rings import InputRing, MetricsRing

CPU = torch.device("cpu")


def publish(ring: MetricsRing, metrics: np.ndarray, tick: int, words: slice = slice(None)) -> None:
    """What the kernel `publish` does at counter `tick`, in whole or for some words only."""
    sequence = tick + 1
    row = ring.slots.numpy().view(np.uint64)[sequence % len(ring.slots)]
    halves = metrics.view(np.uint32).astype(np.uint64) << np.uint64(32)
    row[words] = (halves | np.uint64(sequence & 0xFFFFFFFF))[words]


def ring_of(dtype: torch.dtype, num_slots: int = 4, **options: object) -> MetricsRing:
    return MetricsRing(3, dtype, num_slots, CPU, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_come_back_nan_and_infinity_too(dtype: torch.dtype) -> None:
    ring = ring_of(dtype)
    values = np.array([1 / 3, np.inf, np.nan], str(dtype).removeprefix("torch."))
    publish(ring, values, tick=6)
    back = np.array(ring.read(7), values.dtype)
    assert back.tobytes() == values.tobytes()


def test_a_torn_row_is_not_taken() -> None:
    ring = ring_of(torch.float64, stall_s=0.05)
    values = np.array([1.0, 2.0, 3.0])
    publish(ring, values, tick=0)
    publish(ring, values + 10, tick=4, words=slice(0, 5))  # same slot, last half still of the step before
    with pytest.raises(RuntimeError, match="step 5 has left no metrics"):
        ring.read(5)
    publish(ring, values + 10, tick=4, words=slice(5, 6))
    assert ring.read(5) == [11.0, 12.0, 13.0]


def test_an_old_value_is_never_taken_for_a_new_one() -> None:
    ring = ring_of(torch.float32)
    publish(ring, np.ones(3, np.float32), tick=0)
    later = threading.Timer(0.05, publish, (ring, np.full(3, 5, np.float32), 4))
    later.start()
    assert ring.read(5) == [5.0] * 3
    later.join()


def test_a_value_that_was_written_over_is_said_to_be_gone() -> None:
    ring = ring_of(torch.float32)
    for tick in range(6):
        publish(ring, np.full(3, tick, np.float32), tick)
    assert ring.read(6) == [5.0] * 3 and ring.read(3) == [2.0] * 3
    with pytest.raises(LookupError):
        ring.read(2)
    ring.wait(2)
    assert ring.over(2) and not ring.over(7)


def test_sequence_numbers_wrap_at_32_bits() -> None:
    ring, tick = ring_of(torch.float32), (1 << 32) + 2
    publish(ring, np.full(3, 1, np.float32), tick - 4)
    assert not ring.over(tick + 1)
    publish(ring, np.full(3, 2, np.float32), tick)
    assert ring.read(tick + 1) == [2.0] * 3


def test_a_device_that_fails_is_asked_what_ails_it() -> None:
    def stalled() -> None:
        raise RuntimeError("an illegal memory access")

    ring = ring_of(torch.float32, stalled=stalled, stall_s=0.02)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        ring.wait(1)


def test_a_waiting_host_sees_the_step_end_promptly() -> None:
    ring = ring_of(torch.float32)
    started = time.perf_counter()
    threading.Timer(0.02, publish, (ring, np.zeros(3, np.float32), 0)).start()
    ring.wait(1)
    assert 0.02 <= time.perf_counter() - started < 5


def test_forgetting_leaves_nothing_to_be_mistaken() -> None:
    ring = ring_of(torch.float32)
    publish(ring, np.zeros(3, np.float32), 0)
    ring.forget()
    assert not ring.over(1)


def test_batches_go_round_the_slots() -> None:
    layout = BatchLayout({"x": np.zeros(4, np.int32)})
    ring = InputRing(layout, 3, CPU)
    for tick in range(5):
        ring.write(tick, {"x": np.full(4, tick, np.int32)})
    seen = [layout.unflatten(ring.slots[slot])["x"].tolist() for slot in range(3)]
    assert seen == [[3] * 4, [4] * 4, [2] * 4]
