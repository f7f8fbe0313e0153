"""A value that was taken for the time being gives way to the one that was found in the end."""

from parity.explain.residuals import Key, Left
from parity.explain.search import Step, Tried, settled
from spec.edits import parse, show


def step(text: str, *, for_now: bool = False, after: float = 0.0) -> Step:
    nothing = Left({}, {}, {})
    tried = Tried(parse(text), nothing, closed=1, opened=0)
    return Step(Key(0, "act", "o_proj"), 0.1, [], confirmed=[tried], for_now=for_now, after=after)


def test_each_constant_is_told_once_with_its_last_value() -> None:
    first = step("attention_scale=1.00001307", for_now=True, after=1e-5)
    found = settled([first, step("mask_value=-10000"), step("attention_scale=1", after=1e-16)])
    assert [show(one.confirmed[0].edit) for one in found] == ["attention_scale=1", "mask_value=-10000"]
    assert found[0].after == 1e-16 and found[0].before == 0.1


def test_other_constants_and_other_tensors_stay() -> None:
    steps = [step("transpose@a=1", for_now=True), step("transpose@b=1"), step("gelu_erf=0")]
    assert settled(steps) == steps
