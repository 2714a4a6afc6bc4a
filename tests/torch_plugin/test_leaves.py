"""Dense losses are sums over leaves of rows: gradients and statistics of any slices of whole leaves have the bits of the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch_plugin import any_processor

from reactor_torch import Networks, kernels
from reactor_torch.networks import blocks_of, halved

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="torch adds up all rows in an order of its own")


WHOLE = {"RecurrentPPO", "CrossQ", "PPO, gSDE", "PPO, images", "DQN, images"}
"""Trainings without leaves: rows are sequences, minibatches are normalised as a whole, a sum over rows is a factor, windows of
several images are one chain."""


@pytest.mark.parametrize("training", sorted({*any_processor.TRAININGS} - WHOLE))
def test_slices_have_the_bits_of_the_whole(training: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def compare(nets: Networks, batch: Any, *_: Any) -> str:
        any_processor.Numbers(3).fill(nets)
        for name in nets.losses:
            block, flat = nets.block(name), nets.flat(nets.loss(name).learns)
            assert block == kernels.compiled.LEAF

            def added(begin: int, end: int, apart: int, name: str = name, flat: Any = flat, size: int = block or 0) -> Any:
                """The sum of some leaves, of those alone that a slice has."""
                if apart == 1 or end - begin == 1:
                    rows = slice(begin * size, min(end * size, len(batch)))
                    return nets.gradients(name, batch[rows], len(batch)), flat.gradients.clone()
                middle = begin + halved(end - begin)
                parts = added(begin, middle, apart - 1), added(middle, end, apart - 1)
                return parts[0][0] + parts[1][0], parts[0][1] + parts[1][1]

            leaves = blocks_of(len(batch), block)
            assert leaves == 4
            whole = added(0, leaves, 1)
            for apart in (2, 3):
                statistics, gradients = added(0, leaves, apart)
                assert statistics.tobytes() == whole[0].tobytes()
                assert torch.equal(gradients, whole[1])
                seen.append(name)
        return ""

    monkeypatch.setattr(any_processor, "trained", compare)
    any_processor.TRAININGS[training]()
    assert seen


@pytest.mark.parametrize("training", sorted(WHOLE))
def test_minibatches_without_leaves_are_whole(training: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int | None] = []

    def look(nets: Networks, *_: Any, **__: Any) -> str:
        found.extend(nets.block(name) for name in nets.losses)
        return ""

    monkeypatch.setattr(any_processor, "trained", look)
    any_processor.TRAININGS[training]()
    assert found and set(found) == {None}
