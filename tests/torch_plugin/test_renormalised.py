"""Batch renormalisation by the extension: what is not a kind of layer. The contract of layers has the others."""

from __future__ import annotations

import copy

import pytest
import torch
from sb3_contrib.common.torch_layers import BatchRenorm1d
from torch import nn

from reactor_torch import Dense, FlatParameters, Layer, Renormalisation, kernels, layers_of

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="no extension")


def made() -> nn.Sequential:
    """Linear layers, and before each of them batch renormalisation, past its warm-up."""
    first, second = (BatchRenorm1d(inputs, eps=0.01, momentum=0.3, warmup_steps=4) for inputs in (3, 6))
    for one in (first, second):
        one.ra_mean.normal_()
        one.ra_var.uniform_(0.5, 1.5)
        one.steps.fill_(9)
    return nn.Sequential(first, nn.Linear(3, 6), nn.ReLU(), second, nn.Linear(6, 1))


def test_a_column_without_variance() -> None:
    """That of a unit that rectifies everything away; the root of its variance has no slope."""
    torch.manual_seed(2)
    module = made()
    with torch.no_grad():
        module[1].bias[2] = -100.0  # type: ignore[index]
    layers = layers_of(module.named_children(), 3, BatchRenorm1d)
    assert not isinstance(layers, str)
    dense = Dense(layers, FlatParameters(module.named_parameters()), buffers=dict(module.named_buffers()))
    inputs = torch.randn(20, 3)
    other = copy.deepcopy(module)
    other(inputs).sum().backward()
    wanted = torch.cat([one.grad.flatten() for one in other.parameters() if one.grad is not None])
    dense.forward(inputs, training=True)
    dense.backward(torch.ones(20, 1))
    assert wanted.isfinite().all() and (dense.flat.gradients - wanted).abs().max() <= 2e-5 * wanted.abs().max()


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
    module = made()
    layers, flat = layers_of(module.named_children(), 3, BatchRenorm1d), FlatParameters(module.named_parameters())
    assert not isinstance(layers, str) and Dense.knows(layers, flat)
    monkeypatch.setattr(kernels, "compiled", None)
    assert not Dense.knows(layers, flat)
