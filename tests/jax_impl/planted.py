"""A program for two processes: our step with its reduction planted inside the micro-batch loop.

Parameters are not marked as the rank's own, so JAX reduces the gradients of every micro-batch. Prints what
the trainer says of it. The layers are flax's: ours write their derivatives out, which JAX refuses to reduce.
"""

from typing import Any

from flax import nnx

from jax_impl import parallel, runtime
from jax_impl.models import Side
from jax_impl.models.mlp import loss
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


def build() -> nnx.Module:
    """The preset's model, of flax's own layers."""
    rngs = nnx.Rngs(0)
    return nnx.Sequential(nnx.Linear(5, 7, rngs=rngs), nnx.silu, nnx.Linear(7, 3, rngs=rngs))


def main() -> None:
    """Tries to train."""
    problem, execution = mlp_problem(micro_batches=2), Execution(world_size=2)
    runtime.configure(problem, execution)
    ranks = parallel.join(execution)
    planted = Forgetful(ranks.rank, ranks.world_size, ranks.local_rank, ranks.mesh)
    trainer = Trainer(problem, execution, "jit", side=Side(build, loss), ranks=planted)
    try:
        trainer.step(trainer.feed.rows(0))
    except RuleError as error:
        print(error.message())
    ranks.close()


if __name__ == "__main__":
    main()
