"""Networks that are evaluated together: what the compiled kernel is given, and where in memory the products find their numbers."""

from __future__ import annotations

import gc
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium import spaces
from torch import nn

from reactor_torch import stacked
from reactor_torch.stacked import Batched, Compiled, DenseNetwork, dense_network_of

Array = npt.NDArray[Any]
LINE = 64


def dense(seed: int, *widths: int) -> DenseNetwork:
    torch.manual_seed(seed)
    parts = [part for inputs, outputs in pairwise(widths) for part in (nn.Linear(inputs, outputs), nn.Tanh())]
    network = dense_network_of(nn.Sequential(*parts[:-1]), spaces.Box(-9, 9, widths[:1], np.float32))
    assert network is not None
    return network


def test_products_begin_with_a_cache_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear algebra takes other paths for other alignments: what it multiplies must lie alike in every process."""
    seen: list[int] = []
    multiply = torch.baddbmm

    def spy(*parts: torch.Tensor) -> torch.Tensor:
        seen.extend(part.data_ptr() % LINE for part in parts)
        return multiply(*parts)

    monkeypatch.setattr(stacked.torch, "baddbmm", spy)
    kept = []
    for width in range(1, 12):  # kept, for what is freed would be where the next one begins
        kept.append((Batched((dense(0, width, 3, 2), dense(1, width, 3, 2)), width), np.zeros(width, np.uint8)))
        kept[-1][0]()
    assert seen == [0] * (11 * 2 * 3)


def test_observations_of_compiled_networks_begin_with_a_cache_line() -> None:
    pytest.importorskip("reactor_torch._network")
    kept = [Compiled((dense(0, width, 3),), 2) for width in range(1, 12)]
    assert {one.inputs.ctypes.data % LINE for one in kept} == {0}


def kernel_network(**changes: Any) -> tuple[Any, Array]:
    """One linear layer of the kernel's, of five observations, and the array that its actions come to."""
    kernel = pytest.importorskip("reactor_torch._network")
    actions = np.ones(2, np.int64)
    layers = (("linear", np.zeros((3, 4), np.float32), None, 3, 0.0),)
    arguments = {"observations": np.zeros((5, 2, 4), np.float32), "numbers": 0, "layers": layers}
    return kernel.Network(**(arguments | changes), outputs=np.zeros((2, 3), np.float32), actions=actions), actions


def test_all_networks_of_a_tuple_act() -> None:
    pairs = [kernel_network() for _ in range(3)]
    evaluate = type(pairs[0][0]).greedy_of_all
    assert evaluate((), 0) is None
    assert evaluate(tuple(network for network, _ in pairs[:2]), 4) is None
    assert [actions.tolist() for _, actions in pairs] == [[0, 0], [0, 0], [1, 1]]


def test_what_cannot_act_is_refused() -> None:
    network, actions = kernel_network()
    evaluate = type(network).greedy_of_all
    for several in ([network], network, None):
        with pytest.raises(TypeError, match="tuple"):
            evaluate(several, 0)
    for stranger in (3, None, type(network)):
        with pytest.raises(TypeError, match="networks: expected a tuple of Networks, got "):
            evaluate((network, stranger), 0)
    with pytest.raises(TypeError, match="integer"):
        evaluate((network,), 0.5)
    with pytest.raises(TypeError):
        evaluate((network,))
    actions.fill(1)
    for step in (-1, 5):
        with pytest.raises(IndexError, match=f"there are 5 steps, got step {step}"):
            evaluate((network,), step)
    assert actions.tolist() == [1, 1]
    one_hot, _ = kernel_network(observations=np.full((1, 2), 4), numbers=4)
    with pytest.raises(IndexError, match="must be below 4"):
        evaluate((one_hot,), 0)


def test_no_reference_is_kept() -> None:
    """Neither by a call, whether or not it fails, nor by a network that is gone."""
    network, actions = kernel_network()
    networks, stranger = (network,), object()
    evaluate = type(network).greedy_of_all

    def every() -> list[int]:
        gc.collect()
        return [sys.getrefcount(one) for one in (network, actions, networks, stranger, type(network), None)]

    before = every()
    for _ in range(1000):
        evaluate(networks, 0)
        for wrong, step in (((network, stranger), 0), (networks, 9)):
            with pytest.raises((TypeError, IndexError)):
                evaluate(wrong, step)
        kernel_network()
        with pytest.raises(TypeError):
            kernel_network(avx3=True)
    assert max(abs(after - one) for one, after in zip(before, every(), strict=True)) < 10
