"""Batch renormalisation by the extension: sb3-contrib's modules in double precision, whatever its bounds let through."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import pytest
import torch
from sb3_contrib.common.torch_layers import BatchRenorm1d
from torch import nn

from reactor_torch import Dense, FlatParameters, Layer, Renormalisation, kernels, layers_of

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="no extension")

CLOSE = 2e-5
"""Of the largest gradient."""
WARMUP = 4
SHAPES = [(2, [3, 5, 1]), (8, [1, 1]), (65, [7, 33, 3]), (256, [17, 64, 29, 2]), (130, [200, 1])]
FAR = {"within bounds": 0.0, "beyond bounds": 1.0}
"""How far running statistics are from those of batches."""


def made(widths: list[int], far: float, steps: int, first: str = "renormalised") -> nn.Sequential:
    """Linear layers and ReLUs, and before each of them batch renormalisation."""
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        if modules or first == "renormalised":
            one = BatchRenorm1d(inputs, eps=0.01, momentum=0.3, warmup_steps=WARMUP)
            nn.init.normal_(one.scale)
            nn.init.normal_(one.bias)
            one.ra_mean.copy_(0.3 * torch.randn(inputs) + far * 20 * torch.randn(inputs))
            one.ra_var.copy_(
                (0.5 + torch.rand(inputs)) * (1 if not far else torch.tensor([0.01, 200.0])[torch.randint(2, (inputs,))])
            )
            one.steps.fill_(steps)
            modules.append(one)
        modules += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*modules[:-1])


def dense_of(module: nn.Sequential, width: int, **how: Any) -> Dense:
    layers = layers_of(module.named_children(), width, BatchRenorm1d)
    assert not isinstance(layers, str)
    return Dense(layers, FlatParameters(module.named_parameters()), buffers=dict(module.named_buffers()), **how)


@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
@pytest.mark.parametrize("steps", [0, WARMUP, WARMUP + 1])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    ("rows", "widths"), [(2, [3, 5, 1]), (8, [1, 1]), (65, [7, 33, 3]), (256, [17, 64, 29, 2]), (130, [200, 1])]
)
def test_against_autograd_in_double_precision(rows: int, widths: list[int], training: bool, steps: int, far: float) -> None:
    torch.manual_seed(rows + steps)
    module = made(widths, far, steps)
    exact = copy.deepcopy(module).double().train(training)
    dense = dense_of(module, widths[0], passes_on=True)
    for _ in range(2):  # the second time by what the first one has left
        inputs, slopes = 2 * torch.randn(rows, widths[0]) + 0.5, torch.randn(rows, widths[-1])
        seen = inputs.double().requires_grad_()
        wanted = exact(seen)
        by_inputs, *by_parameters = torch.autograd.grad((wanted * slopes).sum(), [seen, *exact.parameters()])
        dense.flat.gradients.fill_(torch.nan)  # they are overwritten
        found = dense.forward(inputs, training)
        assert (found - wanted).abs().max() <= CLOSE * wanted.abs().max()
        below = dense.through(slopes.clone())
        # By numbers before normalisation they cancel out, to more or less.
        assert (below - by_inputs).abs().max() <= 10 * CLOSE * by_inputs.abs().max() + 1e-6
        expected = torch.cat([one.flatten() for one in by_parameters])
        assert (dense.flat.gradients - expected).abs().max() <= CLOSE * expected.abs().max()
        for one, other in zip(module.buffers(), exact.buffers(), strict=True):
            torch.testing.assert_close(one, other.to(one.dtype), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("far", FAR.values(), ids=FAR)
def test_bounds_are_reached_or_not(far: float) -> None:
    """The cases above are what they say."""
    torch.manual_seed(0)
    one: Any = made([40, 1], far, WARMUP + 1)[0]
    inputs = 2 * torch.randn(64, 40) + 0.5
    width = (one.ra_var + one.eps).sqrt()
    ratio, shift = (inputs.var(0) + one.eps).sqrt() / width, (inputs.mean(0) - one.ra_mean).abs() / width
    beyond = (ratio > one.rmax).any() and (ratio < 1 / one.rmax).any() and (shift > one.dmax).any()
    assert bool(beyond) == bool(far)
    assert not far or ((ratio < one.rmax) & (ratio > 1 / one.rmax)).any() or (shift < one.dmax).any()


@pytest.mark.parametrize("first", ["renormalised", "linear"])
@pytest.mark.parametrize("some", [False, True])
def test_derivatives_by_some_inputs(first: str, some: bool) -> None:
    torch.manual_seed(1)
    module = made([9, 33, 1], 0.0, 9, first).eval()
    inputs = torch.randn(50, 9, requires_grad=True)
    (wanted,) = torch.autograd.grad(module(inputs).sum(), [inputs])
    rows = torch.tensor([1, 7, 7, 49]) if some else None
    dense = dense_of(module, 9)
    dense.forward(inputs.detach())
    found = dense.input_gradient(rows, 6, 0.5)
    torch.testing.assert_close(found, 0.5 * (wanted if rows is None else wanted[rows])[:, 6:], rtol=1e-5, atol=1e-5)


def test_a_column_without_variance() -> None:
    """That of a unit that rectifies everything away; the root of its variance has no slope."""
    torch.manual_seed(2)
    module = made([3, 6, 1], 0.0, 9)
    with torch.no_grad():
        module[1].bias[2] = -100.0  # type: ignore[index]
    dense = dense_of(module, 3)
    inputs = torch.randn(20, 3)
    other = copy.deepcopy(module)
    other(inputs).sum().backward()
    wanted = torch.cat([one.grad.flatten() for one in other.parameters() if one.grad is not None])
    dense.forward(inputs, training=True)
    dense.backward(torch.ones(20, 1))
    assert wanted.isfinite().all() and (dense.flat.gradients - wanted).abs().max() <= CLOSE * wanted.abs().max()


def test_what_it_does_not_know() -> None:
    flat = FlatParameters(nn.Linear(3, 3).named_parameters())
    plain = BatchRenorm1d(3)

    class Own(BatchRenorm1d):
        """Not the host's."""

    assert layers_of([("one", plain)], 3, BatchRenorm1d) == (
        Layer("renormalised", "one", 3, 3, 0.001, Renormalisation(0.01, 3.0, 5.0, 100_000)),
    )
    assert "BatchRenorm1d" in layers_of([("one", plain)], 3)
    assert "given 4 numbers" in layers_of([("one", plain)], 4, BatchRenorm1d)
    assert "Own" in layers_of([("one", Own(3))], 3, BatchRenorm1d)
    assert "affine=False" in layers_of([("one", BatchRenorm1d(3, affine=False))], 3, BatchRenorm1d)
    known = layers_of([("one", plain)], 3, BatchRenorm1d)
    assert not isinstance(known, str) and not Dense.knows(known, flat)


def test_without_the_extension_autograd_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made([3, 4, 1], 0.0, 0)
    layers, flat = layers_of(module.named_children(), 3, BatchRenorm1d), FlatParameters(module.named_parameters())
    assert not isinstance(layers, str) and Dense.knows(layers, flat)
    monkeypatch.setattr(kernels, "compiled", None)
    assert not Dense.knows(layers, flat)
