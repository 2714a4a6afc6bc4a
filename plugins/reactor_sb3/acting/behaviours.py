"""Behaviours: how actors act with a policy, and what they note of a round for the algorithm that learns from it.

A behaviour policy is the one that makes the data (Sutton, Barto 2018). A :class:`Behaviour` is a value without weights, of which
everybody who acts gets a copy: actors, evaluator and viewer. Bound to weights and to a round's record it is a
:class:`BoundBehaviour`, which reads the weights that the learner has sent and writes what the round brings, both where they lie.

None of them asks what kind of network it is: that is the business of :class:`~reactor_torch.Policy`. Nor is what it returns for a
step copied: it is valid until the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.noise import ActionNoise

from reactor_sb3.acting.noise import ActionNoises
from reactor_torch import OneStream, Policy, Values, choices_among

__all__ = [
    "MASKS",
    "Behaviour",
    "BoundBehaviour",
    "EpsilonGreedy",
    "Exploring",
    "Field",
    "OnPolicy",
    "Rollout",
    "Turn",
    "advantages",
]

Array = npt.NDArray[Any]
MASKS = "action_masks"
"""Field of the record for what is allowed, and the environments' method that says it."""


class Field(NamedTuple):
    """A field of a round's record: of each step's action, or about it.

    Attributes:
        name: Name of the field.
        dtype: Type of its numbers.
        shape: For one step of one environment.
        asked: Name of a method of the environment whose answer is written here before each action; empty for what policies write.
        per_step: Whether each step has one: ``(steps, envs, *shape)``; else a round has one, ``(envs, *shape)``.
        told: Whether it is a column of the environments', see :attr:`~reactor_gymnasium.environments.rows.EnvRows.columns`: of what
            is so ``"before"`` each action, or ``"after"`` it; empty if it is not.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    asked: str = ""
    per_step: bool = True
    told: Literal["", "before", "after"] = ""


class Rollout(Mapping[str, Array]):
    """A round of one actor: views of the fields of its record by name, ``(steps, envs, ...)``, to be written.

    Args:
        record: Fields of :attr:`Behaviour.fields`, and ``"rewards"``, ``"dones"`` and ``"timeouts"``; where nobody learns, only
            those that environments write or are asked for.
        observations: By key, ``(steps, envs, *shape)``; an observation that is an array has the key ``""``.
        next_observations: Likewise; of an episode that has ended, its last ones.

    Attributes:
        observations: As given.
        next_observations: As given.
        steps: How many.
        envs: How many.
    """

    def __init__(
        self, record: Mapping[str, Array], observations: Mapping[str, Array], next_observations: Mapping[str, Array]
    ) -> None:
        self._record, self.observations, self.next_observations = record, observations, next_observations
        self.steps, self.envs = next(iter(observations.values())).shape[:2]

    def __getitem__(self, name: str) -> Array:
        return self._record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._record)

    def __len__(self) -> int:
        return len(self._record)


@dataclass(frozen=True)
class Turn:
    """An actor's inputs for one round.

    Attributes:
        random: The actor's random stream.
        rates: The rate of exploration at each step, ``(steps,)``, float32.
        memory: What :meth:`Behaviour.memory` has made for the actor's environments.
        index: Number of the actor.
        actors: How many actors there are.
    """

    random: np.random.Generator
    rates: Array
    memory: Any
    index: int
    actors: int


class BoundBehaviour(Protocol):
    """A behaviour that reads its weights and observations where they lie, and writes to its rollout."""

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        """Draw what chance decides in a round.

        Returns:
            A function from a step to actions for its observations, as environments are given them, ``(envs, *shape)``, which is
            called once for each step, in order. It notes them in ``rollout["actions"]``.
        """

    def end(self, turn: Turn) -> None:
        """Add to the rollout what is known when all its steps have been taken."""

    def greedy(self, step: int, memory: Any) -> Array:
        """The best actions for the observations of a step, as environments are given them, ``(envs, *shape)``: without chance.

        Args:
            step: One of the rollout's.
            memory: As an actor has it; ``None`` for a policy that remembers nothing of observations.
        """


class Behaviour(Protocol):
    """How actors act, without weights: frozen, picklable, light, and compared by ``==``."""

    @property
    def fields(self) -> tuple[Field, ...]:
        """Fields of a round's record: ``"actions"``, and whatever the learner wants to know besides."""

    @property
    def draws(self) -> bool:
        """Whether it may draw from torch's generator: then it is asked within a :func:`~reactor_torch.torch_stream`."""

    def memory(self, envs: range) -> Any:
        """State that outlives a round, for environments of these numbers; picklable. ``None`` if there is nothing.

        If greedy actions depend on it, it is a dict of arrays, as it is when episodes begin: an evaluator has one too.
        """

    def bind(self, weights: Array, rollout: Rollout) -> BoundBehaviour:
        """The behaviour with weights.

        Args:
            weights: A record of the acting network's parameters and buffers, by name.
            rollout: Where observations are, and where actions go.
        """


def _fields_of(space: spaces.Space[Any]) -> tuple[Field, ...]:
    """Actions as environments are given them; those of a ``Box`` as the policy has them, too."""
    assert space.shape is not None
    if not isinstance(space, spaces.Box):
        return (Field("actions", np.dtype(space.dtype), space.shape),)
    number = np.dtype(np.float32)
    return Field("actions", np.result_type(number, space.dtype), space.shape), Field("policy_actions", number, space.shape)


# ---------------------------------------------------------------------- Q-learning


@dataclass(frozen=True)
class EpsilonGreedy:
    """Of Q-learning: the action of the highest value, but for random ones at the rate of exploration.

    Attributes:
        policy: The policy, whose network gives values of actions.
        spread: How much greedier the last actor is than the first: actor ``i`` of ``n`` explores with
            ``epsilon ** (1 + spread * i / (n - 1))`` (Horgan et al. 2018, "Distributed Prioritized Experience Replay"; there 7).

    Raises:
        ValueError: If the policy chooses actions in a way of its own.
    """

    policy: Policy
    spread: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.policy.distribution, Values):
            why = self.policy.why_torch or f"the policy has {self.policy.distribution}"
            raise ValueError(
                f"{why}, and actors take the action that a network values most: let the network's forward() say so, or use SB3's "
                "algorithm with ReactorVecEnv"
            )

    @property
    def fields(self) -> tuple[Field, ...]:
        return (Field("actions", np.dtype(np.int64), ()),)

    @property
    def draws(self) -> bool:
        return self.policy.draws

    def memory(self, envs: range) -> None:
        """Nothing outlives a round."""

    def bind(self, weights: Array, rollout: Rollout) -> BoundBehaviour:
        return _BoundEpsilonGreedy(self, weights, rollout)


class _BoundEpsilonGreedy:
    def __init__(self, behaviour: EpsilonGreedy, weights: Array, rollout: Rollout) -> None:
        values = behaviour.policy.distribution
        assert isinstance(values, Values)
        self.spread, self.actions, self.rollout = behaviour.spread, values.actions, rollout
        self.bound = behaviour.policy.bind(weights, rollout.observations)

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        best, chosen = self.bound.begin(OneStream(turn.random)), self.rollout["actions"]
        shape: tuple[int, ...] = chosen.shape
        exponent = np.float32(1 + (self.spread * turn.index / (turn.actors - 1) if turn.actors > 1 else 0))
        exploring: Any = turn.random.random(shape, np.float32) < (turn.rates**exponent)[:, None]
        # For every step, explored or not: so the stream goes on in the same way whatever the rate is.
        chosen[...] = turn.random.integers(self.actions, size=shape)
        at_random: list[bool] = exploring.all(1).tolist()

        def act(step: int) -> Array:
            actions: Array = chosen[step]
            if not at_random[step]:
                actions[...] = np.where(exploring[step], actions, best(step)) if len(actions) > 1 else best(step)
            return actions

        return act

    def end(self, turn: Turn) -> None:
        """All is noted already."""

    def greedy(self, step: int, memory: Any) -> Array:
        return self.bound.mode(step)


# ---------------------------------------------------------------------- actors of continuous actions


@dataclass(frozen=True)
class Exploring:
    """Of SAC and TD3: what the actor draws or says, with action noise; and even actions until learning starts.

    Attributes:
        policy: The policy; raw actions lie between -1 and 1.
        action_noise: What is added to these, if anything is.
    """

    policy: Policy
    action_noise: ActionNoise | None

    @property
    def fields(self) -> tuple[Field, ...]:
        return _fields_of(self.policy.action_space)

    @property
    def draws(self) -> bool:
        return self.policy.draws

    def memory(self, envs: range) -> ActionNoises | None:
        """The action noise of each environment."""
        return None if self.action_noise is None else ActionNoises(self.action_noise, envs)

    def bind(self, weights: Array, rollout: Rollout) -> BoundBehaviour:
        return _BoundExploring(self, weights, rollout)


class _BoundExploring:
    def __init__(self, behaviour: Exploring, weights: Array, rollout: Rollout) -> None:
        fitting = behaviour.policy.fitting
        assert fitting is not None
        self.fit, self.rollout, self.bound = fitting, rollout, behaviour.policy.bind(weights, rollout.observations)

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        """Draw what chance decides: actions are even where a rate is 1, and the actor's own, with noise, where it is 0."""
        fit, drawn, actions = self.fit, self.rollout["policy_actions"], self.rollout["actions"]
        noises: ActionNoises | None = turn.memory
        at_random: list[bool] = (turn.rates > 0).tolist()
        evenly = turn.random.uniform(-1, 1, drawn.shape).astype(np.float32) if any(at_random) else drawn
        own = self.bound.begin(OneStream(turn.random))
        noise = None if noises is None else noises.begin(turn.random, self.rollout["dones"])

        def act(step: int) -> Array:
            chosen = evenly[step] if at_random[step] else own(step)
            drawn[step] = chosen if noise is None else (chosen + noise(step)).clip(-1, 1)
            if step == 0:  # before an environment is given what spoilt parameters say
                _check(drawn[:1])
            actions[step] = fitted = fit(drawn[step])
            return fitted

        return act

    def end(self, turn: Turn) -> None:
        """Refuse actions that are NaN, which would spoil what is stored."""
        if turn.memory is not None:
            turn.memory.end(self.rollout["dones"])
        _check(self.rollout["policy_actions"])

    def greedy(self, step: int, memory: Any) -> Array:
        return self.fit(self.bound.mode(step))


def _check(drawn: Array) -> None:
    if np.isnan(drawn.sum(dtype=np.float64)):
        step, env = np.argwhere(np.isnan(drawn.reshape(*drawn.shape[:2], -1)).any(-1))[0].tolist()
        raise ValueError(
            f"the policy's action at step {step} of this round in environment {env} of this actor is NaN: its parameters are "
            "spoilt, by a learning rate that is too high, say, or its observation was infinite"
        )


# ---------------------------------------------------------------------- actor-critic algorithms


@dataclass(frozen=True)
class OnPolicy:
    """Of actor-critic algorithms: actions are drawn, and their probabilities, values and advantages are noted.

    Attributes:
        policy: The policy.
        gamma: Discount.
        gae_lambda: Weight of longer returns.
        sequences: Sequences of a round, of a policy that remembers: the states before each of them are noted.
    """

    policy: Policy
    gamma: float
    gae_lambda: float
    sequences: int = 1

    @property
    def fields(self) -> tuple[Field, ...]:
        space, number = self.policy.action_space, np.dtype(np.float32)
        yes, state = np.dtype(np.bool_), self.policy.state(1)
        masks = [Field(MASKS, yes, (sum(choices_among(space)),), asked=MASKS)] if self.policy.masked else []
        noted = (Field(name, number, ()) for name in ("log_probs", "values", "advantages"))
        if state is None:
            return (*_fields_of(space), *masks, *noted)
        states = Field("states", number, (self.sequences, state.size), per_step=False)
        return (*_fields_of(space), *masks, *noted, Field("starts", yes, ()), states)

    @property
    def draws(self) -> bool:
        return self.policy.draws

    def memory(self, envs: range) -> dict[str, Array] | None:
        """States of the policy for each environment, and whether its episode begins."""
        state = self.policy.state(len(envs))
        return None if state is None else {"states": _packed(state), "starts": np.ones(len(envs), np.bool_)}

    def bind(self, weights: Array, rollout: Rollout) -> BoundBehaviour:
        return (_BoundOnPolicy if self.policy.state(1) is None else _BoundRemembering)(self, weights, rollout)


class _BoundOnPolicy:
    def __init__(self, behaviour: OnPolicy, weights: Array, rollout: Rollout) -> None:
        self.behaviour, self.rollout, policy = behaviour, rollout, behaviour.policy
        self.starts = rollout["starts"] if "starts" in rollout else np.zeros((rollout.steps, rollout.envs), np.bool_)
        self.bound = policy.bind(
            weights, rollout.observations, masks=rollout[MASKS] if policy.masked else None, starts=self.starts,
            noting="log_probs" in rollout,
        )  # fmt: skip
        self.fit = policy.fitting if isinstance(policy.action_space, spaces.Box) else None

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        draw, fit, actions = self.bound.begin(OneStream(turn.random)), self.fit, self.rollout["actions"]
        if fit is None:

            def act(step: int) -> Array:
                actions[step] = chosen = draw(step)
                return chosen

            return act
        drawn = self.rollout["policy_actions"]

        def act_within(step: int) -> Array:
            drawn[step] = chosen = draw(step)
            actions[step] = chosen = fit(chosen)
            return chosen

        return act_within

    def end(self, turn: Turn) -> None:
        rollout, bound = self.rollout, self.bound
        rollout["log_probs"][...] = bound.log_prob(rollout["actions" if self.fit is None else "policy_actions"])
        _finish(rollout, bound.values(), bound.value_of, self.behaviour.gamma, self.behaviour.gae_lambda)

    def greedy(self, step: int, memory: Any) -> Array:
        actions = self.bound.mode(step)
        return actions if self.fit is None else self.fit(actions)


class _BoundRemembering(_BoundOnPolicy):
    """Of a policy that remembers: states go on from round to round, and those before each sequence are noted."""

    def begin(self, turn: Turn) -> Callable[[int], Array]:
        act, began, rollout, memory, last = super().begin(turn), self.starts, self.rollout, turn.memory, self.rollout.steps - 1
        state = self.bound.state
        state[...] = _apart(memory["states"], state)

        def act_on(step: int) -> Array:
            began[step] = rollout["dones"][step - 1] if step else memory["starts"]
            actions = act(step)
            if step == last:
                memory["states"][...], memory["starts"][...] = _packed(state), False
            return actions

        return act_on

    def end(self, turn: Turn) -> None:
        super().end(turn)
        rollout, sequences = self.rollout, self.behaviour.sequences
        begins = np.arange(sequences) * rollout.steps // sequences  # a round that is tried may have fewer steps than sequences
        before = self.bound.states[begins].transpose(2, 0, 1, 3)
        rollout["states"][...] = before.reshape(rollout["states"].shape)
        turn.memory["states"][...], turn.memory["starts"][...] = _packed(self.bound.state), rollout["dones"][-1]

    def greedy(self, step: int, memory: Any) -> Array:
        self.bound.state[...], self.starts[step] = _apart(memory["states"], self.bound.state), memory["starts"]
        actions = super().greedy(step, memory)
        memory["states"][...], memory["starts"][...] = _packed(self.bound.state), False
        return actions


def _packed(state: Array) -> Array:
    """States, ``(rows, parts * hidden)``, of ``(parts, rows, hidden)``."""
    return state.swapaxes(0, 1).reshape(state.shape[1], -1)


def _apart(packed: Array, like: Array) -> Array:
    """The inverse of :func:`_packed`."""
    return packed.reshape(len(packed), len(like), -1).swapaxes(0, 1)


def _finish(
    rollout: Rollout, values: Array, value_of: Callable[[Mapping[str, Array], Array], Array], gamma: float, gae_lambda: float
) -> None:
    """Write the values and advantages of a round.

    As in SB3, a return goes on with the value of the last observation where a time limit has ended an episode.

    Args:
        rollout: The round.
        values: Of the observations before each step, ``(steps, envs)``, float32.
        value_of: From some of the observations after a step, by key, ``(count, ...)``, and after which steps they are, to values.
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
        following[others] = value_of({key: part[others] for key, part in rollout.next_observations.items()}, others)
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
    # In float64: sums over doubling distances have another order than SB3's loop, and differ less after one rounding at the end.
    total = rewards + gamma * following.astype(np.float64) - values
    weight = gamma * gae_lambda * np.logical_not(dones)
    distance = 1
    while distance < len(total):
        total[:-distance] += weight[:-distance] * total[distance:]
        weight[:-distance] *= weight[distance:]  # numpy takes care of the overlap
        distance *= 2
    return total.astype(np.float32)
