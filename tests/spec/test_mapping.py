"""Links move every element once and back; layouts and partners are found, and search settles what is open."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec.description import Described, Description
from spec.errors import RuleError
from spec.mapping import user_map
from spec.mapping.assign import IMPOSSIBLE, assign
from spec.mapping.layouts import layouts
from spec.mapping.links import Link, Part, check, jax_table, to_jax, to_torch
from spec.mapping.names import distance
from spec.mapping.propose import propose
from spec.mapping.search import MOST_CANDIDATES, Agreement, most_candidates, search
from spec.params import ParamSpec


def tensor(path: str, *shape: int, **changes: object) -> Described:
    settings: dict[str, object] = {"dtype": "float32", "owner": "Linear", "std": 0.1, "mean": 0.01}
    return Described(name=path, path=path, shape=shape, **(settings | changes))  # type: ignore[arg-type]


def description(side: str, *rows: Described, buffers: tuple[Described, ...] = ()) -> Description:
    return Description(
        side=side,
        parameters=rows,
        buffers=buffers,
        ties=(),
        loss_sum=1.0,
        loss_dtype="float32",
        count=1.0,
        precision="f64",
    )


def link(torch_shape: tuple[int, ...], jax_shape: tuple[int, ...], **changes: object) -> Link:
    return Link(torch="t", jax="j", torch_shape=torch_shape, jax_shape=jax_shape, **changes)  # type: ignore[arg-type]


LINKS = [
    link((4, 6), (6, 4), axes=(1, 0)),
    link((8, 3, 5, 2), (5, 2, 3, 8), axes=(2, 3, 1, 0)),
    link((12, 6), (6, 3, 4), view=(3, 4, 6), axes=(2, 0, 1)),
    link((3, 4, 5, 6), (5, 6, 3, 4), axes=(2, 3, 0, 1), flip=(2, 3)),
    link((), ()),
]


@pytest.mark.parametrize("one", LINKS, ids=str)
def test_a_round_trip_gives_the_same_bits(one: Link) -> None:
    check([one])
    values = {"t": np.random.default_rng(0).standard_normal(one.torch_shape).astype(np.float32)}
    moved = to_jax([one], values, {"j": np.empty(one.jax_shape, np.float32)})
    back = to_torch([one], moved)["t"]
    assert back.tobytes() == values["t"].tobytes() and back.shape == one.torch_shape


def test_a_kernel_means_the_same_after_the_move() -> None:
    """x @ kernel of JAX is x @ weight.T of torch; heads are split off the outputs."""
    one = link((12, 6), (6, 3, 4), view=(3, 4, 6), axes=(2, 0, 1))
    weight, x = np.random.default_rng(1).standard_normal((12, 6)), np.arange(6.0)
    kernel = to_jax([one], {"t": weight}, {"j": np.empty((6, 3, 4))})["j"]
    np.testing.assert_allclose(np.einsum("i,ihd->hd", x, kernel).reshape(-1), weight @ x, rtol=1e-12)


def test_fused_and_stacked_tensors_go_part_by_part() -> None:
    fused = [
        Link(
            torch="qkv",
            jax=name,
            axes=(1, 0),
            view=(2, 3),
            torch_part=Part(axis=0, start=2 * k, stop=2 * k + 2),
            torch_shape=(6, 3),
            jax_shape=(3, 2),
        )
        for k, name in enumerate("qkv")
    ]
    check(fused)
    weight = np.arange(18.0).reshape(6, 3)
    moved = to_jax(fused, {"qkv": weight}, {name: np.empty((3, 2)) for name in "qkv"})
    np.testing.assert_array_equal(moved["k"], weight[2:4].T)
    np.testing.assert_array_equal(to_torch(fused, moved)["qkv"], weight)


def test_a_map_that_loses_or_doubles_elements_is_refused() -> None:
    half = link((4, 2), (2, 2), torch_part=Part(axis=0, start=0, stop=2))
    with pytest.raises(RuleError, match="every element"):
        check([half])
    twice = [link((2, 2), (2, 2)), replace(link((2, 2), (2, 2)), torch="u")]
    with pytest.raises(RuleError, match="every element"):
        check(twice)
    with pytest.raises(RuleError, match="as many elements"):
        check([link((2, 3), (2, 2))])
    with pytest.raises(RuleError, match="permutation"):
        check([link((2, 2), (2, 2), axes=(0, 0))])


@given(shape=st.lists(st.integers(2, 4), min_size=1, max_size=4), order=st.randoms(use_true_random=False))
def test_every_permutation_is_among_the_layouts(shape: list[int], order) -> None:
    axes = list(range(len(shape)))
    order.shuffle(axes)
    found = layouts(tuple(shape), tuple(shape[axis] for axis in axes), "kernel")
    assert len(shape) > 3 or tuple(axes) in {one.axes for one in found}
    assert all(sorted(one.axes) == list(range(len(one.view))) for one in found)


@pytest.mark.parametrize(
    ("torch", "jax", "view", "axes"),
    [
        ((8, 4), (4, 8), (8, 4), (1, 0)),
        ((4, 4), (4, 4), (4, 4), (1, 0)),
        ((8, 4, 3, 3), (3, 3, 4, 8), (8, 4, 3, 3), (2, 3, 1, 0)),
        ((3, 3, 3, 3), (3, 3, 3, 3), (3, 3, 3, 3), (2, 3, 1, 0)),
        ((8, 1, 3, 3), (3, 3, 1, 8), (8, 1, 3, 3), (2, 3, 1, 0)),
        ((8, 4, 5), (5, 4, 8), (8, 4, 5), (2, 1, 0)),
        ((12, 6), (6, 3, 4), (3, 4, 6), (2, 0, 1)),
        ((6, 12), (3, 4, 6), (6, 3, 4), (1, 2, 0)),
        ((36, 12), (12, 3, 2, 6), (3, 2, 6, 12), (3, 0, 1, 2)),
        ((1,), (1,), (1,), (0,)),
    ],
)
def test_the_first_layout_is_that_of_the_frameworks_own_layers(torch, jax, view, axes) -> None:
    first = layouts(torch, jax, "kernel")[0]
    assert (first.view, first.axes) == (view, axes)


def test_pairs_cost_the_least() -> None:
    generator = np.random.default_rng(3)
    for _ in range(60):
        costs = generator.integers(0, 9, generator.integers(1, 6, 2)).astype(float)
        small = costs if costs.shape[0] <= costs.shape[1] else costs.T
        best = min(_totals(small))
        assert sum(costs[pair] for pair in assign(costs)) == best
    assert assign(np.array([[IMPOSSIBLE, 1.0], [IMPOSSIBLE, 2.0]])) == [(0, 1)]


def _totals(costs: np.ndarray, row: int = 0, used: frozenset[int] = frozenset()) -> list[float]:
    if row == len(costs):
        return [0.0]
    free = [column for column in range(costs.shape[1]) if column not in used]
    return [costs[row, c] + rest for c in free for rest in _totals(costs, row + 1, used | {c})]


def test_names_of_both_frameworks_are_near() -> None:
    assert distance("layers.0.attn.query.weight", "layers_0.attention.q.kernel") == 0
    assert distance("norm.running_mean", "norm.mean") == 0
    assert distance("norm.weight", "norm.scale") < distance("norm.bias", "norm.scale")


def test_models_with_the_same_parts_in_other_words_are_paired() -> None:
    left = [
        tensor("wte.weight", 64, 16, owner="Embedding"),
        *(
            row
            for k in range(2)
            for row in (
                tensor(f"h.{k}.attn.c_attn.weight", 48, 16),
                tensor(f"h.{k}.attn.c_attn.bias", 48, std=0.0, mean=0.0),
                tensor(f"h.{k}.ln_1.weight", 16, owner="LayerNorm", std=0.0, mean=1.0),
                tensor(f"h.{k}.ln_1.bias", 16, owner="LayerNorm", std=0.0, mean=0.0),
            )
        ),
    ]
    right = [
        tensor("embed.embedding", 64, 16, owner="Embed"),
        *(
            row
            for k in range(2)
            for row in (
                tensor(f"blocks.{k}.norm.scale", 16, owner="LayerNorm", std=0.0, mean=1.0),
                tensor(f"blocks.{k}.norm.bias", 16, owner="LayerNorm", std=0.0, mean=0.0),
                *(tensor(f"blocks.{k}.attn.{p}.kernel", 16, 4, 4) for p in ("query", "key", "value")),
                *(
                    tensor(f"blocks.{k}.attn.{p}.bias", 4, 4, std=0.0, mean=0.0)
                    for p in ("query", "key", "value")
                ),
            )
        ),
    ]
    proposal = propose(left, right)
    assert not proposal.unmatched_torch and not proposal.unmatched_jax
    links = proposal.links((0,) * len(proposal.choices))
    check(links)
    parts = {(one.torch, one.torch_part and one.torch_part.start): one.jax for one in links}
    assert parts["h.1.attn.c_attn.weight", 16] == "blocks.1.attn.key.kernel"
    assert parts["h.0.ln_1.weight", None] == "blocks.0.norm.scale"


def test_the_search_tries_the_likeliest_first_and_ends_when_it_holds() -> None:
    rows = [tensor(f"{name}.weight", 4, 4) for name in "abc"]
    proposal = propose(rows, [tensor(f"{name}.kernel", 4, 4) for name in "xyz"])
    true = {"a.weight": "y.kernel", "b.weight": "z.kernel", "c.weight": "x.kernel"}

    def evaluate(links: tuple[Link, ...]) -> Agreement:
        apart = {one.torch: float(true[one.torch] != one.jax or one.axes != (1, 0)) for one in links}
        return Agreement(loss=max(apart.values()), gradients=apart)

    found = search(proposal, evaluate)
    assert {one.torch: one.jax for one in found.links} == true
    assert found.agreement.holds and found.settled and 1 < found.tried <= 30


def test_where_nothing_holds_the_likeliest_is_kept() -> None:
    proposal = propose([tensor("a.weight", 4, 4)], [tensor("a.kernel", 4, 4)])
    found = search(proposal, lambda links: Agreement(loss=0.5, gradients={"a.weight": 0.7}))
    assert not found.agreement.holds and found.links[0].axes == (1, 0)


def test_what_the_limit_left_untried_is_counted() -> None:
    rows = [tensor(f"{name}.weight", 4, 4) for name in "abc"]
    proposal = propose(rows, [tensor(f"{name}.kernel", 4, 4) for name in "xyz"])
    everything = math.prod(len(choice.options) for choice in proposal.choices)
    never = Agreement(loss=0.5, gradients={"a.weight": 0.7})
    found = search(proposal, lambda links: never, most=5)
    assert (found.tried, found.untried) == (5, everything - 5) and everything > 6
    found = search(proposal, lambda links: never, most=everything)
    assert (found.tried, found.untried) == (everything, 0)
    assert search(proposal, lambda links: Agreement(loss=0.0, gradients={}), most=5).untried == 0


def test_a_small_model_is_searched_longer() -> None:
    assert most_candidates(500) > most_candidates(10**6) == MOST_CANDIDATES


def test_words_apart_are_as_near_as_words_in_one() -> None:
    for gate in "rzn":
        others = [f"cell.i{one}.kernel" for one in "rzn"] + [f"cell.h{one}.kernel" for one in "rzn"]
        near = [one for one in others if distance(f"cell.i.{gate}.weight", one) == 0]
        assert near == [f"cell.i{gate}.kernel"]


def test_the_users_own_entries_stand() -> None:
    torch = description("torch", tensor("a.weight", 4, 4), tensor("b.weight", 4, 4))
    jax = description("jax", tensor("a.kernel", 4, 4), tensor("b.kernel", 4, 4))
    own, _ = user_map.complete([Link(torch="a.weight", jax="b.kernel")], torch, jax)
    proposal = propose(torch.parameters, jax.parameters, own)
    assert not any("partners" in choice.about for choice in proposal.choices)
    assert {one.torch: one.jax for one in proposal.links((0,) * len(proposal.choices))} == {
        "a.weight": "b.kernel",
        "b.weight": "a.kernel",
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (Link(torch="a.wieght", jax="a.kernel"), "did you mean a.weight"),
        (Link(torch="a.weight", jax="b.kernel"), "as many elements"),
        (Link(torch="a.weight", jax="a.kernel", axes=(0,)), "permutation"),
    ],
)
def test_a_wrong_entry_is_named(entry: Link, message: str) -> None:
    torch = description("torch", tensor("a.weight", 4, 4))
    jax = description("jax", tensor("a.kernel", 4, 4), tensor("b.kernel", 5, 5))
    with pytest.raises(RuleError, match=message):
        user_map.complete([entry], torch, jax)


def test_decay_follows_the_map() -> None:
    row = ParamSpec(name="t", shape=(4,), init="given", decayed=False)
    (made,) = jax_table([row], [link((4,), (2, 2))])
    assert (made.name, made.shape, made.decayed) == ("j", (2, 2), False)
    matrix = ParamSpec(name="u", shape=(4, 1), init="given")
    both = [
        link((4,), (2, 4), jax_part=Part(axis=0, start=0, stop=1)),
        replace(link((4, 1), (2, 4), jax_part=Part(axis=0, start=1, stop=2)), torch="u"),
    ]
    with pytest.raises(RuleError, match="decays"):
        jax_table([row, matrix], both)


@pytest.mark.parametrize(("shape", "axis"), [((16, 48), 1), ((16, 3, 4, 4), 1), ((3, 16, 16), 0)])
def test_projections_fused_in_jax_are_cut(shape: tuple[int, ...], axis: int) -> None:
    left = [tensor(f"attn.{name}_proj.weight", 16, 16) for name in "qkv"]
    proposal = propose(left, [tensor("attn.qkv.kernel", *shape)])
    links = proposal.links((0,) * len(proposal.choices))
    check(links)
    assert not proposal.unmatched_torch and not proposal.unmatched_jax
    starts = {one.torch: (one.jax_part.axis, one.jax_part.start) for one in links if one.jax_part}
    length = shape[axis] // 3
    assert starts == {f"attn.{name}_proj.weight": (axis, k * length) for k, name in enumerate("qkv")}


def test_a_part_without_a_partner_leaves_its_whole_tensor_unmatched() -> None:
    left = [tensor(f"layers.{k}.w", 4, 4) for k in range(3)]
    proposal = propose(left[:2], [tensor("layers.w", 3, 4, 4)])
    assert [row.path for row in proposal.unmatched_jax] == ["layers.w"]
    assert [row.path for row in proposal.unmatched_torch] == ["layers.0.w", "layers.1.w"]
