"""Kernels of toy text: tables of outcomes, and Blackjack."""

from __future__ import annotations

import pickle
from functools import cache
from importlib import import_module
from itertools import chain
from typing import Any, ClassVar

import gymnasium
import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.infos import Group
from reactor_gymnasium.environments.owning import shared
from reactor_gymnasium.native.classic import discrete
from reactor_gymnasium.native.compiled import CompiledKernel
from reactor_gymnasium.native.kernel import Taken

__all__ = ["Blackjack", "CliffWalking", "FrozenLake", "Taxi"]

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]

OUTCOMES = 3
"""Most outcomes of an action: FrozenLake on slippery ice has three. The layout of the table in C has room for as many."""
STATE, IS_INT64, LAST_ACTION, FICKLE = range(4)
"""The columns of ``places``; the same numbers as in ``_toy_text.h``."""


class TransitionTable(CompiledKernel):
    """Environments whose dynamics are a table ``P`` of outcomes."""

    code, shape, dtype = "table", (), np.int64
    places_dtype = np.dtype((np.int64, 4))
    state_type: ClassVar[type] = int
    choices: ClassVar[int] = 4
    parts: ClassVar[tuple[str, ...]] = ("P", "initial_state_distrib", "action_space")

    @classmethod
    def constants(cls, env: Any) -> tuple[Any, ...]:
        return env.P, env.initial_state_distrib.tobytes()

    @classmethod
    def strange(cls, env: Any) -> str | None:
        complaint = discrete(env, cls.choices)
        if complaint:
            return complaint
        start = env.initial_state_distrib
        if type(start) is not np.ndarray or start.dtype != np.float64 or start.ndim != 1:
            return "its first states are drawn in another way"
        return None

    @classmethod
    def strange_state(cls, env: Any) -> str | None:
        last = env.lastaction
        if type(env.s) not in (cls.state_type, np.int64) or not (
            last is None or (type(last) is np.int64 and 0 <= last < cls.choices)
        ):
            return f"its state is {env.s!r} after the action {last!r}"
        return None if 0 <= env.s < len(env.initial_state_distrib) else f"its state is {env.s!r}"

    @classmethod
    def shared(cls, env: Any) -> str | None:
        if why := super().shared(env):
            return why
        if shared(env.P.values()) or shared(chain.from_iterable(row.values() for row in env.P.values())):
            return "somebody else refers to a part of its P"
        return None

    @classmethod
    def strange_constants(cls, env: Any) -> str | None:
        usual = _usual(env.P, len(env.initial_state_distrib), cls.choices, cls.state_type)
        return None if usual else "its table P is not as it was made"

    def load(self) -> None:
        envs: Any = self._envs
        table, first = envs[0].P, envs[0].initial_state_distrib
        self.tables = (*_arrays(table, self.choices), np.cumsum(first))
        self.sizes = len(first), self.choices
        self.probs, self.final_probs = np.zeros((2, len(envs)))
        self.every = range(len(envs))
        for row, env in zip(self.places, envs, strict=True):
            row[STATE], row[IS_INT64] = env.s, type(env.s) is np.int64
            row[LAST_ACTION] = -1 if env.lastaction is None else env.lastaction

    def numbers(self) -> tuple[int, ...]:
        return *self.sizes, 0, 0

    def unload(self) -> None:
        for env, place in zip(self._envs, self.places.tolist(), strict=True):
            given: Any = env
            given.s = np.int64(place[STATE]) if place[IS_INT64] else self.state_type(place[STATE])
            given.lastaction = None if place[LAST_ACTION] < 0 else np.int64(place[LAST_ACTION])

    def give_back(self) -> list[Any]:
        self.unload()
        shown: list[Any] = self.observations.tolist()
        return shown

    def final(self, row: int) -> Any:
        return int(self.finals[row])

    def own(self, observation: Any) -> Any:
        return int(observation)

    def infos(self) -> list[Group]:
        assert self.probs is not None
        return [(self.every, {"prob": ("mixed", self.probs.copy(), self.was_reset.copy())})]

    def final_info(self, row: int) -> dict[str, Any]:
        assert self.final_probs is not None
        return {"prob": float(self.final_probs[row])}


def _usual(table: Any, states: int, actions: int, kind: type) -> bool:
    """Whether a table has the types that C's tables stand for, and at most three outcomes."""
    if type(table) is not dict or len(table) != states:
        return False
    for state in range(states):
        of_state = table.get(state)
        if type(of_state) is not dict or len(of_state) != actions:
            return False
        for action in range(actions):
            outcomes = of_state.get(action)
            if type(outcomes) is not list or not 0 < len(outcomes) <= OUTCOMES:
                return False
            for outcome in outcomes:
                if type(outcome) is not tuple or len(outcome) != 4:
                    return False
                prob, after, reward, over = outcome
                if type(prob) is not float or type(after) not in (kind, np.int64) or not 0 <= after < states:
                    return False
                if type(reward) not in (int, float) or type(over) not in (bool, np.bool_):
                    return False
    return True


def _arrays(table: Any, actions: int) -> tuple[Array, Array]:
    """The table as C has it."""
    numbers = np.zeros((len(table), actions, 3, OUTCOMES))
    nexts = np.zeros((len(table), actions, 3, OUTCOMES), np.int64)
    for state, of_state in table.items():
        for action, outcomes in of_state.items():
            count = len(outcomes)
            probs, after, rewards, over = zip(*outcomes, strict=True)
            numbers[state, action, 0, :count] = np.cumsum(np.asarray(probs))
            numbers[state, action, 1, :count], numbers[state, action, 2, :count] = probs, rewards
            nexts[state, action, 0, :count], nexts[state, action, 1, :count] = after, over
            nexts[state, action, 2, 0] = count
    return numbers, nexts


class FrozenLake(TransitionTable):
    module, owner = "gymnasium.envs.toy_text.frozen_lake", "FrozenLakeEnv"
    written_from = ("bf25682da0ef",)


class CliffWalking(TransitionTable):
    state_type = np.int64
    module, owner = "gymnasium.envs.toy_text.cliffwalking", "CliffWalkingEnv"
    written_from = ("bf25682da0ef",)


class Taxi(TransitionTable):
    choices = 6
    module, owner = "gymnasium.envs.toy_text.taxi", "TaxiEnv"
    written_from = ("f6e4b0c69c1f",)
    parts = (*TransitionTable.parts, "desc", "locs")

    @classmethod
    def make(cls, n: int) -> list[Any]:
        (env,) = super().make(1)  # it takes a while
        return [pickle.loads(pickle.dumps(env)) for _ in range(n)]

    @classmethod
    def constants(cls, env: Any) -> tuple[Any, ...]:
        extra = bool(env.fickle_passenger), env.fickle_probability, env.desc.tobytes(), tuple(env.locs)
        return (*super().constants(env), *extra)

    @classmethod
    def strange(cls, env: Any) -> str | None:
        if type(env.fickle_probability) is not float or type(env.fickle_passenger) is not bool:
            return "its passengers are not the usual ones"
        if env.locs != [(0, 0), (0, 4), (4, 0), (4, 3)] or len(env.initial_state_distrib) != 500:
            return "its grid is not the usual one"
        return super().strange(env)

    @classmethod
    def strange_state(cls, env: Any) -> str | None:
        return super().strange_state(env) if type(env.fickle_step) is bool else f"its fickle_step is {env.fickle_step!r}"

    def __init__(self, taken: Taken) -> None:
        super().__init__(taken)
        env: Any = self._envs[0]
        self.masks = _masks(env.desc.tobytes(), env.desc.shape)

    def load(self) -> None:
        super().load()
        for row, env in zip(self.places, self._envs, strict=True):
            row[FICKLE] = env.fickle_step  # type: ignore[attr-defined]

    def floats(self) -> tuple[float, ...]:
        return (self.constant[3],)

    def numbers(self) -> tuple[int, ...]:
        return *self.sizes, 1, int(self.constant[2])

    def unload(self) -> None:
        super().unload()
        for env, place, fresh in zip(self._envs, self.places.tolist(), self.fresh.tolist(), strict=True):
            given: Any = env
            given.fickle_step = bool(place[FICKLE])
            if fresh:
                given.taxi_orientation = 0

    def infos(self) -> list[Group]:
        assert self.probs is not None
        return [
            (self.every, {"prob": ("python", self.probs.copy()), "action_mask": ("array", self.masks.take(self.observations, 0))})
        ]

    def final_info(self, row: int) -> dict[str, Any]:
        return {**super().final_info(row), "action_mask": self.masks[self.finals[row]].copy()}


@cache
def _masks(desc: bytes, shape: tuple[int, ...]) -> Array:
    """The action masks of all states."""
    taxi: Any = getattr(import_module(Taxi.module), Taxi.owner)
    env = taxi.__new__(taxi)
    env.desc = np.frombuffer(desc, "S1").reshape(shape)
    env.locs = [(0, 0), (0, 4), (4, 0), (4, 3)]
    return np.array([env.action_mask(state) for state in range(500)])


MOST_CARDS = 24
"""Cards of a hand in C: 21 aces are 21, so no hand that is played by the rules has more than 22; two hands and what is shown fill a
cache line.
"""
SUITS, FACES = ("C", "D", "H", "S"), ("J", "Q", "K")
HAND = np.dtype([("sum", np.uint8), ("ace", np.uint8), ("count", np.uint8), ("cards", np.uint8, MOST_CARDS)])


class Blackjack(CompiledKernel):
    code = "blackjack"
    module, owner = "gymnasium.envs.toy_text.blackjack", "BlackjackEnv"
    written_from = ("17faf22680fd",)
    shape, dtype = (3,), np.int64
    places_dtype = np.dtype([("player", HAND), ("dealer", HAND), ("suit", np.uint8), ("face", np.uint8), ("unused", np.uint8, 8)])
    parts = ("player", "dealer", "action_space")

    @classmethod
    def constants(cls, env: Any) -> tuple[Any, ...]:
        return bool(env.sab), bool(env.natural)

    @classmethod
    def strange(cls, env: Any) -> str | None:
        return discrete(env, 2)

    @classmethod
    def strange_state(cls, env: Any) -> str | None:
        for hand in (env.player, env.dealer):
            cards = type(hand) is list and 2 <= len(hand) < MOST_CARDS and all(type(card) is int and 0 < card < 11 for card in hand)
            if not cards:
                return f"a hand is {hand!r}"
        shown, suit = env.dealer_top_card_value_str, env.dealer_top_card_suit
        expected = FACES if env.dealer[0] == 10 else ("A",) if env.dealer[0] == 1 else (str(env.dealer[0]),)
        if shown not in expected or suit not in SUITS or type(suit) is not np.str_:
            return f"the dealer shows {suit!r}, {shown!r}"
        return None

    def load(self) -> None:
        for place, given in zip(self.places, self._envs, strict=True):
            env: Any = given
            for name, hand in (("player", env.player), ("dealer", env.dealer)):
                held = place[name]
                held["sum"], held["ace"], held["count"] = sum(hand), 1 in hand, len(hand)
                held["cards"][: len(hand)] = hand
            place["suit"] = SUITS.index(env.dealer_top_card_suit)
            if env.dealer[0] == 10:
                place["face"] = FACES.index(env.dealer_top_card_value_str)

    def numbers(self) -> tuple[int, ...]:
        return int(self.constant[0]), int(self.constant[1])

    def unload(self) -> None:
        for given, (player, dealer, suit, face, _) in zip(self._envs, self.places.tolist(), strict=True):
            env: Any = given
            env.player, env.dealer = (list(map(int, hand[3][: hand[2]])) for hand in (player, dealer))
            env.dealer_top_card_suit, first = np.str_(SUITS[suit]), env.dealer[0]
            env.dealer_top_card_value_str = "A" if first == 1 else np.str_(FACES[face]) if first == 10 else str(first)

    def give_back(self) -> list[Any]:
        self.unload()
        return list(map(tuple, self.observations.tolist()))

    def final(self, row: int) -> Any:
        return tuple(self.finals[row].tolist())

    def own(self, observation: Any) -> Any:
        return tuple(observation.tolist())
