"""Flat parameters go on being the network's own, whatever is done to it; optimisers over them step as torch's."""

from __future__ import annotations

import copy
import io
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.utils import polyak_update
from torch import nn

from reactor_torch import FlatOptimizer, FlatParameters
from reactor_torch.flat import FADED

OPTIMIZERS: dict[str, Any] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=3e-3, eps=1e-5),
    "Adam, betas, decay": lambda p: torch.optim.Adam(p, lr=3e-3, betas=(0.8, 0.95), weight_decay=0.1),
    "Adam, fused": lambda p: torch.optim.Adam(p, lr=3e-3, fused=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=3e-3, weight_decay=0.1),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=3e-3, weight_decay=0.1),
    "RAdam, decoupled": lambda p: torch.optim.RAdam(p, lr=3e-3, weight_decay=0.1, decoupled_weight_decay=True),
    "Adam, amsgrad": lambda p: torch.optim.Adam(p, lr=3e-3, amsgrad=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=3e-3, momentum=0.9),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=3e-3, alpha=0.9, eps=1e-5),
    "RMSprop, decay": lambda p: torch.optim.RMSprop(p, lr=3e-3, weight_decay=0.1),
    "RMSprop, momentum": lambda p: torch.optim.RMSprop(p, lr=3e-3, momentum=0.9),
    "RMSprop, centered": lambda p: torch.optim.RMSprop(p, lr=3e-3, centered=True),
    "a tensor as learning rate": lambda p: torch.optim.Adam(p, lr=torch.tensor(3e-3)),
    "two groups": lambda p: torch.optim.Adam([{"params": p[:1], "lr": 1e-2}, {"params": p[1:]}], lr=3e-3),
}
AT_ONCE = {
    "Adam", "Adam, betas, decay", "Adam, fused", "AdamW", "RAdam", "RAdam, decoupled", "RMSprop", "RMSprop, decay",
}  # fmt: skip


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def flat_of(module: nn.Module) -> FlatParameters:
    return FlatParameters(module.named_parameters())


def is_bound(flat: FlatParameters, module: nn.Module) -> bool:
    """Whether what is written to the array is seen by the module, and the other way round."""
    flat.data.copy_(torch.arange(len(flat.data)))
    flat.gradients.copy_(-flat.data)
    values = torch.cat([one.detach().flatten() for one in module.parameters()])
    gradients = [torch.zeros_like(one) if one.grad is None else one.grad for one in module.parameters()]
    return torch.equal(values, flat.data) and torch.equal(torch.cat([one.flatten() for one in gradients]), flat.gradients)


def test_values_stay_and_are_views() -> None:
    module = network()
    before = copy.deepcopy(module.state_dict())
    flat = flat_of(module)
    assert flat.names == tuple(before)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert is_bound(flat, module)


def load(module: nn.Module) -> None:
    module.load_state_dict(network().state_dict())


def replace_gradients(module: nn.Module) -> None:
    module.zero_grad(set_to_none=True)
    module(torch.ones(2, 3)).sum().backward()


def replace_values(module: nn.Module) -> None:
    for one in module.parameters():
        one.data = one.data.clone()


def move(module: nn.Module) -> None:
    module.to("cpu").float()


@pytest.mark.parametrize("happens", [load, replace_gradients, replace_values, move])
def test_what_happens_to_modules(happens: Any) -> None:
    module = network()
    flat = flat_of(module)
    flat.data.add_(1)
    happens(module)
    expected = [one.detach().clone() for one in module.parameters()]
    flat.bind()
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), expected, strict=True))
    assert is_bound(flat, module)


def test_a_parameter_that_is_turned_in_its_place_is_bound_again() -> None:
    module = nn.Linear(3, 3)
    flat = flat_of(module)
    turned = module.weight.detach().t().clone()
    module.weight.data = module.weight.data.t()
    flat.bind()
    assert torch.equal(module.weight, turned)
    assert is_bound(flat, module)


def test_a_network_that_has_become_another_kind_is_refused() -> None:
    module = network()
    flat = flat_of(module)
    module.double()
    with pytest.raises(TypeError, match=r"'0\.weight' is torch\.float64 on cpu.*make its learner again"):
        flat.bind()
    with pytest.raises(TypeError, match=r"float32"):
        flat_of(module)
    with pytest.raises(TypeError, match=r"meta"):
        FlatParameters([("a", nn.Parameter(torch.zeros(1))), ("b", nn.Parameter(torch.zeros(1, device="meta")))])
    with pytest.raises(ValueError, match="all are frozen"):
        flat_of(module.requires_grad_(False))


def test_copies_are_apart() -> None:
    module = network()
    flat = flat_of(module)
    optimizer = FlatOptimizer(torch.optim.Adam(module.parameters()), flat)
    other, other_optimizer = copy.deepcopy((module, optimizer))
    other_optimizer.bind()
    before = flat.data.clone()
    other_optimizer.flat.gradients.fill_(1)
    other_optimizer.step()
    assert torch.equal(flat.data, before)
    assert is_bound(other_optimizer.flat, other)
    assert not torch.equal(other_optimizer.flat.data, before)
    assert is_bound(flat, module)


def test_a_parameter_with_two_names_is_one() -> None:
    module = network()
    named = [*module.named_parameters(), ("again", module[0].weight)]
    flat = FlatParameters(named)
    assert flat.names == ("0.weight", "0.bias", "2.weight", "2.bias")
    assert flat.value("again") is None
    assert is_bound(flat, module)


@pytest.mark.parametrize("scale", [0.01, 100.0, float("nan"), float("inf")])
def test_clip(scale: float) -> None:
    module = network()
    flat = flat_of(module)
    other = copy.deepcopy(module)
    module(torch.ones(2, 3)).sum().backward()
    flat.gradients.mul_(scale)
    for one, gradient in zip(other.parameters(), module.parameters(), strict=True):
        one.grad = gradient.grad.clone() if gradient.grad is not None else None
    torch.nn.utils.clip_grad_norm_(other.parameters(), 0.5)
    flat.clip(0.5)
    for one, theirs in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, theirs.grad, equal_nan=True)


def test_gradients_that_are_short_enough_are_not_made_longer() -> None:
    flat = flat_of(network())
    flat.gradients.fill_(0.4 / len(flat.gradients) ** 0.5)
    before = flat.gradients.clone()
    flat.clip(0.5)
    assert torch.equal(flat.gradients, before)


@pytest.mark.parametrize("tau", [1.0, 0.25, 0.0])
def test_blend(tau: float) -> None:
    source, target = network(), network()
    nn.init.ones_(source[0].weight)
    expected = copy.deepcopy(target)
    polyak_update(source.parameters(), expected.parameters(), tau)
    FlatParameters(target.named_parameters(), learned=False).blend(flat_of(source), tau)
    for one, theirs in zip(target.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, theirs)


def test_one_that_nobody_learns_has_no_gradients_and_takes_frozen_ones() -> None:
    module = network().requires_grad_(False)
    flat = FlatParameters(module.named_parameters(), learned=False)
    assert len(flat.gradients) == 0
    assert flat.names == tuple(module.state_dict())
    assert all(one.grad is None for one in module.parameters())


def test_values_and_gradients_are_moved() -> None:
    module, rows = network(), torch.randn(4, 3)
    flat = flat_of(module)
    there = flat.data * 2
    flat.move(there, gradients := torch.full_like(there, float("nan")))
    assert flat.data is there and torch.equal(torch.cat([one.data.flatten() for one in module.parameters()]), there)
    flat.begin_gradients()
    module(rows).sum().backward()
    expected = torch.autograd.grad(module(rows).sum(), list(module.parameters()))
    assert torch.equal(gradients, torch.cat([one.flatten() for one in expected]))
    there.zero_()
    assert not any(one.any() for one in module.parameters())
    flat.move(torch.ones_like(there))
    assert flat.gradients is gradients and all((one == 1).all() for one in module.parameters())


def gradients(number: int, flat: FlatParameters) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(number).normal(size=len(flat.data)).astype(np.float32))


def twins(name: str) -> tuple[nn.Module, Any, FlatParameters, FlatOptimizer]:
    """A network with torch's optimiser, and the same flat."""
    theirs, ours = network(), network()
    plain, own = (OPTIMIZERS[name](list(module.parameters())) for module in (theirs, ours))
    flat = flat_of(ours)
    return theirs, plain, flat, FlatOptimizer(own, flat)


def step_both(number: int, theirs: nn.Module, plain: Any, flat: FlatParameters, own: FlatOptimizer) -> None:
    given = gradients(number, flat)
    for one, view in zip(theirs.parameters(), flat.views(given), strict=True):
        one.grad = view.clone()
    plain.step()
    flat.gradients.copy_(given)
    own.step()
    expected = torch.cat([one.detach().flatten() for one in theirs.parameters()])
    assert (flat.data - expected).abs().max() < 2e-7


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_torchs(name: str) -> None:
    theirs, plain, flat, own = twins(name)
    assert own.at_once == (name in AT_ONCE)
    for number in range(30):
        if number == 10 and "tensor" not in name:
            for group in (*plain.param_groups, *own.optimizer.param_groups):
                group["lr"] *= 0.5  # as schedules do
        step_both(number, theirs, plain, flat, own)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_goes_to_torch_and_comes_from_it(name: str) -> None:
    """Through a file, as SB3 saves it; and the optimiser's own step goes on from the same moments."""
    theirs, plain, flat, own = twins(name)
    for number in range(8):
        step_both(number, theirs, plain, flat, own)

    def through_a_file(given: Any) -> Any:
        file = io.BytesIO()
        torch.save(given, file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    from_ours, from_theirs = through_a_file(own.optimizer.state_dict()), through_a_file(plain.state_dict())
    assert from_ours["param_groups"] == from_theirs["param_groups"]
    for index, state in from_theirs["state"].items():
        assert state.keys() == from_ours["state"][index].keys()
        for part, value in state.items():
            torch.testing.assert_close(from_ours["state"][index][part], value)
    plain.load_state_dict(from_ours)
    own.optimizer.load_state_dict(from_theirs)
    own.bind()
    assert own.at_once == (name in AT_ONCE)
    for number in range(8, 12):
        step_both(number, theirs, plain, flat, own)
    own.optimizer.step()  # and torch's own
    for one, view in zip(theirs.parameters(), flat.views(gradients(11, flat)), strict=True):
        one.grad = view.clone()
    plain.step()
    own.bind()
    step_both(12, theirs, plain, flat, own)


@pytest.mark.parametrize(("name", "moment"), [("Adam", "exp_avg"), ("RMSprop", "square_avg")])
def test_moments_that_have_faded_are_dropped(name: str, moment: str) -> None:
    """Denormal numbers, which cost processors many times as much; the weights are what they are with them."""
    theirs, plain, flat, own = twins(name)
    step_both(0, theirs, plain, flat, own)
    flat.gradients.zero_()
    for one in theirs.parameters():
        one.grad = torch.zeros_like(one)
    moments = [state[moment] for state in own.optimizer.state.values()]
    faded = []
    for _ in range(1100):
        plain.step()
        own.step()
        largest = max(float(one.abs().max()) for one in moments)
        faded.append(0 < largest < torch.finfo(torch.float32).tiny)
    assert 0 < sum(faded) <= FADED
    assert not any(one.any() for one in moments)
    step_both(1, theirs, plain, flat, own)


def test_a_state_that_begins_in_the_middle() -> None:
    """Parameters that have been stepped unequally often are stepped one by one."""
    theirs, plain, flat, own = twins("Adam")
    for number in range(2):
        step_both(number, theirs, plain, flat, own)
    for optimizer in (plain, own.optimizer):
        state = copy.deepcopy(optimizer.state_dict())
        state["state"][1]["step"] += 3
        optimizer.load_state_dict(state)
    own.bind()
    assert not own.at_once
    for number in range(2, 5):
        step_both(number, theirs, plain, flat, own)


def test_an_optimiser_of_other_parameters_is_refused() -> None:
    with pytest.raises(ValueError, match="make both from the same network"):
        FlatOptimizer(torch.optim.Adam(network().parameters()), flat_of(network()))
