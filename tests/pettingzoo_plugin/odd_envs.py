"""Environments that say what they say in odd ways, or say something that nobody can read."""

from __future__ import annotations

from collections import ChainMap, OrderedDict, defaultdict
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

BOX = spaces.Box(-10, 10, (2,), np.float32)


class Plain(ParallelEnv):
    """Four steps; each pays the ant 1 and the bee 2. An action that the mask of the step forbids is an error."""

    metadata: ClassVar[dict[str, Any]] = {"name": "plain", "render_modes": []}
    render_mode = None
    names: ClassVar[Any] = ("ant", "bee")
    actions: ClassVar[spaces.Space[Any]] = spaces.Discrete(3)
    length = 4

    def __init__(self) -> None:
        self.possible_agents = list(self.names)
        self.agents: Any = []

    def observation_space(self, agent: Any) -> Any:
        return BOX

    def action_space(self, agent: Any) -> Any:
        return self.actions

    def seen(self, agent: Any) -> Any:
        return np.array([self.t, self.names.index(agent)], np.float32)

    def first(self) -> list[Any]:
        """Who is there at first."""
        return list(self.names)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.t, self.agents = 0, self.first()
        return {agent: self.seen(agent) for agent in self.agents}, {agent: self.info(agent) for agent in self.agents}

    def info(self, agent: Any) -> Any:
        return {}

    def paid(self, agent: Any) -> Any:
        return float(1 + self.names.index(agent))

    def ends(self, agent: Any) -> tuple[bool, bool]:
        """Whether an agent is terminated in this step, and truncated."""
        return False, self.t == self.length

    def told(self, there: list[Any]) -> list[Any]:
        """What is said of those who were there before the step."""
        flags = {agent: self.ends(agent) for agent in there}
        self.agents = [agent for agent in there if not any(flags[agent])]
        return [
            {agent: self.seen(agent) for agent in there}, {agent: self.paid(agent) for agent in there},
            {agent: one for agent, (one, _) in flags.items()}, {agent: other for agent, (_, other) in flags.items()},
            {agent: self.info(agent) for agent in there},
        ]  # fmt: skip

    def step(self, actions: dict[Any, Any]) -> Any:
        assert sorted(actions) == sorted(self.agents), f"actions of {list(actions)}, where {self.agents} are there"
        for agent, action in actions.items():
            assert self.action_space(agent).contains(np.asarray(action)), f"{action} of {agent}"
            self.check(agent, action)
        self.t += 1
        return tuple(self.told(list(self.agents)))

    def check(self, agent: Any, action: Any) -> None:
        """Refuse what is forbidden."""

    def close(self) -> None:
        pass


# ---------------------------------------------------------------------- who is there


class Numbered(Plain):
    names = (7, 2)

    def told(self, there: list[Any]) -> list[Any]:
        return [{np.int64(agent): value for agent, value in part.items()} for part in super().told(there)]


class Late(Plain):
    """Does not know its agents before it is reset."""

    def __init__(self) -> None:
        self.possible_agents, self.agents = [], []

    def action_space(self, agent: Any) -> Any:
        return self.spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.possible_agents, self.spaces = list(self.names), dict.fromkeys(self.names, self.actions)
        return super().reset()


class Unlisted(Plain):
    def __init__(self) -> None:
        self.agents = []


class OfASet(Plain):
    def __init__(self) -> None:
        self.possible_agents, self.agents = set(self.names), []  # type: ignore[assignment]


class Shuffled(Plain):
    """Each copy names its agents in another order."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Shuffled.made += 1
        self.possible_agents = self.possible_agents[:: -1 if Shuffled.made % 2 else 1]


def named_by(kind: Any) -> type[Plain]:
    """Agents that are named by something else than a list."""

    class Named(Plain):
        def __init__(self) -> None:
            self.possible_agents, self.agents = kind(self.names), kind(())

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            found = super().reset()
            self.agents = kind(self.agents)
            return found

        def told(self, there: list[Any]) -> list[Any]:
            found = super().told(sorted(there))
            self.agents = kind(self.agents)
            return found

        def check(self, agent: Any, action: Any) -> None:
            assert agent in self.names

    return Named


class Absent(Plain):
    """The bee never comes, and is paid."""

    def first(self) -> list[Any]:
        return ["ant"]

    def told(self, there: list[Any]) -> list[Any]:
        seen, paid, *rest = super().told(there)
        return [seen, {**paid, "bee": 50.0}, *rest]


class Joining(Plain):
    """The bee comes with the second step, which pays it."""

    def first(self) -> list[Any]:
        return ["ant"]

    def told(self, there: list[Any]) -> list[Any]:
        return super().told(there + ["bee"] * (self.t == 2))


class Leaving(Plain):
    """The ant dies in the second step, and goes on being named, paid and flagged."""

    def ends(self, agent: Any) -> tuple[bool, bool]:
        return agent == "ant" and self.t >= 2, self.t == self.length

    def told(self, there: list[Any]) -> list[Any]:
        seen, paid, ends, cuts, infos = super().told(there)
        paid = {"ant": 100.0, **paid}
        return [{"ant": self.seen("ant"), **seen}, paid, {"ant": self.t >= 2, **ends}, {"ant": False, **cuts}, {"ant": {}, **infos}]


class Unseen(Leaving):
    """Nobody is told what it saw last."""

    def ends(self, agent: Any) -> tuple[bool, bool]:
        return (agent == "ant" and self.t == 2) or self.t == self.length, False

    def told(self, there: list[Any]) -> list[Any]:
        seen, *rest = Plain.told(self, there)
        return [{agent: seen[agent] for agent in self.agents}, *rest]


class CutAndWon(Plain):
    def ends(self, agent: Any) -> tuple[bool, bool]:
        return agent == "bee" and self.t == 4, agent == "ant" and self.t == 2


class WonAndCut(Plain):
    def ends(self, agent: Any) -> tuple[bool, bool]:
        return agent == "ant" and self.t == 2, agent == "bee" and self.t == 4


class Lingering(Plain):
    """All have ended, and stay."""

    def told(self, there: list[Any]) -> list[Any]:
        found = super().told(there)
        self.agents = there
        return found


# ---------------------------------------------------------------------- what is returned


class Older(Plain):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset()


def returned_by(change: Any, first: Any = None) -> type[Plain]:
    """What a step returns, and a reset, is changed before it is returned."""

    class Returned(Plain):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            found = super().reset()
            return found if first is None else first(*found)

        def step(self, actions: dict[Any, Any]) -> Any:
            return change(*super().step(actions))

    return Returned


class Frozen(dict[Any, Any]):
    """A dict of another class."""


def extra(part: dict[Any, Any], value: Any) -> dict[Any, Any]:
    return {"eel": value, **part, "crab": value}


def in_step(number: int, change: Any) -> type[Plain]:
    """The environment, and what a step returned, is changed after one of its steps; of the bee's."""

    class InStep(Plain):
        def step(self, actions: dict[Any, Any]) -> Any:
            found = list(super().step(actions))
            if self.t == number:
                change(self, *found)
            return tuple(found)

    return InStep


def paid_by(reward: Any) -> type[Plain]:
    class Paid(Plain):
        def paid(self, agent: Any) -> Any:
            return reward(super().paid(agent))

    return Paid


CHAINED: Any = lambda part: ChainMap({}, part)  # noqa: E731
ORDERED: Any = OrderedDict
DEFAULTS: Any = lambda part: defaultdict(float, {agent: value for agent, value in part.items() if value})  # noqa: E731


# ---------------------------------------------------------------------- what is allowed


def masked(mask: Any, where: str = "info", actions: Any = None, begins: int = 0) -> type[Plain]:
    """Of the bee's actions some are allowed; the ant has no choice but 2. ``mask(t)`` is the bee's."""

    class Masked(Plain):
        def of(self, agent: Any) -> Any:
            return mask(self.t) if agent == "bee" else self.whole()

        def whole(self) -> Any:
            return np.ones(sum(np.ravel(getattr(self.actions, "nvec", getattr(self.actions, "n", 0)))), np.int8)

        def observation_space(self, agent: Any) -> Any:
            if where != "observation":
                return BOX
            return spaces.Dict(observation=BOX, action_mask=spaces.MultiBinary(len(self.whole())))

        def seen(self, agent: Any) -> Any:
            seen = super().seen(agent)
            return {"observation": seen, "action_mask": self.of(agent)} if where == "observation" else seen

        def info(self, agent: Any) -> Any:
            return {"action_mask": self.of(agent)} if where == "info" and self.t >= begins else {}

        def check(self, agent: Any, action: Any) -> None:
            if agent == "bee" and self.t >= begins:
                parts = mask(self.t)
                if isinstance(self.actions, spaces.MultiDiscrete):
                    parts = np.split(np.hstack(parts), np.cumsum(self.actions.nvec)[:-1])
                    for part, choice in zip(parts, action, strict=True):
                        assert part[int(choice)] or not np.any(part), f"{action} of the bee"
                else:
                    start = int(getattr(self.actions, "start", 0))
                    assert parts[int(action) - start] or not np.any(parts), f"{action} of the bee"

    if actions is not None:
        Masked.actions = actions
    return Masked


# ---------------------------------------------------------------------- turns


class Turns(AECEnv):
    """Two players take two turns each; a turn pays the other one 1, and the last one ends the game."""

    metadata: ClassVar[dict[str, Any]] = {"name": "turns", "render_modes": []}
    render_mode = None
    possible_agents: ClassVar[list[str]] = ["ant", "bee"]  # type: ignore[misc]

    def observation_space(self, agent: Any) -> Any:
        return BOX

    def action_space(self, agent: Any) -> Any:
        return spaces.Discrete(3)

    def observe(self, agent: Any) -> Any:
        return np.full(2, self.t, np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents = list(self.possible_agents)
        for name in ("rewards", "_cumulative_rewards"):
            setattr(self, name, dict.fromkeys(self.agents, 0.0))
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[Any, Any] = {agent: self.info(agent) for agent in self.agents}
        self.t, self.agent_selection, self._skip_agent_selection = 0, "ant", None

    def info(self, agent: Any) -> Any:
        return {}

    def step(self, action: Any) -> None:
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        other = "bee" if agent == "ant" else "ant"
        self._cumulative_rewards[agent] = 0.0
        self.t += 1
        self.rewards = {agent: 0.0, other: 1.0}
        if self.t == 4:
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = other
        self.infos = {agent: self.info(agent) for agent in self.agents}
        self.pay()
        if self.t == 4:
            self._deads_step_first()

    def pay(self) -> None:
        self._accumulate_rewards()

    def close(self) -> None:
        pass


class LastDoubles(Turns):
    """What a loop is told by ``last()`` is twice what ``rewards`` say."""

    def last(self, observe: bool = True) -> Any:
        seen, paid, *rest = super().last(observe)
        return seen, 2 * paid, *rest


class InLastAlone(Turns):
    """``rewards`` pay nothing."""

    def pay(self) -> None:
        self._accumulate_rewards()
        self.rewards = dict.fromkeys(self.agents, 0.0)


class Unaccumulated(Turns):
    """Keeps no account of what has been paid."""

    def pay(self) -> None:
        pass


class Disagreeing(Turns):
    """Forgets now and then what it has paid."""

    def pay(self) -> None:
        if self.t != 3:
            self._accumulate_rewards()


class NoMove(Turns):
    """In its second turn the bee may do nothing."""

    def info(self, agent: Any) -> Any:
        mask = np.ones(3, np.int8)
        return {"action_mask": mask * (getattr(self, "t", 0) < 3)}


class ArraysInTurns(Turns):
    def pay(self) -> None:
        super().pay()
        self.rewards = {agent: np.array([paid]) for agent, paid in self.rewards.items()}
        self.infos = dict.fromkeys(self.agents, None)
