"""Finds how this side's tensors correspond to the torch side's, proven by the loss and the gradients.

The torch side has written down its tensors and what it computes at the probe's weights. Each candidate puts
those weights into this side's model; the right one gives the same loss and gradients. Must not: read a torch
file, or decide what is likely; `spec.mapping` does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jax_impl import state, ties
from jax_impl.memory import Arena, Arrays
from jax_impl.models import Side
from jax_impl.runtime import compiler_options, matmul_precision
from jax_impl.step import cast
from spec import codec
from spec.data.batches import Batch
from spec.description import DESCRIPTION, VALUES, Described, Description
from spec.mapping import user_map
from spec.mapping.links import Link
from spec.mapping.propose import Proposal, propose
from spec.mapping.search import Agreement, Found, most_candidates, search
from spec.pairs import probe as probing
from spec.pairs.match import NOT_FINITE, Match, trained_alone
from spec.precision import Profile
from spec.weights import Tensors, load_tensors
from spec.workloads.pair import PairFiles


@dataclass(frozen=True)
class Asked:
    """What a model computes at some weights."""

    loss_sum: float
    loss_dtype: str
    count: float


class Probe:
    """The loss and gradients of the model in an arena on some rows; compiled once."""

    def __init__(self, side: Side, arena: Arena, rows: Batch, profile: Profile) -> None:
        def compute(params: Arrays, buffers: Arrays, batch: dict[str, jax.Array]) -> Any:
            def loss(params: Arrays) -> tuple[jax.Array, tuple[jax.Array, Arrays]]:
                module = arena.module(cast(params, profile.compute), buffers)
                total, count = side.loss(module, batch)
                return total, (count, arena.buffers_of(module))

            with matmul_precision(profile):
                return jax.value_and_grad(loss, has_aux=True)(params)

        self.arena = arena
        self._before = {phase: held(arena, phase) for phase in ("param", "buffer")}
        self._batch = {name: jnp.asarray(array) for name, array in rows.items()}
        lowered = jax.jit(compute).lower(*self._before.values(), self._batch)
        self._program = lowered.compile(compiler_options(profile))

    def ask(self) -> Asked:
        """Computes at the arena's weights; leaves the gradients where first moments are, and the buffers as
        the pass changed them."""
        self.arena.write("buffer", self._before["buffer"].items())
        params, buffers = self.arena.tensors("param"), self.arena.tensors("buffer")
        (total, (count, after)), grads = self._program(params, buffers, self._batch)
        self.arena.write("m", _host(grads).items())
        self.arena.write("buffer", _host(after).items())
        return Asked(float(total), total.dtype.name, float(count))

    def restore(self) -> None:
        """Puts the first values back."""
        for phase, arrays in self._before.items():
            self.arena.write(phase, arrays.items())


def match(described: Path, files: PairFiles, own: Description, probe: Probe) -> Match:
    """The links between the tensors of both sides, and how they were found. The arena has first values after.

    Args:
      described: folder in which the torch side described itself.
      files: with the user's own links, which stand whatever they lead to.

    Raises:
      RuleError: a link of the user's names a tensor that is not there, or does not fit.
    """
    torch: Description = codec.read_json(described / DESCRIPTION, Description)
    theirs = load_tensors(described / VALUES)
    of_params, of_buffers = user_map.complete(files.links, torch, own)
    params = propose(torch.parameters, own.parameters, of_params)
    if params.unmatched_torch or params.unmatched_jax:
        return _unmatched(params, of_params, torch, own, theirs, probe)
    grads = _phase(theirs, "grad")
    wanted = math.nan if torch.loss_sum is None else torch.loss_sum

    def evaluate(links: tuple[Link, ...]) -> Agreement:
        asked = _at_their_weights(probe, links, theirs)
        size = max(abs(wanted), abs(asked.loss_sum))
        apart = abs(asked.loss_sum - wanted) / size if size else 0.0
        apart = apart if math.isfinite(apart) else math.inf
        ours = _phase(state.export(probe.arena, ["m"]), "m")
        # A frozen parameter has no gradient in torch.
        return Agreement(loss=apart, gradients=probing.distances(grads, ours))

    most = most_candidates(sum(math.prod(row.shape) for row in torch.parameters))
    # Where the loss is not finite, no candidate can be nearer than the first.
    settled = search(params, evaluate, most if math.isfinite(wanted) else 1)
    asked = _at_their_weights(probe, settled.links, theirs)
    ours = _phase(state.export(probe.arena, ["m"]), "m")
    not_finite = tuple(_not_finite("torch", wanted, grads)) + tuple(_not_finite("jax", asked.loss_sum, ours))
    kept, lost = _match_buffers(torch, own, of_buffers, theirs, probe)
    probe.restore()
    return replace(
        _told(settled),
        not_finite=not_finite,
        untried=0 if not_finite else settled.untried,
        links=(*settled.links, *kept),
        precision=torch.precision,
        paths=_paths(own),
        unmatched_torch=_named(lost[0]),
        unmatched_jax=_named(lost[1]),
        zero_gradients=probing.zero_rows(grads, ours) if torch.precision == "f64" else {},
    )


def _not_finite(side: str, loss: float, grads: Tensors) -> Iterator[str]:
    """What of a side's first batch is NaN or infinite, the first of it."""
    if not math.isfinite(loss):
        yield f"the loss in {side}"
        return
    bad = [name for name, array in grads.items() if not np.isfinite(array).all()]
    if bad:
        yield f"the gradient of {bad[0]} in {side}"


def _unmatched(
    params: Proposal,
    given: user_map.Given,
    torch: Description,
    own: Description,
    theirs: Tensors,
    probe: Probe,
) -> Match:
    """What is known where tensors have no counterpart."""

    def ask(links: tuple[Link, ...], weights: Tensors) -> tuple[float, Tensors]:
        asked = _at_their_weights(probe, links, weights)
        return asked.loss_sum, _phase(state.export(probe.arena, ["m"]), "m")

    explained = ties.told(torch, own, given, theirs, ask)
    probe.restore()
    return Match(
        links=params.links((0,) * len(params.choices)),
        paths=_paths(own),
        unmatched_torch=_named(params.unmatched_torch),
        unmatched_jax=_named(params.unmatched_jax),
        ties=explained,
        trained_alone=(
            *trained_alone(params.unmatched_torch, "torch", own),
            *trained_alone(params.unmatched_jax, "jax", torch),
        ),
        reasons=("no map was proven, since tensors have no counterpart",),
    )


def _at_their_weights(probe: Probe, links: tuple[Link, ...], theirs: Tensors) -> Asked:
    probe.arena.links = links
    state.load(probe.arena, {f"param/{n}": array for n, array in _phase(theirs, "probe").items()})
    return probe.ask()


def _match_buffers(
    torch: Description, own: Description, given: user_map.Given, theirs: Tensors, probe: Probe
) -> tuple[tuple[Link, ...], tuple[list[Described], list[Described]]]:
    """Links between running statistics, settled by what one forward pass made of them."""
    proposal = propose(_statistics(torch), _statistics(own), given)
    after = _phase(theirs, "after")

    def evaluate(links: tuple[Link, ...]) -> Agreement:
        probe.arena.links = links
        made = _phase(state.export(probe.arena, ["buffer"]), "buffer")
        return Agreement(loss=0.0, gradients=probing.distances({name: after[name] for name in made}, made))

    links = search(proposal, evaluate).links if proposal.pairs or given.links else ()
    return links, (proposal.unmatched_torch, proposal.unmatched_jax)


def _statistics(description: Description) -> list[Described]:
    """Buffers that a step changes, counters left out."""
    counters = ("int", "uint", "bool")
    return [row for row in description.buffers if row.changes and not row.dtype.startswith(counters)]


def _told(settled: Found) -> Match:
    agreement = settled.agreement
    name, apart = agreement.worst
    return Match(
        links=settled.links,
        tried=settled.tried,
        settled=settled.settled,
        proven=agreement.holds,
        loss_apart=min(agreement.loss, NOT_FINITE),
        worst_gradient=name,
        gradient_apart=apart if apart < NOT_FINITE else NOT_FINITE,
    )


def _paths(description: Description) -> dict[str, str]:
    return {row.name: row.path for row in (*description.parameters, *description.buffers)}


def _named(rows: list[Described]) -> tuple[str, ...]:
    return tuple(f"{row.path} {list(row.shape)}" for row in rows)


def _phase(tensors: Tensors, phase: str) -> Tensors:
    return {key.partition("/")[2]: a for key, a in tensors.items() if key.startswith(f"{phase}/")}


def held(arena: Arena, phase: str) -> Tensors:
    """Copies on the host of what the arena holds of a phase, in this framework's names and layout."""
    return _host(arena.tensors(phase))


def _host(arrays: Arrays) -> Tensors:
    return {name: np.array(array) for name, array in arrays.items()}
