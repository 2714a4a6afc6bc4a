"""Which policy acts for which agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reactor_pettingzoo.agents import AgentID
from reactor_pettingzoo.runner.policies import check_policy
from reactor_pettingzoo.runner.roster import Roster

__all__ = ["assigned", "checked", "single"]


def assigned(roster: Roster, policies: Mapping[str, Any], policy_of: Callable[[AgentID], str] | None) -> dict[AgentID, str]:
    """The name of every agent's policy.

    Raises:
        TypeError: If something is no policy.
        ValueError: If an agent has none, or a policy does not fit its agents.
    """
    if not policies:
        raise ValueError("there are no policies; pass a dict with at least one, by name")
    names = {}
    for agent in roster.agents:
        if policy_of is not None:
            name = policy_of(agent)
        elif agent in policies:
            name = agent  # type: ignore[assignment]
        elif len(policies) == 1:
            (name,) = policies
        else:
            raise ValueError(f"agent {agent!r} has no policy among {list(policies)}; add one of its name, or pass policy_of=")
        if name not in policies:
            raise ValueError(f"policy_of({agent!r}) is {name!r}, which is none of the policies {list(policies)}")
        names[agent] = name
    checked(roster, policies, [names])
    return names


def single(policy: Any) -> dict[str, Any]:
    """One policy for all agents, where a mapping may be given.

    Raises:
        TypeError: If it is something else, such as a list of policies.
    """
    if isinstance(policy, list | tuple | set | str | bytes | type(None)):
        raise TypeError(f'policies is {policy!r}; pass a dict of policies by name, such as {{"all": policy}}, or a single policy')
    return {"all": policy}


def checked(roster: Roster, policies: Mapping[str, Any], acts: list[dict[AgentID, str]]) -> None:
    """Refuse policies that are none, or do not fit the agents that they act for; ``acts`` says for each copy who those are.

    Raises:
        TypeError: If something is no policy.
        ValueError: If a policy does not fit its agents.
    """
    blocks: dict[str, dict[int, AgentID]] = {}
    for names in acts:
        for agent, name in names.items():
            blocks.setdefault(name, {}).setdefault(roster.block_of(agent)[0].number, agent)
    for name, of_blocks in blocks.items():
        if len(of_blocks) > 1:
            one, other = list(of_blocks.values())[:2]
            (block, _), (differing, _) = roster.block_of(one), roster.block_of(other)
            raise ValueError(
                f"the policy {name!r} is to act for {one!r}, which has {block.observation_space} and {block.action_space}, "
                f"and for {other!r}, which has {differing.observation_space} and {differing.action_space}: "
                "give agents with different spaces policies of their own"
            )
        (number,) = of_blocks
        check_policy(name, policies[name], roster.blocks[number])
