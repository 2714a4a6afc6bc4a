"""What every loss has to do: what is derived by hand is the loss as it is written, whole and in slices, in all forms."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from loss_cases import CASES, Made, cases
from networks_today import (
    HAS_EXTENSION,
    LEAF,
    Fast,
    Written,
    adds_up,
    by_torch,
    form,
    forms,
    functions,
    is_fast,
    losses,
    made_again,
    tree,
    watched,
)

pytestmark = [
    pytest.mark.skipif(not HAS_EXTENSION, reason="the extension is not compiled here"),
    pytest.mark.usefixtures("one_thread"),
]

CLOSE = 1e-5
"""Of the largest gradient, and of statistics above 1."""


class Found:
    """Gradients and statistics of a loss, and how buffers change, which are put back; those of slices are added up."""

    def __init__(self, made: Made, way: Any, slices: Sequence[slice], batch: Any = None) -> None:
        batch = made.batches[way.name] if batch is None else batch
        buffers = [one for name in made.nets for one in made.nets.buffers(name)]
        before = [one.clone() for one in buffers]
        self.gradients, self.statistics = [], []
        others = [one.gradients for name in made.nets if (one := made.nets.flat(name)) is not way.flat]
        for one in others:
            one.fill_(7)
        for rows in slices:
            way.flat.gradients.fill_(torch.nan)  # they are overwritten
            self.statistics.append(way.gradients(batch[rows], len(batch)).copy())
            self.gradients.append(way.flat.gradients.clone())
        assert all((one == 7).all() for one in others)
        self.changes = [one - was for one, was in zip(buffers, before, strict=True)]
        for one, was in zip(buffers, before, strict=True):
            one.copy_(was)

    def is_close(self, gradients: torch.Tensor, statistics: Any, changes: Sequence[torch.Tensor]) -> None:
        """Assert that it is what somebody else has found."""
        ours = sum(self.gradients)
        assert isinstance(ours, torch.Tensor) and ours.shape == gradients.shape and float(gradients.abs().max()) > 0
        assert float((ours - gradients).abs().max()) <= CLOSE * float(gradients.abs().max())
        atol = CLOSE * max(1.0, float(np.abs(statistics).max()))
        np.testing.assert_allclose(sum(self.statistics), statistics, rtol=0, atol=atol)
        for one, other in zip(self.changes, changes, strict=True):
            torch.testing.assert_close(one, other, rtol=CLOSE, atol=CLOSE)

    def bits(self) -> list[bytes]:
        """All of it."""
        return [one.numpy().tobytes() for one in (tree(self.gradients), *self.changes)] + [tree(self.statistics).tobytes()]


WHOLE = [slice(None)]


def ways(made: Made) -> Iterator[Fast]:
    """Each loss by what is derived by hand."""
    assert is_fast(made.nets)
    for name in made.nets.losses:
        yield Fast(made.nets, name)


def tensors_of(batch: Any) -> list[torch.Tensor]:
    return [one for one in vars(batch).values() if isinstance(one, torch.Tensor)]


@cases()
def test_it_is_the_loss_as_it_is_written(name: str) -> None:
    case, made = CASES[name], CASES[name].made()
    for fast in ways(made):
        batch = made.batches[fast.name]
        was = deepcopy(tensors_of(batch))
        wanted = by_torch(made.nets, fast.name, batch)
        for way in (fast, Written(made.nets, fast.name)):
            for slices in (WHOLE, case.slices())[: 1 if case.whole else 2]:
                found = Found(made, way, slices)
                found.is_close(*wanted)
                assert len(found.statistics[0]) == len(fast.loss.statistics)
        assert all(map(torch.equal, tensors_of(batch), was))


@cases(turn=1)
def test_leaves_added_up_as_a_tree_have_the_bits_of_all_rows(name: str) -> None:
    case, made = CASES[name], CASES[name].made()
    for fast in ways(made):
        adding = case.adds_up and fast.name not in case.but
        assert adds_up(made.nets, fast.name) == adding
        if adding:
            whole = Found(made, fast, WHOLE)
            assert whole.bits() == Found(made, fast, case.leaves(LEAF)).bits()
            assert whole.bits() == Found(made, fast, case.leaves(2 * LEAF)).bits()


@cases(turn=0)
def test_all_forms_have_the_same_bits(name: str) -> None:
    made = CASES[name].made()
    for fast in ways(made):
        wanted = Found(made, fast, WHOLE).bits()
        for one in forms():
            with form(one):
                assert Found(made, fast, WHOLE).bits() == wanted, one


@cases(turn=1)
def test_so_have_networks_that_were_sent(name: str) -> None:
    """As they are to gradient workers."""
    made = CASES[name].made()
    there = made._replace(nets=pickle.loads(pickle.dumps(made.nets)))
    assert there.nets.losses == made.nets.losses
    for fast, other in zip(ways(made), ways(there), strict=True):
        assert Found(made, fast, WHOLE).bits() == Found(there, other, WHOLE).bits()


@cases(turn=0)
def test_fields_that_it_does_not_name_are_not_looked_at(name: str) -> None:
    made = CASES[name].made()
    for fast in ways(made):
        batch, fields = made.batches[fast.name], fast.loss.fields
        others = [] if fields is None else [one for one in vars(batch) if one not in (*fields, "actions")]
        nothing = {one: np.nan * vars(batch)[one] for one in others}
        for way in (fast, Written(made.nets, fast.name)):
            wanted = Found(made, way, WHOLE).bits()
            assert Found(made, way, WHOLE, dataclasses.replace(batch, **nothing)).bits() == wanted


@cases(turn=1)
def test_a_weight_that_is_no_number_shows_in_a_loss(name: str) -> None:
    """Of any network that a loss looks at, wherever it is. TQC drops the largest quantiles, and what is no number is largest.

    TRPO's critic looks at the actor where they share features, as here they do not.
    """
    made = CASES[name].made()
    dropped = {"TQC": {"critic_target"}, "TRPO": {"policy"}}.get(name.partition(",")[0], set())
    for network in {*made.nets} - {"ent_coef"} - dropped:
        data = made.nets.flat(network).data
        for at in range(0, len(data), 1 + len(data) // 5):
            kept, data[at] = float(data[at]), torch.nan
            found = [Found(made, fast, WHOLE).statistics[0] for fast in ways(made)]
            assert any(np.isnan(one).any() for one in found), (network, at)
            data[at] = kept


def altered(loss: Any) -> Any:
    """With other numbers, as a schedule gives it in the next round."""
    numbers = {one.name: getattr(loss, one.name) for one in dataclasses.fields(loss)}
    changed = {
        name: 0.25 * one if isinstance(one, float) else one + 1 for name, one in numbers.items() if type(one) in (float, int)
    }
    return dataclasses.replace(loss, **changed)


@cases(lambda case: not case.whole, turn=0)
def test_a_round_has_losses_of_its_own(name: str) -> None:
    """Numbers of a loss may follow a schedule; the networks stay."""
    made = CASES[name].made()
    before = {fast.name: Found(made, fast, WHOLE).bits() for fast in ways(made)}
    later = {name: altered(loss) for name, loss in made.nets.losses.items()}
    made.nets.begin_round(later)
    for fast in ways(made):
        assert fast.loss == later[fast.name]
        found = Found(made, fast, WHOLE)
        found.is_close(*by_torch(made.nets, fast.name, made.batches[fast.name]))
        assert (found.bits() == before[fast.name]) == (not altered_fields(fast.loss))
    made.nets.end_round()


def altered_fields(loss: Any) -> bool:
    return loss != altered(loss)


def hook(module: torch.nn.Module, calls: list[int]) -> None:
    module.register_forward_hook(lambda *given: calls.append(1))


def forward(module: torch.nn.Module, calls: list[int]) -> None:
    own = module.forward
    module.forward = lambda *given: (calls.append(1), own(*given))[1]  # type: ignore[method-assign]


def frozen(module: torch.nn.Module, calls: list[int]) -> None:
    *_, bias = module.parameters()
    bias.requires_grad_(False)
    calls.append(1)


TOUCHES = [hook, forward, frozen]


@pytest.mark.parametrize(("name", "touch"), [
    pytest.param(name, touch, marks=[pytest.mark.slow] * (CASES[name].dear or (at + turn) % 3 > 0))
    for at, name in enumerate(CASES)
    for turn, touch in enumerate(TOUCHES)
])  # fmt: skip
def test_networks_that_somebody_has_touched_are_computed_as_written(name: str, touch: Any) -> None:
    """All losses: one that reads such a network has nothing that is derived by hand."""
    case, made = CASES[name], CASES[name].made()
    assert is_fast(made_again(made.nets))
    loss, calls = next(iter(made.nets.losses.values())), []
    *_, last = (one for one in made.nets[loss.learns].modules() if isinstance(one, torch.nn.Linear))
    touch(last, calls)
    made = made._replace(nets=made_again(made.nets))
    assert not is_fast(made.nets)
    for name in made.nets.losses:
        way = Fast(made.nets, name)  # which is not
        Found(made, way, WHOLE).is_close(*by_torch(made.nets, name, made.batches[name]))
    assert calls or not case.asks


# ---------------------------------------------------------------------- who has a case


@pytest.mark.slow
def test_each_loss_has_a_case() -> None:
    tested = {type(loss) for case in CASES.values() for loss in case.made().nets.losses.values()}
    assert losses() == tested


@pytest.mark.slow
def test_each_function_of_the_extension_is_called_by_a_case() -> None:
    found = set()
    for case in CASES.values():
        with watched() as called:
            made = case.made()
            for fast in ways(made):
                Found(made, fast, WHOLE)
        found |= called
    assert functions() and functions() <= found
