"""What an object keeps is found wherever it lies, told where it changes, and put back as it was."""

import collections
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torch_impl.graph.cells import Places, cells
from torch_impl.graph.held import Held

CUDA = torch.device("cuda")


class Root:
    """To be filled."""

    def __init__(self, **content: Any) -> None:
        vars(self).update(content)


class Slotted:
    __slots__ = ("count", "later")

    def __init__(self) -> None:
        self.count = 0


def paths(root: object) -> list[str]:
    return [cell.path for cell, _ in Places(root, {}).tensors()]


def test_places_are_found_in_attributes_dictionaries_lists_and_objects() -> None:
    root = Root(betas=(0.9, 0.99), kept={"host": torch.zeros(2)}, function=lambda: None)
    root.inner = Root(root=root, count=0, history=[1.0])
    held = Held(root, CUDA, {})
    assert paths(root) == ["kept/host"]
    root.inner.count, root.betas, root.inner.history = 3, (0.8, 0.99), [2.0]
    root.kept["host"] += 1
    assert held.changed() == [
        "betas: (0.9, 0.99) -> (0.8, 0.99)",
        "kept/host: a tensor (2,) -> a tensor (2,)",
        "inner/count: 0 -> 3",
        "inner/history/0: 1 -> 2",
    ]
    held.put_back()
    assert held.changed() == [] and root.inner.history == [1.0] and not root.kept["host"].any()


def test_modules_tuples_deques_slots_and_arrays_are_looked_into() -> None:
    trained = nn.Parameter(torch.zeros(2))
    pair = collections.namedtuple("pair", "m v")
    root = Root(
        trained=trained,
        average=nn.Linear(2, 1),
        moments=pair(torch.zeros(1), [torch.zeros(1)]),
        recent=collections.deque([torch.zeros(1)], maxlen=2),
        slotted=Slotted(),
        rate=np.float64(1),
        table=np.zeros(2),
    )
    assert {cell.path for cell in cells(root, {id(trained): "fc"})}.isdisjoint({"trained"})
    found = [cell.path for cell, _ in Places(root, {id(trained): "fc"}).tensors()]
    assert {"moments/0", "moments/1/0", "recent/0", "average/_parameters/weight"} <= set(found)
    held = Held(root, torch.device("cpu"), {id(trained): "fc"})
    root.slotted.count, root.slotted.later, root.rate = 1, 2, np.float64(2)
    root.table[0] = 3
    root.recent.append(torch.zeros(1))
    root.average.training = False
    assert set(held.changed()) == {
        "average/training: True -> False",
        "slotted/count: 0 -> 1",
        "rate: 1 -> 2",
        "table: a tensor (2,) -> a tensor (2,)",
        "recent/1 is new",
        "slotted/later is new",
    }
    held.put_back()
    assert held.changed() == [] and not hasattr(root.slotted, "later") and not root.table.any()


@pytest.mark.parametrize(
    ("add", "told"),
    [
        (lambda root: root.history.append(2), ["history/1 is new"]),
        (lambda root: root.state.update(late={"m": torch.zeros(1)}), ["state/late is new"]),
        (lambda root: setattr(root, "late", 1), ["late is new"]),
        (lambda root: root.state.pop("step"), ["state/step is gone"]),
        (lambda root: setattr(root, "m", torch.zeros(1)), ["m: None -> 0"]),
    ],
)
def test_what_came_or_went_is_told_and_undone(add: Any, told: list[str]) -> None:
    root = Root(history=[1], state=collections.defaultdict(dict, step=0, other=1), m=None)
    held = Held(root, CUDA, {})
    add(root)
    assert held.changed() == told
    held.put_back()
    assert held.changed() == []
    assert (root.history, list(root.state), root.m) == ([1], ["step", "other"], None)
    assert not hasattr(root, "late")


def test_what_is_no_number_is_not_another_one() -> None:
    root = Root(worst=float("nan"), seen=(float("nan"), 1), host=torch.tensor([float("nan")]))
    root.array, root.last = np.array([np.nan]), np.float32("nan")
    held = Held(root, CUDA, {})
    root.worst, root.seen = float("nan") * 2, (float("nan") * 2, 1)
    root.host, root.array, root.last = root.host.clone(), root.array.copy(), np.float32("nan") * 2
    assert held.changed() == []


def test_places_are_found_anew_where_a_container_is_another_one() -> None:
    root = Root(state={"p": {"m": torch.zeros(1)}}, lazy=None, own={}, pair=(torch.zeros(1), 1))
    places = Places(root, {})
    first = dict((cell.path, value) for cell, value in places.tensors())
    root.state["p"] = {"m": torch.ones(1)}
    second = dict((cell.path, value) for cell, value in places.tensors())
    assert first.keys() == second.keys() == {"state/p/m", "pair/0"} and second["state/p/m"] == 1
    root.lazy, root.own["m"] = torch.zeros(1), torch.zeros(1)
    assert {cell.path for cell, _ in places.tensors()} == {"state/p/m", "pair/0", "lazy", "own/m"}


def test_a_tensor_is_put_into_a_tuple_by_another_tuple() -> None:
    root = Root(pair=(torch.zeros(1), 1), nested=([2], (torch.zeros(1), torch.ones(1))))
    by_path = {cell.path: cell for cell, _ in Places(root, {}).tensors()}
    one = torch.ones(1)
    by_path["pair/0"].put(one)
    by_path["nested/1/0"].put(one)
    assert root.pair == (one, 1) and root.pair[0] is one
    assert root.nested[1][0] is one and root.nested[0] == [2]
