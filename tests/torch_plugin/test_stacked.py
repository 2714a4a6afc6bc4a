"""Networks that are evaluated together: their values, what the compiled kernel is given, and where products find their numbers."""

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

from reactor_torch import DenseNet, Source, Stacked, as_policy, kernels

Array = npt.NDArray[Any]
LINE = 64

COMPILED = pytest.mark.skipif(kernels.compiled is None, reason="no extension")
WAYS = [pytest.param(True, id="compiled", marks=COMPILED), pytest.param(False, id="torch")]


def source_of(module: nn.Module) -> Source:
    size = next(one.shape[1] for one in module.parameters() if one.ndim == 2)
    found = as_policy(module, spaces.Box(-9, 9, (size,), np.float32), spaces.Discrete(5))
    assert found is not None
    return found


def together(modules: list[nn.Sequential], rows: int) -> Stacked:
    sources = [source_of(one) for one in modules]
    (network, *others) = [one.policy.network for one in sources]
    assert isinstance(network, DenseNet) and all(one == network for one in others)
    return Stacked(network.body, [one.weights() for one in sources], rows)


def by_each(modules: list[nn.Sequential], inputs: Array) -> Stacked:
    found = together(modules, inputs.shape[1])
    found.inputs[...] = inputs
    found()
    return found


@pytest.mark.parametrize("compiled", WAYS)
@pytest.mark.parametrize("activation", [nn.ReLU, nn.Tanh])
@pytest.mark.parametrize(("count", "rows", "widths"), [(1, 1, [3, 2]), (5, 7, [18, 64, 5]), (3, 33, [50, 17, 130, 9])], ids=str)
def test_stacked_networks_give_what_each_gives(
    compiled: bool, activation: Any, count: int, rows: int, widths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(kernels, "compiled", None)
    torch.manual_seed(1)
    networks = []
    for _ in range(count):
        layers = [part for one in pairwise(widths) for part in (nn.Linear(*one), activation())][:-1]
        networks.append(nn.Sequential(*layers[:2], nn.Sequential(nn.Identity(), *layers[2:]), nn.Dropout(0.5)))
    inputs = np.random.default_rng(2).normal(size=(count, rows, widths[0])).astype(np.float32)
    stacked_networks = by_each(networks, inputs)
    for number, network in enumerate(networks):
        expected = network.eval()(torch.from_numpy(inputs[number])).detach().numpy()
        assert np.allclose(stacked_networks.scores[number], expected, rtol=1e-4, atol=1e-5)
    assert stacked_networks.best.dtype == np.int64 and np.array_equal(stacked_networks.best, stacked_networks.scores.argmax(2))


@pytest.mark.parametrize("compiled", WAYS)
def test_layers_without_bias_and_a_softmax_at_the_end(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(kernels, "compiled", None)
    inputs = np.random.default_rng(2).normal(size=(1, 4, 3)).astype(np.float32)
    plain = nn.Sequential(nn.Linear(3, 6, bias=False), nn.Tanh(), nn.Linear(6, 4))
    expected = plain(torch.from_numpy(inputs[0])).detach().numpy()
    for last in (nn.Softmax(-1), nn.LogSoftmax(1), nn.Identity()):
        assert np.allclose(by_each([nn.Sequential(plain, last)], inputs).scores[0], expected, atol=1e-5)


def test_observations_begin_with_a_cache_line() -> None:
    """Linear algebra takes other paths for other alignments: what it multiplies must lie alike in every process."""
    kept = [together([nn.Sequential(nn.Linear(width, 3))], 2) for width in range(1, 12)]
    assert {one.inputs.ctypes.data % LINE for one in kept} == {0}


def kernel_network(observations: Any = None, one_hot: bool = False) -> tuple[Any, Array]:
    """One linear layer of the kernel's, of five observations, and the array that its actions come to."""
    if kernels.compiled is None:
        pytest.skip("no extension")
    actions = np.ones(2, np.int64)
    layer = ("linear", 0, 4, 3, 0.0, np.zeros((3, 4), np.float32), None, None, None, np.zeros((2, 3), np.float32), None)
    network = kernels.compiled.Network(2, (layer,))
    network.observe(np.zeros((5, 2, 4), np.float32) if observations is None else observations, one_hot, actions)
    return network, actions


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
    one_hot, _ = kernel_network(np.full((1, 2), 4), one_hot=True)
    with pytest.raises(IndexError, match="must be below 4"):
        evaluate((one_hot,), 0)


@pytest.mark.slow
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
        with pytest.raises(ValueError, match="observations"):
            kernel_network(observations=np.zeros((5, 2, 3), np.float32))
    assert max(abs(after - one) for one, after in zip(before, every(), strict=True)) < 10
