"""All agents of a PettingZoo environment as one environment of Gymnasium's, ordered by their policies."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_pettingzoo.agents import EnvFn
from reactor_pettingzoo.copies import Copy, copy_of
from reactor_pettingzoo.learning.seats import ACTS, ENDED, REWARDS, TOTALS, Block, Seats
from reactor_pettingzoo.reading import MASK, AgentID, choices_of, segments

__all__ = ["JointEnv", "JointMaker"]

Array = npt.NDArray[Any]
TERMINATED, TRUNCATED = 1, 2


class JointMaker:
    """Makes environments of all agents together.

    Args:
        env_fn: Makes a ``ParallelEnv`` or an ``AECEnv``.
        seats: Its agents.
    """

    def __init__(self, env_fn: EnvFn, seats: Seats) -> None:
        self.env_fn, self.seats = env_fn, seats

    def __call__(self) -> JointEnv:
        return JointEnv(self.env_fn, self.seats)

    @classmethod
    def of(cls, env_fn: EnvFn, seats: Seats) -> JointMaker:
        """One that can be asked for a render mode, where ``env_fn`` can."""
        try:
            parameters = inspect.signature(env_fn).parameters
        except (TypeError, ValueError):
            return cls(env_fn, seats)
        asked = "render_mode" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        return VisibleJointMaker(env_fn, seats) if asked else cls(env_fn, seats)


class VisibleJointMaker(JointMaker):
    """Makes environments that can be seen, if they are to be."""

    def __call__(self, render_mode: str | None = None) -> JointEnv:
        env_fn: Any = self.env_fn
        return JointEnv(env_fn if render_mode is None else partial(env_fn, render_mode=render_mode), self.seats)


class JointEnv(gymnasium.Env[dict[str, Any], Array]):
    """All agents as one: what everybody sees, who acts, and what the last step was to whom.

    Rows of agents that do not act are zeros, or what they saw last; their masks allow everything. Where agents take turns, a policy
    has one row: that of the agent whose turn it is. What is returned is used again by the next step.

    Args:
        env_fn: Makes the environment.
        seats: Its agents.
    """

    def __init__(self, env_fn: EnvFn, seats: Seats) -> None:
        self.env, self.env_fn, self.seats = env_fn(), env_fn, seats
        self.copy = copy_of(self.env, seats.specs.agents, seats.specs.turns)
        self.metadata = {**getattr(self.env, "metadata", {})}
        self.render_mode = getattr(self.env, "render_mode", None)
        self.observation_space, self.action_space = seats.observation_space(), seats.action_space()
        self.seen: dict[str, Array] = {
            key: np.zeros(space.shape or (), space.dtype or np.float32) for key, space in self.observation_space.spaces.items()
        }
        self.masks = frozenset(block.mask_key for block in seats.blocks)
        self.order = -1  # number of the episode's order of seats
        self.totals: list[float] = [0.0] * seats.count
        self.length = 0
        self.places = [_Place(block, row, columns) for block, columns in zip(seats.blocks, seats.columns, strict=True)
                       for row in range(block.agents)]  # fmt: skip
        self.first_places = [self.places[block.first] for block in seats.blocks]
        self.at: dict[AgentID, int] = {}

    # ------------------------------------------------------------------ episodes

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        orders = self.seats.orders
        # By the seed, where there is one: what happens after it can be repeated from the actions alone.
        self.order = (self.order + 1 if seed is None else seed) % len(orders)
        self.at = {agent: seat for seat, agent in enumerate(orders[self.order])}
        self.totals, self.length = [0.0] * self.seats.count, 0
        for key, array in self.seen.items():
            array.fill(key in self.masks)
        self.copy.begin(seed=seed, options=options)
        self._see()
        return self.seen, {}

    def step(self, action: Array) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take a step: an action of everybody who is there or, where agents take turns, of one."""
        self.length += 1
        numbers, copy = action.tolist(), self.copy
        before = copy.live
        chosen = {agent: self.places[self.at[agent]].action(action, numbers, self.seen) for agent in copy.acts}
        copy.act(chosen[copy.acts[0]] if copy.turns else chosen)
        reward = self._gain(before)
        self._see()
        over = copy.over
        info: dict[str, Any] = {}
        if over:
            of_agents = {str(agent): round(self.totals[seat], 6) for agent, seat in self.at.items() if agent in copy.present}
            total = sum(sum(self.totals[block.seats]) for block in self.seats.learning)
            if self.seats.rivals:
                total = 2 * total - sum(self.totals)
            info["episode"] = {**of_agents, "r": round(total, 6), "l": self.length}
        return self.seen, reward, over and not copy.cut, over and copy.cut, info

    def _gain(self, before: Sequence[AgentID]) -> float:
        """Note what the step was to those who were there; returns the sum of the rewards that count."""
        total, noted, ended, copy = 0.0, self.seen[REWARDS], self.seen[ENDED], self.copy
        noted.fill(0)
        ended.fill(0)
        joined = () if copy.live is before else [agent for agent in copy.live if agent not in before]
        for agent in (*before, *joined):
            seat, number = self.at[agent], float(copy.gains[copy.index[agent]])
            noted[seat] = number
            self.totals[seat] += number
            if self.places[seat].block.policy in self.seats.counted:
                total += number
        for agent, terminated, _ in copy.ends:
            ended[self.at[agent]] = TERMINATED if terminated else TRUNCATED
        if TOTALS in self.seen:
            self.seen[TOTALS][...] = self.totals
        return total

    def _see(self) -> None:
        """Write down what agents see, of those that have gone for the last time."""
        acts, copy, seen = self.seen[ACTS], self.copy, self.seen
        acts.fill(0)
        if copy.turns and not copy.over:
            for place in self.first_places:
                place.clear(seen)
        for agent in copy.acts:
            acts[self.at[agent]] = 1
            self.places[self.at[agent]].see(seen, copy, agent)
        if not copy.turns:
            for agent, terminated, _ in copy.ends:
                # Nobody goes on from what an agent saw last when it was terminated: it may go without.
                if not terminated or agent in copy.observations:
                    self.places[self.at[agent]].see(seen, copy, agent, acts=False)
        self._see_state()

    # ------------------------------------------------------------------ the rest

    def _see_state(self) -> None:
        """Write down the environment's state, for the critic of each agent."""
        blocks, seen = self.seats.blocks, self.seen
        if not blocks[0].state:
            return
        env: Any = self.env
        whole = self.seats.whole
        state = np.concatenate([seen[block.key()].ravel() for block in blocks]) if whole else np.asarray(env.state()).ravel()
        for block in blocks:
            seen[block.state_key][...] = state

    def render(self) -> Any:
        """The environment's picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        if hasattr(self.env, "close"):
            self.env.close()


class _Place:
    """Where what an agent on a seat sees and does is.

    Args:
        block: Of its policy.
        member: Number of the seat in the block.
        columns: The block's part of all actions.
    """

    def __init__(self, block: Block, member: int, columns: slice) -> None:
        self.block = block
        self.row = row = member if block.rows > 1 else 0
        begin = columns.start + row * block.numbers
        self.columns, self.at = slice(begin, begin + block.numbers), begin
        space = block.group.action_space
        self.space, self.choice = space, isinstance(space, spaces.Discrete)
        self.start = int(space.start) if isinstance(space, spaces.Discrete) else 0
        self.parts = [
            (block.key(key), block.group.path(key), tuple(part.shape or ()), block.parts[key].shape != part.shape)
            for key, part in block.group.parts.items()
        ]
        self.segments = segments(choices_of(space))

    def action(self, action: Array, numbers: list[float], seen: Mapping[str, Array]) -> Any:
        """The agent's action, of those of all.

        No policy chooses what is forbidden. Random actions may, by which it is tried whether an environment can be saved: they
        stand for the next one that is allowed.
        """
        mask = seen[self.block.mask_key][self.row] if self.block.masked else None
        if self.choice:
            return self._allowed(int(numbers[self.at]), mask) + self.start
        own = action[self.columns]
        if isinstance(self.space, spaces.MultiDiscrete):
            if mask is not None:
                parts = zip(own.astype(np.int64).tolist(), self.segments, strict=True)
                own = np.array([self._allowed(choice, mask[part]) for choice, part in parts])
            return own.reshape(self.space.shape).astype(self.space.dtype) + self.space.start
        return own.reshape(self.space.shape or ()).astype(self.space.dtype)

    @staticmethod
    def _allowed(choice: int, mask: Array | None) -> int:
        """The choice, or the next one that is allowed."""
        if mask is None or mask[choice] or not mask.any():
            return choice
        return (choice + int(np.roll(mask, -choice).argmax())) % len(mask)

    def see(self, seen: dict[str, Array], copy: Copy, agent: AgentID, acts: bool = True) -> None:
        """Write down what the agent sees, and its mask if it acts next.

        Raises:
            ValueError: If something has another shape than its space, or a mask comes where none is expected.
        """
        observation = copy.observation(agent)
        for key, path, shape, turned in self.parts:
            value = observation
            for step in path:
                try:
                    value = value[step]
                except (KeyError, TypeError, IndexError) as error:
                    raise copy.broken(f"there is no {step!r} in the observation of agent {agent!r}") from error
            array = np.asarray(value)
            if array.shape != shape:
                raise ValueError(f"what agent {agent!r} observes has shape {array.shape}, its space says {shape}")
            if turned:
                array = array.transpose(2, 0, 1)
            seen[key][self.row] = array.reshape(-1)
        block = self.block
        if block.masked:
            row = seen[block.mask_key][self.row]
            row.fill(1)
            if acts:
                copy.mask(block.group, agent, row.view(np.bool_))
        elif acts and copy.mask(block.group, agent) is not None:
            raise ValueError(
                f"agent {agent!r} has an {MASK!r} in its info, where no agent had one after reset(seed=0): give one in each info"
            )

    def clear(self, seen: dict[str, Array]) -> None:
        """Show nothing to the block's policy."""
        for key, *_ in self.parts:
            seen[key].fill(0)
        if self.block.masked:
            seen[self.block.mask_key].fill(1)
