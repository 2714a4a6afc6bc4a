"""How actors of an actor-critic algorithm act, and what they make of a round: values, probabilities and advantages.

Most policies are plain: an actor's network, a critic's, and a distribution of SB3's. Their actions are drawn by
:mod:`reactor_sb3.acting.action_distributions`, from noise that belongs to the actor. Dense layers on flat observations are
evaluated without torch, through which a step costs a few hundred microseconds, nearly all of it dispatch; and the critic's once a
round, for nobody acts on values. So are images where there is the extension, by one network for both. Policies with a ``forward``
or a noise of their own draw their actions themselves, from torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from reactor_sb3.acting.action_distributions import ActionDistribution, Categorical, distribution_of
from reactor_sb3.acting.forwards import torch_forward
from reactor_sb3.acting.policy import BoundPolicy, Bounds, Field, Rollout, Turn
from reactor_sb3.policies import (
    GSDE,
    SB3,
    Base,
    DenseNetworks,
    ImageNetworks,
    networks_of,
    policy_reason,
)
from reactor_torch import (
    TorchForward,
    bound_layers,
    drawing_nothing,
)

__all__ = [
    "FORBIDDEN",
    "BoundDenseNetworks",
    "BoundSampledPolicy",
    "MASKS",
    "SampledPolicy",
    "advantages",
    "finish",
]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SampledPolicy:
    """The :class:`~reactor_sb3.acting.policy.Policy` of an actor and a critic: actions are drawn from a distribution.

    Attributes:
        networks: Structure of the policy.
        distribution: Of its actions; ``None`` if it draws them itself.
        action_space: Of the environments.
        bounds: Of actions of a ``Box``.
        gamma: Discount.
        gae_lambda: Weight of longer returns.
        sde_sample_freq: Steps between two draws of state-dependent noise, -1 for one a round.
        masked: Method of environments that says which choices are allowed, ``(choices,)``, bool; empty if all are.
    """

    networks: DenseNetworks | ImageNetworks | TorchForward
    distribution: ActionDistribution | None
    action_space: spaces.Space[Any]
    bounds: Bounds | None
    gamma: float
    gae_lambda: float
    sde_sample_freq: int
    masked: str = ""

    @classmethod
    def of(
        cls, policy: Any, gamma: float, gae_lambda: float, sde_sample_freq: int = -1, base: Base = SB3, masked: str = ""
    ) -> SampledPolicy:
        """The structure of a policy of SB3's, as light to evaluate as possible.

        Args:
            policy: The policy.
            gamma: See :attr:`gamma`.
            gae_lambda: See :attr:`gae_lambda`.
            sde_sample_freq: See :attr:`sde_sample_freq`.
            base: What the policy derives from.
            masked: See :attr:`masked`; then bits are choices between two.
        """
        space = policy.action_space
        bounds = Bounds(space.low, space.high, policy.squash_output) if isinstance(space, spaces.Box) else None
        bits, found = isinstance(space, spaces.MultiBinary) and base is not SB3, networks_of(policy, base)
        networks, plain = torch_forward(policy, found) if isinstance(found, str) else found, policy_reason(policy, base) is None
        distribution = Categorical((2,) * math.prod(space.shape), several=True) if bits else distribution_of(space)
        return cls(networks, distribution if plain else None, space, bounds, gamma, gae_lambda, sde_sample_freq, masked)

    @property
    def fields(self) -> tuple[Field, ...]:
        space = self.action_space
        assert space.shape is not None
        actions = Bounds.fields(space) if isinstance(space, spaces.Box) else (Field("actions", np.dtype(space.dtype), space.shape),)
        masks = (Field(MASKS, np.dtype(np.bool_), (sum(self.choices),), asked=self.masked),) if self.masked else ()
        return (*actions, *masks, *(Field(name, np.dtype(np.float32), ()) for name in ("log_probs", "values", "advantages")))

    @property
    def draws(self) -> bool:
        return isinstance(self.networks, TorchForward) and (self.distribution is None or self.networks.draws)

    @property
    def choices(self) -> tuple[int, ...]:
        """Among how many is chosen, for each choice of an action that may be masked."""
        match self.action_space:
            case spaces.Discrete(n=n):
                return (int(n),)
            case spaces.MultiDiscrete(nvec=sizes):
                return tuple(map(int, sizes.flat))
        return (2,) * math.prod(self.action_space.shape or ())

    def memory(self, envs: range) -> None:
        """Nothing outlives a round."""

    def bind(self, weights: Array, rollout: Rollout) -> BoundPolicy:
        if isinstance(self.networks, DenseNetworks):
            return BoundSampledPolicy(self, BoundDenseNetworks(self.networks, weights, rollout), weights, rollout)
        if isinstance(self.networks, ImageNetworks):
            return BoundSampledPolicy(self, BoundImageNetworks(self.networks, weights, rollout), weights, rollout)
        if self.distribution is not None:
            return BoundSampledPolicy(self, BoundTorchNetworks(self.networks, weights, rollout), weights, rollout)
        return BoundOwnPolicy(self, self.networks, weights, rollout)


class BoundNetworks(Protocol):
    """An actor's and a critic's network that read weights and observations where they lie."""

    @property
    def outputs(self) -> Callable[[int], Array]:
        """From a step to the actor's outputs, ``(envs, n)``, float32; valid until the next call."""

    def values(self) -> Array:
        """The critic's values of all steps, of each of which there have been outputs, ``(steps, envs)``, float32."""

    def values_of(self, observations: Mapping[str, Array]) -> Array:
        """The critic's values of other observations ``(count, ...)``, by key, ``(count,)``, float32."""


class BoundSampledPolicy:
    """The :class:`~reactor_sb3.acting.policy.BoundPolicy` of a plain policy."""

    def __init__(self, policy: SampledPolicy, networks: BoundNetworks, weights: Array, rollout: Rollout) -> None:
        assert policy.distribution is not None
        self.policy, self.distribution, self.networks = policy, policy.distribution, networks
        self.weights, self.rollout = weights, rollout
        self.outputs = masked_outputs(networks.outputs, policy, rollout) if policy.masked else networks.outputs

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        rollout, bounds, choose = self.rollout, self.policy.bounds, self.distribution.choose
        noise = self.distribution.noise(turn.random, rollout.steps, rollout.envs, self.weights)
        actions = rollout["actions"]
        drawn = self.drawn = actions if bounds is None else rollout["policy_actions"]
        scores = self.scores = np.empty_like(noise)
        outputs = self.outputs

        def act(step: int) -> Array:
            of_step = scores[step] = outputs(step)
            drawn[step] = chosen = choose(of_step, noise[step])
            if bounds is not None:
                actions[step] = chosen = bounds(chosen)
            return chosen

        return act

    def end(self, turn: Turn) -> None:
        self.rollout["log_probs"][...] = self.log_probs()
        finish(self.rollout, self.networks.values(), self.networks.values_of, self.policy.gamma, self.policy.gae_lambda)

    def log_probs(self) -> Array:
        """Logarithms of the probabilities of the round's actions, ``(steps, envs)``, float32."""
        return self.distribution.log_probs(self.scores, self.drawn, self.weights)

    def greedy(self, step: int, memory: Any) -> Array:
        actions, bounds = self.distribution.mode(self.outputs(step)), self.policy.bounds
        return actions if bounds is None else bounds(actions)


class BoundDenseNetworks:
    """The :class:`BoundNetworks` of dense layers."""

    def __init__(self, networks: DenseNetworks, weights: Array, rollout: Rollout) -> None:
        self.weights, self.critic, self.shape = weights, networks.critic, (rollout.steps, rollout.envs)
        rows = rollout.observations[""]
        self.outputs = networks.actor.bind(weights, rollout.observations)
        self.judge = self.critic.bind(weights, {"": rows.reshape(1, -1, *rows.shape[2:])})

    def values(self) -> Array:
        return self.judge(0).reshape(self.shape)

    def values_of(self, observations: Mapping[str, Array]) -> Array:
        return self.critic.bind(self.weights, {"": np.ascontiguousarray(observations[""])[None]})(0)[:, 0]


class BoundImageNetworks:
    """The :class:`BoundNetworks` of images."""

    def __init__(self, networks: ImageNetworks, weights: Array, rollout: Rollout) -> None:
        self.images, self.some = rollout.observations[""], np.zeros_like(rollout.observations[""][0])
        self.features = networks.features.with_weights(weights, self.some)
        self.actor, self.critic = (bound_layers(layers, weights, rollout.envs) for layers in (networks.actor, networks.critic))
        self.judged = np.empty((rollout.steps, rollout.envs), np.float32)

    def outputs(self, step: int) -> Array:
        features = self.features(self.images[step])
        self.judged[step] = self.critic(features)[:, 0]
        return self.actor(features)

    def values(self) -> Array:
        return self.judged

    def values_of(self, observations: Mapping[str, Array]) -> Array:
        images, envs = observations[""], len(self.some)
        values = np.empty(len(images), np.float32)
        for begin in range(0, len(images), envs):  # as many as a step has: the extension has memory for those
            count = len(images[begin : begin + envs])
            self.some[:count] = images[begin : begin + count]
            values[begin : begin + count] = self.critic(self.features(self.some))[:count, 0]
        return values


class BoundTorchNetworks:
    """The :class:`BoundNetworks` of any layers. They may have some in common, so that values come with the outputs."""

    def __init__(self, forward: TorchForward, weights: Array, rollout: Rollout) -> None:
        self.policy, self.steps, self.copies = forward.with_weights(weights), forward.steps(rollout.observations), forward.copies
        self.judged = np.empty((rollout.steps, rollout.envs), np.float32)

    def outputs(self, step: int) -> Array:
        policy, body = self.policy, self.policy.mlp_extractor
        with torch.inference_mode():
            features = policy.extract_features(self.steps(step))
            if policy.share_features_extractor:
                of_actor, of_critic = body(features)
            else:
                of_actor, of_critic = body.forward_actor(features[0]), body.forward_critic(features[1])
            self.judged[step] = policy.value_net(of_critic).flatten().numpy()
            return policy.action_net(of_actor).numpy()  # type: ignore[no-any-return]

    def values(self) -> Array:
        return self.judged

    def values_of(self, observations: Mapping[str, Array]) -> Array:
        return _values_of(self.policy, self.copies(observations))


class BoundOwnPolicy:
    """The :class:`~reactor_sb3.acting.policy.BoundPolicy` of a policy that is evaluated by its own ``forward``."""

    def __init__(self, policy: SampledPolicy, forward: TorchForward, weights: Array, rollout: Rollout) -> None:
        self.policy, self.rollout = policy, rollout
        self.module, self.steps, self.copies = forward.with_weights(weights), forward.steps(rollout.observations), forward.copies
        self.values = np.empty((rollout.steps, rollout.envs), np.float32)
        # gSDE's noise is drawn before a step, whose calls need not be intercepted then, which takes time. Images need it, though.
        drawn_before = policy_reason(self.module, GSDE) is None and not forward.draws and not forward.convolves
        self.stepping = drawing_nothing if drawn_before else nullcontext

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        module, steps, bounds, every = self.module, self.steps, self.policy.bounds, self.policy.sde_sample_freq
        actions, log_probs = self.rollout["actions"], self.rollout["log_probs"]
        drawn = actions if bounds is None else self.rollout["policy_actions"]
        noisy, stepping = bool(getattr(module, "use_sde", False)), self.stepping

        def act(step: int) -> Array:
            with torch.inference_mode():
                if noisy and (step == 0 or (every > 0 and step % every == 0)):
                    module.reset_noise(self.rollout.envs)
                with stepping():
                    chosen, values, of_chosen = module(steps(step), **self.masks(step))
                    self.values[step], log_probs[step] = values.flatten().numpy(), of_chosen.numpy()
                    drawn[step] = chosen.numpy()
            if bounds is not None:
                actions[step] = bounds(drawn[step])
            return actions[step]  # type: ignore[no-any-return]

        return act

    def end(self, turn: Turn) -> None:
        finish(self.rollout, self.values, self.values_of, self.policy.gamma, self.policy.gae_lambda)

    def masks(self, step: int) -> dict[str, Array]:
        """Inputs of the policy besides observations."""
        if not self.policy.masked:
            return {}
        masks = self.rollout[MASKS][step]
        check_masks(masks, self.policy.choices, step)
        return {MASKS: masks}

    def values_of(self, observations: Mapping[str, Array]) -> Array:
        """The critic's values of other observations ``(count, ...)``, by key, ``(count,)``, float32."""
        return _values_of(self.module, self.copies(observations))

    def greedy(self, step: int, memory: Any) -> Array:
        with torch.inference_mode():
            actions: Array = self.module._predict(self.steps(step), deterministic=True, **self.masks(step)).numpy()
        actions = actions.reshape(-1, *(self.module.action_space.shape or ()))
        return actions if self.policy.bounds is None else self.policy.bounds(actions)


def _values_of(policy: Any, observations: Any) -> Array:
    with torch.inference_mode():
        return policy.predict_values(observations).flatten().numpy()  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- choices that are forbidden

MASKS = "action_masks"
"""Field of the record for them, and argument of policies."""
FORBIDDEN = np.float32(-1e8)
"""sb3-contrib's logit of what is forbidden."""


def masked_outputs(outputs: Callable[[int], Array], policy: SampledPolicy, rollout: Rollout) -> Callable[[int], Array]:
    """The logits of a step, of which those are low that its masks forbid."""
    masks, choices = rollout[MASKS], policy.choices

    def masked(step: int) -> Array:
        allowed = masks[step]
        check_masks(allowed, choices, step)
        return np.where(allowed, outputs(step), FORBIDDEN)

    return masked


def check_masks(allowed: Array, choices: tuple[int, ...], step: int) -> None:
    """Refuse masks that forbid everything.

    Args:
        allowed: ``(envs, sum(choices))``, bool.
        choices: Among how many is chosen, for each choice.
        step: For the error.

    Raises:
        ValueError: If an environment has nothing left to choose.
    """
    there = allowed.any(1) if len(choices) == 1 else np.logical_or.reduceat(allowed, _begins(choices), 1).all(1)
    if not there.all():
        raise ValueError(
            f"the masks of this actor's environment {int(np.argmin(there))} forbid every choice at step {step} of this round: "
            "action_masks() has to allow one at least; an episode that has nothing left to do should have ended"
        )


def _begins(choices: tuple[int, ...]) -> Array:
    return np.cumsum((0, *choices[:-1]))


# ---------------------------------------------------------------------- what is made of a round


def finish(
    rollout: Rollout, values: Array, values_of: Callable[[Mapping[str, Array]], Array], gamma: float, gae_lambda: float
) -> None:
    """Write the values and advantages of a round.

    As in SB3, a return goes on with the value of the last observation where a time limit has ended an episode.

    Args:
        rollout: The round.
        values: Of the observations before each step, ``(steps, envs)``, float32.
        values_of: From some of the observations after a step, by key, ``(count, ...)``, to their values, ``(count,)``.
        gamma: Discount.
        gae_lambda: Weight of longer returns.
    """
    dones = rollout["dones"]
    following = np.zeros_like(values)
    following[:-1] = values[1:]
    following[dones] = 0
    others = rollout["timeouts"].copy()  # after these steps something was observed that is before no step
    others[-1] |= ~dones[-1]
    if others.any():
        following[others] = values_of({key: part[others] for key, part in rollout.next_observations.items()})
    rollout["values"][...] = values
    rollout["advantages"][...] = advantages(rollout["rewards"], values, following, dones, gamma, gae_lambda)


def advantages(rewards: Array, values: Array, following: Array, dones: Array, gamma: float, gae_lambda: float) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016), ``(steps, envs)``, float32.

    What comes later is added up over doubling distances: a few operations on whole arrays in the place of some for each step.

    Args:
        rewards: ``(steps, envs)``, as everything else.
        values: Of the observations before each step.
        following: Of those after it; 0 where nothing follows.
        dones: Whether an episode ended with a step.
        gamma: Discount.
        gae_lambda: Weight of longer returns.
    """
    total = rewards + gamma * following.astype(np.float64) - values
    weight = gamma * gae_lambda * np.logical_not(dones)
    distance = 1
    while distance < len(total):
        total[:-distance] += weight[:-distance] * total[distance:]
        weight[:-distance] *= weight[distance:]  # numpy takes care of the overlap
        distance *= 2
    return total.astype(np.float32)
