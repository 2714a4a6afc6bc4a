"""Linear layers that the extension computes within autograd's graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from reactor_torch import Batch, Loss, Network, Networks, kernels
from reactor_torch.autograd import _Product

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the extension is not compiled here")

ROWS = 96


@dataclass
class Images(Batch):
    observations: torch.Tensor
    actions: torch.Tensor


@dataclass(frozen=True)
class Twice(Loss):
    """A network is asked about two batches, with gradients by both, and about a third without."""

    learns, statistics = "net", ("loss",)

    def __call__(self, nets: Mapping[str, Any], batch: Images) -> tuple[torch.Tensor, ...]:
        net, seen = nets["net"], batch.observations
        with torch.no_grad():
            wanted = net(seen * 0.5)
        return ((net(seen) - net(seen.flip(0)) - wanted - batch.actions).square().mean(),)


def networks(*modules: nn.Module) -> Networks:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), *modules)
    return Networks({"net": Network(net, torch.optim.Adam(net.parameters()))}, {"loss": Twice()})


def images(seed: int = 0) -> Images:
    generator = torch.Generator().manual_seed(seed)
    return Images(torch.randn(ROWS, 3, 10, 10, generator=generator), torch.randn(ROWS, 4, generator=generator))


def made() -> Networks:
    torch.manual_seed(1)
    return networks(nn.Linear(512, 128), nn.ReLU(inplace=True), nn.Linear(128, 4))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of inputs that the extension was given."""
    found: list[torch.Size] = []
    apply = _Product.apply
    monkeypatch.setattr(_Product, "apply", lambda inputs, *rest: (found.append(inputs.shape), apply(inputs, *rest))[1])
    return found


def test_gradients_are_those_of_torch(calls: list[torch.Size], monkeypatch: pytest.MonkeyPatch) -> None:
    nets = made()
    for seed in range(3):  # memory is used again
        loss = nets.gradients("loss", images(seed))
        ours = nets.flat("net").gradients.clone()
        with monkeypatch.context() as patch:
            patch.setattr("reactor_torch.autograd.LEAST_ROWS", ROWS + 1)
            assert loss == pytest.approx(nets.gradients("loss", images(seed)), rel=1e-5)
        theirs = nets.flat("net").gradients
        assert float((ours - theirs).abs().max()) < 1e-6 * float(theirs.abs().max()) + 1e-7
        assert float(theirs.abs().max()) > 1e-3
    # Two passes of the larger layer; the smaller one, and what nobody differentiates, are torch's.
    assert calls == [torch.Size([ROWS, 512])] * 6


def test_no_rows_are_too_few(calls: list[torch.Size]) -> None:
    made().gradients("loss", images()[slice(0, 8)])
    assert calls == []


def test_modules_are_as_before() -> None:
    nets = made()
    layer = nets["net"][3]
    nets.gradients("loss", images())
    assert "forward" not in vars(layer)
    bad = Images(images().observations, torch.zeros(ROWS, 5))
    with pytest.raises(RuntimeError, match="size of tensor"):
        nets.gradients("loss", bad)
    assert "forward" not in vars(layer)


def test_hooks_and_forwards_of_the_users_own(calls: list[torch.Size]) -> None:
    nets = made()
    seen: list[int] = []
    nets["net"][3].register_forward_hook(lambda module, inputs, out: seen.append(len(out)))
    nets.gradients("loss", images())
    assert seen == [ROWS] * 3
    calls.clear()
    torch.manual_seed(1)
    own = nn.Linear(512, 128)
    own.forward = lambda inputs: 2 * nn.functional.linear(inputs, own.weight, own.bias)  # type: ignore[method-assign]
    networks(own, nn.Linear(128, 4)).gradients("loss", images())
    assert calls == []


def test_after_a_move() -> None:
    nets, other = made(), made()
    flat = nets.flat("net")
    nets.move({"net": (flat.data.clone().mul_(0.5), torch.zeros_like(flat.gradients))})
    other.flat("net").data.mul_(0.5)
    for one in (nets, other):
        one.gradients("loss", images())
    assert torch.equal(nets.flat("net").gradients, other.flat("net").gradients)


def test_inputs_that_are_changed_meanwhile() -> None:
    layers = made().formulas["loss"].layers  # type: ignore[attr-defined]
    (module, _), *_ = layers._layers
    inputs = torch.randn(ROWS, 512)
    with layers:
        out = module(inputs)
    inputs.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_one_kind_gives_the_bits_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    using = kernels.compiled.using()
    try:
        for kind in kernels.compiled.kinds():
            kernels.compiled.use(kind)
            module = nn.Linear(512, 128)
            torch.manual_seed(2)
            nn.init.normal_(module.weight), nn.init.zeros_(module.bias)
            nets = Networks({"net": Network(module, torch.optim.Adam(module.parameters()))}, {"loss": Twice()})
            with nets.formulas["loss"].layers:  # type: ignore[attr-defined]
                out = nets["net"](torch.randn(ROWS, 512, generator=torch.Generator().manual_seed(3)))
            nets.flat("net").begin_gradients()
            out.square().sum().backward()
            found.append(out.detach().numpy().tobytes() + nets.flat("net").gradients.numpy().tobytes())
    finally:
        kernels.compiled.use(using)
    assert len(found) > 1 and len(set(found)) == 1
