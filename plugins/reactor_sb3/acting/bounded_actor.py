"""How actors evaluate the actors of SAC and TD3, whose actions lie between -1 and 1: without torch where they are dense layers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.sac.policies import LOG_STD_MAX, LOG_STD_MIN
from stable_baselines3.sac.policies import Actor as SACActor
from stable_baselines3.td3.policies import Actor as TD3Actor
from torch import nn

from reactor_sb3.acting.networks import layered_of
from reactor_sb3.acting.plain_policy import Bounds, Observed
from reactor_sb3.acting.policy_networks import TorchStructure
from reactor_torch import Layered, layers_of, torch_state, torch_stream

__all__ = ["BoundActor", "BoundedActor", "bounded_actor_of", "is_plain_actor"]

Array = npt.NDArray[Any]
_METHODS = ("forward", "_predict", "extract_features", "get_action_dist_params")


class BoundActor(Protocol):
    """An actor's network whose parameters are views of one slot, looking at the observations of another one."""

    def __call__(self, step: int) -> Array:
        """Actions without chance, as environments are given them, ``(envs, *shape)``."""

    def begin_round(self, random: np.random.Generator) -> Callable[[int], Array]:
        """Draw what chance decides in a round.

        Returns:
            From a step to the network's own actions, ``(envs, n)``, float32, between -1 and 1; valid until the next call.
        """


class BoundedActor(Protocol):
    """The structure of an actor's network, light enough to travel."""

    @property
    def bounds(self) -> Bounds:
        """Of the environments' actions."""

    def bind(self, parameters: Array, observations: Observed) -> BoundActor:
        """The network with its weights in a record of parameters, for observations ``(steps, envs, ...)``, by key."""


def is_plain_actor(actor: nn.Module) -> bool:
    """Whether an actor is SB3's own, and does nothing else with its layers."""
    kind: type[nn.Module] = SACActor if isinstance(actor, SACActor) else TD3Actor
    own = any(getattr(type(actor), name, None) is not getattr(kind, name, None) for name in _METHODS)
    squashed = type(getattr(actor, "action_dist", None)) in (type(None), SquashedDiagGaussianDistribution)
    return isinstance(actor, kind) and squashed and not own


def bounded_actor_of(actor: BasePolicy) -> BoundedActor:
    """The structure of an actor's network, as light to evaluate as possible.

    Args:
        actor: SAC's or TD3's, or a whole policy that predicts in a way of its own.
    """
    assert isinstance(actor.action_space, spaces.Box)
    bounds = Bounds(actor.action_space.low, actor.action_space.high, squashed=True)
    if is_plain_actor(actor):
        dense = _gaussian_of(actor, bounds) if isinstance(actor, SACActor) else _deterministic_of(actor, bounds)
        if dense is not None:
            return dense
    return TorchActor(TorchStructure(actor, isinstance(actor.observation_space, spaces.Dict)), bounds)


# ---------------------------------------------------------------------- SAC's, of dense layers


@dataclass(frozen=True)
class SquashedGaussian:
    """Actions that a Gaussian gives and tanh makes fit (Haarnoja et al. 2018).

    Attributes:
        body: What both heads go on from.
        mean: Head for the means.
        log_std: Head for the logarithms of the standard deviations.
        bounds: Of the environments' actions.
    """

    body: Layered
    mean: Layered
    log_std: Layered
    bounds: Bounds

    def bind(self, parameters: Array, observations: Observed) -> BoundActor:
        """See :class:`BoundedActor`."""
        return SquashedGaussianEvaluation(self, parameters, observations[""])


class SquashedGaussianEvaluation:
    """Such an actor with its weights; the heads look at what the body gives."""

    def __init__(self, actor: SquashedGaussian, parameters: Array, observations: Array) -> None:
        self.bounds, self.steps = actor.bounds, len(observations)
        self.body, features = actor.body.evaluated(parameters, observations)
        self.mean, self.means = actor.mean.evaluated(parameters, features[None])
        self.log_std, self.log_stds = actor.log_std.evaluated(parameters, features[None])

    def __call__(self, step: int) -> Array:
        """See :class:`BoundActor`."""
        self.body(step)
        self.mean(0)
        return self.bounds(np.tanh(self.means).reshape(-1, *self.bounds.low.shape))

    def begin_round(self, random: np.random.Generator) -> Callable[[int], Array]:
        """See :class:`BoundActor`."""
        noise = random.standard_normal((self.steps, *self.means.shape), np.float32)
        body, mean, log_std, means, log_stds = self.body, self.mean, self.log_std, self.means, self.log_stds
        low, high = np.float32(LOG_STD_MIN), np.float32(LOG_STD_MAX)
        drawn = np.empty_like(means)

        def draw(step: int) -> Array:
            body(step)
            mean(0)
            log_std(0)
            np.exp(np.clip(log_stds, low, high, drawn), drawn)
            np.multiply(drawn, noise[step], drawn)
            np.add(drawn, means, drawn)
            return np.tanh(drawn, drawn)

        return draw


def _gaussian_of(actor: SACActor, bounds: Bounds) -> SquashedGaussian | None:
    body = layered_of(actor, actor.observation_space, "latent_pi")
    if body is None or not body.layers:
        return None
    width = body.layers[-1].outputs
    layers = [layers_of([(name, getattr(actor, name))], width) for name in ("mu", "log_std")]
    mean, log_std = (None if head is None else Layered(head, width, one_hot=False) for head in layers)
    return None if mean is None or log_std is None else SquashedGaussian(body, mean, log_std, bounds)


# ---------------------------------------------------------------------- TD3's, of dense layers


@dataclass(frozen=True)
class Deterministic:
    """Actions without chance (Fujimoto et al. 2018).

    Attributes:
        layers: The last one is a tanh.
        bounds: Of the environments' actions.
    """

    layers: Layered
    bounds: Bounds

    def bind(self, parameters: Array, observations: Observed) -> BoundActor:
        """See :class:`BoundedActor`."""
        return DeterministicEvaluation(self, parameters, observations[""])


class DeterministicEvaluation:
    """Such an actor with its weights."""

    def __init__(self, actor: Deterministic, parameters: Array, observations: Array) -> None:
        self.bounds = actor.bounds
        self.evaluate, self.actions = actor.layers.evaluated(parameters, observations)

    def __call__(self, step: int) -> Array:
        """See :class:`BoundActor`."""
        return self.bounds(self._own(step).reshape(-1, *self.bounds.low.shape))

    def begin_round(self, random: np.random.Generator) -> Callable[[int], Array]:
        """See :class:`BoundActor`."""
        return self._own

    def _own(self, step: int) -> Array:
        self.evaluate(step)
        return self.actions


def _deterministic_of(actor: nn.Module, bounds: Bounds) -> Deterministic | None:
    space: Any = actor.observation_space
    layers = layered_of(actor, space, "mu")
    return None if layers is None else Deterministic(layers, bounds)


# ---------------------------------------------------------------------- any, by torch


@dataclass(frozen=True)
class TorchActor:
    """Any actor: it draws by itself, from torch's generator, if it draws.

    Attributes:
        structure: The actor.
        bounds: Of the environments' actions.
    """

    structure: TorchStructure
    bounds: Bounds

    def bind(self, parameters: Array, observations: Observed) -> BoundActor:
        """See :class:`BoundedActor`."""
        return TorchActorEvaluation(self, parameters, observations)


class TorchActorEvaluation:
    """Such an actor with its weights."""

    def __init__(self, actor: TorchActor, parameters: Array, observations: Observed) -> None:
        self.structure, self.bounds = actor.structure, actor.bounds
        self.network: Any = actor.structure.with_weights(parameters)
        self.observations = actor.structure.tensors(observations)

    def __call__(self, step: int) -> Array:
        """See :class:`BoundActor`."""
        return self.bounds(self._own(step, deterministic=True).reshape(-1, *self.bounds.low.shape))

    def begin_round(self, random: np.random.Generator) -> Callable[[int], Array]:
        """See :class:`BoundActor`."""
        state = torch_state(int(random.integers(2**63)))

        def draw(step: int) -> Array:
            with torch_stream(state):
                return self._own(step, deterministic=False)

        return draw

    def _own(self, step: int, *, deterministic: bool) -> Array:
        with torch.inference_mode():
            actions: Array = self.network._predict(self.structure.of_step(self.observations, step), deterministic).numpy()
        return actions
