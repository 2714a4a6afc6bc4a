"""Both trainers: one result on any number of cores, the algorithms against plain versions of them, and all that SB3 promises."""

from __future__ import annotations

import csv
import os
import signal
import threading
import time
from collections.abc import Iterator
from copy import deepcopy
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.callbacks import (
    BaseCallback, CheckpointCallback, EvalCallback, StopTrainingOnMaxEpisodes, StopTrainingOnRewardThreshold,
)  # fmt: skip
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from reactor_rl import WorkerDiedError
from reactor_sb3 import PQN, ReactorVecEnv, StopOnEvaluation, SyncDQN
from reactor_sb3.records import Observations, transition_record
from reactor_sb3.streams import Purpose, seed_of

ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dqn": (
        SyncDQN,
        {
            "rollout_steps": 8, "gradient_steps": 2, "buffer_size": 1000, "learning_starts": 64, "batch_size": 16,
            "target_update_interval": 128, "learning_rate": 1e-2,
        },
    ),
    "pqn": (PQN, {"rollout_steps": 16, "n_minibatches": 2, "n_epochs": 2}),
}  # fmt: skip
PLACES: list[dict[str, Any]] = [
    {"executor": "inline"},
    *({"executor": "threads", "workers": workers} for workers in (2, 3)),
    *({"executor": "processes", "workers": workers} for workers in (1, 2, 3, 4)),
]
INLINE = PLACES[0]
BOX = spaces.Box(-1, 1, (3,), np.float32)
SPACES: dict[str, tuple[str, gymnasium.Space[Any]]] = {
    "box": ("MlpPolicy", BOX),
    "image": ("CnnPolicy", spaces.Box(0, 255, (36, 36, 1), np.uint8)),
    "dict": ("MultiInputPolicy", spaces.Dict(vector=BOX, kind=spaces.Discrete(3))),
    "discrete": ("MlpPolicy", spaces.Discrete(5)),
}
both = pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))


class Toy(gymnasium.Env[Any, Any]):
    """Random observations of any space; episodes of a few steps, which end in both ways."""

    def __init__(self, space: gymnasium.Space[Any] = BOX, length: int = 7) -> None:
        self.observation_space, self.length = deepcopy(space), length
        self.action_space: gymnasium.Space[Any] = spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        reward = float(self.np_random.normal()) + int(action)
        terminated = bool(self.np_random.random() < 0.1)
        return self.observation_space.sample(), reward, terminated, self.t >= self.length, self.info()

    def info(self) -> dict[str, Any]:
        return {"t": self.t, "pid": os.getpid()}


def new(algorithm: str, env: Any = "CartPole-v1", policy: str = "MlpPolicy", **changed: Any) -> Any:
    cls, arguments = ALGORITHMS[algorithm]
    network: dict[str, Any] = {"net_arch": [32]}
    if policy == "CnnPolicy":
        network = {"net_arch": [], "features_extractor_kwargs": {"features_dim": 16}}
    return cls(policy, env, **{"n_actors": 4, "seed": 0, "policy_kwargs": network, **INLINE, **arguments, **changed})


def outcome(model: Any) -> dict[str, Any]:
    return {
        "weights": model.fingerprint(),
        "evaluations": [(one.timesteps, one.returns, one.lengths) for one in model.evaluations],
        "counters": (model.num_timesteps, model._episode_num, model._n_updates),
        "episodes": [(info["r"], info["l"]) for info in model.ep_info_buffer],
    }


# ---------------------------------------------------------------------- determinism

EVALUATED: dict[str, Any] = {"evaluate_every": 3, "evaluate_episodes": 2}


@lru_cache(maxsize=None)
def alone(algorithm: str, pipeline: int, seed: int = 0) -> dict[str, Any]:
    """What comes out without any parallelism."""
    with new(algorithm, pipeline=pipeline, seed=seed, **EVALUATED) as model:
        return outcome(model.learn(640))


@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_one_result(algorithm: str, pipeline: int, place: dict[str, Any]) -> None:
    expected = alone(algorithm, pipeline)
    with new(algorithm, pipeline=pipeline, **EVALUATED, **place) as model:
        assert outcome(model.learn(640)) == expected
    assert len(expected["evaluations"]) >= 2
    assert len(expected["episodes"]) > 10
    assert expected["counters"][0] == 640


@both
def test_other_seeds_and_pipelines_give_other_results(algorithm: str) -> None:
    found = [alone(algorithm, pipeline, seed) for pipeline in (0, 1) for seed in (0, 1)]
    assert len({one["weights"] for one in found}) == 4


@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_two_halves(algorithm: str, pipeline: int, tmp_path: Path) -> None:
    found = []
    for place in ({}, PLACES[1], PLACES[4]):
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


@both
def test_a_second_training_begins_anew(algorithm: str) -> None:
    """The same numbers of steps and episodes on any executor, whatever has been learned before."""
    found = []
    for place in (INLINE, PLACES[4]):
        with new(algorithm, pipeline=1, **place) as model:
            model.learn(192).learn(192)
            found.append(outcome(model))
    assert found[0] == found[1]
    assert found[0]["counters"][0] == 192


@pytest.mark.parametrize("name", ["image", "dict", "discrete"])
@both
def test_one_result_with_other_observations(algorithm: str, name: str) -> None:
    policy, space = SPACES[name]
    env = "FrozenLake-v1" if name == "discrete" else partial(Toy, space)
    found = []
    for place in (INLINE, PLACES[1], PLACES[4], PLACES[5]):
        with new(algorithm, env, policy, envs_per_actor=3, n_actors=3, pipeline=1, batch_size=16, **place) if algorithm == "dqn" else (
            new(algorithm, env, policy, envs_per_actor=3, n_actors=3, pipeline=1, n_minibatches=3, **place)
        ) as model:
            found.append(outcome(model.learn(432)))
    assert all(one == found[0] for one in found)


@both
def test_global_generators_are_left_alone(algorithm: str) -> None:
    threads = torch.get_num_threads()
    np.random.seed(3)
    with new(algorithm, executor="auto", workers=2, pipeline=1) as model:
        before = str(np.random.get_state()), torch.get_rng_state()
        model.learn(128)
        assert str(np.random.get_state()) == before[0] and torch.equal(torch.get_rng_state(), before[1])
    assert torch.get_num_threads() == threads


# ---------------------------------------------------------------------- what is stored


def replayed(model: Any, make: Any, actions: Any) -> Iterator[tuple[int, int, Any, Any, float, bool, bool]]:
    """The transitions that these actions lead to in bare environments, seeded as a KeptEnv seeds them."""
    for number in range(model.n_envs):
        env, episode, over = make(), -1, True
        for step, action in enumerate(actions[:, number]):
            seeded = step % model.rollout_steps == 0 and "no" or seeded  # noqa: F821
            for _ in range(2):
                pass
            yield from ()
        env.close()
    raise AssertionError(over, episode, action)
