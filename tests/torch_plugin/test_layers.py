"""Linear layers and convolutions of modules that the extension computes, within autograd's graph and without; images of bytes."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from reactor_torch import Batch, Calls, Loss, Network, Networks, TorchForward, TorchNet, kernels, parameter_record, write_parameters
from reactor_torch.images import Images
from reactor_torch.layers import CompiledLayers, _Through

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the extension is not compiled here")

ROWS = 96


@dataclass
class Seen(Batch):
    observations: torch.Tensor
    actions: torch.Tensor


@dataclass(frozen=True)
class Twice(Loss):
    """A network is asked about two batches, with gradients by both, and about a third without."""

    learns, statistics = "net", ("loss",)

    def __call__(self, nets: Mapping[str, Any], batch: Seen) -> tuple[torch.Tensor, ...]:
        net, seen = nets["net"], batch.observations
        with torch.no_grad():
            wanted = net(seen * 0.5)
        return ((net(seen) - net(seen.flip(0)) - wanted - batch.actions).square().mean(),)


def networks(*modules: nn.Module) -> Networks:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), *modules)
    return Networks({"net": Network(net, torch.optim.Adam(net.parameters()))}, {"loss": Twice()})


def images(seed: int = 0) -> Seen:
    generator = torch.Generator().manual_seed(seed)
    return Seen(torch.randn(ROWS, 3, 10, 10, generator=generator), torch.randn(ROWS, 4, generator=generator))


def made() -> Networks:
    torch.manual_seed(1)
    return networks(nn.Linear(512, 128), nn.ReLU(inplace=True), nn.Linear(128, 4))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of inputs that the extension was given."""
    found: list[torch.Size] = []
    apply = _Through.apply
    monkeypatch.setattr(_Through, "apply", lambda inputs, *rest: (found.append(inputs.shape), apply(inputs, *rest))[1])
    return found


def test_gradients_are_those_of_torch(calls: list[torch.Size], monkeypatch: pytest.MonkeyPatch) -> None:
    nets = made()
    for seed in range(3):  # memory is used again
        loss = nets.gradients("loss", images(seed))
        ours = nets.flat("net").gradients.clone()
        with monkeypatch.context() as patch:
            patch.setattr("reactor_torch.layers.LEAST_ROWS", ROWS + 1)
            assert loss == pytest.approx(nets.gradients("loss", images(seed)), rel=1e-5)
        theirs = nets.flat("net").gradients
        assert float((ours - theirs).abs().max()) < 1e-6 * float(theirs.abs().max()) + 1e-7
        assert float(theirs.abs().max()) > 1e-3
    # Two passes of the convolution and of the larger layer; the smaller one, and what nobody differentiates, are not among them.
    assert calls == [torch.Size([ROWS, 3, 10, 10]), torch.Size([ROWS, 512])] * 6


def test_no_rows_are_too_few(calls: list[torch.Size]) -> None:
    made().gradients("loss", images()[slice(0, 8)])
    assert calls == []


def test_modules_are_as_before() -> None:
    nets = made()
    layer = nets["net"][3]
    nets.gradients("loss", images())
    assert "forward" not in vars(layer)
    bad = Seen(images().observations, torch.zeros(ROWS, 5))
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
    assert calls == [torch.Size([ROWS, 3, 10, 10])] * 2


def test_after_a_move() -> None:
    nets, other = made(), made()
    flat = nets.flat("net")
    nets.move({"net": (flat.data.clone().mul_(0.5), torch.zeros_like(flat.gradients))})
    other.flat("net").data.mul_(0.5)
    for one in (nets, other):
        one.gradients("loss", images())
    assert torch.equal(nets.flat("net").gradients, other.flat("net").gradients)


def test_inputs_that_are_changed_meanwhile() -> None:
    nets = made()
    layers, module = nets._autograd["net"].layers, nets["net"][3]
    inputs = torch.randn(ROWS, 512)
    with layers:
        out = module(inputs)
    inputs.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# ---------------------------------------------------------------------- convolutions


def compiled(module: nn.Module) -> CompiledLayers:
    return CompiledLayers(module, dict(module.named_parameters()).get, kernels.compiled)


def nature() -> nn.Sequential:
    torch.manual_seed(1)
    convolutions = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(64 * 4 * 4, 5))


class Residual(nn.Module):
    """As in IMPALA's network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return given + self.second(torch.relu(self.first(torch.relu(given))))  # type: ignore[no-any-return]


def impala() -> nn.Sequential:
    torch.manual_seed(1)
    shared = Residual()  # called twice before the first way back
    return nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.MaxPool2d(3, 2, 1), shared, shared, nn.ReLU(), nn.Flatten())


def mixed() -> nn.Sequential:
    """Of what the extension computes, and what it does not."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(4, 8, (5, 3), (2, 3), (1, 2)), nn.Tanh(), nn.Conv2d(8, 8, 3, groups=2), nn.Conv2d(8, 12, 2, dilation=2),
        nn.Conv2d(12, 6, 2, padding="valid"), nn.BatchNorm2d(6), nn.Conv2d(6, 10, 1), nn.Conv2d(10, 7, 2),
        nn.ReLU(inplace=True), nn.ReLU(), nn.Conv2d(7, 3, 2, bias=False),
        nn.Conv2d(3, 5, 2, padding=1, padding_mode="circular"), nn.Flatten(),
    )  # fmt: skip


def both_ways(module: nn.Module, inputs: torch.Tensor) -> list[torch.Tensor]:
    """Outputs, and gradients of parameters and inputs."""
    inputs = inputs.clone().requires_grad_()
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    out = module(inputs)
    (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
    return [out.detach(), inputs.grad, *(parameter.grad for parameter in module.parameters())]  # type: ignore[list-item]


@pytest.mark.parametrize(("make", "count"), [(nature, 1), (impala, 5), (mixed, 2)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_convolutions_are_those_of_torch(make: Any, count: int, layout: Any, calls: list[torch.Size]) -> None:
    module = make()
    inputs = torch.randn(20, 4, 64, 64, generator=torch.Generator().manual_seed(0)).contiguous(memory_format=layout)
    exact = both_ways(copy.deepcopy(module).double(), inputs.double())
    theirs = both_ways(module, inputs)
    with compiled(module):
        for _ in range(2):  # memory is used again
            for one, other, right in zip(both_ways(module, inputs), theirs, exact, strict=True):
                errors = [float((part - right).abs().max()) for part in (one, other)]
                assert errors[0] < 2 * errors[1] + 1e-6 * float(right.abs().max())
        with torch.no_grad():
            assert torch.allclose(module(inputs), theirs[0], atol=1e-5)
    assert len(calls) == 2 * count
    assert all(torch.equal(one, other) for one, other in zip(both_ways(module, inputs), theirs, strict=True))  # torch again


def test_modules_within_that_have_hooks_are_called() -> None:
    module, seen = nature(), []
    module[2].register_forward_hook(lambda module, inputs, out: seen.append(out.shape))
    with compiled(module):
        module(torch.randn(20, 4, 64, 64))
    assert seen == [(20, 64, 6, 6)]


def test_who_calls_modules_within_gets_what_each_gives() -> None:
    module, inputs = nature(), torch.randn(20, 4, 64, 64)
    with compiled(module):
        step_by_step = inputs
        for part in module:
            step_by_step = part(step_by_step)
            if isinstance(part, nn.ReLU):
                assert float(step_by_step.detach().min()) == 0.0
        assert torch.equal(step_by_step, module(inputs))


class Skipping(nn.Module):
    """Whose addition hands one gradient to both of what it adds."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU())

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        pooled = nn.functional.adaptive_avg_pool2d(given, 1)
        return self.inner(pooled) + pooled  # type: ignore[no-any-return]


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_gradient_that_others_have_too_stays_as_it_is(layout: Any, calls: list[torch.Size]) -> None:
    torch.manual_seed(1)
    module, inputs = Skipping(), torch.randn(20, 4, 6, 6).contiguous(memory_format=layout)
    theirs = both_ways(module, inputs)
    with compiled(module):
        for one, other in zip(both_ways(module, inputs), theirs, strict=True):
            assert torch.allclose(one, other, atol=1e-6)
    assert len(calls) == 1


def test_who_goes_back_twice_has_a_pass_to_itself() -> None:
    """A loss may weigh its parts by their gradients, and go on with the same graph."""
    module, inputs = nature(), torch.randn(20, 4, 64, 64)
    weight = module[0].weight

    def weighed() -> list[torch.Tensor]:
        first, second = module(inputs), module(inputs * 0.5)
        (early,) = torch.autograd.grad(first.sum(), weight, retain_graph=True)
        third = module(inputs * 2)  # must not be computed where the first one is
        module.zero_grad()
        (first.square().sum() * early.abs().mean() + second.sum() + third.sum()).backward()
        return [one.grad.clone() for one in module.parameters()]  # type: ignore[union-attr]

    theirs = weighed()
    with compiled(module):
        for _ in range(2):
            for one, other in zip(weighed(), theirs, strict=True):
                assert torch.allclose(one, other, rtol=1e-3, atol=1e-3 * float(other.abs().max()))


@pytest.mark.parametrize("shape", [(20, 4, 7, 64), (20, 3, 64, 64), (20, 4, 10, 10)])
def test_images_that_do_not_fit_get_torch_s_error(shape: tuple[int, ...]) -> None:
    module = nature()
    with compiled(module), pytest.raises(RuntimeError, match=r"channels|Kernel size"):
        module(torch.randn(shape))


# ---------------------------------------------------------------------- images of bytes


def pictures(rows: int = 20) -> torch.Tensor:
    return torch.randint(0, 256, (rows, 4, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_all_bytes_are_divided_as_torch_divides() -> None:
    convolution = nn.Conv2d(1, 1, 1)
    nn.init.ones_(convolution.weight), nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
    every = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    with compiled(convolution), torch.no_grad():
        assert torch.equal(convolution(Images.of(every).float() / 255), every.float() / 255)
        assert torch.equal(convolution(Images.of(every).float()), every.float())


@pytest.mark.parametrize("make", [nature, impala, mixed])
@pytest.mark.parametrize("channels", [4, 3])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_bytes_give_the_bits_of_numbers(make: Any, channels: int, layout: Any) -> None:
    module, images = make(), pictures()[:, :channels].contiguous(memory_format=layout)
    if channels == 3:
        module[0] = nn.Conv2d(3, module[0].out_channels, module[0].kernel_size, module[0].stride, module[0].padding)
    found = []
    with compiled(module):
        for seen in (images.float() / 255.0, Images.of(images).float() / 255.0):
            for parameter in module.parameters():
                parameter.grad = torch.zeros_like(parameter)
            out = module(seen)
            out.square().sum().backward()
            found.append([out.detach(), *(parameter.grad for parameter in module.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_images_are_numbers_for_everybody_else() -> None:
    images = pictures(3)
    seen, wanted = Images.of(images).float() / 255, images.float() / 255
    assert isinstance(seen, torch.Tensor) and seen.dtype == torch.float32 and seen.shape == images.shape and len(seen) == 3
    assert torch.equal(seen, wanted) and type(seen + 1) is torch.Tensor and torch.equal(seen[1], wanted[1])
    assert torch.equal(torch.cat([seen, 2 * seen]), torch.cat([wanted, 2 * wanted]))
    assert torch.equal(nn.functional.interpolate(seen, scale_factor=2), nn.functional.interpolate(wanted, scale_factor=2))
    assert Images.of(images).dtype == torch.uint8 and torch.equal(Images.of(images), images)
    assert torch.equal(Images.of(images).float() / 2, images.float() / 2)
    assert torch.equal(Images.of(images).float() / torch.tensor(255.0), wanted)


def test_images_that_somebody_has_changed() -> None:
    module, images = nature(), pictures()
    seen = Images.of(images).float()
    seen.sub_(127.5)
    with compiled(module), torch.no_grad():
        assert torch.equal(module(seen), module(images.float() - 127.5))


# ---------------------------------------------------------------------- who acts


def test_actors_see_with_the_extension_and_views_of_weights_go_at_once() -> None:
    class Seeing(nn.Sequential):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return super().forward(given.float() / 255.0)  # type: ignore[no-any-return]

    module = Seeing(nature())
    record = parameter_record(module.state_dict())
    weights = np.zeros((), record)
    write_parameters(weights, module.state_dict())
    images = np.stack([pictures(3).numpy(), pictures(6).numpy()[3:]])
    bound = TorchNet(TorchForward(copy.deepcopy(module), keyed=False), Calls()).bind(weights, {"": images}, judges=False)
    for step in range(2):
        wanted = module(torch.from_numpy(images[step])).detach()
        assert np.allclose(bound.outputs(step), wanted.numpy(), rtol=1e-4)
    weights["0.0.weight"] *= 0.5  # they are read where they lie
    assert not np.allclose(bound.outputs(1), wanted.numpy(), rtol=1e-2)
    gone = weakref.ref(weights["0.0.weight"].base if weights["0.0.weight"].base is not None else weights)
    gc.disable()
    try:
        del bound, weights
        assert gone() is None
    finally:
        gc.enable()
