"""Environments may use their arrays and dicts again, and keep or change actions, whatever steps them: against plain loops."""

from __future__ import annotations

from contextlib import closing
from copy import deepcopy
from functools import partial
from itertools import combinations
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from reusing_envs import HABITS, Reusing

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.environments.owning import as_number, own

PLACES: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "workers": 2},
    {"executor": "processes", "workers": 2},
    {"executor": "processes", "workers": 3},
]
SEEDS, STEPS = 20, 25
ALONE = [(habit,) for habit in HABITS]
EVERY = list(combinations(HABITS, 2))[::7]


def makers(space: str, actions: str, executor: str) -> list[Any]:
    """Two of each, so that what they share by their class is shared by neighbours, too.

    On two threads, environments that write into the same array would not even agree with each other.
    """
    habits = [some for some in [*ALONE, *EVERY] if executor != "threads" or not any("class" in habit for habit in some)]
    return [partial(Reusing, some, space, actions) for some in habits for _ in range(2)]


def plain_loop(space: str, actions: str, given: list[Any], mode: AutoresetMode, count: int) -> list[Any]:
    """Observations and rewards of environments without habits, each by itself, reset as the mode says."""
    envs = [Reusing((), space, actions) for _ in range(count)]
    seen: list[Any] = [[env.reset(seed=SEEDS + number)[0] for number, env in enumerate(envs)]]
    done = [False] * len(envs)
    for batch in given:
        observations, rewards = [], []
        for number, env in enumerate(envs):
            if done[number]:
                observation, reward, done[number] = env.reset()[0], 0.0, False
            else:
                observation, reward, ended, _, _ = env.step(batch[number])
                if ended and mode is AutoresetMode.SAME_STEP:
                    observation = env.reset()[0]
                else:
                    done[number] = bool(ended)
            observations.append(observation)
            rewards.append(reward)
        seen.append((observations, rewards))
    return seen


def actions_of(actions: str, envs: int) -> list[Any]:
    space = gymnasium.vector.utils.batch_space(Reusing((), "small", actions).action_space, envs)
    space.seed(3)
    return [space.sample() for _ in range(STEPS)]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: f"{place['executor']}{place.get('workers', '')}")
@pytest.mark.parametrize(("space", "actions"), [("small", "box"), ("large", "choices"), ("dict", "choice")])
def test_vector_environments_give_what_plain_loops_give(space: str, actions: str, place: dict[str, Any], mode: Any) -> None:
    makes = makers(space, actions, place["executor"])
    given = actions_of(actions, len(makes))
    expected = plain_loop(space, actions, given, mode, len(makes))
    rows = gymnasium.vector.utils.create_empty_array
    concatenate = gymnasium.vector.utils.concatenate
    with closing(SyncVectorEnv([partial(Reusing, (), space, actions) for _ in makes], autoreset_mode=mode)) as twins:
        with ReactorVectorEnv(makes, autoreset_mode=mode, **place) as envs:
            single = envs.single_observation_space
            of_twins, found = twins.reset(seed=SEEDS), envs.reset(seed=SEEDS)
            assert_same(found, of_twins)
            for step, batch in enumerate(given):
                before = deepcopy(batch)
                found = envs.step(batch)
                np.testing.assert_array_equal(batch, before)  # what the caller has is the caller's
                observations, rewards = expected[step + 1]
                assert_same(found[0], concatenate(single, observations, rows(single, len(makes))), f"step {step}")
                np.testing.assert_array_equal(found[1], rewards, f"step {step}")
                assert_same(found[2:], twins.step(batch)[2:], f"step {step}")  # flags and infos


@pytest.mark.parametrize("place", PLACES[::2], ids=["inline", "processes2"])
def test_observations_of_those_that_a_reset_leaves_alone(place: dict[str, Any]) -> None:
    """They are what was seen last, although another environment of the class has written into the same array since."""
    makes = [partial(Reusing, ("class observation", "class info")) for _ in range(4)]
    with ReactorVectorEnv(makes, autoreset_mode=AutoresetMode.DISABLED, **place) as envs:
        first, _ = envs.reset(seed=0)
        mask = np.array([False, True, False, True])
        again, _ = envs.reset(seed=[None, 8, None, 9], options={"reset_mask": mask})
    np.testing.assert_array_equal(again[~mask], first[~mask])
    assert not (again[mask] == first[mask]).any()


@pytest.mark.parametrize("place", PLACES[::2], ids=["inline", "processes2"])
def test_members_may_use_their_arrays_again(place: dict[str, Any]) -> None:
    makes = [partial(SyncVectorEnv, [partial(Reusing, ("own observation",))] * 3, copy=copy) for copy in (True, False)]
    honest = [partial(SyncVectorEnv, [Reusing] * 3) for _ in makes]
    with ReactorVectorEnv.of(makes, **place) as envs, ReactorVectorEnv.of(honest, executor="inline") as twins:
        assert_same(envs.reset(seed=2), twins.reset(seed=2))
        for batch in actions_of("box", 6):
            assert_same(envs.step(batch), twins.step(batch))


def test_own_is_a_copy_throughout() -> None:
    class Marked(dict[str, Any]):
        pass

    array = np.arange(3.0)
    value = {"a": array, "b": [array, (array, {"c": array})], "d": Marked(e=array), "f": np.array([array, None], object), "g": "x"}
    copied, before = own(value), deepcopy(value)
    assert type(copied["d"]) is Marked
    array += 1
    value["b"].append(1)
    assert_same(copied, before)
    assert own({"module": np})["module"] is np  # which can be pickled, and not copied
    for fixed in (1, 1.5, True, "x", b"x", None, np.float32(1), np.int8(1), np.bool_(True)):
        assert own(fixed) is fixed


def test_numbers_of_rewards() -> None:
    for reward in (1, 1.5, True, np.float32(1.5), np.int64(3)):
        assert as_number(reward) is reward
    reward = np.array([2.5])
    number = as_number(reward)
    reward += 1
    assert number == 2.5
    with pytest.raises(ValueError, match="the reward must be a number, got"):
        as_number(np.zeros(2))
