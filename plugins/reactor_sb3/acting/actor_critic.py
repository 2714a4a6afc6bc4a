"""How actors of an actor-critic algorithm act, and what they make of a round: values, probabilities and advantages.

Most policies are plain: an actor's network, a critic's, and a distribution of SB3's. Their actions are drawn by
:mod:`reactor_sb3.acting.action_distributions`, from noise that belongs to the actor. Dense layers on flat observations are
evaluated without torch, through which a step costs a few hundred microseconds, nearly all of it dispatch; and the critic's once a
round, for nobody acts on values. So are images where there is the extension, by one network for both. Policies with a ``forward``
or a noise of their own draw their actions themselves, from torch's generator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common import distributions as sb3
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor

from reactor_sb3.acting.action_distributions import ActionDistribution, Categorical, distribution_of
from reactor_sb3.acting.forwards import features_of, image_forward, torch_forward
from reactor_sb3.acting.policy import BoundPolicy, Bounds, Field, Rollout, Turn
from reactor_torch import (
    ConvolvedForward,
    DenseForward,
    Layer,
    TorchForward,
    bound_layers,
    drawing_nothing,
    is_untouched,
    layers_of,
)

__all__ = [
    "FORBIDDEN",
    "GSDE",
    "Base",
    "BoundDenseNetworks",
    "BoundSampledPolicy",
    "DenseNetworks",
    "ImageNetworks",
    "MASKS",
    "SB3",
    "SampledPolicy",
    "advantages",
    "dense_networks_of",
    "finish",
    "flat_features_of",
    "image_networks_of",
    "is_plain",
    "layers_behind",
]

Array = npt.NDArray[Any]
_DISTRIBUTIONS = (
    sb3.CategoricalDistribution, sb3.MultiCategoricalDistribution, sb3.BernoulliDistribution, sb3.DiagGaussianDistribution,
)  # fmt: skip
_METHODS = (
    "forward", "extract_features",
    "evaluate_actions", "predict_values", "get_distribution", "_get_action_dist_from_latent", "_predict",
)  # fmt: skip


_PARTS = ("pi_features_extractor", "vf_features_extractor", "mlp_extractor")


class Base(NamedTuple):
    """A class of policies, and the distributions that its actions may have."""

    policy: type[Any]
    distributions: tuple[type[Any], ...]


SB3 = Base(ActorCriticPolicy, _DISTRIBUTIONS)
GSDE = Base(ActorCriticPolicy, (sb3.StateDependentNoiseDistribution,))
"""Policies whose noise is a function of observations, redrawn now and then."""


def is_plain(policy: Any, base: Base = SB3) -> bool:
    """Whether a policy is two networks and a distribution of SB3's, and does nothing of its own with them.

    Args:
        policy: The policy.
        base: What it derives from.
    """
    own = any(getattr(type(policy), name) is not getattr(base.policy, name) for name in _METHODS)
    parts = (policy, *(getattr(policy, name, None) for name in _PARTS))
    untouched = all(is_untouched(part) for part in parts if part is not None) and vars(policy).keys().isdisjoint(_METHODS)
    return type(policy.action_dist) in base.distributions and untouched and not own


_BEHIND = ("policy_net", "value_net")
"""Names of a policy's layers behind its features extractor: the actor's and the critic's."""


class DenseNetworks(NamedTuple):
    """The two networks of a plain policy, where both are dense layers on flat observations."""

    actor: DenseForward
    critic: DenseForward


def dense_networks_of(policy: Any) -> DenseNetworks | None:
    """The networks of a plain policy, if there is nothing but what :class:`~reactor_torch.DenseForward` evaluates."""
    flat = flat_features_of(policy)
    networks = None if flat is None else [layers_behind(policy, name, flat[0]) for name in _BEHIND]
    if flat is None or networks is None or None in networks:
        return None
    return DenseNetworks(*(DenseForward(layers, *flat) for layers in networks if layers is not None))


class ImageNetworks(NamedTuple):
    """The networks of a plain policy that sees images: one that its actor and its critic share, and what each has behind it."""

    features: ConvolvedForward
    actor: tuple[Layer, ...]
    critic: tuple[Layer, ...]


def image_networks_of(policy: Any) -> ImageNetworks | None:
    """The networks of a plain policy, if there is nothing but what :class:`~reactor_torch.ConvolvedForward` evaluates."""
    if not policy.share_features_extractor or type(policy.mlp_extractor) is not MlpExtractor:
        return None
    features, (actor, critic) = image_forward(policy), (layers_behind(policy, name, policy.features_dim) for name in _BEHIND)
    return None if features is None or actor is None or critic is None else ImageNetworks(features, actor, critic)


def flat_features_of(policy: Any) -> tuple[int, bool] | None:
    """See :func:`reactor_sb3.acting.forwards.features_of`; ``None`` for a policy that does more with observations."""
    extractors = {type(policy.pi_features_extractor), type(policy.vf_features_extractor)}
    plain = extractors == {FlattenExtractor} and type(policy.mlp_extractor) is MlpExtractor
    return features_of(policy.observation_space, normalized=policy.normalize_images) if plain else None


def layers_behind(
    policy: Any, name: str, width: int, before: Sequence[tuple[str, torch.nn.Module]] = ()
) -> tuple[Layer, ...] | None:
    """Layers of a policy's actor or critic, if there is nothing but what :class:`~reactor_torch.DenseForward` evaluates.

    Args:
        policy: The policy.
        name: ``"policy_net"`` or ``"value_net"``.
        width: How many numbers they are given.
        before: Layers before those of the extractor, by name.
    """
    last, body = "action_net" if name == "policy_net" else name, getattr(policy.mlp_extractor, name)
    modules = [(f"mlp_extractor.{name}.{number}", module) for number, module in enumerate(body)]
    modules.append((last, getattr(policy, last)))
    layers = layers_of([*before, *modules], width) if is_untouched(body) else None
    named = {name for name, _ in policy.named_parameters()}  # what actor and critic share has one of its names only
    own = all(f"{name}.{part}" in named for name, module in modules for part, _ in module.named_parameters())
    return layers if layers is not None and own and DenseForward.knows(layers) else None


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
        plain, bits = is_plain(policy, base), isinstance(space, spaces.MultiBinary) and base is not SB3
        networks = (dense_networks_of(policy) or image_networks_of(policy) if plain else None) or torch_forward(policy)
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
        drawn_before = is_plain(self.module, GSDE) and not forward.draws and not forward.convolves
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
