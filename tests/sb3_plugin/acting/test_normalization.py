"""``VecNormalize`` around a trainer's vector environment: its statistics are the learner's."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize
from trainers import ALGORITHMS, EVALUATED, INLINE, PLACES, PROCESSES, Seen, Toy, each, new, outcome, suited

pytestmark = pytest.mark.timeout(60)
WIDE = spaces.Box(-30, 90, (3,), np.float32)
Array = np.ndarray[Any, Any]


def toys(space: gymnasium.Space[Any] = WIDE, algorithm: str = "dqn", **settings: Any) -> VecNormalize:
    return VecNormalize(make_vec_env(suited(algorithm, partial(Toy, space)), n_envs=4), **settings)


def weights(model: Any) -> list[Array]:
    return [tensor.detach().numpy() for tensor in model.session.acting_state(model).values()]


def statistics(venv: VecNormalize) -> list[Any]:
    return [venv.obs_rms.mean, venv.obs_rms.var, venv.obs_rms.count, venv.ret_rms.mean, venv.ret_rms.var, venv.returns]


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
@each
def test_statistics_are_the_same_everywhere(algorithm: str, pipeline: int) -> None:
    found = []
    for place in PLACES:
        with new(algorithm, (venv := toys(algorithm=algorithm)), pipeline=pipeline, **{**place, **EVALUATED}) as model:
            found.append((outcome(model.learn(320)), statistics(venv)))
    for one in found:
        np.testing.assert_equal(one, found[0])
    assert found[0][1][2] > 200 and not np.allclose(found[0][1][0], 0, atol=5)


@pytest.mark.slow
def test_learner_shards_add_to_them_too() -> None:
    found = []
    for place in (INLINE, PROCESSES):
        with new("ppo", (venv := toys()), n_learners=2, **place) as model:
            found.append((outcome(model.learn(256)), statistics(venv)))
    np.testing.assert_equal(found[0], found[1])
    assert found[0][1][2] == pytest.approx(256)


@pytest.mark.parametrize("pipeline", [0, 1])
def test_they_are_those_of_vec_normalize(pipeline: int) -> None:
    with new("dqn", (venv := toys(gamma=0.9)), pipeline=pipeline) as model:
        model.learn(320)
        model.learn(320)  # begins new episodes
        buffer = model.replay_buffer
        stored = buffer.pos
    expected, of_returns, returns = RunningMeanStd(shape=(3,)), RunningMeanStd(), np.zeros(4)
    for step in range(stored):
        expected.update(buffer.observations[step])
        returns = returns * 0.9 + buffer.rewards[step]
        of_returns.update(returns)
        returns[buffer.dones[step] > 0] = 0
    assert stored == 640 // 4 - 8 * pipeline and np.abs(buffer.observations).max() > 60
    np.testing.assert_equal(statistics(venv)[:-1], [expected.mean, expected.var, expected.count, of_returns.mean, of_returns.var])


@pytest.mark.parametrize("pipeline", [0, 1])
@each
def test_returns_begin_anew_with_new_episodes(algorithm: str, pipeline: int) -> None:
    make = suited(algorithm, lambda: Toy(WIDE, length=10**6, rate=0.0))
    venv = VecNormalize(make_vec_env(make, n_envs=4), norm_reward=False, gamma=1.0)
    with new(algorithm, venv, pipeline=pipeline, rollout_steps=16) as model:
        model.learn(64)
        model.learn(64, callback=(seen := Seen()))  # begins new episodes
        if pipeline:
            model.learn(64, reset_num_timesteps=False)  # learns from them
    np.testing.assert_allclose(venv.returns, np.sum([row[4] for row in seen.rows], 0), rtol=1e-6)


class Normalized(gymnasium.Wrapper[Any, Any, Any, Any]):
    """What ``VecNormalize`` does with statistics that do not change, for one environment."""

    def __init__(self, env: gymnasium.Env[Any, Any], like: Any) -> None:
        super().__init__(env)
        self.mean, self.var, self.of_returns = like.obs_rms.mean, like.obs_rms.var, like.ret_rms.var
        self.norm_reward, self.most = like.norm_reward, like.clip_obs

    def seen(self, observation: Array) -> Array:
        return np.clip((observation - self.mean) / np.sqrt(self.var + 1e-8), -self.most, self.most).astype(np.float32)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        return self.seen(observation), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self.norm_reward:
            reward = np.float32(np.clip(np.float32(reward) / np.sqrt(self.of_returns + 1e-8), -10, 10))
        return self.seen(observation), reward, terminated, truncated, info


@pytest.mark.slow
@pytest.mark.parametrize("norm_reward", [False, True])
@each
def test_the_policy_sees_what_it_would_see_through_a_wrapper(algorithm: str, norm_reward: bool) -> None:
    venv = toys(algorithm=algorithm, training=False, norm_reward=norm_reward, clip_obs=1.5)
    venv.obs_rms.mean, venv.obs_rms.var = np.array([20.0, 30.0, 40.0]), np.array([900.0, 400.0, 1600.0])
    venv.ret_rms.var = np.float64(30.0)
    before = statistics(venv)
    callbacks = [Seen(), Seen()]
    with new(algorithm, venv, **EVALUATED) as model:
        model.learn(320, callback=callbacks[0])
    with new(algorithm, lambda: Normalized(Monitor(suited(algorithm, Toy(WIDE))), venv), **EVALUATED) as alone:
        alone.learn(320, callback=callbacks[1])
    np.testing.assert_equal(weights(model), weights(alone))
    np.testing.assert_equal(statistics(venv), before)
    for ours, theirs in zip(callbacks[0].rows, callbacks[1].rows, strict=True):
        np.testing.assert_equal(ours[2:6], theirs[2:6])
        for mine, other in zip(ours[6], theirs[6], strict=True):
            np.testing.assert_equal(mine.get("terminal_observation"), other.get("terminal_observation"))
    if not norm_reward:
        np.testing.assert_equal(outcome(model)["evaluations"], outcome(alone)["evaluations"])


MIXED = spaces.Dict(image=spaces.Box(0, 255, (36, 36, 1), np.uint8), vector=WIDE, kind=spaces.Discrete(3))


@pytest.mark.slow
@each
def test_keys_and_images(algorithm: str) -> None:
    venv = toys(MIXED, algorithm=algorithm, norm_obs_keys=["vector"])
    with new(algorithm, venv, "MultiInputPolicy", n_actors=2, envs_per_actor=2, policy_kwargs={}) as model:
        model.learn(64, callback=(seen := Seen()))
        observed = seen.rows[-1][2]
        assert observed["image"].shape == (4, 1, 36, 36) and observed["image"].dtype == np.uint8
        assert np.abs(observed["vector"]).max() <= 10 and set(venv.obs_rms) == {"vector"}
    images = toys(spaces.Box(0, 255, (36, 36, 1), np.uint8), algorithm, norm_obs=False)
    with new(algorithm, images, "CnnPolicy", n_actors=None) as model:
        model.learn(64)
        assert images.ret_rms.count > 60 and model.observation_space.shape == (1, 36, 36)
        assert model.get_vec_normalize_env() is images


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
@each
def test_a_resumed_run_ends_with_the_same_statistics(algorithm: str, pipeline: int, tmp_path: Path) -> None:
    with new(algorithm, (venv := toys(algorithm=algorithm, clip_reward=np.inf)), pipeline=pipeline, **EVALUATED) as model:
        model.learn(192)
        model.save_checkpoint(tmp_path / "run")
        model.learn(192, reset_num_timesteps=False)
        straight = outcome(model), statistics(venv)
    for env in (None, toys(algorithm=algorithm)):
        with ALGORITHMS[algorithm][0].resume(tmp_path / "run", env, workers=2, executor="processes") as resumed:
            outcome_of_resumed = outcome(resumed.learn(192, reset_num_timesteps=False))
            again = resumed.get_vec_normalize_env()
            assert again.clip_reward == np.inf and (env is None or again is env)
            np.testing.assert_equal((outcome_of_resumed, statistics(again)), straight)
    with new(algorithm, lambda: Toy(WIDE)) as other:
        other.save_checkpoint(tmp_path / "other")
    with pytest.raises(ValueError, match="the run that was saved has no VecNormalize"):
        ALGORITHMS[algorithm][0].resume(tmp_path / "other", toys(algorithm=algorithm))


@pytest.mark.slow
@each
def test_saved_and_loaded_as_sb3_does(algorithm: str, tmp_path: Path) -> None:
    venv = toys(algorithm=algorithm)
    evaluated = toys(algorithm=algorithm, training=False, norm_reward=False)
    with new(algorithm, venv) as model:
        model.learn(128, callback=EvalCallback(evaluated, n_eval_episodes=2, eval_freq=8, verbose=0))
        assert model.get_vec_normalize_env() is venv and np.abs(evaluated.obs_rms.mean).max() > 5
        model.save(tmp_path / "model")
        venv.save(tmp_path / "statistics")
    again = VecNormalize.load(tmp_path / "statistics", make_vec_env(suited(algorithm, partial(Toy, WIDE)), n_envs=4))
    with ALGORITHMS[algorithm][0].load(tmp_path / "model", again) as loaded:
        assert loaded.get_vec_normalize_env() is again
        np.testing.assert_equal(statistics(again)[:-1], statistics(venv)[:-1])
        loaded.learn(64, reset_num_timesteps=False)
        assert again.obs_rms.count == pytest.approx(128 + 64, abs=0.01)
        again.training = False
        loaded.learn(64, reset_num_timesteps=False)
        assert again.obs_rms.count == pytest.approx(128 + 64, abs=0.01)
        loaded.set_env(other := toys(algorithm=algorithm))
        loaded.learn(64, reset_num_timesteps=False)
        assert loaded.get_vec_normalize_env() is other and other.obs_rms.count == pytest.approx(64, abs=0.01)


def test_what_is_wrapped_around_it_is_refused() -> None:
    venv: VecEnv = VecFrameStack(VecNormalize(DummyVecEnv([Toy] * 4)), 2)
    with pytest.raises(TypeError, match="VecNormalize has to be around all other wrappers"):
        new("dqn", venv)
