"""Policies: what may act, and for which agents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import Space, spaces
from torch import nn

from reactor_pettingzoo.agents import AgentGroup, AgentSpecs
from reactor_pettingzoo.reading import MASK, AgentID
from reactor_torch import FILLING, DenseNet, Policy, as_policy, refuse_spoilt

__all__ = ["PolicyPart", "RandomPolicy", "assigned", "checked", "part_of"]

Array = npt.NDArray[Any]


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
    sb3 = _sb3_policy(policy)
    if sb3 is None and not isinstance(policy, RandomPolicy) and not callable(policy):
        raise TypeError(
            f"the policy {name!r} is {policy!r}; pass a torch.nn.Module, a Stable-Baselines3 model, or a function of a batch of "
            "observations"
        )
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


def _normalizer_of(policy: Any, space: Any = None) -> Any:
    """Return the normaliser of an SB3 model's observations, as it is now; ``None`` if nothing normalises them.

    Raises:
        ValueError: If it normalises others than those of a space.
    """
    if _sb3_policy(policy) in (None, policy):
        return None
    from reactor_sb3.plugin import normalizer_of

    return normalizer_of(policy, space)


class PolicyPart(NamedTuple):
    """A policy as it travels.

    Attributes:
        other: A function, or a :class:`RandomPolicy`; all else is of a policy that was read.
        policy: How it acts.
        weights: Its weights, see :meth:`reactor_torch.Source.weights`.
        observed: What it sees of an agent.
        normalizer: What normalises that before, if anything does.
        of_library: Whether a library has made it, and not the user of modules.
    """

    other: Any = None
    policy: Policy | None = None
    weights: Any = None
    observed: Any = None
    normalizer: Any = None
    of_library: bool = False

    @property
    def by_row(self) -> bool:
        """Whether what is done for a row depends on nothing but that row, to the last bit."""
        if self.policy is None:
            return isinstance(self.other, RandomPolicy)
        return self.policy.by_row

    def goes_with(self, other: PolicyPart) -> bool:
        """Whether both are networks of dense layers, of one kind, and evaluated together."""
        kinds = self.policy, other.policy
        alike = all(one is not None and isinstance(one.network, DenseNet) for one in kinds) and kinds[0] == kinds[1]
        return alike and self.observed == other.observed and self.normalizer is None and other.normalizer is None

    def looks_at_masks(self, group: AgentGroup) -> bool:
        """Whether it is shown action masks as a part of what it observes."""
        return self.of_library and _with_masks(self.observed, group)

    def wants_fractions(self, space: Space[Any]) -> bool:
        """Whether whole numbers are converted before a module sees them; bytes it is given by itself."""
        return not self.of_library and isinstance(space, spaces.Box) and space.dtype.kind in "iu" and space.dtype != np.uint8

    def contents(self) -> Any:
        """Everything that was learned, by which it is told apart from others; ``None`` if nobody knows."""
        if self.policy is None:
            return None
        weights = {name: self.weights[name] for name in self.weights.dtype.names or () if name != FILLING}
        return [weights, *([] if self.normalizer is None else self.normalizer.statistics())]


def part_of(name: Any, policy: Any, group: AgentGroup) -> PolicyPart:
    """A policy as it travels for some agents, with a copy of its weights as they are now.

    Raises:
        ValueError: If it cannot travel, or its answers are choices and its weights are not finite numbers.
    """
    sb3 = _sb3_policy(policy)
    source = as_policy(policy, group.space, group.action_space) if sb3 is not None or isinstance(policy, nn.Module) else None
    if source is None:
        return PolicyPart(policy)
    if source.policy.distribution is None and not isinstance(group.action_space, spaces.Box):
        refuse_spoilt(source.module, f"the policy {name!r}")  # its answers are choices, of which none is NaN
    own = replace(source.policy, action_space=group.action_space)  # SB3 counts choices from 0
    observed = group.space if sb3 is None else sb3.observation_space
    return PolicyPart(None, own, source.weights(), observed, _normalizer_of(policy), sb3 is not None)


def _with_masks(seen: Any, group: AgentGroup) -> bool:
    """Whether masks are a part of what a policy observes."""
    return group.mask == "observation" and MASK in getattr(seen, "spaces", ())


def _sb3_policy(policy: Any) -> Any:
    """The policy of an SB3 model, or the model's policy itself; ``None`` for anything else."""
    if "stable_baselines3" not in sys.modules:  # nobody can have an object of it, and importing it takes a second
        return None
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.policies import BasePolicy

    if isinstance(policy, BaseAlgorithm):
        return policy.policy
    return policy if isinstance(policy, BasePolicy) else None


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
