"""Hindsight replay (Andrychowicz et al. 2017): SB3's buffer, which asks an environment of the learner's for rewards."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize
from trainers import EVALUATED, INLINE, PLACES, THREADS, Toy, new, outcome, same_draws

from reactor_sb3 import SyncDQN, SyncSAC, SyncTD3
from reactor_sb3.streams import Purpose, stream

STEP, NEAR = 0.25, 0.2


class Reach(gymnasium.Env[Any, Any]):
    """A point that is to go to a place in a square; what is paid is paid there only.

    Args:
        discrete: Whether it moves along one axis at a time.
        strange: Whether it draws from ``np.random`` where it is made, and pays by what is in an info.
    """

    def __init__(self, discrete: bool = False, strange: bool = False) -> None:
        place = spaces.Box(-1, 1, (2,), np.float32)
        self.observation_space = spaces.Dict(observation=place, achieved_goal=place, desired_goal=place)
        self.action_space = spaces.Discrete(4) if discrete else place
        self.strange, self.discrete, self.length = strange, discrete, 12
        if strange:
            np.random.random(3)

    def seen(self) -> dict[str, Any]:
        return {"observation": self.place.copy(), "achieved_goal": self.place.copy(), "desired_goal": self.goal.copy()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        self.place, self.goal = self.np_random.uniform(-1, 1, (2, 2)).astype(np.float32)
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        by = [(1, 0), (-1, 0), (0, 1), (0, -1)][action] if self.discrete else action
        self.place = np.clip(self.place + STEP * np.asarray(by, np.float32), -1, 1, dtype=np.float32)
        info = {"near": NEAR + 0.01 * (self.t % 3)}
        reward = float(self.compute_reward(self.place[None], self.goal[None], [info])[0])
        return self.seen(), reward, reward == 0 and self.t > 2, self.t >= self.length, info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, infos: Any) -> Any:
        near = np.array([info["near"] for info in infos]) if self.strange else NEAR
        return -(np.linalg.norm(achieved_goal - desired_goal, axis=-1) > near).astype(np.float32)


TRAINERS = {"sac": SyncSAC, "td3": SyncTD3, "dqn": SyncDQN}


def hindsight(env: Any = Reach, algorithm: str = "sac", goals: dict[str, Any] | None = None, **changed: Any) -> Any:
    given: dict[str, Any] = {
        "n_actors": 3, "rollout_steps": 8, "gradient_steps": 2, "buffer_size": 200, "learning_starts": 60, "batch_size": 16,
        "policy_kwargs": {"net_arch": [16]}, "seed": 0, **INLINE,
    }  # fmt: skip
    env = partial(Reach, discrete=True) if algorithm == "dqn" else env
    more = {"replay_buffer_class": HerReplayBuffer, "replay_buffer_kwargs": goals}
    return TRAINERS[algorithm]("MultiInputPolicy", env, **{**given, **more, **changed})


def test_a_buffer_knows_episodes() -> None:
    """Of one environment, several times round."""
    with hindsight(n_actors=1, rollout_steps=1, buffer_size=100) as model:
        model.learn(230)
    kept = model.replay_buffer
    rows = np.arange(kept.pos - 100, kept.pos) % 100  # in the order in which they were stored
    assert kept.full and (kept.ep_length > 0).sum() > 80
    for start, length in {(int(kept.ep_start[row, 0]), int(kept.ep_length[row, 0])) for row in rows if kept.ep_length[row, 0]}:
        of_episode = (start + np.arange(length)) % 100
        assert (kept.ep_start[of_episode, 0] == start).all() and (kept.ep_length[of_episode, 0] == length).all()
        assert kept.dones[of_episode[-1], 0] and not kept.dones[of_episode[:-1], 0].any()
        goals = kept.observations["desired_goal"][of_episode, 0]
        assert (goals == goals[0]).all() and np.array_equal(kept.next_observations["desired_goal"][of_episode, 0], goals)


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
@pytest.mark.parametrize("with_infos", [False, True])
def test_updates_are_those_of_sb3(strategy: str, with_infos: bool) -> None:
    """From the same state, transitions and generators; rewards of other goals are those of the environment."""
    goals = {"goal_selection_strategy": strategy, "n_sampled_goal": 3, "copy_info_dict": with_infos}
    env = partial(Reach, strange=with_infos)
    with hindsight(env, goals=goals) as model:
        model.learn(200)
    theirs = SAC("MultiInputPolicy", env(), device="cpu", batch_size=16, policy_kwargs={"net_arch": [16]},
                 replay_buffer_class=HerReplayBuffer, replay_buffer_kwargs=goals)  # fmt: skip
    theirs.set_parameters(deepcopy(model.get_parameters()))
    theirs.replay_buffer = model.replay_buffer
    with torch.random.fork_rng():
        for one in (model, theirs):
            torch.manual_seed(4)
            one.set_logger(model.logger)
            with same_draws(model, stream(0, Purpose.REPLAY, 1)):
                one.train(gradient_steps=5, batch_size=16)
    for name, weights in theirs.policy.state_dict().items():
        torch.testing.assert_close(model.policy.state_dict()[name], weights, rtol=0, atol=2e-5)
    assert (model.replay_buffer.infos[0, 0] != {}) == with_infos
    with same_draws(model, stream(0, Purpose.REPLAY, 1)):
        batch = model._sampling(160)()
    virtual = slice(40, 160)
    far = (batch.next_observations["achieved_goal"] - batch.observations["desired_goal"]).norm(dim=1)[virtual]
    surely = (far < NEAR) | (far > NEAR + 0.03)
    assert torch.equal(batch.rewards[virtual, 0][surely], -(far > NEAR).float()[surely]) and (far < NEAR).sum() > 20


@pytest.mark.parametrize("algorithm", sorted(TRAINERS))
@pytest.mark.parametrize("pipeline", [0, 1])
def test_one_result(algorithm: str, pipeline: int) -> None:
    found = []
    for place in PLACES:
        with hindsight(algorithm=algorithm, pipeline=pipeline, envs_per_actor=2, **EVALUATED, **place) as model:
            found.append(outcome(model.learn(480)))
    assert found[0] == found[1] == found[2] and found[0]["counters"][2] > 0


@pytest.mark.parametrize("with_infos", [False, True])
@pytest.mark.parametrize("pipeline", [0, 1])
def test_a_run_that_is_resumed_ends_as_it_would_have(pipeline: int, with_infos: bool, tmp_path: Any) -> None:
    """Also where the environment that is asked for rewards draws when it is made."""
    goals = {"copy_info_dict": with_infos}
    with hindsight(partial(Reach, strange=with_infos), goals=goals, pipeline=pipeline) as model:
        model.learn(240)
        model.save_checkpoint(tmp_path / "run.zip")
        straight = outcome(model.learn(240, reset_num_timesteps=False))
    with SyncSAC.resume(tmp_path / "run.zip", **THREADS) as resumed:
        assert outcome(resumed.learn(240, reset_num_timesteps=False)) == straight


@pytest.mark.parametrize("pipeline", [0, 1])
def test_no_goal_is_of_another_episode(pipeline: int) -> None:
    """Where training begins anew, episodes that were going on are whole ones."""
    with hindsight(goals={"goal_selection_strategy": "episode"}, pipeline=pipeline, rollout_steps=5, buffer_size=1000) as model:
        for _ in range(3):
            model.learn(75)
    buffer = model.replay_buffer
    for number in range(3):
        begun = 0
        for row in range(buffer.pos):
            assert buffer.ep_start[row, number] == begun, (row, number)
            begun = row + 1 if buffer.dones[row, number] else begun
        goals = buffer.observations["desired_goal"][: buffer.pos, number]
        changes = np.flatnonzero((goals[1:] != goals[:-1]).any(1)) + 1
        assert buffer.dones[changes - 1, number].all()


def test_environments_that_are_normalised_or_exchanged() -> None:
    venv = VecNormalize(make_vec_env(Reach, n_envs=3), norm_obs_keys=["observation"])
    with hindsight(venv) as model:
        model.learn(120)
        before = model.replay_buffer.env
        model.set_env(make_vec_env(Reach, n_envs=3))
        assert model.replay_buffer.env is not before
        model.learn(120)
    assert model.n_updates > 0


def test_saved_and_loaded(tmp_path: Any) -> None:
    with hindsight() as model:
        model.learn(120)
        model.save(tmp_path / "model")
        model.save_replay_buffer(tmp_path / "buffer")
    with SyncSAC.load(tmp_path / "model", Reach, **INLINE) as loaded:
        loaded.load_replay_buffer(tmp_path / "buffer", truncate_last_traj=False)
        loaded.learn(48)


def test_environments_without_goals_are_refused() -> None:
    with pytest.raises(ValueError, match=r"hindsight replay .* compute_reward"):
        new("sac", Toy, replay_buffer_class=HerReplayBuffer)


@pytest.mark.slow
def test_hindsight_is_what_makes_it_learn() -> None:
    """Where nothing but the goal is paid."""
    found = []
    for kind in (HerReplayBuffer, None):
        with hindsight(
            n_actors=2, rollout_steps=4, gradient_steps=8, buffer_size=20_000, learning_starts=200, batch_size=128, gamma=0.95,
            policy_kwargs={"net_arch": [64, 64]}, replay_buffer_class=kind, evaluate_every=100, evaluate_episodes=50,
            learning_rate=1e-3,
        ) as model:  # fmt: skip
            model.learn(6_000)
            found.append(model.evaluations[-1].mean)
    assert found[0] > -6 and found[0] > found[1] - 1, found
