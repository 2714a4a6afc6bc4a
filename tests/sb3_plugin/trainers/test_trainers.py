"""All trainers: one result on any number of cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import in_turn
from stable_baselines3.common.monitor import Monitor
from trainers import EVALUATED, INLINE, PLACES, PROCESSES, SPACES, THREADS, Toy, alone, each, most, new, outcome


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
@in_turn("pipeline", [0, 1], kept=1)
@most
def test_one_result(algorithm: str, pipeline: int, place: dict[str, Any]) -> None:
    expected = alone(algorithm, pipeline)
    with new(algorithm, pipeline=pipeline, **EVALUATED, **place) as model:
        assert outcome(model.learn(640)) == expected
    assert len(expected["evaluations"]) >= 2
    assert len(expected["episodes"]) > 10
    assert expected["counters"][0] == 640


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
def test_trainings_in_several_threads_do_not_know_of_each_other(place: dict[str, Any]) -> None:
    def train(algorithm: str) -> str:
        with new(algorithm, **{**INLINE, **place}) as model:
            return model.learn(320).fingerprint()  # type: ignore[no-any-return]

    algorithms = ["dqn", "dqn", "sac"]
    expected = [train(algorithm) for algorithm in algorithms]
    with ThreadPoolExecutor(len(algorithms)) as pool:
        assert list(pool.map(train, algorithms)) == expected


@pytest.mark.slow
@most
def test_other_seeds_and_pipelines_give_other_results(algorithm: str) -> None:
    found = [alone(algorithm, pipeline, seed) for pipeline in (0, 1) for seed in (0, 1)]
    assert len({one["weights"] for one in found}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
@each
def test_two_halves(algorithm: str, pipeline: int, tmp_path: Path) -> None:
    found = []
    for place in ({}, THREADS, PROCESSES):
        with new(algorithm, pipeline=pipeline, **EVALUATED, **{**INLINE, **place}) as model:
            model.learn(320)
            if place:
                with model.trace(str(tmp_path / "trace.json")):
                    model.learn(320, reset_num_timesteps=False)
                assert (tmp_path / "trace.json").stat().st_size > 1000
            else:
                model.learn(320, reset_num_timesteps=False)
            found.append(outcome(model))
    assert found[1] == found[0] and found[2] == found[0]
    assert found[0]["counters"][0] == 640


@pytest.mark.slow
@most
def test_a_second_training_begins_anew(algorithm: str) -> None:
    """With the same numbers on any executor, whatever has been learned before."""
    found = []
    for place in (INLINE, PROCESSES):
        with new(algorithm, pipeline=1, evaluate_every=1, evaluate_episodes=1, evaluate_steps=200, **place) as model:
            model.learn(192)
            first = len(model.evaluations)
            model.learn(192)
            found.append(outcome(model))
            steps = [one.timesteps for one in model.evaluations[first:]]
            assert len(steps) > 1 and min(steps) >= 0 and max(steps) < 192
            assert model.learned_timesteps == 192 - 4 * model.rollout_steps
    assert found[0] == found[1]
    assert found[0]["counters"][0] == 192


@most
def test_whole_rounds(algorithm: str) -> None:
    with new(algorithm) as model:
        steps = model.rollout_steps * model.n_envs
        assert model.learn(65).num_timesteps == -(-65 // steps) * steps
        assert model.remaining_timesteps == 0
        assert model.learn(0).num_timesteps == 0


@each
def test_wrappers_that_only_watch(algorithm: str) -> None:
    """A Monitor changes no weight, and its episodes are ours."""
    with new(algorithm, lambda: Monitor(gymnasium.make("CartPole-v1")), **EVALUATED) as model:
        assert outcome(model.learn(640)) == alone(algorithm, 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["image", "dict", "discrete"])
@each
def test_one_result_with_other_observations(algorithm: str, name: str) -> None:
    policy, space = SPACES[name]
    env = "FrozenLake-v1" if name == "discrete" else partial(Toy, space)
    found = []
    for place in {"image": PLACES[::2], "dict": PLACES[:2], "discrete": PLACES}[name]:
        with new(algorithm, env, policy, envs_per_actor=3, n_actors=2, pipeline=1, **place) as model:
            found.append(outcome(model.learn(384)))
    assert all(one == found[0] for one in found)


@each
def test_global_generators_are_left_alone(algorithm: str) -> None:
    threads = torch.get_num_threads()
    np.random.seed(3)
    with new(algorithm, executor="auto", workers=2, pipeline=1) as model:
        before = str(np.random.get_state()), torch.get_rng_state()
        model.learn(128)
        assert str(np.random.get_state()) == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert torch.get_num_threads() == threads
