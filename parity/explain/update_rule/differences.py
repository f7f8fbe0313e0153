"""How two update rules differ, in words that name the constant and both its values.

Must not: fit, or read files.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from parity.explain.update_rule.forms import Rule
from parity.explain.update_rule.identify import Identified
from parity.explain.update_rule.observed import Observed
from parity.explain.update_rule.shapes import ALIKE, Shape, is_same, shape_of

_KIND = {"sgd": "SGD", "adam": "Adam"}
_DECAY = {
    "decoupled": "decoupled: -lr * decay * parameter",
    "l2": "added to the gradient (L2)",
    "without lr": "not multiplied by lr: -decay * parameter",
}
_PLACE = {
    "after": "after the bias correction",
    "before": "before the bias correction",
    "inside": "inside the root",
}
_CORRECTION = {
    "on": "of every step",
    "off": "left out",
    "frozen": "that of the first step in all steps: its counter is frozen",
}


def in_words(rule: Rule, names: Sequence[str]) -> str:
    """The rule in one line."""
    form, values = rule.form, rule.values
    adam = form.kind == "adam"
    has_decay = bool(rule.decay_T.any())
    kind = ("AdamW" if has_decay and form.decay != "l2" else "Adam") if adam else "SGD"
    parts = [f"learning rate {shape_of(rule.rates_S).words}"]
    if adam:
        parts += [f"beta1 {values['beta1']:.6g}", f"beta2 {values['beta2']:.6g}"]
        parts.append(f"eps {values['eps']:.6g} {_PLACE[form.place]}")
        if form.correction != "on":
            parts.append(f"bias correction {_CORRECTION[form.correction]}")
    else:
        parts.append(f"momentum {values['momentum']:.6g}{' (Nesterov)' if form.nesterov else ''}")
    if has_decay:
        decayed = [name for name, decay in zip(names, rule.decay_T, strict=True) if decay]
        values_of = ", ".join(f"{decay:.6g}" for decay in sorted(set(rule.decay_T[rule.decay_T != 0])))
        parts.append(f"decay {values_of} {_DECAY[form.decay]}, on {len(decayed)} of {len(names)} tensors")
    else:
        parts.append("no decay")
    if form.clips:
        parts.append(f"clipped by {clipping(rule)}")
    if rule.stored:
        parts.append(f"parameters rounded to {rule.stored} after each step")
    return f"{kind}: {', '.join(parts)}"


def clipping(rule: Rule) -> str:
    """The formula of the optimizer's own clipping."""
    if not rule.form.clips:
        return "nothing"
    limit, eps = rule.values["max_norm"], rule.values["clip_eps"]
    return f"{limit:.6g} / (norm + {eps:.6g})" if eps else f"{limit:.6g} / norm"


def differences(
    found: dict[str, Identified], seen: dict[str, Observed], also: Callable[[str], str]
) -> list[str]:
    """Every difference of the two sides' rules; none where the rules are one.

    Args:
      also: the JAX side's name of a torch tensor.
    """
    torch, jax = (found[side].best.rule for side in ("torch", "jax"))
    return [
        *_forms(torch, jax, seen),
        *_constants(torch, jax),
        *_clips(torch, jax, seen["torch"]),
        *_decay_values(torch, jax),
        *_decayed(torch, jax, seen["torch"].names, also),
        *rates(torch.rates_S, jax.rates_S),
    ]


def _forms(torch: Rule, jax: Rule, seen: dict[str, Observed]) -> Iterator[str]:
    a, b = torch.form, jax.form
    if a.kind != b.kind:
        yield f"{_KIND[a.kind]} in torch, {_KIND[b.kind]} in jax"
        return
    if a.kind == "adam":
        if a.place != b.place:
            gaps = [f"{np.sqrt(1 - torch.values['beta2'] ** t):.3f}" for t in (1, len(torch.rates_S))]
            yield (
                f"eps stands {_PLACE[a.place]} in torch, {_PLACE[b.place]} in jax: eps counts unlike by "
                f"sqrt(1 - beta2^t), {gaps[0]} in the first step and {gaps[1]} in the last followed"
            )
        if a.correction != b.correction:
            yield (
                f"bias correction: {_CORRECTION[a.correction]} in torch, {_CORRECTION[b.correction]} in jax"
                f"{_first_alike(seen)}"
            )
    elif a.nesterov != b.nesterov:
        yield f"Nesterov momentum in {'torch' if a.nesterov else 'jax'} alone"
    if torch.decay_T.any() and jax.decay_T.any() and a.decay != b.decay:
        yield f"weight decay: {_DECAY[a.decay]} in torch, {_DECAY[b.decay]} in jax"


def _constants(torch: Rule, jax: Rule) -> Iterator[str]:
    for name in ("momentum", "beta1", "beta2", "eps"):
        if name in torch.values and name in jax.values:
            a, b = torch.values[name], jax.values[name]
            if abs(a - b) > 1e-6 * max(abs(a), abs(b)):
                yield f"{name} {a:.6g} in torch, {b:.6g} in jax"


def _clips(torch: Rule, jax: Rule, seen: Observed) -> Iterator[str]:
    if clipping(torch) == clipping(jax):
        return
    text = f"clipping by {clipping(torch)} in torch, {clipping(jax)} in jax"
    if torch.form.clips and jax.form.clips:
        scale = [
            np.minimum(1, rule.values["max_norm"] / (seen.norms_S + rule.values["clip_eps"]))
            for rule in (torch, jax)
        ]
        gap = scale[0] / scale[1] - 1
        step = int(np.argmax(np.abs(gap)))
        text += f": one ratio for all tensors of a step, 1 {gap[step]:+.1e} at step {step}"
        text += f" (norm {seen.norms_S[step]:.3g})"
    yield text


def _first_alike(seen: dict[str, Observed]) -> str:
    """Whether the first updates are equal, and how far apart the last ones are."""
    updates = [seen[side].updates_SN for side in ("torch", "jax")]
    sizes = [np.linalg.norm(update_SN, axis=1) for update_SN in updates]
    if np.linalg.norm(updates[0][0] - updates[1][0]) > 1e-9 * sizes[1][0]:
        return ""
    last = len(sizes[0]) - 1
    ratio = sizes[0][-1] / sizes[1][-1]
    return f"; the update of step 0 is equal, that of step {last} is {ratio:.3g} times as long in torch"


def _decay_values(torch: Rule, jax: Rule) -> Iterator[str]:
    """Unlike decays, or one side's multiplied by the learning rate and the other's not."""
    both = (torch.decay_T != 0) & (jax.decay_T != 0)
    told = [", ".join(f"{x:.6g}" for x in sorted(set(r.decay_T[r.decay_T != 0]))) for r in (torch, jax)]
    unequal = both & (np.abs(torch.decay_T - jax.decay_T) > 1e-6 * np.abs(torch.decay_T))
    if unequal.any() or bool(told[0]) != bool(told[1]):
        yield (
            f"weight decay {told[0] or 'none'} in torch, {told[1] or 'none'} in jax: updates part parallel "
            f"to the weights"
        )
    elif both.any() and (torch.form.decay == "without lr") != (jax.form.decay == "without lr"):
        shares = [f"{_share(rule):.3g}" for rule in (torch, jax)]
        yield (
            f"updates part parallel to the weights: decay takes {shares[0]} of the parameter a step in "
            f"torch, {shares[1]} in jax"
        )


def _share(rule: Rule) -> float:
    """Of a parameter, that its decay takes in the step of the highest rate."""
    decay = float(np.abs(rule.decay_T).max())
    return decay if rule.form.decay == "without lr" else decay * float(np.abs(rule.rates_S).max())


def _decayed(torch: Rule, jax: Rule, names: Sequence[str], also: Callable[[str], str]) -> Iterator[str]:
    """Tensors that one side alone decays, where both decay some."""
    on = {"torch": torch.decay_T != 0, "jax": jax.decay_T != 0}
    if not (on["torch"].any() and on["jax"].any()):
        return
    for side, other in (("torch", "jax"), ("jax", "torch")):
        alone = [name for name, here, there in zip(names, on[side], on[other], strict=True) if here & ~there]
        if alone:
            yield f"decayed in {side} alone: {', '.join(name + also(name) for name in alone)}"


def rates(torch_S: np.ndarray, jax_S: np.ndarray) -> list[str]:
    """How the learning rates differ: by a step, a factor, a denominator or in the warm-up."""
    scale = max(float(np.abs(torch_S).max()), float(np.abs(jax_S).max()), 1e-300)
    apart = np.abs(torch_S - jax_S) > ALIKE * scale
    if not apart.any():
        return []
    shapes = [shape_of(torch_S), shape_of(jax_S)]
    words = f"{shapes[0].words} in torch, {shapes[1].words} in jax"
    for by in (1, -1, 2, -2):
        a, b = (torch_S[:-by], jax_S[by:]) if by > 0 else (torch_S[-by:], jax_S[:by])
        if len(a) > 2 and is_same(a, b, scale):
            return [_offset(by, words)]
    ratio = torch_S[jax_S != 0] / jax_S[jax_S != 0]
    if len(ratio) and np.ptp(ratio) <= 1e-7 * abs(ratio[0]):
        return [f"learning rates: torch / jax = {ratio[0]:.6g} in every step ({words})"]
    return [_by_shape(shapes, apart, words)]


def _offset(by: int, words: str) -> str:
    """`by`: torch's rate of step t is JAX's of step t + by."""
    ahead, behind = ("torch", "jax") if by > 0 else ("jax", "torch")
    steps = "one step" if abs(by) == 1 else f"{abs(by)} steps"
    return (
        f"learning rate off by {steps}: {ahead} takes in step t what {behind} takes in step t + {abs(by)} "
        f"({words})"
    )


def _by_shape(shapes: list[Shape], apart: np.ndarray, words: str) -> str:
    steps = ", ".join(str(step) for step in np.flatnonzero(apart)[:8])
    torch, jax = shapes
    if torch.known and jax.known:
        if torch.decay == jax.decay:
            return f"learning rates of the warm-up alone differ, at steps {steps}: {words}"
        if torch.warmup == jax.warmup:
            return f"the decay of the learning rate has another denominator or beginning: {words}"
    return f"learning rates differ at steps {steps}: {words}"
