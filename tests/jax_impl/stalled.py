"""A program for two processes that train until one of them stands still or is killed.

python -m tests.jax_impl.stalled RANK HOW LIMIT_S
"""

import os
import signal
import sys
import time

from jax_impl import parallel, runtime
from jax_impl.trainer import Trainer
from spec.run import Execution
from tests.jax_impl.small import mlp_problem


def main(bad_rank: int, how: str, limit_s: float) -> None:
    """Four good steps, then the fault."""
    problem, execution = mlp_problem(), Execution(world_size=2, stall_s=limit_s)
    runtime.configure(problem, execution)
    ranks = parallel.join(execution)
    trainer = Trainer(problem, execution, "jit", ranks=ranks)
    for step in range(30):
        if step == 4 and ranks.rank == bad_rank:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(600)
        trainer.step(trainer.feed.rows(step))
        print(trainer.metrics().loss, flush=True)
    ranks.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
