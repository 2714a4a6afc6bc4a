"""Models and policies of Stable-Baselines3, and modules of torch, as episodes ask them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    MultiCategoricalDistribution,
)
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from stable_baselines3.dqn.policies import DQNPolicy
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy
from torch import nn

from reactor_gymnasium.plugin import AskedPolicy, BoundPolicy, Noise, PolicyContext, PredictPolicy, Turn, counted, hashed, own
from reactor_sb3.acting.forwards import copied
from reactor_sb3.environments.wrapped_alone import channels_first
from reactor_sb3.evaluation.normalizer import Normalizer, changes_of, normalizer_of
from reactor_sb3.policies import reason
from reactor_torch import (
    FORBIDDEN,
    DenseNetwork,
    Stacked,
    dense_network_of,
    is_compiled,
    naming_spoilt,
    refuse_spoilt,
    spoilt_rows,
)

__all__ = ["asked"]

Array = npt.NDArray[Any]
Outputs = Callable[[], Any]
"""Computes what actions are chosen by, ``(rows, ...)``, from observations where they lie."""


def asked(policy: Any, context: PolicyContext) -> AskedPolicy | None:
    """A model or policy of Stable-Baselines3, or a module of torch, as it is asked; an entry point.

    Args:
        policy: The model, policy or module.
        context: What it is to act in.

    Returns:
        ``None`` for what is better asked by its ``predict``.

    Raises:
        ValueError: If it was made for other spaces, or answers by numbers that are not finite.
    """
    normalizer = None
    if isinstance(policy, BaseAlgorithm):
        model, policy = policy, policy.policy
        _check_spaces(policy, context, type(model).__name__, changes_of(model))
        normalizer = normalizer_of(model, context.observation_space)
        explores = hasattr(model, "exploration_rate") and not context.deterministic
        if hasattr(policy, "lstm_actor") or explores:  # one remembers, the other one's model draws from all actions
            return PredictPolicy(NormalizedModel(model, normalizer), context)
    elif isinstance(policy, BasePolicy):
        _check_spaces(policy, context, type(policy).__name__)
    elif isinstance(policy, nn.Module):
        return ModulePolicy(policy, context)
    else:
        return None
    return SB3Policy(policy, context, normalizer)


def _check_spaces(policy: BasePolicy, context: PolicyContext, named: str, hint: str = "") -> None:
    given: Any = context.observation_space
    if policy.observation_space not in (given, channels_first(given)):
        raise ValueError(f"{named} was trained to observe {policy.observation_space}, and the environment shows {given}{hint}")
    if policy.action_space != context.action_space:
        raise ValueError(
            f"{named} was trained for the actions {policy.action_space}, and the environment takes {context.action_space}"
        )


class NormalizedModel:
    """A model that is asked by its ``predict``, and is shown what it has learned from.

    Args:
        model: The model.
        normalizer: What normalises its observations, if anything does.
    """

    def __init__(self, model: Any, normalizer: Normalizer | None) -> None:
        self.model, self.normalizer = model, normalizer
        refuse_spoilt(model.policy, f"the policy of {type(model).__name__}")

    def predict(self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False) -> Any:
        """See SB3's models."""
        shown = observation if self.normalizer is None else self.normalizer(observation)
        if deterministic or not hasattr(self.model, "exploration_rate"):
            return self.model.predict(shown, state, episode_start, deterministic)
        # It explores by a generator of its own, which is lent a state that belongs to the episode's step.
        bits = self.model.action_space.np_random.bit_generator
        before = bits.state
        bits.state = np.random.PCG64(np.random.randint(2**31)).state
        try:
            return self.model.predict(shown, state, episode_start, deterministic)
        finally:
            bits.state = before


class _TorchPolicy(AskedPolicy):
    """Models and modules alike: dense layers are evaluated row by row, others by torch."""

    in_workers = True
    network: DenseNetwork | None = None
    masks: Array | None = None  # of the rows that it is asked about
    module: nn.Module
    context: PolicyContext

    def _evaluated(self, module: nn.Module) -> nn.Module:
        """A copy that nobody trains, where it can be copied; on another device, the module itself."""
        if any(part.device.type != "cpu" for part in module.parameters()):
            self.in_workers = False
            return module
        optimizers = {id(part.optimizer): None for part in module.modules() if hasattr(part, "optimizer")}
        found = copied(module, optimizers)
        found.requires_grad_(False)
        return found.train(False)

    def _dense(self, network: DenseNetwork | None) -> None:
        if network is not None and is_compiled():
            self.network, self.by_row = network, True

    def _outputs(self, observations: Any, rows: int) -> Outputs:
        """Outputs that actions are chosen by, for observations where they lie."""
        if self.network is None:
            return lambda: self._by_torch(own(observations), rows)
        stacked = Stacked((self.network,), rows)
        inputs: Array = stacked.inputs[0]
        scores: Array = stacked.scores[0]

        def evaluate() -> Array:
            inputs[...] = self._normalized(observations).reshape(rows, -1)
            stacked()
            return scores

        return evaluate

    def _normalized(self, observations: Any) -> Any:
        return observations

    def _by_torch(self, observations: Any, rows: int) -> Any:
        raise NotImplementedError

    def raw(self, observations: Any, rows: int) -> Callable[[Turn], Any]:
        """See :class:`~reactor_gymnasium.plugin.AskedPolicy`."""
        outputs = self._outputs(observations, rows)

        def evaluate(turn: Turn) -> Array:
            self.masks = turn.masks
            return np.asarray(outputs())

        return evaluate

    def digest(self) -> str | None:
        """See :class:`~reactor_gymnasium.plugin.AskedPolicy`."""
        return hashed({name: part.cpu().numpy() for name, part in self.module.state_dict().items()})

    def held(self) -> Sequence[Any]:
        """See :class:`~reactor_gymnasium.plugin.AskedPolicy`."""
        return (self.module,)


class ModulePolicy(_TorchPolicy):
    """A module of torch: scores of discrete actions (unnormalised log-probabilities), or continuous actions."""

    def __init__(self, module: nn.Module, context: PolicyContext) -> None:
        space = context.action_space
        if not isinstance(space, spaces.Discrete | spaces.Box):
            raise ValueError(f"a torch.nn.Module may act with Discrete or Box actions, and the environment takes {space}")
        self.context, self.module, self.named = context, self._evaluated(module), type(module).__name__
        self.dtype = next((one.dtype for one in module.parameters() if one.is_floating_point()), torch.float32)
        if isinstance(context.observation_space, spaces.Box) and self.in_workers:
            self._dense(dense_network_of(self.module, context.observation_space))
        if not context.deterministic and isinstance(space, spaces.Discrete):
            self.noise = Noise("uniform", 1)

    def _by_torch(self, observations: Any, rows: int) -> Any:
        device = next((one.device for one in self.module.parameters()), torch.device("cpu"))

        def tensor(part: Any, space: Any) -> Any:
            if isinstance(part, dict):
                return {key: tensor(value, space[key]) for key, value in part.items()}
            found = torch.as_tensor(part, device=device)
            return found.to(self.dtype) if isinstance(space, spaces.Box) else found

        with torch.inference_mode():
            outputs = self.module(tensor(observations, self.context.observation_space))
        if not isinstance(outputs, torch.Tensor):
            raise TypeError(f"the policy {type(self.module).__name__} returned {type(outputs).__name__}, not a tensor")
        return outputs.cpu().numpy()

    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        """See :class:`~reactor_gymnasium.plugin.AskedPolicy`."""
        outputs, space, named = self._outputs(observations, rows), self.context.action_space, type(self.module).__name__
        if isinstance(space, spaces.Discrete):
            wanted = (rows, int(space.n))

            def choose(turn: Turn) -> Array:
                scores = _checked(outputs(), named, scores=True)
                if scores.shape != wanted:
                    raise ValueError(
                        f"the policy {named} returned scores of shape {scores.shape} for {rows} observations; of {space} they have "
                        f"the shape {wanted}"
                    )
                return _chosen(scores, turn.noise) + int(space.start)

            return choose
        assert isinstance(space, spaces.Box)
        return lambda turn: counted(np.clip(_checked(outputs(), named), space.low, space.high), rows, space, named)


class SB3Policy(_TorchPolicy):
    """A policy of Stable-Baselines3, as its ``predict`` acts, but for where random numbers come from.

    Args:
        policy: The policy.
        context: What it acts in.
        normalizer: What normalises its observations, if anything does.
    """

    module: Any

    def __init__(self, policy: Any, context: PolicyContext, normalizer: Normalizer | None) -> None:
        self.context, self.module, self.named = context, self._evaluated(policy), type(policy).__name__
        self.normalizer = normalizer
        self.module.set_training_mode(False)
        self.kind, self.masked = _kind_of(policy), _base_with_masks(policy) is not None
        self.std: Array | None = None
        if self.kind == "any" and not isinstance(context.action_space, spaces.Box):
            refuse_spoilt(policy, f"the policy {type(policy).__name__}")  # its answers are choices, of which none is NaN
        if self.in_workers and not is_image_space(context.observation_space):
            self._dense(_layers(self.module, context))
        if context.deterministic or self.kind == "any":
            return
        numbers = int(np.prod(context.action_space.shape or ()))
        if self.kind in ("gaussian", "squashed"):
            self.noise = Noise("normal", numbers)
        elif self.kind in ("categorical", "categoricals", "bernoullis"):
            self.noise = Noise("uniform", numbers)
        if self.kind == "gaussian":
            self.std = self.module.log_std.detach().exp().cpu().numpy()
        if self.kind == "squashed":  # the spread is an output of its own, by torch
            self.network, self.by_row = None, False

    def _normalized(self, observations: Any) -> Any:
        return observations if self.normalizer is None else self.normalizer(observations)

    def _by_torch(self, observations: Any, rows: int) -> Any:
        module = self.module
        with torch.inference_mode(), naming_spoilt(module, f"the policy {type(module).__name__}"):
            tensors, _ = module.obs_to_tensor(self._normalized(observations))
            match self.kind:
                case "categorical":
                    found = module.get_distribution(tensors).distribution.logits
                case "bernoullis":
                    found = module.get_distribution(tensors).distribution.logits
                case "categoricals":
                    given = module.get_distribution(tensors)
                    found = torch.cat([one.logits for one in (given.distributions if self.masked else given.distribution)], 1)
                case "gaussian":
                    found = module.get_distribution(tensors).distribution.mean
                case "scores":
                    found = module.q_net(tensors)
                case "squashed" if not self.context.deterministic:
                    mean, log_std, _ = module.actor.get_action_dist_params(tensors)
                    found = torch.cat([mean, log_std], 1)
                case "squashed":
                    found = module.actor.get_action_dist_params(tensors)[0]
                case "bounded":
                    found = module.actor(tensors)
                case _:
                    greedy, actor = self.context.deterministic, getattr(module, "actor", module)
                    if getattr(actor, "use_sde", False) and not greedy:
                        module.reset_noise(1)  # what it drew when it learned has stayed there
                    more = {"action_masks": self.masks} if self.masked else {}
                    found = module._predict(tensors, deterministic=greedy, **more)
        return found.cpu().numpy()

    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        """See :class:`~reactor_gymnasium.plugin.AskedPolicy`."""
        outputs, space = self._outputs(observations, rows), self.context.action_space
        named = type(self.module).__name__
        choices = _choices(space) if self.masked and self.kind != "any" else []
        scores = self.kind in ("categorical", "categoricals", "scores")

        def act(turn: Turn) -> Any:
            self.masks = turn.masks
            found = _checked(outputs(), named, scores)
            if choices:
                found = _allowed(found, turn.masks, choices)
            return counted(self._fitting(self._drawn(found, turn.noise)), rows, space, named)

        return act

    def _drawn(self, outputs: Array, noise: Any) -> Any:
        """Actions by what the networks gave, as the policy has them."""
        space: Any = self.context.action_space
        match self.kind:
            case "categorical" | "scores":
                return _chosen(outputs, noise) + int(space.start)
            case "categoricals":
                ends = np.cumsum(_choices(space))
                parts = np.split(outputs, ends[:-1], axis=1)
                chosen = [_chosen(part, None if noise is None else noise[:, at : at + 1]) for at, part in enumerate(parts)]
                return np.stack(chosen, 1) + getattr(space, "start", 0)
            case "bernoullis":
                share = 1 / (1 + np.exp(-outputs.astype(np.float64)))
                return ((share > 0.5) if noise is None else (noise < share)).astype(np.int8)
            case "gaussian" if noise is not None:
                return (outputs + self.std * noise).astype(np.float32)
            case "squashed":
                if noise is None:
                    return np.tanh(outputs)
                mean, log_std = np.split(outputs, 2, axis=1)
                return np.tanh(mean + np.exp(log_std) * noise).astype(np.float32)
        return outputs

    def _fitting(self, actions: Array) -> Array:
        """Actions as the environment is given them: stretched as ``predict`` does, which may round beyond a bound, or cut off."""
        space = self.context.action_space
        if not isinstance(space, spaces.Box):
            return actions
        actions = actions.reshape(len(actions), *space.shape)
        if self.module.squash_output:
            actions = self.module.unscale_action(actions)
        return np.clip(actions, space.low, space.high)

    def without_masks(self, env: Any) -> None:
        """See :class:`~reactor_gymnasium.plugin.AskedPolicy`."""
        raise ValueError(
            f"{type(self.module).__name__} is told which actions are allowed, and the environment has no action_masks(): put "
            "sb3-contrib's ActionMasker around it, or pass lambda observations: model.predict(observations)[0]"
        )

    def digest(self) -> str | None:
        """See :class:`~reactor_gymnasium.plugin.AskedPolicy`."""
        if self.normalizer is None:
            return super().digest()
        return hashed([super().digest(), *self.normalizer.statistics()])


def _checked(outputs: Array, named: str, scores: bool = False) -> Array:
    """Check that the outputs by which a policy answers are finite numbers, and return them.

    Raises:
        ValueError: Naming the policy.
    """
    spoilt = spoilt_rows(outputs, scores)
    if spoilt is not None:
        raise ValueError(f"the policy {named} answered {outputs[spoilt][0].tolist()}, which are not finite numbers")
    return outputs


def _kind_of(policy: Any) -> str:
    """The kind of outputs that a policy chooses by; ``"any"`` for one that is best asked for actions."""
    base = _base_with_masks(policy)
    if base is not None:
        masked = {"MaskableCategoricalDistribution": "categorical", "MaskableMultiCategoricalDistribution": "categoricals"}
        masked["MaskableBernoulliDistribution"] = "categoricals"  # of two each
        return masked.get(type(policy.action_dist).__name__, "any") if _predicts_as(policy, base) else "any"
    if isinstance(policy, ActorCriticPolicy):
        kinds = {
            CategoricalDistribution: "categorical",
            DiagGaussianDistribution: "gaussian",
            MultiCategoricalDistribution: "categoricals",
            BernoulliDistribution: "bernoullis",
        }
        return kinds.get(type(policy.action_dist), "any") if _predicts_as(policy, ActorCriticPolicy) else "any"
    if isinstance(policy, DQNPolicy) and _predicts_as(policy, DQNPolicy):
        return "scores"
    if isinstance(policy, SACPolicy) and _predicts_as(policy, SACPolicy) and not policy.actor.use_sde:
        return "squashed" if reason(policy.actor) is None else "any"
    if isinstance(policy, TD3Policy) and _predicts_as(policy, TD3Policy):
        return "bounded"
    return "any"


def _predicts_as(policy: Any, kind: type) -> bool:
    """Whether it makes actions of its distribution, or of its network's outputs, as a class does."""
    return reason(policy, kind, ("_predict", "get_distribution"), calls=("extract_features",)) is None


def _base_with_masks(policy: Any) -> Any:
    """The class of sb3-contrib that a policy with masks descends from; that package need not be installed."""
    named = ("sb3_contrib.common.maskable.policies", "MaskableActorCriticPolicy")
    return next((cls for cls in type(policy).__mro__ if (cls.__module__, cls.__name__) == named), None)


def _choices(space: Any) -> list[int]:
    """Among how many is chosen, for each choice of an action."""
    match space:
        case spaces.Discrete(n=n):
            return [int(n)]
        case spaces.MultiDiscrete(nvec=sizes):
            return [int(size) for size in sizes.ravel()]
        case _:
            return [2] * int(np.prod(space.shape))


def _allowed(scores: Array, masks: Array | None, choices: list[int]) -> Array:
    """Scores, of which those are low that masks forbid.

    Raises:
        ValueError: If masks are of another shape, or forbid everything.
    """
    if masks is None or masks.shape != scores.shape:
        raise ValueError(
            f"action_masks() must allow or forbid {scores.shape[1]} choices, got {None if masks is None else masks.shape[1]}"
        )
    for number, part in enumerate(np.split(masks, np.cumsum(choices)[:-1], axis=1)):
        if not part.any(1).all():
            raise ValueError(f"action_masks() forbids all of choice {number}; it has to allow one at least")
    return np.where(masks, scores, FORBIDDEN)


def _layers(policy: Any, context: PolicyContext) -> DenseNetwork | None:
    """The layers between a policy's observations and what it chooses by, if there are no others than dense ones."""
    space = context.observation_space
    if not isinstance(space, spaces.Box) or space != policy.observation_space:
        return None
    parts: tuple[nn.Module, ...] = ()
    holder: Any = None  # of the features extractor
    match _kind_of(policy):
        case "categorical" | "gaussian" | "categoricals" | "bernoullis" if _is_plain(policy.mlp_extractor):
            holder, parts = policy, (policy.mlp_extractor.policy_net, policy.action_net)
        case "scores":
            holder, parts = policy.q_net, (policy.q_net.q_net,)
        case "squashed":
            holder, parts = policy.actor, (policy.actor.latent_pi, policy.actor.mu)
        case "bounded":
            holder, parts = policy.actor, (policy.actor.mu,)
    extractor = getattr(holder, "pi_features_extractor" if holder is policy else "features_extractor", None)
    if type(extractor) is not FlattenExtractor or any(map(reason, (policy, holder, extractor))):
        return None
    return dense_network_of(nn.Sequential(nn.Flatten(), *copy.deepcopy(parts)), space)


def _is_plain(extractor: nn.Module) -> bool:
    return type(extractor) is MlpExtractor and reason(extractor) is None


def _chosen(scores: Array, uniform: Any) -> Array:
    """Actions by unnormalised log-probabilities: the most likely ones, or drawn ones.

    Args:
        scores: ``(rows, actions)``.
        uniform: Random numbers, ``(rows, 1)``; ``None`` for the most likely.
    """
    if uniform is None:
        best: Array = scores.argmax(1)
        return best
    likely = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
    sums = np.cumsum(likely, 1)
    drawn: Array = (sums[:, :-1] <= uniform * sums[:, -1:]).sum(1)
    return drawn
