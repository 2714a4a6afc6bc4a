"""Slices as records: what travels for which loss, and networks in an array."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from reactor_torch import Batch, Loss, Network, Networks
from reactor_torch.flat import get
from reactor_torch.slicing import LINE, SliceLayout, SliceView, WeightLayout, parts_of


@dataclass
class Transitions(Batch):
    observations: Any
    actions: torch.Tensor
    rewards: torch.Tensor
    noise: torch.Tensor
    discounts: Any
    scale: float


@dataclass(frozen=True)
class Needs(Loss):
    """A loss as far as slices are concerned."""

    learns: str
    fields: tuple[str, ...] | None
    statistics = ("loss",)

    def __call__(self, nets: Any, batch: Any) -> tuple[torch.Tensor, ...]:
        return (nets[self.learns](batch.rewards).mean(),)


CRITIC = Needs("critic", ("observations", "rewards", "discounts"))
ACTOR = Needs("actor", ("observations", "noise", "scale"))
LOSSES = {"critic": CRITIC, "actor": ACTOR}


def transitions(rows: int, discounts: Any, scale: float = 0.0) -> Transitions:
    numbers = torch.arange(rows, dtype=torch.float32).view(rows, 1)
    keyed = {"a": numbers + 1, "b": numbers.byte()}
    return Transitions(keyed, numbers + 2, numbers + 3, numbers + 4, numbers + 5 if discounts is None else discounts, scale)


@pytest.mark.parametrize("discounts", [0.9, None])
def test_each_loss_gets_what_it_looks_at(discounts: Any) -> None:
    layout = SliceLayout(dict.fromkeys(LOSSES, transitions(12, discounts)), 3, LOSSES, dict.fromkeys(LOSSES, 4))
    assert layout.rows == 4
    record = np.zeros((), layout.record)
    writer, reader = SliceView(layout, record), SliceView(layout, record)
    for number, rows in ((0, slice(2, 6)), (1, slice(0, 3)), (0, slice(7, 9)), (1, slice(5, 8))):
        batch = transitions(12, discounts, 0.1 * rows.stop)
        writer.write(number, parts_of(batch), rows, 9, number + 2, 7)
        name, found, of, block, task = reader.read()
        assert (block, task) == (number + 2, 7)
        assert (name, of, len(found), reader.rows) == (list(LOSSES)[number], 9, rows.stop - rows.start, rows.stop - rows.start)
        looked_at = {*(LOSSES[name].fields or ()), "actions"}
        for field in fields(Transitions):
            part, whole = getattr(found, field.name), getattr(batch, field.name)
            if field.name not in looked_at:
                assert part is None
            elif field.name == "observations":
                assert {key: value.tolist() for key, value in part.items()} == {key: whole[key][rows].tolist() for key in whole}
            elif isinstance(whole, float):
                assert part == whole
            else:
                assert part.tolist() == whole[rows].tolist()
    writer.clear()
    assert reader.rows == 0


def test_what_nobody_looks_at_has_no_place() -> None:
    example = transitions(12, 0.9)
    kinds = [LOSSES, {"critic": CRITIC}, {"actor": ACTOR}, {"all": Needs("critic", None)}]
    layouts = [SliceLayout(dict.fromkeys(losses, example), 3, losses, dict.fromkeys(losses)) for losses in kinds]
    found = [{"rewards", "noise"} & set(layout.record.names or ()) for layout in layouts]
    assert found == [{"rewards", "noise"}, {"rewards"}, {"noise"}, {"rewards", "noise"}]


def test_minibatches_of_several_kinds() -> None:
    """Parts of the same shape share a block, for a record has one slice at a time."""
    whole = Needs("critic", None)
    examples: dict[str, Any] = {"a": transitions(12, 0.9), "b": transitions(12, 0.9), "c": transitions(12, None)}
    examples["b"].rewards = torch.zeros(12, 5)
    layout = SliceLayout(examples, 3, dict.fromkeys(examples, whole), dict.fromkeys(examples))
    names = set(layout.record.names or ())
    assert {"rewards", "rewards of b", "discounts", "discounts of c"} <= names and "noise of b" not in names
    record = np.zeros((), layout.record)
    writer, reader = SliceView(layout, record), SliceView(layout, record)
    for number, (name, example) in enumerate(examples.items()):
        writer.write(number, parts_of(example), slice(1, 4), 12, 0, 1)
        loss, found, *_ = reader.read()
        assert loss == name and found.rewards.tolist() == example.rewards[1:4].tolist()
        assert torch.as_tensor(found.discounts).tolist() == torch.as_tensor(example[1:4].discounts).tolist()


def test_room_for_the_largest_slice_of_any_minibatch() -> None:
    """Five blocks in two slices are four and one, four are two and two; any rows are one block without blocks."""
    for rows, slices, block, most in ((20, 2, 4, 16), (16, 2, 4, 8), (13, 3, 4, 8), (13, 3, None, 13)):
        example = {"all": transitions(rows, 0.9)}
        assert SliceLayout(example, slices, {"all": Needs("critic", None)}, {"all": block}).rows == most


def networks() -> Networks:
    modules = [nn.Sequential(nn.Linear(1, 3), nn.BatchNorm1d(3)) for _ in range(3)]
    parts = {
        name: Network(module, torch.optim.SGD(module.parameters(), 0.1), buffers=name != "other", fixed=name == "fixed")
        for name, module in zip(("critic", "fixed", "other"), modules, strict=True)
    }
    parts["loose"] = Network({"one": (one := torch.zeros(1, requires_grad=True))}, torch.optim.SGD([one], 0.1))
    return Networks(parts, {"critic": CRITIC})


def test_networks_in_an_array() -> None:
    """Each begins with a cache line; what is fixed, and what no loss looks at, is not there; counts arrive as they are."""
    torch.manual_seed(0)
    source, target = networks(), networks()
    layout = WeightLayout(source)
    assert set(layout.networks) == {"critic", "other"} and set(layout.buffers) == {"critic"}
    places = [*layout.networks.values(), *layout.buffers["critic"]]
    assert all(place.start % LINE == 0 for place in places) and layout.size % LINE == 0
    for one in source.buffers("critic"):
        one.add_(2**40 + 1 if not one.is_floating_point() else 0.5)
    array = np.zeros(layout.size, np.float32)
    for parameters, out in layout.copies(source, array).values():
        get(parameters, out)
    layout.write_buffers(source, array)
    layout.read(target, array)
    layout.read_buffers(target, array)
    for name in ("critic", "other"):
        assert torch.equal(source.flat(name).data, target.flat(name).data)
    assert not torch.equal(source.flat("fixed").data, target.flat("fixed").data)
    assert all(torch.equal(*pair) for pair in zip(source.buffers("critic"), target.buffers("critic"), strict=True))
