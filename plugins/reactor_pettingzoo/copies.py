"""One copy of a PettingZoo environment: who is there, what was paid, who has ended, and whether the episode is over.

Agents that act together (``ParallelEnv``) and agents that take turns (``AECEnv``) differ in what a step is: an action of everybody
who is there, or of one of them. Everybody who steps a copy does it here, and is told the same; how it is kept is their matter:
``ParallelVectorEnv`` pads rows, ``MultiAgentRunner`` writes records, and ``evaluate`` and ``SyncIPPO`` have one agent of all.

* An agent is there from the observation with which it joins until it leaves ``env.agents``. It may neither leave without an end nor
  come back within an episode.
* It is paid for as long as it is there, the step included in which it joins or ends; rewards of others are nobody's.
* Where agents take turns, it is paid what a loop with ``last()`` is told.
* An episode is terminated if the last end was a termination: if nobody was cut off in the step that left nobody.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any

from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import AssertOutOfBoundsWrapper, OrderEnforcingWrapper, TerminateIllegalWrapper

from reactor_pettingzoo.agents import AgentGroup
from reactor_pettingzoo.reading import (
    MASK,
    NUMBERS,
    AgentID,
    agents_listed,
    broken,
    first_of,
    info_of,
    reset_with,
    reward_number,
    step_of,
)

__all__ = ["AECCopy", "Copy", "ParallelCopy", "copy_of", "leave_dead", "step_parallel", "within_checks"]

_NOBODY: dict[AgentID, Any] = {}


class Copy(ABC):
    """A copy of an environment, and who is there.

    Args:
        env: The environment.
        agents: All agents that there may be; an agent's row is its index in it.

    Attributes:
        live: Who is there, in the order of the environment's ``agents``.
        present: Who has been there in this episode.
        over: Whether the episode has ended with the last step, or none has begun.
        acts: Who acts next: everybody who is there, or the one whose turn it is.
        observations: What those see, and what those saw last who have ended with the last step, as far as they were told.
        infos: Their infos, as far as there are any.
        gains: What the last step paid, by row.
        ends: Who has ended with it, and whether that was a termination and a truncation.
        cut: Whether somebody was cut off, and not terminated, when somebody ended last.
    """

    turns: bool
    acts: Sequence[AgentID]
    observations: Mapping[AgentID, Any]
    infos: Mapping[AgentID, Any]
    gains: Sequence[Any]
    ends: Sequence[tuple[AgentID, bool, bool]]

    def __init__(self, env: Any, agents: Sequence[AgentID]) -> None:
        self.env, self.agents = env, tuple(agents)
        self.index = {agent: row for row, agent in enumerate(self.agents)}
        self.none = (0.0,) * len(self.agents)
        self.live: list[AgentID] = []
        self.present: dict[AgentID, None] = {}  # not a set: the order of one depends on the process
        self.over, self.cut = True, False
        self._forget()

    def _forget(self) -> None:
        self.acts, self.observations, self.infos, self.gains, self.ends = (), _NOBODY, _NOBODY, self.none, ()

    def begin(self, **kwargs: Any) -> None:
        """Begin an episode; ``kwargs`` are those of the environment's ``reset()``, ``None`` where nothing is given."""
        returned = reset_with(self.env, **kwargs)
        self._forget()
        self.present.clear()
        self.live, self.over, self.cut = [], True, False
        self._begun(returned)
        if self.over:
            raise self.broken("it has no agents after reset()")

    @abstractmethod
    def _begun(self, returned: Any) -> None:
        """Take account of what ``reset()`` has returned, and of who is there."""

    @abstractmethod
    def act(self, actions: Any) -> None:
        """Step the environment, and take account of what came of it."""

    def leave(self) -> None:
        """Break an episode off: nobody is there until another one begins."""
        self._forget()
        self._arrive([])

    # ------------------------------------------------------------------ what is asked

    def observation(self, agent: AgentID) -> Any:
        """Return what an agent sees, or saw last.

        Raises:
            Exception: If the environment has not said it.
        """
        try:
            seen = self.observations[agent]
        except KeyError:
            seen = None
        if seen is None:
            raise self.blind(agent)
        return seen

    def info(self, agent: AgentID) -> dict[str, Any]:
        """The info of an agent, empty if it has none."""
        return info_of(agent, self.infos, self.broken)

    def mask(self, group: AgentGroup, agent: AgentID, out: Any = None) -> Any:
        """The action mask of an agent that acts next, a bool for each choice; ``None`` if it has none.

        Args:
            group: The group of the agent.
            agent: The agent.
            out: Where it is written.

        Raises:
            Exception: If it has none where it must have one, or one that does not fit its actions, or allows nothing in its turn.
        """
        where = group.mask
        if where == "observation":
            try:
                given = self.observations[agent][MASK]
            except (KeyError, TypeError, IndexError):
                given = None
        else:
            info = self.infos.get(agent)
            given = None if info is None else (info if type(info) is dict else self.info(agent)).get(MASK)
        if given is None:
            if where in ("observation", "info"):
                raise self.broken(f"there is no {MASK!r} in the observation or info of agent {agent!r} ({self.info(agent)})")
            return None
        if not where and group.choices:
            raise ValueError(
                f"agent {agent!r} has an {MASK!r} in its info, an action mask for {group.action_space}, where no agent had one "
                "after reset(seed=0): give one in each info"
            )
        return group.mask_reader.read(agent, given, not self.turns, out)

    def broken(self, what: str) -> Exception:
        """The exception if the environment does not do as it should."""
        return broken(what)

    def blind(self, agent: AgentID) -> Exception:
        """The exception if there is nothing that an agent sees who has to act."""
        return self.broken(f"no observation was returned for agent {agent!r} ({list(self.observations)})")

    # ------------------------------------------------------------------ who is there

    def _listed(self, names: Any) -> list[AgentID]:
        return agents_listed(names, self.index, self.broken)

    def _arrive(self, names: Iterable[AgentID]) -> None:
        """Take account of who is there: it is not who was there before."""
        self.live = self._listed(names)
        self.over = not self.live
        for agent in self.live:
            if agent not in self.index:
                raise self.broken(
                    f"agent {agent!r} joined, which is not among the environment's possible_agents {list(self.index)}: list every "
                    "agent that may ever join there"
                )
        self.present.update(dict.fromkeys(self.live))

    def _move(self, before: Sequence[AgentID], names: Sequence[AgentID], ended: Mapping[AgentID, Any]) -> None:
        """Refuse agents that leave without an end, or come back."""
        if names == before:
            return
        for agent in before:
            if agent not in ended and agent not in names:
                raise self.broken(f"agent {agent!r} left env.agents without being terminated or truncated")
        for agent in names:
            if agent not in before and agent in self.present:
                raise self.broken(f"agent {agent!r} came back within an episode, which PettingZoo does not allow")

    def _note_ends(self, ends: list[tuple[AgentID, bool, bool]]) -> None:
        self.ends = ends
        if ends:
            self.cut = any(truncated and not terminated for _, terminated, truncated in ends)

    # ------------------------------------------------------------------ what was paid

    def _numbers(self, gains: Sequence[Any]) -> list[Any]:
        """Rewards by row as numbers."""
        return [reward_number(agent, reward) for agent, reward in zip(self.agents, gains, strict=True)]


class ParallelCopy(Copy):
    """Agents that act together.

    Attributes:
        get: Gets something of those who are there; of everybody, if all are there, in the order of rows.
    """

    turns = False

    def __init__(self, env: Any, agents: Sequence[AgentID]) -> None:
        super().__init__(env, agents)
        # Looked up once per change of agents; rows if not all are there.
        self.get: Callable[[Any], tuple[Any, ...]] = tuple
        self._rows: list[int] | None = None
        self._quiet: tuple[bool, ...] = ()  # the flags of a step that ends nothing

    def _begun(self, returned: Any) -> None:
        self.observations, self.infos = first_of(returned, self.broken)
        self._arrive(self.env.agents)

    def act(self, actions: dict[AgentID, Any]) -> None:
        """See :class:`Copy`; actions of those who are there."""
        returned = step_parallel(self.env, actions)
        names = self.env.agents
        if type(names) is list and names == self.live:  # as in nearly every step
            try:
                observations, rewards, terminations, truncations, infos = returned
                get, quiet = self.get, self._quiet
                gains: Any = get(rewards)
                # Two tuples are compared in C, in place of a loop over agents: an environment's own step may be as short as that.
                calm = get(terminations) == quiet and get(truncations) == quiet
            except (KeyError, TypeError, ValueError):  # something is missing: what, is found out below
                calm = False
            if calm and type(observations) is dict and type(infos) is dict:
                if self._rows is not None:
                    of_all = [*self.none]
                    for row, gain in zip(self._rows, gains, strict=True):
                        of_all[row] = gain
                    gains = of_all
                self.observations, self.infos, self.ends = observations, infos, ()
                self.gains = gains if NUMBERS.issuperset(map(type, gains)) else self._numbers(gains)
                return
        self._account(*step_of(returned, self.broken), names)

    def _account(
        self,
        observations: Mapping[AgentID, Any],
        rewards: Mapping[AgentID, Any],
        terminations: Mapping[AgentID, Any],
        truncations: Mapping[AgentID, Any],
        infos: Mapping[AgentID, Any],
        agents: Any,
    ) -> None:
        """Take account of a step that has ended somebody's episode, or may have."""
        before, names, index = self.live, self._listed(agents), self.index
        gains = [*self.none]
        ended: dict[AgentID, tuple[bool, bool]] = {}
        missing: dict[AgentID, list[str]] = {}
        parts = {"reward": rewards, "termination": terminations, "truncation": truncations}
        for agent in before:
            try:
                gains[index[agent]], terminated, truncated = rewards[agent], terminations[agent], truncations[agent]
            except KeyError:
                missing[agent] = [what for what, part in parts.items() if agent not in part]
                continue
            try:
                flags = bool(terminated), bool(truncated)
            except (TypeError, ValueError):  # an array
                raise self.broken(
                    f"the flags of agent {agent!r} must be True or False, got {terminated!r}, {truncated!r}"
                ) from None
            if any(flags):
                ended[agent] = flags
        kept = [agent for agent in names if agent in ended] if ended else []
        if kept and len(kept) < len(names):  # if all are kept, nobody is left to act
            raise self.broken(f"agent {kept[0]!r} was terminated or truncated, and step() left it in env.agents ({names})")
        self._move(before, names, ended if not missing else {**ended, **missing})
        for agent, what in missing.items():
            raise self.broken(f"step() returned no {' and no '.join(what)} for agent {agent!r} ({list(rewards)})")
        if kept:
            names = []
        if names != before:
            self._arrive(names)
            for agent in names:
                if agent not in before:
                    with suppress(KeyError):
                        gains[index[agent]] = rewards[agent]
        self.observations, self.infos = observations, infos
        self.gains = gains if NUMBERS.issuperset(map(type, gains)) else self._numbers(gains)
        self._note_ends([(agent, *flags) for agent, flags in ended.items()])

    def _arrive(self, names: Iterable[AgentID]) -> None:
        super()._arrive(names)
        self.acts = self.live
        everybody = len(self.live) == len(self.agents)
        self.get = _getter(self.agents if everybody else self.live)
        self._rows = None if everybody else [self.index[agent] for agent in self.live]
        self._quiet = (False,) * len(self.live)


class AECCopy(Copy):
    """Agents that take turns.

    Attributes:
        inner: The environment without wrappers that only check.
        agent: Whose turn it is.
    """

    turns = True
    inner: Any
    agent: AgentID

    def __init__(self, env: Any, agents: Sequence[AgentID]) -> None:
        super().__init__(env, agents)
        self._alone = {agent: (agent,) for agent in self.agents}  # always the same, so that others notice whose turn it is
        self._looked, self._told, self._ledger = False, None, None
        self._pays = self._accumulates = False  # whether `rewards`, and what last() says, have ever been anything but 0

    def _begun(self, returned: Any) -> None:
        self.inner = within_checks(self.env)
        self._ended: dict[AgentID, None] = {}
        self._since: dict[AgentID, Any] = {}  # what `rewards` have paid each agent since its last turn, where that is not 0
        self._owed: dict[AgentID, Any] = {}  # what was paid before the first step
        if not self._looked:
            self._looked, (self._told, self._ledger) = True, _told_by(self.env)
        self._account()
        self.ends = ()

    def act(self, actions: Any) -> None:
        """See :class:`Copy`; the action of the one whose turn it is, which its mask allows."""
        env, before = self.inner, self.live
        if self._since:
            self._since.pop(self.agent, None)
        env.step(actions)
        rewards, agents = env.rewards, self.agents
        if len(before) == len(agents):
            gains = [rewards.get(agent, 0.0) for agent in agents]
        else:
            there = {*before, *self._listed(env.agents)}
            gains = [rewards.get(agent, 0.0) if agent in there else 0.0 for agent in agents]
        if not NUMBERS.issuperset(map(type, gains)):
            gains = self._numbers(gains)
        if any(gains):
            self._pays, since = True, self._since
            for agent, gain in zip(agents, gains, strict=True):
                if gain:
                    since[agent] = since.get(agent, 0) + gain
        if self._owed:
            for agent, more in self._owed.items():
                gains[self.index[agent]] += more
            self._owed.clear()
        self.gains, self.ends = gains, ()
        self._account()

    def _account(self) -> None:
        """Find out who is there, and whose turn it is; those who died have to leave before."""
        env, names = self.inner, self.inner.agents
        terminations, truncations = env.terminations, env.truncations
        ended = any(terminations.values()) or any(truncations.values())
        if ended:
            terminations, truncations = dict(terminations), dict(truncations)
        if type(names) is not list or names != self.live:
            names = self._listed(names)
            self._move(self.live, names, {**self._ended, **_flagged(terminations, truncations)} if ended else self._ended)
            self.present.update(dict.fromkeys(names))
        if ended:
            there = names
            leave_dead(env, self.broken, lambda agent: self._leaves(agent, terminations, truncations))
            names, flags = self._listed(env.agents), _flagged(terminations, truncations)
            self._move(there, names, {**self._ended, **flags})
            self._note_ends([(agent, *flags[agent]) for agent in self.present if agent in flags and agent not in self._ended])
            self._ended.update(dict.fromkeys(flags))
        if names != self.live:
            self._arrive(names)
        if self.over:
            self.acts, self.observations, self.infos = (), _NOBODY, _NOBODY
        else:
            self._turn()

    def _turn(self) -> None:
        """See what the agent sees whose turn it is."""
        env = self.inner
        agent = self.agent = env.agent_selection
        if agent not in self.live:
            raise self.broken(f"it is the turn of agent {agent!r}, which is not among env.agents ({self.live})")
        self.acts = self._alone[agent]
        if self._told is None:
            if self._ledger is not None:
                paid = self._ledger._cumulative_rewards.get(agent, 0)
                if paid or self._since:
                    self._settle(agent, paid)
            self.observations, self.infos = {agent: env.observe(agent)}, env.infos or _NOBODY
        else:
            observation, paid, _, _, info = self._told()
            self._settle(agent, paid)
            self.observations, self.infos = {agent: observation}, {agent: info}

    def _leaves(self, agent: AgentID, terminations: dict[AgentID, Any], truncations: dict[AgentID, Any]) -> None:
        """An agent that has ended is about to leave: flags may be set as late as that, and it is told what it was paid last."""
        terminations[agent], truncations[agent] = self.inner.terminations[agent], self.inner.truncations[agent]
        if self._told is not None:
            self._settle(agent, self._told()[1])
        elif self._ledger is not None:
            self._settle(agent, self._ledger._cumulative_rewards.get(agent, 0))

    def _settle(self, agent: AgentID, paid: Any) -> None:
        """Hold what ``last()`` says that an agent was paid since its last turn against ``rewards``.

        If somebody has put another ``last()`` around the environment, or if ``rewards`` never pay anything, it is what counts.
        Where it never says anything but 0, ``rewards`` do.
        """
        known = self._since.get(agent, 0)
        if type(paid) not in NUMBERS:
            paid = reward_number(agent, paid)
        if paid:
            self._accumulates = True
        if paid == known or math.isclose(paid, known, rel_tol=1e-6, abs_tol=1e-9) or (paid != paid and known != known):
            return
        if self._told is None and not paid and not self._accumulates:
            return  # it keeps no account of what it has paid
        if self._told is None and self._pays:
            raise self.broken(
                f"last() tells agent {agent!r} that it was paid {paid} since its last turn, and the `rewards` of the steps since "
                f"then add up to {known}: step() has to set self._cumulative_rewards[agent] = 0 for the agent that acts, and to "
                "end with self._accumulate_rewards()"
            )
        self._since[agent] = paid
        self._add(agent, paid - known)

    def _add(self, agent: AgentID, more: Any) -> None:
        row = self.index[agent]
        if isinstance(self.gains, list):
            self.gains[row] += more
        else:  # nobody has acted yet
            self._owed[agent] = more


def copy_of(env: Any, agents: Sequence[AgentID], turns: bool) -> Copy:
    """A copy of agents that take turns, or act together."""
    return (AECCopy if turns else ParallelCopy)(env, agents)


def _getter(agents: Sequence[AgentID]) -> Callable[[Any], tuple[Any, ...]]:
    if len(agents) > 1:
        return itemgetter(*agents)
    return partial(_of_few, tuple(agents))  # can be pickled, and gives a tuple


def _of_few(agents: Sequence[AgentID], of: Any) -> tuple[Any, ...]:
    return tuple([of[agent] for agent in agents])


def _flagged(terminations: Mapping[AgentID, Any], truncations: Mapping[AgentID, Any]) -> dict[AgentID, tuple[bool, bool]]:
    """Whom flags say to have ended, and how."""
    found = {agent: (bool(flag), bool(truncations.get(agent))) for agent, flag in terminations.items()}
    found |= {agent: (False, bool(flag)) for agent, flag in truncations.items() if agent not in found}
    return {agent: flags for agent, flags in found.items() if any(flags)}


def _told_by(env: Any) -> tuple[Any, Any]:
    """The ``last()`` that somebody has put around an ``AECEnv``, and what else holds what ``last()`` says; ``None`` if nothing."""
    if "last" in vars(env) or not getattr(type(env).last, "__module__", "").startswith("pettingzoo."):
        return env.last, None
    while env is not None:
        if "_cumulative_rewards" in vars(env):
            return None, env
        env = vars(env).get("env")
    return None, None


def leave_dead(
    env: Any, broken: Callable[[str], Exception] = broken, leaves: Callable[[AgentID], None] = lambda agent: None
) -> None:
    """Step an ``AECEnv`` with None while it is the turn of agents that are dead, as PettingZoo demands.

    Args:
        env: The environment.
        broken: Makes the exception.
        leaves: Called with each agent before it leaves.

    Raises:
        ValueError: If they stay all the same.
    """
    kept = 0
    while len(env.agents) and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
        agent, before = env.agent_selection, list(env.agents)
        leaves(agent)
        env.step(None)
        kept = kept + 1 if list(env.agents) == before else 0
        if kept > len(before):
            raise broken(
                f"agent {agent!r} has ended, and env.step(None) leaves it in env.agents ({before}). step() has to begin with: if "
                "self.terminations[self.agent_selection] or self.truncations[self.agent_selection]: return "
                "self._was_dead_step(action)"
            )


def within_checks(env: Any) -> Any:
    """The ``AECEnv`` within PettingZoo's wrappers that only check, for whoever resets the outermost and takes legal actions.

    Each of them looks every attribute up in the next one: that takes longer than a step of a board game.
    """
    while type(env) in (OrderEnforcingWrapper, AssertOutOfBoundsWrapper, TerminateIllegalWrapper):
        env = env.env
    return env


def step_parallel(env: ParallelEnv, actions: dict[Any, Any]) -> Any:
    """The result of ``env.step(actions)``.

    The wrappers that PettingZoo's environments come in look every attribute up through each other, some fifty times in a step.
    All that they do after a reset is to check actions, which is done here, too.

    Args:
        env: An environment that has been reset.
        actions: Of each agent that is there.

    Raises:
        AssertionError: If an action is not in its space and a wrapper checks that, or if agents do not act in a cycle.
        ValueError: If agents that have ended stay.
    """
    if type(env) is not aec_to_parallel_wrapper:
        return env.step(actions)
    inner, checked = env.aec_env, False
    while type(inner) in (OrderEnforcingWrapper, AssertOutOfBoundsWrapper):
        checked = checked or type(inner) is AssertOutOfBoundsWrapper
        inner = inner.env
    if inner is env.aec_env:
        return env.step(actions)
    rewards: dict[Any, Any] = defaultdict(int)
    for agent in inner.agents:
        if agent != inner.agent_selection:
            raise AssertionError(
                f"agent {agent!r} had to act, and it was the turn of {inner.agent_selection!r}: to be parallel, all agents of an "
                "environment act in a cycle, and die at its end"
            )
        inner.observe(agent)  # nobody needs it, but an environment may draw random numbers for it
        action = actions[agent]
        if checked and not inner.action_space(agent).contains(action):
            raise AssertionError("action is not in action space")
        inner.step(action)
        for other in inner.agents:
            rewards[other] += inner.rewards[other]
    terminations, truncations, infos = dict(inner.terminations), dict(inner.truncations), dict(inner.infos or {})
    observations = {agent: inner.observe(agent) for agent in inner.agents}
    leave_dead(inner)
    env.agents = inner.agents
    return observations, rewards, terminations, truncations, infos
