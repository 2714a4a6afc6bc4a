"""Actors that evaluate candidates: policies with weights of their own, whole episodes of each, side by side in an actor's rows.

An episode's seed and a candidate's weights depend on their numbers and on nothing else, so that it does not matter how many actors
there are, or which of them plays what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_gymnasium.plugin import IDLE, EndedEpisode, EnvRows, Numbered, SavedEnv, StepBuffers
from reactor_rl.plugin import aligned_zeros, decode
from reactor_sb3.acting.actor import Actor, ActorConfig
from reactor_sb3.acting.behaviours import BoundBehaviour, Field, Rollout
from reactor_sb3.acting.normalization import Normalizing
from reactor_sb3.environments.seeded_envs import SeededEnvs
from reactor_sb3.streams import Purpose, seed_of, stream, torch_generator
from reactor_torch import Policy, packed, torch_stream

__all__ = ["CandidateEnvs", "CandidatesConfig", "Searched", "Turns", "deltas_of"]

Array = npt.NDArray[Any]
USUAL_LENGTH = 200
"""Steps that an episode is reckoned to have, at least, when it is decided who plays where: the limit of many small environments
(Pendulum-v1, CartPole-v0). Only ratios matter where candidates are alike.
"""
SETTLED = 1024
"""Steps after which single rewards are added up, so that memory does not grow with an episode."""


def deltas_of(seed: int, update: int, numbers: Sequence[int], size: int) -> Array:
    """The directions of these numbers that an update tries, ``(len(numbers), size)``, float32, normal."""
    streams = (stream(seed, Purpose.EXPLORATION, update, number) for number in numbers)
    return np.array([one.standard_normal(size, np.float32) for one in streams]).reshape(-1, size)


@dataclass(frozen=True)
class Searched:
    """A policy that acts without chance, and whose weights a random search looks for.

    Attributes:
        policy: The policy.
        parameters: Names of its parameters, in order.
        frozen: Those among them that stay as they are.
        update: Number of the update that the first round is for; equal policies may have others.
    """

    policy: Policy
    parameters: tuple[str, ...]
    frozen: frozenset[str] = frozenset()
    update: int = field(default=0, compare=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        """See :class:`~reactor_sb3.acting.behaviours.Behaviour`."""
        space = self.policy.action_space
        kind = np.result_type(np.float32, space.dtype) if isinstance(space, spaces.Box) else np.dtype(np.int64)
        return (Field("actions", kind, tuple(space.shape or ())),)

    @property
    def draws(self) -> bool:
        """See :class:`~reactor_sb3.acting.behaviours.Behaviour`."""
        return self.policy.draws

    def memory(self, envs: range) -> int:
        """The number of the update that the next round is for."""
        return self.update

    def bind(self, weights: Array, rollout: Rollout) -> BoundBehaviour:
        """See :class:`~reactor_sb3.acting.behaviours.Behaviour`; for evaluator and viewer."""
        return _BoundSearched(self.policy, weights, rollout)

    def size(self, record: np.dtype[Any]) -> int:
        """How many numbers the parameters are."""
        return sum(math.prod(record[name].shape) for name in self.parameters)


class _BoundSearched:
    def __init__(self, policy: Policy, weights: Array, rollout: Rollout) -> None:
        self.mode, self.fit = policy.bind(weights, rollout.observations).mode, policy.fitting

    def begin(self, turn: Any) -> Callable[[int], Array]:
        return lambda step: self.greedy(step, None)

    def end(self, turn: Any) -> None:
        """Nothing is noted."""

    def greedy(self, step: int, memory: Any) -> Array:
        actions = self.mode(step)
        return actions if self.fit is None else self.fit(actions)


class Turns(NamedTuple):
    """The share of an actor in a round.

    Attributes:
        update: Number of the update that the round is for.
        numbers: Of the episodes.
        parameters: A record of those around which candidates lie.
        write: Overwrites such a record with the parameters of an episode's candidate, given the number of the episode.
        policy: How they act.
        normalizing: What makes observations of those that environments give, if they are not the same.
    """

    update: int
    numbers: Sequence[int]
    parameters: Array
    write: Callable[[int, Array], None]
    policy: Policy
    normalizing: Normalizing | None


@dataclass(frozen=True)
class CandidatesConfig(ActorConfig):
    """The configuration of actors that evaluate candidates; ``steps`` are the episodes of an actor in a round.

    Directions come in pairs: of ``n`` candidates, number ``i`` and number ``n / 2 + i`` go the same way, forwards and back.

    Attributes:
        candidates: How many there are in all.
        episodes: Of each.
    """

    candidates: int = 2
    episodes: int = 1

    @property
    def record(self) -> np.dtype[Any]:
        """For each episode its return and length, and mean and variance of what it has seen; none where the length is 0."""
        number, whole, normalization = np.dtype(np.float64), np.dtype(np.int64), self.normalization
        shapes = {} if normalization is None else {key: normalization.originals.parts[key][0] for key in normalization.keys}
        moments = [(f"{name} {key}", number, (self.steps, *shape)) for key, shape in shapes.items() for name in ("mean", "var")]
        return packed([("returns", number, (self.steps,)), ("lengths", whole, (self.steps,)), ("update", whole, ()), *moments])

    @property
    def steps_taken(self) -> int:
        return self.steps * USUAL_LENGTH

    def longer(self, tried: Array) -> float:
        """Episodes that are short before anything is learned become longer."""
        lengths = tried["lengths"]
        return max(1.0, USUAL_LENGTH * np.count_nonzero(lengths) / max(int(lengths.sum()), 1))

    def environments(self, first: int) -> SeededEnvs:
        return CandidateEnvs(self, first)

    def sample(self, actor: Actor, parameters: Array) -> None:
        """Evaluate an actor's share of the candidates."""
        assert isinstance(actor.envs, CandidateEnvs) and isinstance(self.policy, Searched)
        record, update, policy = actor.transitions.buffer, actor.memory, self.policy
        actor.memory = update + 1
        std, size, half = actor.exploration.value[0], policy.size(parameters.dtype), self.candidates // 2
        numbers = range(actor.index, self.candidates * self.episodes, self.actors)[: self.steps]
        drawn: dict[int, Array] = {}

        def write(number: int, weights: Array) -> None:
            candidate = number // self.episodes
            if (delta := drawn.get(candidate % half)) is None:
                delta = drawn[candidate % half] = deltas_of(self.seed, update, [candidate % half], size)[0] * std
            weights[...], begin = parameters, 0
            for name in policy.parameters:
                part = weights[name]
                of_part = delta[begin : begin + part.size].reshape(part.shape)
                begin += part.size
                if name not in policy.frozen:
                    weights[name] = part + of_part if candidate < half else part - of_part

        normalizing = None if self.normalization is None else self.normalization.by(parameters)
        draws = torch_stream(torch_generator(actor.random)) if policy.draws else nullcontext()
        with draws:
            actor.envs.play(Turns(update, numbers, parameters, write, policy.policy, normalizing), record)


class _Queue(Numbered):
    """Has no episode for an environment that is stepped in C, but lets it play on, unseen: if it waited, none would be."""

    rows: EnvRows

    def __call__(self, env: int, over: bool = True) -> dict[str, Any] | None:
        found = super().__call__(env, over)
        return {} if found is None and self.rows.in_c else found


class CandidateEnvs(SeededEnvs):
    """Environments that play the episodes of a queue, each seeded by its number, and wait between two rounds.

    Args:
        config: Of the actor whose they are.
        first: Number of the first one.
    """

    def __init__(self, config: CandidatesConfig, first: int) -> None:
        super().__init__(config.makes, config.seed, Purpose.EPISODES, first, config.make_rows)
        n = len(config.makes)
        self._episodes: Any = _Queue(n, lambda number: seed_of(self.seed, self.purpose, self._update, number))
        self._episodes.rows, self._episodes.playing = self.rows, [-1] * n
        self._update = 0
        layout = config.observations if config.normalization is None else config.normalization.originals
        self._given = {key: aligned_zeros((1, n, *shape), dtype) for key, (shape, dtype) in layout.parts.items()}
        self._seen = self._given
        if config.normalization is not None:
            self._seen = {key: aligned_zeros((1, n, *shape), dtype) for key, (shape, dtype) in config.observations.parts.items()}
        self._out = StepBuffers(layout, {key: part[0] for key, part in self._given.items()})
        (of_actions,) = config.policy.fields
        self._actions = np.zeros((n, *of_actions.shape), of_actions.dtype)
        self._raw = self._actions.astype(np.float32) if of_actions.dtype.kind == "f" else self._actions.copy()
        self._logs = [[self._actions[:0]] for _ in range(n)]  # nothing has to be repeated: an episode begins with a seed
        self._weights: list[Array] = []
        self._playing: list[int] = [-1] * n

    def play(self, turns: Turns, record: Array) -> None:
        """Play a round.

        Args:
            turns: What is played.
            record: Where the results go, see :attr:`CandidatesConfig.record`.

        Raises:
            ValueError: If a return is not finite.
        """
        self.watch(False)
        record[...] = np.zeros((), record.dtype)
        record["update"] = self._update = turns.update
        places = {number: place for place, number in enumerate(turns.numbers)}
        queue, player, rows = self._episodes, self.player, range(len(self._playing))
        queue.queue.extend(turns.numbers)
        queue.playing = [None] * len(rows)
        player.begin(self._out, rows)
        playing: list[Any] = queue.playing
        if not self._weights:
            self._weights = [aligned_zeros((), turns.parameters.dtype) for _ in rows]
        raw, actions, fit = self._raw, self._actions, turns.policy.fitting
        moments = None if turns.normalizing is None else _Moments(turns.normalizing, self._given)
        begun = [row for row in rows if playing[row] is not None]

        def act_in(row: int) -> tuple[int, Array, Callable[[int], Array]]:
            turns.write(playing[row], self._weights[row])
            seen = {key: part[:, row : row + 1] for key, part in self._seen.items()}
            return row, raw[row : row + 1], turns.policy.bind(self._weights[row], seen).mode

        acting = [act_in(row) for row in begun]
        self._playing = [0 if row in begun else number for row, number in enumerate(self._playing)]
        step, log = player.step, self.log
        while acting:
            if moments is not None:
                moments.add()
                turns.normalizing.observations(self._given, self._seen)  # type: ignore[union-attr]
            for _, place, mode in acting:
                place[...] = mode(0)
            actions[...] = raw if fit is None else fit(raw)
            ended = step(actions, self._out)
            if ended:
                for end in ended:
                    if end.number is not None:
                        self._note(end, record, places[end.number], moments)
                over = {end.row for end in ended}
                acting = [act_in(one[0]) if one[0] in over else one for one in acting if playing[one[0]] is not None]
            if log.steps >= SETTLED:
                log.settle()
        log.settle()
        for row in rows:
            log.begin(row)  # where nothing was played, steps of others have been counted
        queue.playing = [*self._playing]

    def _note(self, end: EndedEpisode, record: Array, place: int, moments: _Moments | None) -> None:
        """Note an episode that has ended."""
        told = end.info.get("episode", {"r": end.total, "l": end.length})  # a Monitor knows of other wrappers' changes
        total, length = float(np.asarray(told["r"]).item()), int(told["l"])
        if not math.isfinite(total):
            raise ValueError(
                f"an episode of environment {self.first + end.row} returned {total}; learning from it would spoil every weight. "
                "Look at the environment with gymnasium.utils.env_checker, or clip what it returns"
            )
        record["returns"][place], record["lengths"][place] = total, length
        if moments is not None:
            moments.take(end.row, end.length, record, place)

    # ------------------------------------------------------------------ saving

    def put_back(self, saved: Sequence[dict[str, Any]]) -> None:
        """Make the environments, which wait, what they were: no episode goes on."""
        for row, one in enumerate(saved):
            self._playing[row] = self._episodes.playing[row] = one["episode"]
            if one["way"] == "state":
                state, shown = decode(one["state"])
                self.rows.load(row, SavedEnv(state, shown, IDLE))


class _Moments:
    """Means and variances of what rows have seen in their episodes, as environments gave it.

    Sums are of differences from the mean that there was: so little of a variance is lost, however large numbers are.
    """

    def __init__(self, normalizing: Normalizing, given: dict[str, Array]) -> None:
        self.parts = {
            key: (given[key][0], mean, np.zeros(given[key][0].shape), np.zeros(given[key][0].shape))
            for key, (mean, _) in normalizing.moments.items()
        }

    def add(self) -> None:
        """Add what is seen now."""
        for given, mean, sums, squares in self.parts.values():
            apart = given - mean
            sums += apart
            squares += apart * apart

    def take(self, row: int, count: int, record: Array, place: int) -> None:
        """Write those of a row's episode, and begin anew."""
        for key, (_, mean, sums, squares) in self.parts.items():
            apart = sums[row] / count
            record[f"mean {key}"][place], record[f"var {key}"][place] = mean + apart, squares[row] / count - apart * apart
            sums[row] = squares[row] = 0
