"""Policies: what may act, and for which agents."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import nn

from reactor_pettingzoo.agents import AgentGroup, AgentSpecs
from reactor_pettingzoo.reading import MASK, AgentID
from reactor_pettingzoo.runner.actions import ActionSampler, uniform_choice
from reactor_pettingzoo.runner.distributions import choose_by
from reactor_rl.plugin import library_class
from reactor_torch import DenseNetwork, dense_network_of, ends_in_softmax, naming_spoilt, reason, refuse_spoilt

__all__ = [
    "RandomPolicy",
    "acting_part",
    "callable_policy",
    "dense_layers",
    "assigned",
    "checked",
]

Array = npt.NDArray[Any]
SinglePolicy = Callable[[Any, Array | None, ActionSampler], Array]
"""From a batch of observations, and action masks, to the actions ``(rows, ...)`` of a policy that is asked by itself."""


class RandomPolicy:
    """Acts at random, legally where the environment has action masks: a baseline."""

    def __repr__(self) -> str:
        return "RandomPolicy()"


def check_policy(name: str, policy: Any, group: AgentGroup) -> None:
    """Refuse what can act for nobody, or not for these agents.

    Raises:
        TypeError: If it is not a policy, or one that remembers what it has seen.
        ValueError: If it was made for other spaces.
    """
    if isinstance(policy, type):
        raise TypeError(f"the policy {name!r} is the class {policy.__name__}; pass an object of it")
    if not isinstance(policy, nn.Module | RandomPolicy) and _sb3_policy(policy) is None and not callable(policy):
        raise TypeError(
            f"the policy {name!r} is {policy!r}; pass a torch.nn.Module, a Stable-Baselines3 model, or a function of a batch of "
            "observations"
        )
    sb3 = _sb3_policy(policy)
    if sb3 is not None:
        from reactor_sb3.plugin import changes_of, channels_first

        if hasattr(sb3, "lstm_actor"):
            raise TypeError(
                f"the policy {name!r} is a {type(policy).__name__}, which remembers what an agent has seen in an episode, and "
                "policies of many agents are asked about each observation by itself: pass one without an LSTM, which may see "
                "stacked frames, or play it in a loop of your own, by predict(state=..., episode_start=...)"
            )
        given = group.space, group.observation_space
        if sb3.observation_space not in (*given, *map(channels_first, given)):
            hint = "" if sb3 is policy else changes_of(policy)
            raise ValueError(
                f"the policy {name!r} was trained to observe {sb3.observation_space}, and its agents "
                f"{_listed(group)} observe {group.observation_space}{hint}"
            )
        if not _same_actions(sb3.action_space, group.action_space):
            raise ValueError(
                f"the policy {name!r} was trained for the actions {sb3.action_space}, and its agents {_listed(group)} have "
                f"{group.action_space}"
            )
        _normalizer_of(policy, group.observation_space if _with_masks(sb3.observation_space, group) else group.space)


def _same_actions(space: Any, other: Any) -> bool:
    """Whether actions of two spaces are the same, but for the number of the first one."""
    if isinstance(space, spaces.Discrete) and isinstance(other, spaces.Discrete):
        return bool(space.n == other.n)
    return bool(space == other)


def _listed(group: AgentGroup) -> str:
    shown = ", ".join(map(str, group.agents[:3]))
    return shown if len(group.agents) <= 3 else f"{shown}, ..."


class NormalizedPolicy(nn.Module):
    """An SB3 model's policy, and what normalises its observations.

    Args:
        policy: The policy.
        normalizer: What it is shown in place of what agents observe.
    """

    def __init__(self, policy: nn.Module, normalizer: Any) -> None:
        super().__init__()
        self.policy, self.normalizer = policy, normalizer
        for number, statistics in enumerate(normalizer.statistics()):  # what is hashed tells them apart
            numbers = np.concatenate([np.ravel(one) for of_key in statistics.values() for one in of_key])
            self.register_buffer(f"statistics_{number}", torch.from_numpy(numbers))


def _normalizer_of(policy: Any, space: Any = None) -> Any:
    """Return the normaliser of an SB3 model's observations, as it is now; ``None`` if nothing normalises them.

    Raises:
        ValueError: If it normalises others than those of a space.
    """
    if _sb3_policy(policy) in (None, policy):
        return None
    from reactor_sb3.plugin import normalizer_of

    return normalizer_of(policy, space)


def _with_masks(seen: Any, group: AgentGroup) -> bool:
    """Whether a policy is shown action masks as a part of what it observes."""
    return group.mask == "observation" and MASK in getattr(seen, "spaces", ())


def acting_part(policy: Any) -> Any:
    """The part of a policy that travels, to the CPU: of an SB3 model its policy, for the model holds an environment and buffers."""
    sb3 = _sb3_policy(policy)
    part = policy if sb3 is None else sb3
    normalizer = _normalizer_of(policy)
    if normalizer is not None:
        part = NormalizedPolicy(sb3, normalizer)
    if isinstance(part, nn.Module) and any(one.device.type != "cpu" for one in part.parameters()):
        part = copy.deepcopy(part).to("cpu")
    return part


def dense_layers(policy: Any, group: AgentGroup, greedy: bool) -> DenseNetwork | None:
    """The layers of a policy that can be evaluated together with others of the same shape, ``None`` if it cannot."""
    if not isinstance(group.space, spaces.Box) or not isinstance(group.action_space, spaces.Discrete):
        return None
    sb3 = _sb3_policy(policy)
    if sb3 is not None:
        return None if _normalizer_of(policy) else _sb3_layers(sb3, group, greedy)
    network = dense_network_of(policy, group.space) if isinstance(policy, nn.Module) else None
    # One that scores other actions is left to be asked by itself, where its mistake is named.
    return network if network is not None and network.layers[-1].outputs == group.action_space.n else None


def callable_policy(name: str, policy: Any, group: AgentGroup, greedy: bool) -> SinglePolicy:
    """How to ask a policy by itself."""
    if isinstance(policy, RandomPolicy):
        return _Random(group)
    if isinstance(policy, NormalizedPolicy):
        return _Sb3(name, policy.policy, group, greedy, policy.normalizer)
    sb3 = _sb3_policy(policy)
    if sb3 is not None:
        return _Sb3(name, sb3, group, greedy)
    if isinstance(policy, nn.Module):
        return _Module(name, policy, group, greedy)
    return _Function(name, policy, group)


# ---------------------------------------------------------------------- each kind


class _Random:
    draws = True

    def __init__(self, group: AgentGroup) -> None:
        self.group = group

    def __call__(self, observations: Any, masks: Array | None, sampler: ActionSampler) -> Array:
        return uniform_choice(self.group.action_space, masks, sampler)


class _Module:
    """A torch module: scores of actions for discrete ones (anything that grows with the logits if greedy), else actions."""

    def __init__(self, name: str, module: nn.Module, group: AgentGroup, greedy: bool) -> None:
        self.name, self.module, self.group, self.greedy = name, module, group, greedy
        module.eval()
        module.requires_grad_(False)
        self.probabilities = ends_in_softmax(module) and isinstance(group.action_space, spaces.Discrete)
        self.dtype = next((one.dtype for one in module.parameters() if one.is_floating_point()), torch.float32)

    def __call__(self, observations: Any, masks: Array | None, sampler: ActionSampler) -> Array:
        rows = _count(observations)
        tensors = self._tensors(observations)
        with sampler.own, torch.inference_mode(), naming_spoilt(self.module, f"the policy {self.name!r}"):
            outputs = self.module(tensors)
            if isinstance(outputs, torch.distributions.Distribution):
                return choose_by(sampler, self.name, self.group.action_space, outputs, masks, rows, self.greedy)
        if isinstance(outputs, torch.Tensor) and self.probabilities:
            outputs = outputs.log()
        elif not isinstance(outputs, torch.Tensor):
            raise TypeError(f"the policy {self.name!r} returned {type(outputs).__name__}, not a tensor or a distribution")
        return sampler.choose(self.name, self.group.action_space, outputs.numpy(), masks, rows, self.greedy)

    def _tensors(self, observations: Any) -> Any:
        """Numbers in the module's own precision; those that only tell things apart as they are."""
        observations = {"": observations} if self.group.single else observations
        tensors = {
            key: torch.from_numpy(observations[key]).to(self.dtype if isinstance(space, spaces.Box) else None)
            for key, space in self.group.parts.items()
        }
        return tensors[""] if self.group.single else tensors


class _Function:
    """A function of observations, and of action masks where there are any, that returns actions."""

    def __init__(self, name: str, function: Callable[..., Any], group: AgentGroup) -> None:
        self.name, self.function, self.group = name, function, group

    def __call__(self, observations: Any, masks: Array | None, sampler: ActionSampler) -> Array:
        with sampler.own:
            actions = self.function(observations) if masks is None else self.function(observations, masks)
        rows, shape = _count(observations), self.group.action_space.shape or ()
        given = actions.detach().cpu() if isinstance(actions, torch.Tensor) else actions
        try:
            actions = np.asarray(given)
        except ValueError as error:  # lists of several lengths
            raise ValueError(
                f"the policy {self.name!r} returned {given!r:.200} for {rows} observations; expected is an array of shape "
                f"{(rows, *shape)}"
            ) from error
        if actions.shape != (rows, *shape):
            raise ValueError(
                f"the policy {self.name!r} returned actions of shape {actions.shape} for {rows} observations; expected is "
                f"{(rows, *shape)}"
            )
        if actions.dtype.kind not in "biuf":
            whole = "whole " if np.dtype(self.group.action_space.dtype).kind in "iu" else ""
            raise ValueError(f"the policy {self.name!r} returned actions of type {actions.dtype}; expected are {whole}numbers")
        return actions


class _Sb3:
    """A model of Stable-Baselines3, or of sb3-contrib."""

    def __init__(self, name: str, policy: Any, group: AgentGroup, greedy: bool, normalizer: Any = None) -> None:
        self.name, self.policy, self.group, self.greedy, self.normalizer = name, policy, group, greedy, normalizer
        self.whole = _with_masks(policy.observation_space, group)
        policy.set_training_mode(False)
        scores = isinstance(group.action_space, spaces.Discrete) and (hasattr(policy, "q_net") or hasattr(policy, "quantile_net"))
        self.scores = self._scores if scores else None
        self.distribution = hasattr(policy, "get_distribution") and not getattr(policy, "use_sde", False)
        self.own = _own_way(policy) is not None
        if (self.own or not (scores or self.distribution)) and not isinstance(group.action_space, spaces.Box):
            refuse_spoilt(policy, f"the policy {name!r}")  # its answers are choices, of which none is NaN

    def __call__(self, observations: Any, masks: Array | None, sampler: ActionSampler) -> Array:
        if self.whole:
            parts = observations if isinstance(observations, Mapping) else {self._key(): observations}
            observations = {**parts, MASK: masks}
        rows = _count(observations)
        if self.normalizer is not None:
            observations = self.normalizer(observations)
        tensors, _ = self.policy.obs_to_tensor(observations)
        space, own = self.group.action_space, self.own and masks is None  # masks are for who chooses by scores
        with sampler.own, torch.inference_mode(), naming_spoilt(self.policy, f"the policy {self.name!r}"):
            if self.distribution and not own:
                found = self.policy.get_distribution(tensors)
                found = getattr(found, "distributions", None) or found.distribution  # several choices that may be masked
                chosen = choose_by(sampler, self.name, space, found, masks, rows, self.greedy)
            elif self.scores is not None and not own:
                chosen = sampler.choose(self.name, space, self.scores(tensors), masks, rows, greedy=True)
            else:
                chosen = sampler.by_torch(lambda: self._predicted(tensors, rows)).numpy()
        if isinstance(space, spaces.Box):
            stretched = self.policy.unscale_action(chosen) if self.policy.squash_output else chosen
            chosen = np.clip(stretched, space.low, space.high)  # rounding takes stretched ones beyond a bound, too
        return np.asarray(chosen)

    def _predicted(self, tensors: Any, rows: int) -> Any:
        if not self.greedy and getattr(getattr(self.policy, "actor", self.policy), "use_sde", False):
            self.policy.reset_noise(rows)  # what it drew when it learned has stayed there
        return self.policy._predict(tensors, deterministic=self.greedy)

    def _scores(self, tensors: Any) -> Array:
        policy = self.policy
        values = policy.q_net(tensors) if hasattr(policy, "q_net") else policy.quantile_net(tensors).mean(1)
        scores: Array = values.numpy()
        return scores

    def _key(self) -> str:
        space = self.group.observation_space
        assert isinstance(space, spaces.Dict)
        return next(key for key in space.spaces if key != MASK)


# ---------------------------------------------------------------------- helpers


def _count(observations: Any) -> int:
    return len(next(iter(observations.values())) if isinstance(observations, Mapping) else observations)


def _sb3_policy(policy: Any) -> Any:
    """The policy of an SB3 model, or the model's policy itself; ``None`` for anything else."""
    if "stable_baselines3" not in sys.modules:  # nobody can have an object of it, and importing it takes a second
        return None
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.policies import BasePolicy

    if isinstance(policy, BaseAlgorithm):
        return policy.policy
    return policy if isinstance(policy, BasePolicy) else None


def _own_way(policy: Any) -> str | None:
    """Say what it does of its own between observations and actions; ``None`` for what its library does."""
    return reason(policy, library_class(type(policy), ("stable_baselines3", "sb3_contrib")), ("_predict", "get_distribution"))


def _sb3_layers(policy: Any, group: AgentGroup, greedy: bool) -> DenseNetwork | None:
    """The layers of an MlpPolicy's actor or Q-network, if it consists of them alone: no action is drawn by Q-values."""
    from stable_baselines3.common.policies import ActorCriticPolicy
    from stable_baselines3.common.preprocessing import is_image_space
    from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
    from stable_baselines3.dqn.policies import DQNPolicy

    if policy.observation_space != group.space or is_image_space(group.space) or _own_way(policy) is not None:
        return None
    if type(policy) is ActorCriticPolicy:
        parts = policy.pi_features_extractor, policy.mlp_extractor
        if tuple(map(type, parts)) == (FlattenExtractor, MlpExtractor) and not any(map(reason, parts)):
            return dense_network_of(nn.Sequential(nn.Flatten(), policy.mlp_extractor.policy_net, policy.action_net), group.space)
    elif greedy and type(policy) is DQNPolicy and type(policy.q_net.features_extractor) is FlattenExtractor:
        if any(map(reason, (policy.q_net, policy.q_net.features_extractor))):
            return None
        return dense_network_of(nn.Sequential(nn.Flatten(), policy.q_net.q_net), group.space)
    return None


def assigned(
    specs: AgentSpecs, policies: Mapping[str, Any] | Any, policy_of: Callable[[AgentID], str] | Mapping[AgentID, str] | None
) -> tuple[Mapping[str, Any], dict[AgentID, str]]:
    """Policies by name, where there may be a single one for all agents; and the name of every agent's policy.

    Raises:
        TypeError: If something is not a policy, such as a list of policies.
        ValueError: If an agent has none, or a policy does not fit its agents.
    """
    if isinstance(policies, list | tuple | set | str | bytes | type(None)):
        raise TypeError(f'policies is {policies!r}; pass a dict of policies by name, such as {{"all": policy}}, or a single policy')
    if not isinstance(policies, Mapping):
        policies = {"all": policies}
    if not policies:
        raise ValueError("there are no policies; pass a dict with at least one, by name")
    names = {}
    for agent in specs.agents:
        if policy_of is not None:
            name = policy_of[agent] if isinstance(policy_of, Mapping) else policy_of(agent)
        elif agent in policies:
            name = agent  # type: ignore[assignment]
        elif str(agent) in policies and str(agent) not in specs.agents:  # names of SyncIPPO's policies are strings
            name = str(agent)
        elif len(policies) == 1:
            (name,) = policies
        else:
            raise ValueError(f"agent {agent!r} has no policy among {list(policies)}; add one of its name, or pass policy_of=")
        if name not in policies:
            raise ValueError(f"policy_of({agent!r}) is {name!r}, which is not among the policies {list(policies)}")
        names[agent] = name
    checked(specs, policies, [names])
    return policies, names


def checked(specs: AgentSpecs, policies: Mapping[str, Any], acts: list[dict[AgentID, str]]) -> None:
    """Refuse policies that cannot be asked, or do not fit the agents that they act for; ``acts`` says for each copy who those are.

    Raises:
        TypeError: If something is not a policy, or actions are no arrays of a fixed form.
        ValueError: If a policy does not fit its agents.
    """
    for group in specs.groups:
        if not isinstance(group.action_space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary | spaces.Box):
            raise TypeError(
                f"agent {group.agents[0]!r} acts in {group.action_space}, and policies of many agents choose in a Discrete, "
                "MultiDiscrete, MultiBinary or Box space: wrap the environment so that an action is one of those"
            )
    groups: dict[str, dict[int, AgentID]] = {}
    for names in acts:
        for agent, name in names.items():
            groups.setdefault(name, {}).setdefault(specs.group_of(agent)[0].number, agent)
    for name, of_groups in groups.items():
        if len(of_groups) > 1:
            one, other = list(of_groups.values())[:2]
            (group, _), (differing, _) = specs.group_of(one), specs.group_of(other)
            raise ValueError(
                f"the policy {name!r} is to act for {one!r}, which has {group.observation_space} and {group.action_space}, "
                f"and for {other!r}, which has {differing.observation_space} and {differing.action_space}: "
                "give agents with different spaces policies of their own"
            )
        (number,) = of_groups
        check_policy(name, policies[name], specs.groups[number])
