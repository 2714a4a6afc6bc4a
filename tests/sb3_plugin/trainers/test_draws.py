"""Which networks may draw from torch's generator: our own are trusted by name, so each of them is tried."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn
from trainers import EVALUATED, PLACES, Grainy, each, new, outcome

from reactor_sb3 import PQN, SyncPPO, algorithms
from reactor_sb3.algorithms import pqn_policies
from reactor_torch import draws

pytestmark = pytest.mark.usefixtures("small_blocks")
IMAGES = spaces.Box(0, 255, (4, 36, 36), np.uint8)
NUMBERS = spaces.Box(-1, 1, (3,), np.float32)
TRIED = {"MlpPolicy": NUMBERS, "CnnPolicy": IMAGES, "MultiInputPolicy": spaces.Dict(numbers=NUMBERS, images=IMAGES)}


def classes_below(parent: type) -> Iterator[type]:
    for child in parent.__subclasses__():
        yield child
        yield from classes_below(child)


def drawn(policy: Any, space: spaces.Space[Any]) -> bool:
    """Whether gradients of a network that learns move torch's generator."""
    seen = space.sample()
    tensors = {key: torch.tensor(value)[None] for key, value in (seen if isinstance(seen, dict) else {"": seen}).items()}
    policy.train()
    before = torch.get_rng_state()
    policy.q_net(tensors if isinstance(seen, dict) else tensors[""]).sum().backward()
    return not torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("name", TRIED)
def test_networks_of_pqn_draw_nothing(name: str) -> None:
    policy = getattr(pqn_policies, name)(TRIED[name], spaces.Discrete(2), lambda _: 1e-3)
    assert not drawn(policy, TRIED[name])
    assert not draws(policy)


def test_all_modules_of_ours_are_tried() -> None:
    for module in pkgutil.iter_modules(algorithms.__path__, f"{algorithms.__name__}."):
        importlib.import_module(module.name)
    of_ours = {one for one in classes_below(nn.Module) if one.__module__.startswith("reactor_sb3.")}
    policies = [getattr(pqn_policies, name)(space, spaces.Discrete(2), lambda _: 1e-3) for name, space in TRIED.items()]
    tried = {family for policy in policies for module in policy.modules() for family in type(module).__mro__}
    assert of_ours and of_ours <= tried


class Plain(nn.Module):
    """As users write extractors: of other parts, of torch's functions, and of numbers."""

    scale = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(4, 4)
        self.shift = nn.Parameter(torch.zeros(4))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.cat([nn.functional.relu(self.part(features[:, :4])) * self.scale + self.shift for _ in range(2)], dim=1)


class Shaped(nn.ReLU):
    """One of torch's layers, under a name of the user's."""


class Noisy(nn.Module):
    """Draws by a function that says so."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features + torch.randn_like(features)


class ByMethod(nn.Module):
    """Draws by a method of its own."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.add(features)

    def add(self, features: torch.Tensor) -> torch.Tensor:
        return features + torch.randn_like(features)


def helper(features: torch.Tensor) -> torch.Tensor:
    return features + torch.randn_like(features)


class ByFunction(nn.Module):
    """Draws by a function of the user's."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return helper(features)


class ByAttribute(nn.Module):
    """Has a function of the user's as an attribute that is called like one of torch's."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = helper

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.relu(features)


class ByDefault(nn.Module):
    """Has a function of the user's as the default of an argument."""

    def forward(self, features: torch.Tensor, change: Any = helper) -> torch.Tensor:
        return change(features)  # type: ignore[no-any-return]


class Inherited(Noisy):
    """Has the ``forward`` of one that draws."""


class ByCall(nn.Module):
    """Draws before ``forward``."""

    def __call__(self, features: torch.Tensor) -> torch.Tensor:
        return helper(super().__call__(features))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features


class Dropping(nn.Dropout):
    """Has a name that is like one of ours."""


Dropping.__module__ = "reactor_sb3x.layers"


@pytest.mark.parametrize("part", [Noisy, ByMethod, ByFunction, ByAttribute, ByDefault, Inherited, ByCall])
def test_parts_of_users_that_draw_are_found(part: type[nn.Module]) -> None:
    before = torch.get_rng_state()
    part()(torch.zeros(2, 8))
    assert not torch.equal(before, torch.get_rng_state())
    assert draws(nn.Sequential(nn.Linear(8, 8), part()))


@pytest.mark.parametrize("part", [Plain, Shaped, partial(nn.LSTM, 8, 4), partial(nn.GRUCell, 8, 4)])
def test_parts_that_draw_nothing_need_no_generator(part: Callable[[], nn.Module]) -> None:
    assert not draws(nn.Sequential(nn.Linear(8, 8), part()))


@pytest.mark.parametrize("change", ["hook", "backward", "replaced"])
def test_what_a_user_hangs_onto_a_part_may_draw(change: str) -> None:
    part = Plain()
    if change == "hook":
        part.register_forward_hook(lambda _, __, found: helper(found))
    elif change == "backward":
        part.register_full_backward_hook(lambda _, __, gradients: tuple(map(helper, gradients)))
    else:
        part.forward = lambda features: helper(features)  # type: ignore[method-assign]
    assert draws(part)


@pytest.mark.parametrize("activation", [ByMethod, Dropping, nn.Dropout, nn.RReLU])
def test_modules_that_nobody_knows_count_as_drawing(activation: type[nn.Module]) -> None:
    model = PQN("MlpPolicy", "CartPole-v1", policy_kwargs={"activation_fn": activation})
    assert model.nets.draws and draws(model.policy)
    assert not PQN("MlpPolicy", "CartPole-v1").nets.draws


class Extracting(ActorCriticPolicy):
    """Draws in a method that SB3's ``forward`` calls."""

    def extract_features(self, obs: Any, features_extractor: Any = None) -> Any:
        return nn.functional.dropout(super().extract_features(obs, features_extractor), 0.1, self.training)


class Narrow(ActorCriticPolicy):
    """Makes other layers, and computes nothing otherwise."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "net_arch": [8]})


@pytest.mark.slow
def test_policies_that_compute_otherwise_may_draw() -> None:
    model = SyncPPO(Extracting, "CartPole-v1", n_steps=32, seed=0)
    assert model.nets.draws and model.session.draws and draws(model.policy)
    assert not SyncPPO(Narrow, "CartPole-v1", n_steps=32, seed=0).nets.draws
    weights = set()
    for seed in (1, 2):
        torch.manual_seed(seed)
        with SyncPPO(Extracting, "CartPole-v1", n_actors=2, n_steps=32, n_epochs=1, seed=0, executor="inline") as model:
            weights.add(model.learn(128).fingerprint())
    assert len(weights) == 1


DROPPING = [nn.Dropout, nn.AlphaDropout, nn.RReLU, partial(nn.MultiheadAttention, 4, 2), partial(nn.LSTM, 4, 4, 2, dropout=0.5)]


@pytest.mark.parametrize("part", DROPPING)
def test_dropout_draws_nothing_where_nobody_learns(part: Callable[[], nn.Module]) -> None:
    assert draws(part()) and draws(part().eval())
    assert not draws(part().eval(), learning=False)
    assert draws(part(), learning=False)  # it goes on as in training


def test_a_pooling_that_always_draws() -> None:
    part, images = nn.FractionalMaxPool2d(2, output_size=3).eval(), torch.zeros(1, 1, 8, 8)
    before = torch.get_rng_state()
    part(images)
    assert not torch.equal(before, torch.get_rng_state()) and draws(part, learning=False)


# ---------------------------------------------------------------------- whose numbers actors draw


@pytest.mark.slow
@each
def test_what_networks_draw_where_they_act_is_the_actors_own(algorithm: str) -> None:
    """The program's generator decides about nothing, and is left alone; nor does it matter who else draws."""
    found = []
    grainy = {"net_arch": [16], "features_extractor_class": Grainy}
    for seed, place in enumerate(PLACES):
        with new(algorithm, policy_kwargs=grainy, **EVALUATED, **place) as model:
            torch.manual_seed(seed)
            before = torch.get_rng_state()
            found.append(outcome(model.learn(448)))
            assert torch.equal(before, torch.get_rng_state())
    assert found[0]["evaluations"] and all(one == found[0] for one in found)
