"""LSTM cells of any shape are torch's, and all kinds of processors give the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from reactor_torch import Lstm, LstmWeights

products = pytest.importorskip("reactor_torch._products")

Array = npt.NDArray[np.float32]
KINDS = products.kinds()


@pytest.fixture(autouse=True)
def kind_in_use() -> Iterator[None]:
    before = products.using()
    yield
    products.use(before)


class Case:
    """Random sequences, some of which begin an episode on the way."""

    def __init__(self, steps: int, rows: int, features: int, hidden: int) -> None:
        torch.manual_seed(steps)
        self.module = torch.nn.LSTM(features, hidden)
        self.inputs, self.by_outputs = torch.randn(steps, rows, features), torch.randn(steps, rows, hidden)
        self.h, self.c = torch.randn(2, rows, hidden).tanh()
        self.starts = (torch.rand(steps, rows) < 0.2).float()

    def weights(self, of: Any) -> LstmWeights:
        return LstmWeights(*(of(one) for one in self.module.parameters()))

    def ours(self) -> list[Array]:
        """Outputs, cells and gradients."""
        gradients = self.weights(lambda one: np.full(one.shape, 7, np.float32))
        lstm = Lstm(self.weights(lambda one: one.detach().numpy()), gradients)
        lstm.take_weights()
        given = (one.numpy() for one in (self.inputs, self.starts))
        found = [one.copy() for one in lstm.run(*given, self.h.numpy(), self.c.numpy())]
        lstm.back(self.by_outputs.numpy().copy())
        return [*found, *gradients]

    def theirs(self) -> list[Array]:
        outputs, cells, h, c = [], [], self.h, self.c
        for step, start in zip(self.inputs, self.starts, strict=True):
            kept = (1 - start)[None, :, None]
            _, (h, c) = self.module(step[None], (kept * h, kept * c))
            h, c = h[0], c[0]
            outputs.append(h)
            cells.append(c)
        torch.stack(outputs).backward(self.by_outputs)
        found = [torch.stack(outputs), torch.stack(cells), *(one.grad for one in self.module.parameters())]
        return [one.detach().numpy() for one in found if one is not None]


SHAPES = [(1, 1, 1, 1), (5, 3, 2, 7), (20, 1, 4, 64), (9, 13, 5, 33), (40, 2, 70, 40), (300, 1, 3, 16), (3, 700, 2, 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cells_are_torch_s_and_all_kinds_of_processors_give_the_same_bits(shape: tuple[int, int, int, int]) -> None:
    case, found = Case(*shape), {}
    for kind in KINDS:
        products.use(kind)
        found[kind] = case.ours()
    for ours, theirs in zip(found["portable"], case.theirs(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * max(1.0, float(np.abs(theirs).max())))
    for kind in KINDS:
        assert all(map(np.array_equal, found[kind], found["portable"])), kind


def test_wrong_arguments_are_refused() -> None:
    case = Case(2, 3, 4, 5)
    lstm = Lstm(case.weights(lambda one: one.detach().numpy()))
    lstm.take_weights()
    with pytest.raises(ValueError, match="inputs does not fit: dimension 0 must be 2, got 3"):
        lstm.run(case.inputs[0].numpy(), case.starts.numpy(), case.h.numpy(), case.c.numpy())
    with pytest.raises(AssertionError, match="run first, with gradients"):
        lstm.back(case.by_outputs.numpy())
