"""`python -m tests.cross.own_buffers SIDE FOLDER`, once a rank: BatchNorm on two ranks goes on to the bit.

Each rank's running statistics are of its own rows, and must come back to it. Exit code 0 where they do.
"""

import importlib
import sys
from pathlib import Path

import numpy as np

from spec.checkpoint import Saver, open_checkpoint
from spec.run import Execution

STATE = ("param", "m", "v", "buffer")
EXECUTION = Execution(world_size=2)


def main(side: str, folder: Path) -> None:
    """Trains six steps, and the last three of them again from a checkpoint."""
    # By name, as each rank's process needs one framework and not both.
    sides = importlib.import_module(f"tests.{side}_impl.test_resume")
    small = importlib.import_module(f"tests.{side}_impl.small")
    parallel = importlib.import_module(f"{side}_impl.parallel")
    runtime = importlib.import_module(f"{side}_impl.runtime")
    trainer_of = importlib.import_module(f"{side}_impl.trainer").Trainer
    problem, mode = small.mlp_problem(), {"torch": "eager", "jax": "jit"}[side]
    runtime.configure(problem, EXECUTION)
    ranks = parallel.join(EXECUTION)
    user = sides.side(0)
    whole, other = (trainer_of(problem, EXECUTION, mode, side=user, ranks=ranks) for _ in range(2))

    for step in range(3):
        _step(whole, step)
    position, tensors = whole.checkpoint()
    if ranks.rank == 0:
        saver = Saver(folder)
        saver.save(small.run_spec(problem, 2), position, tensors, {"side": side})
        saver.close()
    ranks.barrier()
    checkpoint = open_checkpoint(folder / "step000003")
    own = [name for name in checkpoint.tensors if name.startswith("buffer/")]
    others = [name.replace("buffer/", "buffer.rank1/") for name in own]
    assert own and any(
        not np.array_equal(checkpoint.tensors[a], checkpoint.tensors[b])
        for a, b in zip(own, others, strict=True)
    ), "the ranks' statistics do not differ, so this shows nothing"

    losses = [_step(whole, step) for step in range(3, 6)]
    other.resume(checkpoint)
    assert [_step(other, step) for step in range(3, 6)] == losses
    wanted, found = whole.export(STATE), other.export(STATE)
    assert all(found[name].tobytes() == array.tobytes() for name, array in wanted.items())
    ranks.close()


def _step(trainer: object, number: int) -> float:
    trainer.step(trainer.feed.rows(number))  # type: ignore[attr-defined]
    return trainer.metrics().loss  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
