"""Edits inside a model: a `Side` whose layers are built with another constant.

A JAX program's calls are traced into one program and bound early, so what can be changed from outside are
attributes of flax's layers; `spec.edits.of_models` says why not for the rest. Counterpart:
`torch_impl/edits.py`.
"""

from collections.abc import Iterable
from dataclasses import replace

from flax import nnx

from jax_impl.models import Side
from spec.edits import CATALOGUE, Edit

Seen = dict[str, list[str]]
"""What stood where each edit acted: one entry for each different value, in words."""

_ATTRIBUTES: dict[str, tuple[tuple[type, ...], str]] = {
    "layernorm_eps": ((nnx.LayerNorm, nnx.GroupNorm), "epsilon"),
    "rmsnorm_eps": ((nnx.RMSNorm,), "epsilon"),
    "batchnorm_eps": ((nnx.BatchNorm,), "epsilon"),
    "batchnorm_momentum": ((nnx.BatchNorm,), "momentum"),
}


def edited(side: Side, edits: Iterable[Edit], seen: Seen) -> Side:
    """The side with its model edited; the same side where no edit is of models.

    Args:
      seen: is filled as the edits act; an edit that met nothing is not in it.
    """
    chosen = {edit.name: edit.value for edit in edits if CATALOGUE[edit.name].reach == "model"}
    if not chosen.keys() & _ATTRIBUTES.keys():
        return side

    def build() -> nnx.Module:
        model = side.build()
        for name in chosen.keys() & _ATTRIBUTES.keys():
            _set(model, name, chosen[name], seen)
        return model

    return replace(side, build=build)


def _set(model: nnx.Module, name: str, value: float, seen: Seen) -> None:
    layers, attribute = _ATTRIBUTES[name]
    # flax's momentum is the weight of the old statistics.
    turned = (lambda one: 1 - one) if attribute == "momentum" else (lambda one: one)
    for _, part in nnx.iter_modules(model):
        if isinstance(part, layers):
            was = f"{turned(getattr(part, attribute)):.12g}"
            if was not in seen.setdefault(name, []):
                seen[name].append(was)
            setattr(part, attribute, turned(value))
