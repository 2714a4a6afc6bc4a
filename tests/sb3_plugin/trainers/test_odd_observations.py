"""Trainers refuse observations that only fit by broadcasting or parsing, and numbers that would become others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from contrib_trainers import EVERY, ToyOf, make
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from trainers import ALGORITHMS, BOX, PROCESSES, ROWS, SPACES, Toy, new

from reactor_sb3 import SyncPPO

KINDS = spaces.Dict(vector=BOX, kind=spaces.Discrete(3))
IMAGE, CHOICES, BITS = SPACES["image"][1], spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3)
CHOICE = spaces.Discrete(3)
Change = Callable[[Any], Any]


class Odd(Toy):
    """Shows something else from a step on."""

    def __init__(self, space: Any, change: Change, since: int) -> None:
        super().__init__(space)
        self.change, self.since = change, since

    def reset(self, **given: Any) -> Any:
        observation, info = super().reset(**given)
        return (observation if self.since else self.change(observation)), info

    def step(self, action: Any) -> Any:
        observation, *others = super().step(action)
        return (self.change(observation) if self.t >= self.since else observation), *others


REFUSED: dict[str, tuple[Any, Change, str]] = {
    "a scalar": (BOX, lambda one: np.float32(0.5), r"the observation has shape \(\), its space says \(3,\)"),
    "one of three": (BOX, lambda one: one[:1], r"the observation has shape \(1,\), its space says \(3,\)"),
    "a row": (BOX, lambda one: one[None], r"the observation has shape \(1, 3\), its space says \(3,\)"),
    "an array of words": (BOX, lambda one: np.array(["1", "2", "3"]), r"the observation is an array of <U1 of shape \(3,\)"),
    "a word": (BOX, lambda one: "123", "the observation is '123', a str"),
    "nothing": (BOX, lambda one: None, "the observation is None|None as the observation"),
    "a pair": (BOX, lambda one: (one, {}), r"the observation is \(array\(.*, a tuple"),
    "a dict": (BOX, lambda one: {"a": one}, r"the observation is a dict of \['a'\], its space says \(3,\)"),
    "complex": (BOX, lambda one: one + 1j, "the observation is an array of complex64"),
    "a fraction": (CHOICE, lambda one: 1.5, r"the observation has the number 1\.5 in it, which int64 of its space cannot be"),
    "no number": (CHOICE, lambda one: float("nan"), "the observation has the number nan in it"),
    "a digit": (CHOICE, lambda one: "1", "the observation is '1', a str"),
    "too large": (CHOICE, lambda one: 3, "the observation is 3, its space says below 3 and not negative"),
    "huge": (CHOICE, lambda one: 10**30, "the observation is 10{30}, its space says below 3"),
    "choices too large": (CHOICES, lambda one: np.array([1, 5]), r"the observation is \[1 5\], its space says below \[2 3\]"),
    "one for both": (CHOICES, lambda one: 1, r"the observation has shape \(\), its space says \(2,\)"),
    "wrapped bits": (BITS, lambda one: np.array([256, 0, 1]), "the observation has the number 256 in it, which int8"),
    "a key less": (KINDS, lambda one: {"vector": one["vector"]}, r"a dict of \['vector'\], its space is a Dict of \['vector', 'k"),
    "an array for a dict": (KINDS, lambda one: one["vector"], r"an array of float32 of shape \(3,\), its space is a Dict"),
    "a part": (KINDS, lambda one: {**one, "vector": 0.5}, r"the observation\['vector'\] has shape \(\), its space says \(3,\)"),
    "a choice in it": (KINDS, lambda one: {**one, "kind": 3}, r"the observation\['kind'\] is 3, its space says below 3"),
    "channels first": (IMAGE, lambda one: one.transpose(2, 0, 1), r"has shape \(1, 36, 36\), its space says \(36, 36, 1\)"),
    "too bright": (IMAGE, lambda one: one.astype(int) + 256, "the observation has the number .* in it, which uint8"),
}  # fmt: skip
TAKEN: dict[str, tuple[Any, Change]] = {
    "doubles": (BOX, lambda one: one.astype(float)), "a list": (BOX, lambda one: one.tolist()), "a tuple": (BOX, tuple),
    "whole numbers": (BOX, lambda one: np.ones(3, int)), "objects": (BOX, lambda one: one.astype(object)),
    "a tensor": (BOX, torch.from_numpy), "a view": (BOX, lambda one: np.repeat(one, 2)[::2]), "a bool": (CHOICE, lambda one: True),
    "a whole float": (CHOICE, float), "32 bits": (CHOICE, np.int32), "an array": (CHOICE, np.array),
    "another dict": (KINDS, lambda one: OrderedDict(more=1, **one)),
    "choices of 8 bits": (CHOICES, lambda one: one.astype(np.int8)),
    "shades of 64 bits": (IMAGE, lambda one: one.astype(int)), "whole shades": (IMAGE, lambda one: one.astype(float)),
    "in columns": (IMAGE, np.asfortranarray), "true and false": (BITS, lambda one: one.astype(bool)),
}  # fmt: skip
BLOCKS: dict[str, dict[str, int]] = {"one by one": {"n_actors": 2}, "together": {"n_actors": 1, "envs_per_actor": 4}}


def in_turn_of(names: Iterable[str]) -> pytest.MarkDecorator:
    """Each of them in one kind of block; in the other one where time does not matter."""
    return pytest.mark.parametrize(("name", "block"), [
        pytest.param(name, block, id=f"{name}-{which}", marks=[pytest.mark.slow] * ((at + turn) % 2))
        for at, name in enumerate(names)
        for turn, (which, block) in enumerate(BLOCKS.items())
    ])  # fmt: skip


def policy_for(space: Any) -> str:
    return "CnnPolicy" if space is IMAGE else "MultiInputPolicy" if isinstance(space, spaces.Dict) else "MlpPolicy"


@in_turn_of(REFUSED)
def test_refused(name: str, block: dict[str, int]) -> None:
    space, change, said = REFUSED[name]
    for algorithm, since in ("dqn", 0), ("ppo", 3):
        env = partial(Odd, space, change, since)
        with new(algorithm, env, policy_for(space), **block) as model, pytest.raises((TypeError, ValueError), match=said) as raised:
            model.learn(64)
        assert "raised in environment 0" in raised.value.__notes__


@in_turn_of(TAKEN)
def test_taken(name: str, block: dict[str, int]) -> None:
    space, change = TAKEN[name]
    with new("ppo", partial(Odd, space, change, 0), policy_for(space), **block) as model:
        model.learn(64)
        kept = model.rollout_buffer.observations
    with new("ppo", partial(Odd, space, lambda one: one, 0), policy_for(space), **block) as model:
        if name not in ("whole numbers", "a bool"):
            expected = model.learn(64).rollout_buffer.observations
            pairs = zip(kept.values(), expected.values(), strict=True) if isinstance(kept, dict) else [(kept, expected)]
            assert all(np.array_equal(*pair) for pair in pairs)


@pytest.mark.parametrize("where", ["processes", "evaluation", "normalized"])
def test_wherever_it_is_seen(where: str) -> None:
    odd = partial(Odd, BOX, REFUSED["one of three"][1], 3)
    env: Any = VecNormalize(make_vec_env(odd, 2)) if where == "normalized" else partial(Toy, BOX) if where == "evaluation" else odd
    given = {"evaluate_env": odd, "evaluate_every": 1} if where == "evaluation" else PROCESSES if where == "processes" else {}
    with new("ppo", env, n_actors=None if where == "normalized" else 2, **given) as model:
        with pytest.raises(ValueError, match=REFUSED["one of three"][2]) as raised:
            model.learn(64)
    assert any("raised in environment" in note for note in raised.value.__notes__)


class Silent(Toy):
    """Shows nothing at the third step, where its seed is an odd number."""

    def step(self, action: Any) -> Any:
        observation, *others = super().step(action)
        assert self.np_random_seed is not None
        return (None if self.t == 3 and self.np_random_seed % 2 else observation), *others


def test_some_of_several_show_nothing() -> None:
    with new("ppo", Silent, n_actors=1, envs_per_actor=4) as model:
        with pytest.raises(TypeError, match="None as the observation") as raised:
            model.learn(64)
    assert "raised in environment" in raised.value.__notes__[0]


# ---------------------------------------------------------------------- numbers that do not count from 0

STARTS = [
    (spaces.Discrete(5, start=2), r"observation space is Discrete\(5, start=2\), which counts from start=2; wrap the env"),
    (spaces.MultiDiscrete([2, 3], start=[0, 1]), r"the observation space is MultiDiscrete.*, which counts from start=\[0 1\]"),
    (spaces.Dict(a=BOX, b=spaces.Discrete(3, start=-1)), r"the observation space of 'b' is Discrete\(3, start=-1\)"),
    (spaces.Dict(b=spaces.MultiDiscrete([2, 3], start=[1, 1])), "the observation space of 'b' is MultiDiscrete"),
]  # fmt: skip


@pytest.mark.parametrize(("space", "said"), STARTS, ids=[said for _, said in STARTS])
def test_observations_that_do_not_count_from_zero(space: Any, said: str) -> None:
    policy = policy_for(space)
    for algorithm in sorted(ALGORITHMS):
        with pytest.raises(ValueError, match=said):
            new(algorithm, partial(Toy, space), policy)
    for algorithm in sorted(set(EVERY) - set(ALGORITHMS)):
        row = ROWS[algorithm]
        chosen = row.policies.get("dict") if isinstance(space, spaces.Dict) else row.policy
        if chosen is None:
            continue
        with pytest.raises(ValueError, match=said):
            make(algorithm, ToyOf(algorithm, space), chosen)


def test_a_model_that_is_given_such_an_environment(tmp_path: Any) -> None:
    new("ppo", partial(Toy, spaces.Discrete(5))).save(tmp_path / "model.zip")
    other = partial(Toy, spaces.Discrete(5, start=1))
    with pytest.raises(ValueError, match=r"Observation spaces do not match"):
        SyncPPO.load(tmp_path / "model.zip", other)
    with pytest.raises(ValueError, match=r"Observation spaces do not match"):
        new("ppo", partial(Toy, spaces.Discrete(5))).set_env(other)
