"""The catalogue as data: how edits are written, who can make them, and what they do to tensors and rows."""

import re

import numpy as np
import pytest

from spec.edits import CATALOGUE, Edit, constants, device_table, parse, refuse, show, why_not
from spec.edits.data import edited_rows
from spec.edits.decay import edited_table
from spec.edits.idle import refuse_idle, why_idle
from spec.edits.kinds import Range
from spec.edits.weights import moved
from spec.errors import RuleError
from spec.presets import PRESETS


def test_every_line_can_be_tried_and_mended() -> None:
    for name, kind in CATALOGUE.items():
        if kind.reach == "refused":
            assert kind.torch and kind.jax, name
            continue
        assert kind.values and set(kind.mend) == {"torch", "jax"}, name
        assert not why_not(kind, "torch", pair=True), f"{name}: one side at least makes every edit"
        for mend in kind.mend.values():
            assert isinstance(mend, str) or set(mend) == {float(value) for value in kind.values}, name


def test_an_edit_reads_back_as_it_is_shown() -> None:
    for edit in (Edit(name="clip_eps", value=3.7e-5), Edit(name="transpose", value=1, target="a.b.weight")):
        assert parse(show(edit)) == edit


@pytest.mark.parametrize("text", ["transpose=1", "clip_eps@a=1", "decay_form=7", "qkv_split=5"])
def test_edits_that_do_not_fit(text: str) -> None:
    with pytest.raises(RuleError):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("beta1=2", r"beta1 is in \[0, 1\)\."),
        ("beta1=1", r"beta1 is in \[0, 1\)\."),
        ("beta2=-0.1", r"beta2 is in \[0, 1\)\."),
        ("batchnorm_momentum=1.1", r"batchnorm_momentum is in \[0, 1\]\."),
        ("adam_eps=-1e-8", "adam_eps is at least 0"),
        ("layernorm_eps=-1e-5", "layernorm_eps is at least 0"),
        ("max_norm=0", "max_norm is above 0"),
        ("rope_theta=0", "rope_theta is above 0"),
        ("bias_correction=2", "0 or 1"),
        ("loss_scale=inf", "a finite number"),
    ],
)
def test_values_out_of_range_are_refused_with_the_range(text: str, message: str) -> None:
    with pytest.raises(RuleError) as found:
        parse(text)
    assert re.search(message, found.value.message())


def test_ends_of_a_range_belong_to_it_or_not() -> None:
    for text in ("beta1=0", "batchnorm_momentum=1", "clip_eps=0", "weight_decay=0", "loss_scale=-1"):
        assert show(parse(text)) == text


def test_every_value_that_is_tried_is_in_range() -> None:
    for name, kind in CATALOGUE.items():
        assert all(value in kind.within for value in kind.values), name
        assert kind.scale or kind.within == Range(), f"{name}: its values are its range"


@pytest.mark.parametrize(
    ("preset", "text", "why"),
    [
        ("toy-mlp", "gelu_erf=1", "no such call"),
        ("toy-mlp", "layernorm_eps=1e-3", "no such call"),
        ("tiny", "gelu_erf=1", ""),
        ("tiny", "gelu_erf=0", ""),
        ("toy-mlp", "beta1=0.9", ""),
        ("toy-mlp", "qkv_split=2", "no such tensor"),
        ("tiny", "qkv_split=2", ""),
        ("tiny", "decay_tensor@no.such=0", "no such tensor"),
        ("tiny", "decay_tensor@wte.weight=1", ""),
        ("toy-mlp", "decay_stacked=1", "no repeated layer"),
        ("tiny", "rope_theta=1e4", ""),
        ("tiny", "rope_layout=-16", "turns no queries and keys"),
        ("tiny", "rope_layout=32", ""),  # Twice as many rows as a head has: some go to another one.
    ],
)
def test_what_has_nothing_to_act_on_is_known_before_a_step(preset: str, text: str, why: str) -> None:
    found = why_idle(parse(text), PRESETS[preset]().problem)
    assert why in found and bool(why) == bool(found)


def test_what_a_step_shows_to_have_nothing_to_act_on() -> None:
    problem, calls, labels = PRESETS["tiny"]().problem, parse("rope_theta=1e4"), parse("label_shift=1")
    with pytest.raises(RuleError, match="something that the run computes") as found:
        refuse_idle("torch", [calls], problem, seen={})
    assert "torch:rope_theta=10000: the model has no such call" in found.value.numbers
    assert not why_idle(calls, problem, seen={"rope_theta": ["10000"]}), "as it was is no mistake to refuse"
    assert "no labels" in why_idle(labels, problem, {}, {"y": np.zeros((2, 3))})
    assert not why_idle(labels, problem, {}, {"y": np.zeros((2, 3), np.int32)})


def test_a_side_says_why_not() -> None:
    with pytest.raises(RuleError, match="JAX"):
        refuse(Edit(name="rope_theta", value=1e4), "jax", pair=False)
    refuse(Edit(name="gelu_erf", value=1), "jax", pair=False)
    with pytest.raises(RuleError, match="bound"):
        refuse(Edit(name="gelu_erf", value=1), "jax", pair=True)


@pytest.mark.parametrize(
    "text", ["transpose@a.proj.weight=1", "qkv_split=2", "rope_layout=4", "rope_layout=-4"]
)
def test_tensors_move_and_come_back(text: str) -> None:
    generator = np.random.default_rng(0)
    tensors = {
        "param/a.proj.weight": generator.normal(size=(8, 8)),
        "m/a.qkv.weight": generator.normal(size=(24, 8)),
        "v/a.q_proj.bias": generator.normal(size=8),
        "buffer/a.qkv.weight": generator.normal(size=(24, 8)),
    }
    edited = moved([parse(text)], tensors)
    assert any(not np.array_equal(edited[key], tensors[key]) for key in tensors)
    assert np.array_equal(edited["buffer/a.qkv.weight"], tensors["buffer/a.qkv.weight"])
    back = moved([parse(text)], edited, back=True)
    assert all(np.array_equal(back[key], tensors[key]) for key in tensors)


def test_halves_of_a_head_become_neighbours() -> None:
    rows = np.array([0, 1, 2, 3, 10, 11, 12, 13])
    edited = moved([parse("rope_layout=4")], {"param/wq": rows})["param/wq"]
    assert edited.tolist() == [0, 2, 1, 3, 10, 12, 11, 13]


def test_outputs_of_moved_rows_are_told_in_their_own_order() -> None:
    edits, inputs = [parse("rope_layout=4")], np.arange(10.0).reshape(2, 5)
    given = {"param/a.q_proj.weight": np.random.default_rng(0).normal(size=(8, 5))}
    held = moved(edits, given)
    acts = {f"act/{name}": inputs @ held["param/a.q_proj.weight"].T for name in ("a.q_proj", "a.q_proj#2")}
    back = moved(edits, acts | {"act/a": acts["act/a.q_proj"]}, back=True)
    meant = inputs @ given["param/a.q_proj.weight"].T
    assert np.array_equal(back["act/a.q_proj"], meant) and np.array_equal(back["act/a.q_proj#2"], meant)
    assert back["act/a"] is acts["act/a.q_proj"]


def test_labels_shift_and_the_rest_stays() -> None:
    rows = {"tokens": np.array([[1, 2, 3]], np.int32), "labels": np.array([[2, 3, 4]], np.int32)}
    edited = edited_rows([parse("label_shift=1")], rows, "gpt")
    assert edited["labels"].tolist() == [[3, 4, -1]] and edited["tokens"] is rows["tokens"]
    assert edited_rows([parse("label_shift=-1")], rows, "gpt")["labels"].tolist() == [[-1, 2, 3]]


@pytest.mark.parametrize("value", [-1, 1])
def test_the_warm_up_moves_alone(value: int) -> None:
    problem = PRESETS["tiny"]().problem
    rates = device_table(problem, constants(problem))[:, 0]
    moved_rates = device_table(problem, constants(problem, [Edit(name="warmup_offset", value=value)]))[:, 0]
    end = problem.schedule.warmup_steps
    assert end > 2
    assert np.array_equal(moved_rates[end:], rates[end:])
    inside = slice(0, end - 1) if value > 0 else slice(1, end)
    later = slice(1, end) if value > 0 else slice(0, end - 1)
    assert np.array_equal(moved_rates[inside], rates[later])
    assert moved_rates[end - 1 if value > 0 else 0] == (rates[end - 1] if value > 0 else 0.0)


def test_decay_of_one_tensor_and_of_stacked_layers() -> None:
    table = PRESETS["tiny"]().problem.parameter_table()
    declared = {row.name: row.decayed for row in table}

    def changed(*texts: str) -> set[str]:
        edited = edited_table([parse(text) for text in texts], table)
        return {row.name for row in edited if row.decayed != declared[row.name]}

    assert changed() == changed("decay_stacked=0") == set()
    assert changed("decay_tensor@wte.weight=0") == {"wte.weight"}
    assert changed("decay_tensor@wte.weight=0", "decay_tensor@wte.weight=1") == set(), "the last counts"
    stacked = changed("decay_stacked=1")
    assert stacked == {name for name, decays in declared.items() if not decays and name.startswith("blocks.")}
    assert changed("decay_stacked=1", "decay_tensor@blocks.0.ln1.bias=0") == stacked - {"blocks.0.ln1.bias"}
