"""Environments that are stepped one after the other, as anybody would write it down: what whoever steps them is held against."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from reactor_pettingzoo.agents import AgentSpecs, probe_agents

IDLE = 2
NEXT, SAME, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED


class Told(NamedTuple):
    """What a step or a reset of one environment says, row by row: copies."""

    seen: Sequence[Any]
    rewards: Sequence[Any]
    ends: Sequence[tuple[bool, bool]]
    """Terminated, truncated."""
    infos: Sequence[dict[str, Any]]
    over: bool = False
    """Whether nothing is left to do but a reset."""
    batched: dict[str, Any] | None = None
    """Infos of all rows, where the environment puts them together itself."""
    columns: Mapping[str, Sequence[Any]] = {}
    last: Sequence[Any] | None = None
    """What each row has seen last, where that is not ``seen``."""


class Plain(ABC):
    """One environment in a plain loop; how many rows it has, how they act and what they are told is known to its class."""

    rows = 1
    whole = False
    """Whether there is one record of what all its rows see."""

    def __init__(self, env: Any, number: int) -> None:
        self.env = env
        self.choices = deepcopy(env.action_space)  # others have the same one
        self.choices.seed(number)

    @abstractmethod
    def reset(self, **kwargs: Any) -> Told:
        """Begin an episode."""

    @abstractmethod
    def step(self, actions: Any) -> Told:
        """Take a step; ``actions`` of its rows."""

    @abstractmethod
    def draw(self) -> Any:
        """Actions of its rows."""

    def nothing(self) -> Told:
        """What there is before the first reset."""
        return Told([None] * (1 if self.whole else self.rows), [0.0] * self.rows, [(False, False)] * self.rows, [{}] * self.rows)

    observed = "step"
    """The method that gives observations; empty if they cannot but fit."""

    @staticmethod
    def unfit(returned: Any) -> Any:
        """What that returned, with observations that do not fit."""
        return unfit(returned[0]), *returned[1:]


class Single(Plain):
    """A Gymnasium environment."""

    def reset(self, **kwargs: Any) -> Told:
        seen, info = deepcopy(self.env.reset(**kwargs))
        return Told([seen], [0.0], [(False, False)], [info])

    def step(self, actions: Any) -> Told:
        seen, reward, terminated, truncated, info = deepcopy(self.env.step(actions[0]))
        ends = bool(terminated), bool(truncated)
        return Told([seen], [float(np.asarray(reward).item())], [ends], [info], any(ends))

    def draw(self) -> Any:
        return [self.choices.sample()]


class Game(Single):
    """An Atari game, which tells of itself by columns."""

    observed = ""

    def reset(self, **kwargs: Any) -> Told:
        return self._columns(super().reset(**kwargs))

    def step(self, actions: Any) -> Told:
        return self._columns(super().step(actions))

    @staticmethod
    def _columns(told: Told) -> Told:
        return told._replace(infos=[{}], columns={name: [value] for name, value in told.infos[0].items()})


class Batch(Plain):
    """A vector environment, which resets its rows itself."""

    def __init__(self, env: Any, number: int) -> None:
        super().__init__(env, number)
        self.rows = env.num_envs

    def reset(self, **kwargs: Any) -> Told:
        seen, infos = deepcopy(self.env.reset(**kwargs))
        none = [0.0] * self.rows, [(False, False)] * self.rows
        return Told(self._rows(seen), *none, [{}] * self.rows, batched=infos)

    def step(self, actions: Any) -> Told:
        seen, rewards, terminations, truncations, infos = deepcopy(self.env.step(actions))
        ends = list(zip(terminations.tolist(), truncations.tolist(), strict=True))
        return Told(self._rows(seen), rewards.tolist(), ends, [{}] * self.rows, batched=infos)

    def _rows(self, seen: Any) -> list[Any]:
        return list(iterate(self.env.observation_space, seen))

    def draw(self) -> Any:
        return self.choices.sample()


class Together(Plain):
    """A PettingZoo environment whose agents act together: a row for each, zeros and ``"padded"`` where it is not there."""

    def __init__(self, env: Any, number: int) -> None:
        self.env, self.agents = env, list(env.possible_agents)
        self.rows = len(self.agents)
        self.choices = [deepcopy(env.action_space(agent)) for agent in self.agents]
        for row, choices in enumerate(self.choices):
            choices.seed(10 * number + row)
        self.masks: dict[str, Any] = {}

    def reset(self, **kwargs: Any) -> Told:
        observations, infos = deepcopy(self.env.reset(**kwargs))
        return self._told(list(self.env.agents), observations, infos, {}, {}, {})

    def step(self, actions: Any) -> Told:
        before = list(self.env.agents)
        told = deepcopy(self.env.step({agent: actions[self.agents.index(agent)] for agent in before}))
        there = [*before, *(agent for agent in self.env.agents if agent not in before)]
        observations, rewards, terminations, truncations, infos = told
        return self._told(there, observations, infos, rewards, terminations, truncations)

    def _told(self, there: Sequence[str], observations: Any, infos: Any, rewards: Any, *flags: Any) -> Told:
        over = not self.env.agents
        self.masks = {agent: infos[agent].get("action_mask") for agent in self.env.agents if agent in infos}
        ends = [tuple(bool(of.get(agent)) for of in flags) if agent in there else (over, False) for agent in self.agents]
        return Told(
            [observations[agent] if agent in there else zeros(self.env.observation_space(agent)) for agent in self.agents],
            [float(np.asarray(rewards.get(agent, 0.0)).item()) if agent in there else 0.0 for agent in self.agents],
            ends,
            [infos[agent] if agent in there else {"padded": True} for agent in self.agents],
            over,
            columns={
                "acting": [agent in self.env.agents for agent in self.agents],
                "present": [agent in there for agent in self.agents],
            },
        )

    def draw(self) -> Any:
        masks = [self.masks.get(agent) for agent in self.agents]
        return [choices.sample(*() if mask is None else (mask,)) for choices, mask in zip(self.choices, masks, strict=True)]


class Recorded(Together):
    """The same, where all rows are in one record: what those see who act next."""

    whole = True

    def __init__(self, env: Any, number: int) -> None:
        super().__init__(env, number)
        self.specs = probe_agents(lambda: deepcopy(env))

    def _told(self, there: Sequence[str], observations: Any, *others: Any) -> Told:
        told = super()._told(there, observations, *others)
        over = told.over
        seen = record_of(self.specs, self.env.agents, observations, self.masks)
        ends = [ends if agent in there else (False, False) for agent, ends in zip(self.agents, told.ends, strict=True)]
        last = [observations.get(agent) for agent in self.agents]
        return told._replace(seen=[seen], ends=ends, infos=[{}] * self.rows, over=over, last=last)


class InTurns(Plain):
    """A PettingZoo environment whose agents take turns; what the next one sees is in a record."""

    observed = "observe"
    whole = True

    def __init__(self, env: Any, number: int) -> None:
        self.env, self.agents, self.specs = env, list(env.possible_agents), probe_agents(lambda: deepcopy(env))
        self.rows, self.random = len(self.agents), np.random.default_rng(number)
        self.masks: list[Any] = []

    def reset(self, **kwargs: Any) -> Told:
        self.env.reset(**kwargs)
        return self._told([0.0] * self.rows, [(False, False)] * self.rows, self.env.agents)

    def step(self, actions: Any) -> Told:
        env, before = self.env, list(self.env.agents)
        env.step(actions[self.agents.index(env.agent_selection)])
        rewards = [float(np.asarray(env.rewards.get(agent, 0.0)).item()) for agent in self.agents]
        ends = [(bool(env.terminations.get(agent)), bool(env.truncations.get(agent))) for agent in self.agents]
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.step(None)
        return self._told(rewards, ends, before)

    def _told(self, rewards: Any, ends: Any, there: Sequence[str]) -> Told:
        env, over, acts = self.env, not self.env.agents, [] if not self.env.agents else [self.env.agent_selection]
        observations = {agent: deepcopy(env.observe(agent)) for agent in acts}
        masks = {agent: deepcopy(env.infos[agent].get("action_mask")) for agent in acts}
        told = observations if self.specs.groups[0].mask == "observation" else {}
        self.masks = [told.get(agent, {}).get("action_mask", masks[agent]) for agent in acts]
        return Told(
            [record_of(self.specs, acts, observations, masks)], rewards, ends, [{}] * self.rows, over,
            columns={"acting": [agent in acts for agent in self.agents], "present": [agent in there for agent in self.agents]},
            last=[None] * self.rows,
        )  # fmt: skip

    def draw(self) -> Any:
        """One that is allowed, for all of them: whose turn it is, whoever steps it knows."""
        (mask,) = self.masks or (None,)
        (group, *_) = self.specs.groups
        legal = np.arange(group.action_space.n) if mask is None else np.flatnonzero(mask)
        return [self.random.choice(legal)] * self.rows

    @staticmethod
    def unfit(returned: Any) -> Any:
        return unfit(returned)


def record_of(specs: AgentSpecs, acts: Sequence[str], observations: Any, masks: Mapping[str, Any]) -> Any:
    """What agents see who act next."""
    record = np.zeros((), specs.record())
    for agent in acts:
        group, row = specs.group_of(agent)
        record[group.field("alive")][row] = True
        for key in group.parts:
            value = observations[agent]
            for step in group.path(key):
                value = value[step]
            record[group.field(f"observation.{key}")][row] = value
        if group.mask:
            given = observations[agent]["action_mask"] if group.mask == "observation" else masks[agent]
            record[group.field("action_mask")][row] = 1 if given is None else given
            if group.mask == "later":
                record[group.field("masked")][row] = given is not None
        if specs.turns:
            record["acting"] = specs.agents.index(agent)
    return record


def zeros(space: Any) -> Any:
    """What stands for an agent that is not there."""
    if isinstance(space, spaces.Dict):
        return {key: zeros(part) for key, part in space.items()}
    return "0" if isinstance(space, spaces.Text) else np.zeros(space.shape, space.dtype)  # its shortest text


class Now(NamedTuple):
    """What there is to see after a step or a reset of all."""

    shown: list[Any]
    led_to: list[Any]
    rewards: list[Any]
    ends: list[tuple[bool, bool]]
    over: list[int]
    finals: dict[int, tuple[Any, Any]]
    infos: dict[int, Any]
    batched: list[tuple[int, int, dict[str, Any]]]
    columns: dict[str, list[Any]]
    pending: list[int]


class Loop:
    """A plain loop over environments, which are reset as the mode says.

    Args:
        plains: The environments.
        mode: ``None`` if they reset their rows themselves.
        seeds: From an environment to the arguments of a reset that follows an episode; ``None`` for no reset.
    """

    def __init__(
        self, plains: Iterable[Plain], mode: AutoresetMode | None, seeds: Callable[[int], dict[str, Any] | None] | None = None
    ) -> None:
        self.plains, self.mode, self.seeds = list(plains), mode, seeds or (lambda number: {})
        self.bounds = list(accumulate((plain.rows for plain in self.plains), initial=0))
        self.pending = [0] * len(self.plains)
        self.told: list[Told] = []

    def actions(self) -> Any:
        """One for each row."""
        return np.array([action for plain in self.plains for action in plain.draw()])

    def reset(self, resets: Mapping[int, Mapping[str, Any]]) -> Now:
        """Reset some environments, or all; the others show what they showed."""
        self.told = self.told or [plain.nothing() for plain in self.plains]
        begun = {}
        for number, kwargs in resets.items():
            self.told[number] = begun[number] = self.plains[number].reset(**kwargs)
            self.pending[number] = False
        return self._now(begun)

    def step(self, actions: Any) -> Now:
        """Step each of them."""
        led_to, over, finals = [], [], {}
        for number, (plain, (lo, hi)) in enumerate(zip(self.plains, pairwise(self.bounds), strict=True)):
            told = self.told[number]
            if self.pending[number] == IDLE:
                none: dict[str, Any] = {"rewards": [0.0], "ends": [(False, False)], "infos": [{}]}
                told = told._replace(batched=None, **{name: value * plain.rows for name, value in none.items()})
                led_to.append(told.seen)
            elif self.pending[number]:
                self.pending[number] = False
                told = plain.reset(**(self.seeds(number) or {}))
                led_to.append(told.seen)
            else:
                told = plain.step(deepcopy(actions[lo:hi]))
                led_to.append(told.seen)
                if told.over:
                    over.append(number)
                if self.mode is SAME:
                    last = told.seen if told.last is None else told.last
                    finals |= {lo + row: (last[row], told.infos[row]) for row, ends in enumerate(told.ends) if any(ends)}
                if told.over and self.mode is NEXT:
                    self.pending[number] = True
                if told.over and self.mode is SAME:
                    kwargs = self.seeds(number)
                    if kwargs is None:
                        self.pending[number] = IDLE
                        told = told._replace(infos=[{}] * plain.rows)
                    else:
                        begun = plain.reset(**kwargs)
                        told = told._replace(seen=begun.seen, infos=begun.infos, columns=begun.columns)
            self.told[number] = told
        return self._now(dict(enumerate(self.told)), [one for rows in led_to for one in rows], over, finals)

    def _now(
        self, news: Mapping[int, Told], led_to: Sequence[Any] = (), over: Sequence[int] = (), finals: Mapping[int, Any] = {}
    ) -> Now:
        infos = {self.bounds[n] + row: info for n, told in news.items() for row, info in enumerate(told.infos) if info}
        batched = [(self.bounds[n], self.plains[n].rows, told.batched) for n, told in news.items() if told.batched]
        columns: dict[str, list[Any]] = {}
        for told in self.told:
            for name, column in told.columns.items():
                columns.setdefault(name, []).extend(column)
        rows = [[one for told in self.told for one in getattr(told, part)] for part in ("seen", "rewards", "ends")]
        return Now(rows[0], list(led_to), *rows[1:], list(over), dict(finals), infos, batched, columns, list(self.pending))


def unfit(value: Any) -> Any:
    """Something of the same form, with arrays of another shape."""
    if isinstance(value, dict):
        return {key: unfit(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(unfit, value))
    return np.zeros((2, 3, 5), np.float32)
