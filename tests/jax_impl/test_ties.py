"""A head tied on one side alone: told with the proof that its gradient is the sum of both uses."""

import numpy as np

from jax_impl.ties import told
from spec.description import Described, Description
from spec.mapping.links import Link, to_torch
from spec.mapping.user_map import Given
from spec.weights import Tensors

V, C = 5, 3
EMBED_VC = np.random.default_rng(0).normal(size=(V, C))
USES_VC = np.random.default_rng(1).normal(size=(2, V, C))
"""The loss is the sum of USES[0] * embedding + USES[1] * head."""


def described(side: str, rows: list[tuple[str, tuple[int, ...]]], *ties: tuple[str, ...]) -> Description:
    return Description(
        side=side,
        parameters=tuple(
            Described(name=name, path=name, shape=shape, dtype="float64", owner="") for name, shape in rows
        ),
        buffers=(),
        ties=ties,
        loss_sum=float((USES_VC.sum(0) * EMBED_VC).sum()),
        loss_dtype="float64",
        count=1.0,
        precision="f64",
    )


TIED = described("torch", [("embed.weight", (V, C))], ("embed.weight", "head.weight"))
APART = described("jax", [("embed.embedding", (V, C)), ("head.kernel", (C, V))])
THEIRS = {"probe/embed.weight": EMBED_VC, "grad/embed.weight": USES_VC.sum(0)}


def ask(links: tuple[Link, ...], values: Tensors) -> tuple[float, Tensors]:
    """The JAX side in NumPy: a table, and a head that is held (C, V)."""
    loss = sum(float((use * values[f"probe/{n}"]).sum()) for use, n in zip(USES_VC, names(), strict=True))
    held = {"embed.embedding": USES_VC[0], "head.kernel": USES_VC[1].T}
    return loss, to_torch(links, held)


def names() -> tuple[str, str]:
    return "embed.weight", "head.weight"


def test_a_tie_on_the_torch_side_is_proven_by_the_sum_of_gradients() -> None:
    (line,) = told(TIED, APART, Given(), THEIRS, ask)
    assert "tied in torch alone: embed.weight is head.weight" in line
    assert "jax holds apart embed.embedding and head.kernel" in line
    assert line.endswith("is 0.0e+00 from torch's gradient of embed.weight")


def test_a_gradient_that_misses_a_use_is_seen() -> None:
    (line,) = told(TIED, APART, Given(), THEIRS | {"grad/embed.weight": USES_VC[0]}, ask)
    assert float(line.split(" is ")[-1].split(" ")[0]) > 0.1


def test_a_tie_on_the_jax_side_is_named() -> None:
    torch = described("torch", [("embed.weight", (V, C)), ("head.weight", (V, C))])
    jax = described("jax", [("embed.embedding", (V, C))], ("embed.embedding", "head.embedding"))
    (line,) = told(torch, jax, Given(), {}, ask)
    assert line == "tied in jax alone: embed.embedding is head.embedding; torch holds them apart"


def test_what_ties_do_not_explain_is_left_alone() -> None:
    more = described("jax", [("embed.embedding", (V, C)), ("head.kernel", (C, V)), ("norm.scale", (C,))])
    assert told(TIED, more, Given(), THEIRS, ask) == ()
    assert told(described("torch", [("embed.weight", (V, C))]), APART, Given(), THEIRS, ask) == ()
