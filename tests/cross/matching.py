"""Matches two models in one process: files written for a test, described and matched as workers do it."""

from pathlib import Path
from textwrap import dedent

import numpy as np

import jax_impl.describe
import jax_impl.parallel
import jax_impl.runtime
import torch_impl.describe
import torch_impl.parallel
from spec import codec
from spec.description import MATCH, Described
from spec.job import Job
from spec.mapping.links import Link
from spec.pairs.match import Match
from spec.run import AdamW, DataSpec, Execution, Problem, RunSpec
from spec.schedule import Schedule
from spec.weights import save_tensors
from spec.workloads.pair import PairFiles, PairSizes

TORCH = """
import torch
import torch.nn.functional as F
from torch import nn
"""
JAX = """
import jax
import jax.numpy as jnp
from flax import linen, nnx
"""
SQUARED = """
def loss(model, batch):
    out = model(batch["x"])
    return (out * out * batch["w"]).sum(), len(out)
"""
"""A loss of either side; the weights `w` break every symmetry of the outputs."""


def write_sides(folder: Path, torch_code: str, jax_code: str, loss: str = SQUARED) -> PairFiles:
    """The two files, their imports and the loss put around what a test is about."""
    (folder / "torch_side.py").write_text(TORCH + dedent(torch_code) + loss)
    (folder / "jax_side.py").write_text(JAX + dedent(jax_code) + loss)
    return PairFiles(torch=str(folder / "torch_side.py"), jax=str(folder / "jax_side.py"))


def match(folder: Path, files: PairFiles, x: tuple[int, ...], w: tuple[int, ...]) -> Match:
    """The match of two models on a batch of noise.

    Args:
      x, w: shapes of the input and of the weights of the outputs, rows first.
    """
    generator = np.random.default_rng(0)
    rows = {name: generator.standard_normal(shape, np.float32) for name, shape in (("x", x), ("w", w))}
    save_tensors(folder / "batches" / "step000000.safetensors", {f"batch/{k}": a for k, a in rows.items()})
    problem = Problem(
        workload="pair",
        sizes=PairSizes(),
        optimizer=AdamW(),
        schedule=Schedule(kind="constant", peak_lr=1e-3),
        data=DataSpec(kind="folder", path=str(folder / "batches")),
        global_batch=x[0],
        steps=1,
    )
    for side, module in (("torch", torch_impl), ("jax", jax_impl)):
        job = Job(
            side=side,
            purpose="describe",
            spec=RunSpec(name="test", problem=problem, execution=Execution(), pair=files),
            mode="eager" if side == "torch" else "jit",
            steps=0,
            out=str(folder / side),
        )
        # JAX is told its platform before its first array.
        jax_impl.runtime.configure(problem, Execution())
        module.describe.describe(job, module.parallel.join(Execution()))
        files = codec.from_dict(PairFiles, codec.to_dict(files) | {"described": str(folder / "torch")})
    return codec.read_json(folder / "jax" / MATCH, Match)


def linked(found: Match) -> dict[str, str]:
    """JAX path by torch name, of whole tensors."""
    return {link.torch: found.paths[link.jax] for link in found.links}


def link_of(found: Match, torch: str) -> Link:
    """The link of a whole torch tensor."""
    (link,) = [link for link in found.links if link.torch == torch]
    return link


def described(path: str, *shape: int, owner: str = "Linear", **changes: object) -> Described:
    """A tensor without a model."""
    settings: dict[str, object] = {"dtype": "float32", "owner": owner, "std": 0.1, "mean": 0.01}
    return Described(name=path, path=path, shape=shape, **(settings | changes))  # type: ignore[arg-type]
