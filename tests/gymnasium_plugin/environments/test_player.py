"""Episodes are counted in one place: sums in the environments' own numbers or of floats, hashes, and which episode comes next."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from reactor_gymnasium.environments.player import EpisodeLog, Numbered, OfRounds
from reactor_rl.plugin import canonical, new_hash


def in_turn(rewards: list[Any]) -> Any:
    total: Any = 0.0
    for reward in rewards:
        total += reward
    return total


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, int])
@pytest.mark.parametrize("floats", [False, True])
def test_sums_are_of_one_reward_after_the_other(kind: Any, floats: bool) -> None:
    rewards = [[kind(one) for one in row] for row in np.random.default_rng(0).normal(size=(40, 3)) * 100]
    log, begun = EpisodeLog(3, floats), [0] * 3
    for step, of_step in enumerate(rewards):
        log.note(of_step)
        if step % 16 == 7:
            log.settle()
        row = step % 7
        if row < 3:
            expected = in_turn([float(one[row]) if floats else one[row] for one in rewards[begun[row] : step + 1]])
            total, length = log.count(row)
            assert (type(total), total, length) == (type(expected), expected, step + 1 - begun[row])
            log.begin(row)
            begun[row] = step + 1


def test_infinite_rewards_are_no_warnings() -> None:
    log = EpisodeLog(1, floats=True)
    for reward in (1e308, 1e308, -math.inf):
        log.note([reward])
    assert math.isnan(log.count(0)[0])


@pytest.mark.parametrize("floats", [False, True])
def test_what_is_not_a_number_is_refused(floats: bool) -> None:
    log = EpisodeLog(2, floats)
    log.where = "environment {}".format
    log.note([np.array([2]), np.float32(0.5)])
    assert [log.count(row)[0] for row in (0, 1)] == [2, 0.5]
    with pytest.raises(ValueError, match="the reward must be a number") as caught:
        log.note([1.0, [1, 2]])
    assert caught.value.__notes__ == ["raised in environment 1"]


@pytest.mark.parametrize("settled", [1, 3, 100])
def test_hashes_are_of_actions_in_their_own_types(settled: int) -> None:
    actions: list[Any] = [np.int64(1), np.int64(2), np.int32(1), np.int64(1), np.int64(0), np.int64(0), np.int64(3)]
    log, found = EpisodeLog(2, floats=True, hashing="arrays"), []
    log.begin(0)
    for step, action in enumerate(actions):
        log.note([np.float32(step / 3), 0.0], [action, None])  # the other row is idle
        if step == 4:
            log.count(0)
            found.append(log.digest(0))
            log.begin(0)
        if step % settled == settled - 1:
            log.settle()
    log.count(0)
    found.append(log.digest(0))
    for digest, steps in zip(found, (range(5), range(5, 7)), strict=True):
        taken, got = new_hash(), new_hash()
        for step in steps:
            taken.update(actions[step].tobytes())
            got.update(np.array(float(np.float32(step / 3)), "<f8").tobytes())
        assert digest == taken.hexdigest()[:16] + got.hexdigest()[:16]


def test_other_actions_are_hashed_as_what_they_are() -> None:
    log, taken, got = EpisodeLog(1, floats=True, hashing="objects"), new_hash(), new_hash()
    log.begin(0)
    for action in ({"a": 1}, ("b", 2.0)):
        log.note([1.0], [action])
        canonical(action, taken)
        got.update(np.array(1.0, "<f8").tobytes())
    log.count(0)
    assert log.digest(0) == taken.hexdigest()[:16] + got.hexdigest()[:16]


def test_an_evaluation_plays_the_episodes_of_a_queue() -> None:
    seeds = Numbered(2, lambda number: 10 * number)
    seeds.queue += [3, 4, 5]
    assert [seeds(0), seeds(1), seeds(0, over=False), seeds(0), seeds(1)] == [{"seed": 30}, {"seed": 40}, {}, {"seed": 50}, None]
    assert seeds.playing == [5, None]


def test_a_trainer_seeds_the_first_reset_of_a_round() -> None:
    spared: set[int] = set()
    seeds = OfRounds(2, lambda env, number: 100 * env + number, spared.__contains__)
    assert [seeds(0), seeds(1), seeds(1)] == [{"seed": 0}, {"seed": 100}, {}]
    seeds.begin_round()
    assert [seeds(0), seeds(1, over=False), seeds(1)] == [{"seed": 1}, {}, {}]
    seeds.begin_round()
    spared.add(1)
    assert [seeds(1), seeds(1)] == [{}, {}]
    assert seeds.playing == [1, 5]
