"""How an actor of many agents acts: each policy for its own agents, with its own weights, observations and actions.

What a round was for an agent is told apart here: a return ends with the agent's own episode and, where agents take turns, what
happened between two of its turns belongs to the first of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_pettingzoo.learning.seats import ACTING, REWARDS, TERMINATIONS, TRUNCATIONS, Block, Seats
from reactor_sb3.plugin import BoundBehaviour, Field, OnPolicy, Rollout, Turn, advantages

__all__ = ["JointPolicy", "PolicySlot", "turns_advantages"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PolicySlot:
    """A policy among others.

    Attributes:
        block: Its agents.
        policy: How they act.
        weights: What the names of its weights begin with; of several such, actor ``i`` has the ``i``-th, round and round.
        learns: Whether anybody learns from what it does.
    """

    block: Block
    policy: OnPolicy
    weights: tuple[str, ...]
    learns: bool = True

    def fields(self) -> list[Field]:
        """Its fields of a round's record."""
        if not self.learns:
            return []
        name, rows = self.block.policy, self.block.rows
        own = [one for one in self.policy.fields if not one.asked]
        learned = Field(f"{name}.learned", np.dtype(np.bool_), (rows,))
        return [*(Field(f"{name}.{one.name}", one.dtype, (rows, *one.shape)) for one in own), learned]

    def rollout(self, whole: Rollout) -> Rollout:
        """Its part of a rollout: each of its agents is an environment of its own. Everything is a view, but what it has alone."""
        block, record = self.block, {}
        count = whole.steps, whole.envs * block.rows
        for one in self.policy.fields:
            if (name := f"{block.policy}.{one.name}") in whole:
                record[one.name] = whole[name].reshape(*count, *one.shape)
            elif not self.learns:
                record[one.name] = np.zeros((*count, *one.shape), one.dtype)
        record |= {"rewards": np.zeros(count, np.float32), "dones": np.ones(count, np.bool_), "timeouts": np.zeros(count, np.bool_)}
        seen, led_to = whole.observations, whole.next_observations
        return Rollout(record, block.seen(seen, whole.steps), block.seen(led_to, whole.steps) if led_to else {})


@dataclass(frozen=True)
class JointPolicy:
    """The :class:`~reactor_sb3.plugin.Behaviour` of many agents.

    Attributes:
        parts: The policies.
        seats: All agents.
    """

    parts: tuple[PolicySlot, ...]
    seats: Seats

    @property
    def fields(self) -> tuple[Field, ...]:
        """See :class:`reactor_sb3.plugin.Behaviour`: actions of all, what environments tell, and what learners want to know."""
        told = [
            Field(name, np.dtype(dtype), shape, told="after" if name.startswith("agent_") else "before")
            for name, (dtype, shape) in self.seats.told.items()
        ]
        return (Field("actions", self.seats.actions, ()), *told, *(field for part in self.parts for field in part.fields()))

    @property
    def draws(self) -> bool:
        return any(part.policy.draws for part in self.parts)

    def memory(self, envs: range) -> None:
        """Nothing outlives a round."""

    def bind(self, weights: Array, rollout: Rollout) -> BoundJointPolicy:
        return BoundJointPolicy(self, weights, rollout)


def _prefixed(weights: Array, prefix: str) -> Array:
    """The part of a record of weights whose names begin like this, without that beginning; on the same memory."""
    part: Array = weights[[name for name in weights.dtype.names or () if name.startswith(prefix)]]
    part.dtype.names = tuple(name.removeprefix(prefix) for name in part.dtype.names or ())
    return part


class BoundJointPolicy:
    """The :class:`~reactor_sb3.plugin.BoundBehaviour` of many agents, whose weights and rollout are those of all of them."""

    def __init__(self, policy: JointPolicy, weights: Array, rollout: Rollout) -> None:
        self.policy, self.rollout = policy, rollout
        self.rollouts = [part.rollout(rollout) for part in policy.parts]
        self.bound: list[list[BoundBehaviour]] = [
            [part.policy.bind(_prefixed(weights, prefix), own) for prefix in part.weights]
            for part, own in zip(policy.parts, self.rollouts, strict=True)
        ]
        self.chosen = [bound[0] for bound in self.bound]

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        """See :class:`reactor_sb3.plugin.BoundBehaviour`; policies draw from the actor's stream one after the other."""
        self.chosen = [bound[turn.index % len(bound)] for bound in self.bound]
        actions: Array = self.rollout["actions"]
        acts = [(bound.begin(turn), actions[part.block.policy]) for bound, part in zip(self.chosen, self.policy.parts, strict=True)]

        def act(step: int) -> Array:
            for one, of_part in acts:
                of_step = of_part[step]
                of_step[...] = one(step).reshape(of_step.shape)
            joint: Array = actions[step]
            return joint

        return act

    def end(self, turn: Turn) -> None:
        """See :class:`reactor_sb3.plugin.BoundBehaviour`: values, advantages, and what is to be learned from."""
        whole, policy = self.rollout, self.policy
        acts, rewards = whole[ACTING], whole[REWARDS]
        terminations, truncations = whole[TERMINATIONS], whole[TRUNCATIONS]
        for part, own, bound in zip(policy.parts, self.rollouts, self.chosen, strict=True):
            if not part.learns:
                continue
            seats, learned = part.block.seats, whole[f"{part.block.policy}.learned"]
            there, terminated, truncated = acts[..., seats], terminations[..., seats], truncations[..., seats]
            if policy.seats.specs.turns:
                bound.end(turn)
                own["advantages"][...], learned[..., 0] = turns_advantages(
                    there, rewards[..., seats], terminated, truncated, whole["dones"], own["values"], part.policy.gamma,
                    part.policy.gae_lambda,
                )  # fmt: skip
                continue
            over = terminated | truncated | whole["dones"][..., None] | ~there
            own["rewards"][...] = rewards[..., seats].reshape(own["rewards"].shape)
            own["dones"][...] = over.reshape(own["dones"].shape)
            own["timeouts"][...] = (truncated & ~terminated).reshape(own["dones"].shape)
            learned[...] = there
            bound.end(turn)

    def greedy(self, step: int, memory: Any) -> Array:
        joint = np.empty(self.rollout.envs, self.policy.seats.actions)
        for bound, part in zip(self.chosen, self.policy.parts, strict=True):
            of_part = joint[part.block.policy]
            of_part[...] = bound.greedy(step, None).reshape(of_part.shape)
        return joint


def turns_advantages(
    acts: Array,
    rewards: Array,
    terminations: Array,
    truncations: Array,
    dones: Array,
    values: Array,
    gamma: float,
    gae_lambda: float,
) -> tuple[Array, Array]:
    """Advantages where agents take turns: for each of them, its own turns are the steps.

    An action is paid with all that its agent gets until it acts again, or until its episode ends. What comes of the last action of
    a round, or of one whose episode is cut off, is not known: the value before it stands for that in the actions before, and it is
    not learned from itself.

    Args:
        acts: Who acts, ``(steps, envs, agents)``, bool.
        rewards: What each step brought to whom, likewise, float32.
        terminations: Whose episodes it terminated, likewise, bool.
        truncations: Whose episodes it cut off, likewise.
        dones: Whether the environment's episode ended, ``(steps, envs)``, bool.
        values: Before each step, of the one who acts, ``(steps, envs)``, float32.
        gamma: Discount from an agent's turn to its next one.
        gae_lambda: Weight of longer returns.

    Returns:
        Advantages, ``(steps, envs)``, float32, 0 where nobody of these agents acts; and what can be learned from, bool.
    """
    steps, envs, agents = acts.shape
    found, known = np.zeros((steps, envs), np.float32), np.zeros((steps, envs), np.bool_)
    episodes = np.zeros((steps, envs), np.int64)
    np.cumsum(dones[:-1], 0, out=episodes[1:])
    for env, agent in np.ndindex(envs, agents):
        turns = np.flatnonzero(acts[:, env, agent])
        if not len(turns):
            continue
        first, episode = turns[0], episodes[:, env]
        lengths = np.diff(turns, append=steps)
        same = episode[first:] == np.repeat(episode[turns], lengths)  # not of an episode that began since
        starts = turns - first
        paid = np.add.reduceat(np.where(same, rewards[first:, env, agent], 0), starts)
        died = np.where(same, terminations[first:, env, agent], False)
        terminated = np.maximum.reduceat(died, starts)
        goes_on = np.zeros(len(turns), np.bool_)
        goes_on[:-1] = episode[turns[1:]] == episode[turns[:-1]]
        goes_on &= ~np.maximum.reduceat(died | np.where(same, truncations[first:, env, agent], False), starts)
        before, following = values[turns, env], np.zeros(len(turns), np.float32)
        following[:-1] = values[turns[1:], env]
        following[~goes_on] = 0
        certain = terminated | goes_on
        of_turns = advantages(
            np.where(certain, paid, before)[:, None], before[:, None], following[:, None], ~goes_on[:, None], gamma, gae_lambda
        )[:, 0]
        found[turns, env], known[turns, env] = of_turns, certain
    return found, known
