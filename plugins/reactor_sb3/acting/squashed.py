"""How actors of SAC and TD3 act: as their network says, with action noise, and at random until learning starts.

Actions of the policy lie between -1 and 1, as those of SB3's policies with ``squash_output=True``. Dense layers are evaluated
without torch; any other actor, and a policy that predicts in a way of its own, draws by itself from torch's generator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.noise import ActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.sac.policies import LOG_STD_MAX, LOG_STD_MIN
from stable_baselines3.sac.policies import Actor as SACActor
from torch import nn

from reactor_sb3.acting.forwards import torch_forward
from reactor_sb3.acting.noise import ActionNoises
from reactor_sb3.acting.policy import Bounds, Field, Rollout, Turn
from reactor_sb3.policies import GaussianActor, dense_actor
from reactor_torch import DenseForward, TorchForward

__all__ = ["SquashedPolicy"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SquashedPolicy:
    """The :class:`~reactor_sb3.acting.policy.Policy` of an actor whose actions lie between -1 and 1.

    Attributes:
        actor: Structure of the actor: SAC's or TD3's of dense layers, or any other.
        action_space: Of the environments.
        action_noise: What is added to actions between -1 and 1, if anything is.
    """

    actor: GaussianActor | DenseForward | TorchForward
    action_space: spaces.Box
    action_noise: ActionNoise | None

    @classmethod
    def of(
        cls,
        policy: Any,
        plain: type[BasePolicy],
        action_noise: ActionNoise | None,
        gaussian: type[nn.Module] = SACActor,
        renormalising: type[nn.Module] | None = None,
    ) -> tuple[nn.Module, SquashedPolicy]:
        """The network that acts, and its structure, as light to evaluate as possible.

        Args:
            policy: One of SB3's.
            plain: The class of SB3's that it derives from: if it predicts in a way of its own, the whole of it acts.
            action_noise: See :attr:`action_noise`.
            gaussian: See :func:`~reactor_sb3.policies.actor_reason`.
            renormalising: See :func:`~reactor_torch.layers_of`.
        """
        acting: BasePolicy = policy.actor if type(policy)._predict is plain._predict else policy
        actor = dense_actor(acting, gaussian, renormalising)
        return acting, cls(torch_forward(acting, actor) if isinstance(actor, str) else actor, policy.action_space, action_noise)

    @property
    def bounds(self) -> Bounds:
        """Of the environments' actions."""
        return Bounds(self.action_space.low, self.action_space.high, squashed=True)

    @property
    def fields(self) -> tuple[Field, ...]:
        return Bounds.fields(self.action_space)

    @property
    def draws(self) -> bool:
        return isinstance(self.actor, TorchForward)

    def memory(self, envs: range) -> ActionNoises | None:
        """The action noise of each environment."""
        return None if self.action_noise is None else ActionNoises(self.action_noise, envs)

    def bind(self, weights: Array, rollout: Rollout) -> BoundSquashedPolicy:
        match self.actor:
            case GaussianActor():
                return BoundSquashedPolicy(self.bounds, BoundGaussian(self.actor, weights, rollout), rollout)
            case DenseForward():
                return BoundSquashedPolicy(self.bounds, BoundDeterministic(self.actor, weights, rollout), rollout)
            case _:
                return BoundSquashedPolicy(self.bounds, BoundTorchActor(self.actor, weights, rollout), rollout)


class BoundActor(Protocol):
    """An actor's network that reads weights and observations where they lie."""

    @property
    def predict(self) -> Callable[[int], Array]:
        """From a step to actions without chance, ``(envs, n)``, float32, between -1 and 1; valid until the next call."""

    def begin(self, random: np.random.Generator) -> Callable[[int], Array]:
        """Draw what chance decides in a round; from a step to the network's own actions, as those of :attr:`predict`."""


class BoundSquashedPolicy:
    """The :class:`~reactor_sb3.acting.policy.BoundPolicy` of an actor whose actions lie between -1 and 1."""

    def __init__(self, bounds: Bounds, actor: BoundActor, rollout: Rollout) -> None:
        self.bounds, self.actor, self.rollout = bounds, actor, rollout

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        """Draw what chance decides: actions are even where a rate is 1, and the actor's own, with noise, where it is 0."""
        bounds, drawn, actions = self.bounds, self.rollout["policy_actions"], self.rollout["actions"]
        noises: ActionNoises | None = turn.memory
        at_random: list[bool] = (turn.rates > 0).tolist()
        evenly = turn.random.uniform(-1, 1, drawn.shape).astype(np.float32) if any(at_random) else drawn
        own = self.actor.begin(turn.random)
        noise = None if noises is None else noises.begin(turn.random, self.rollout["dones"])
        shape = drawn.shape[1:]

        def act(step: int) -> Array:
            chosen = evenly[step] if at_random[step] else own(step).reshape(shape)
            drawn[step] = chosen if noise is None else np.clip(chosen + noise(step), -1, 1)
            if step == 0:  # before an environment is given what spoilt parameters say
                _check(drawn[:1])
            actions[step] = bounds(drawn[step])
            return actions[step]  # type: ignore[no-any-return]

        return act

    def end(self, turn: Turn) -> None:
        """Refuse actions that are NaN, which would spoil what is stored."""
        if turn.memory is not None:
            turn.memory.end(self.rollout["dones"])
        _check(self.rollout["policy_actions"])

    def greedy(self, step: int, memory: Any) -> Array:
        return self.bounds(self.actor.predict(step).reshape(-1, *self.bounds.low.shape))


def _check(drawn: Array) -> None:
    if np.isnan(drawn.sum(dtype=np.float64)):
        step, env = np.argwhere(np.isnan(drawn.reshape(*drawn.shape[:2], -1)).any(-1))[0].tolist()
        raise ValueError(
            f"the policy's action at step {step} of this round in environment {env} of this actor is NaN: its parameters are "
            "spoilt, by a learning rate that is too high, say, or its observation was infinite"
        )


class BoundGaussian:
    """The :class:`BoundActor` of SAC, of dense layers."""

    def __init__(self, actor: GaussianActor, weights: Array, rollout: Rollout) -> None:
        self.steps, self.body = rollout.steps, actor.body.bind(weights, rollout.observations)
        features = {"": self.body.outputs[None]}
        self.mean, self.log_std = actor.mean.bind(weights, features), actor.log_std.bind(weights, features)

    def predict(self, step: int) -> Array:
        self.body(step)
        return np.tanh(self.mean(0))

    def begin(self, random: np.random.Generator) -> Callable[[int], Array]:
        body, mean, log_std = self.body.run, self.mean.run, self.log_std.run
        means, log_stds = self.mean.outputs, self.log_std.outputs
        noise = random.standard_normal((self.steps, *means.shape), np.float32)
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


class BoundDeterministic:
    """The :class:`BoundActor` of TD3, of dense layers whose last one is a tanh (Fujimoto et al. 2018)."""

    def __init__(self, actor: DenseForward, weights: Array, rollout: Rollout) -> None:
        self.predict = actor.bind(weights, rollout.observations)

    def begin(self, random: np.random.Generator) -> Callable[[int], Array]:
        return self.predict


class BoundTorchActor:
    """The :class:`BoundActor` of any other actor: it draws by itself, from torch's generator, if it draws."""

    def __init__(self, actor: TorchForward, weights: Array, rollout: Rollout) -> None:
        self.module, self.steps = actor.with_weights(weights), actor.steps(rollout.observations)

    def predict(self, step: int) -> Array:
        return self._own(step, deterministic=True)

    def begin(self, random: np.random.Generator) -> Callable[[int], Array]:
        return partial(self._own, deterministic=False)

    def _own(self, step: int, *, deterministic: bool) -> Array:
        with torch.inference_mode():
            actions: Array = self.module._predict(self.steps(step), deterministic).numpy()
        return actions
