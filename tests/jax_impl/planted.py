"""A program for two processes: our step with its reduction planted inside the micro-batch loop.

Parameters are not marked as the rank's own, so JAX reduces the gradients of every micro-batch. Prints what
the trainer says of it.
"""

from typing import Any

from jax_impl import parallel, runtime
from jax_impl.parallel import Ranks
from jax_impl.step import Sums
from jax_impl.trainer import Trainer
from spec.errors import RuleError
from spec.run import Execution
from tests.jax_impl.small import mlp_problem


class Forgetful(Ranks):
    """Marks nothing but the two scalars that differ between ranks anyway."""

    def own(self, tree: Any) -> Any:
        """Leaves parameters and their gradients as they are."""
        if isinstance(tree, Sums):
            return tree._replace(loss=super().own(tree.loss), tokens=super().own(tree.tokens))
        return tree


def main() -> None:
    """Tries to train."""
    problem, execution = mlp_problem(micro_batches=2), Execution(world_size=2)
    runtime.configure(problem, execution)
    ranks = parallel.join(execution)
    planted = Forgetful(ranks.rank, ranks.world_size, ranks.local_rank, ranks.mesh)
    trainer = Trainer(problem, execution, "jit", ranks=planted)
    try:
        trainer.step(trainer.feed.rows(0))
    except RuleError as error:
        print(error.message())
    ranks.close()


if __name__ == "__main__":
    main()
