"""A small checkpoint with every dtype, and what it must come back as."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from spec.checkpoint import Checkpoint, Position, Saver
from spec.checkpoint.format import DTYPES
from spec.presets import run_spec
from spec.weights import Tensors

SPEC = run_spec("toy-mlp", steps=1000)
WRITTEN_BY = {"side": "torch", "mode": "eager", "world_size": 2, "plan": None, "rate": 0.1}
SHARD_BYTES = 300


def tensors(step: int, size: int = 24) -> Tensors:
    """Random bits of every dtype, NaNs and negative zeros among them: a function of the step."""
    bits = np.random.default_rng(step)
    made = {}
    for name in DTYPES:
        dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
        raw = bits.integers(0, 2 if name == "bool" else 256, size * dtype.itemsize, np.uint8)
        made[f"param/{name}.weight"] = raw.view(dtype).reshape(2, -1)
    return {**made, "m/empty": np.zeros((0, 3), np.float32), "buffer/scalar": np.asarray(step)}


def position(step: int) -> Position:
    """All but one of the steps made an update."""
    return Position(step=step, applied=step - 1, skipped=1)


def save(saver: Saver, step: int, size: int = 24) -> None:
    """Saves the checkpoint of a step and waits until it is whole."""
    saver.save(SPEC, position(step), tensors(step, size), WRITTEN_BY)
    saver.wait()


def write(folder: Path, *steps: int, **arguments: Any) -> None:
    """Checkpoints of these steps, by one Saver."""
    saver = Saver(folder, shard_bytes=SHARD_BYTES, **arguments)
    for step in steps:
        save(saver, step)
    saver.close()


def same(checkpoint: Checkpoint, step: int, size: int = 24) -> bool:
    """Whether a checkpoint is what `save` wrote, to the bit; reads every tensor."""
    wanted = tensors(step, size)
    return (
        (checkpoint.position, checkpoint.spec, checkpoint.written_by) == (position(step), SPEC, WRITTEN_BY)
        and list(checkpoint.tensors) == list(wanted)
        and all(identical(array, wanted[name]) for name, array in checkpoint.tensors.items())
    )


def identical(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal dtype, shape and bits."""
    return (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
