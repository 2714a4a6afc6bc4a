"""Slices as records: what travels for which loss."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch

from reactor_torch.batches import Batch
from reactor_torch.slices import SliceLayout, SliceView, parts_of, slice_of


@dataclass
class Transitions(Batch):
    observations: Any
    actions: torch.Tensor
    rewards: torch.Tensor
    noise: torch.Tensor
    discounts: Any


class Needs:
    """A loss as far as slices are concerned."""

    def __init__(self, ignores: tuple[str, ...], moving: tuple[str, ...]) -> None:
        self.ignores, self.moving = ignores, moving


CRITIC, ACTOR = Needs(("noise",), ()), Needs(("rewards", "discounts"), ("scale",))


def transitions(rows: int, discounts: Any) -> Transitions:
    numbers = torch.arange(rows, dtype=torch.float32).view(rows, 1)
    keyed = {"a": numbers + 1, "b": numbers.byte()}
    return Transitions(keyed, numbers + 2, numbers + 3, numbers + 4, numbers + 5 if discounts is None else discounts)


def layout_of(example: Batch, rows: int, **losses: Any) -> SliceLayout:
    return SliceLayout(example, rows, {int(name[1:]): loss for name, loss in losses.items()})


@pytest.mark.parametrize("discounts", [0.9, None])
def test_each_loss_gets_what_it_needs(discounts: Any) -> None:
    batch = transitions(12, discounts)
    layout = layout_of(batch, 4, _0=CRITIC, _1=ACTOR)
    record = np.zeros((), layout.record)
    writer, reader = SliceView(layout, record), SliceView(layout, record)
    for loss, rows in ((0, slice(2, 6)), (1, slice(0, 3)), (0, slice(7, 9)), (1, slice(5, 8))):
        writer.write(loss, parts_of(batch), rows, 9)
        writer.moving[:] = rows.stop
        number, found, of = reader.read()
        assert (number, of, len(found), reader.moving.tolist()) == (loss, 9, rows.stop - rows.start, [rows.stop])
        for field in fields(Transitions):
            part, whole = getattr(found, field.name), getattr(batch, field.name)
            if field.name in (CRITIC, ACTOR)[loss].ignores:
                assert part is None
            elif field.name == "observations":
                assert {key: value.tolist() for key, value in part.items()} == {key: whole[key][rows].tolist() for key in whole}
            elif isinstance(whole, float):
                assert part == whole
            else:
                assert part.tolist() == whole[rows].tolist()


def test_what_nobody_needs_has_no_place() -> None:
    batch = transitions(12, 0.9)
    both, critic, actor = layout_of(batch, 4, _0=CRITIC, _1=ACTOR), layout_of(batch, 4, _0=CRITIC), layout_of(batch, 4, _1=ACTOR)
    found = [{"rewards", "noise"} & set(layout.record.names or ()) for layout in (both, critic, actor)]
    assert found == [{"rewards", "noise"}, {"rewards"}, {"noise"}]


@pytest.mark.parametrize(("count", "slices"), [(10, 3), (2, 3), (1, 1), (64, 4)])
def test_slices_are_all_rows_and_nearly_alike(count: int, slices: int) -> None:
    parts = [slice_of(slice(5, 5 + count), slices, index) for index in range(slices)]
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(5, 5 + count))
    lengths = [part.stop - part.start for part in parts]
    assert lengths[0] > 0 and max(lengths) - min(lengths) <= 1
