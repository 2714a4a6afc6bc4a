"""ReactorEnvRunner hands over what RLlib's own runner hands over, or says which setting it does not have."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("tree")
pytest.importorskip("ray.rllib.algorithms", exc_type=ImportError)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.callbacks.callbacks import RLlibCallback
    from ray.rllib.connectors.env_to_module import FlattenObservations
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    from reactor_ray.rllib import ReactorEnvRunner, env_id
    from reactor_ray.rllib.settings import environment_seeds

TIMED = {
    "sample",
    "env_reset_timer",
    "rlmodule_inference_timer",
    "env_step_timer",
    "time_between_sampling",
    "episode_duration_sec_mean",
}
LEFT_OUT = {"env_to_module_sum_episodes_length_in", "env_to_module_sum_episodes_length_out"}
MANY = [{"num_timesteps": n} for n in (90, 7, 200, 1, 60)]
CALLS = [*MANY, {"num_episodes": 5, "explore": False}, {"num_timesteps": 30}]
RANDOM = [{"num_timesteps": 40, "random_actions": True}, {"num_timesteps": 5, "random_actions": True}]


def config(env: Any, num_envs: int = 3, **runners: Any) -> Any:
    runners.setdefault("gym_env_vectorize_mode", "vector_entry_point")
    return (
        PPOConfig()
        .environment(env)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=num_envs, **runners)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8]))
        .debugging(seed=3)
    )


def sampled(kind: type, settings: Any, calls: list[dict[str, Any]]) -> tuple[list[list[Any]], dict[str, Any]]:
    runner = kind(config=settings)
    try:
        torch.manual_seed(1)
        runner.env.action_space.seed(2)
        episodes = [runner.sample(**call) for call in calls]
        return episodes, {name: getattr(one, "peek", lambda one=one: one)() for name, one in runner.get_metrics().items()}
    finally:
        runner.stop()


def assert_same_column(ours: Any, theirs: Any) -> None:
    assert (ours.lookback, ours.finalized) == (theirs.lookback, theirs.finalized)
    if isinstance(theirs.data, dict):
        assert ours.data.keys() == theirs.data.keys()
        pairs = [(ours.data[key], theirs.data[key]) for key in theirs.data]
    else:
        pairs = [(ours.data, theirs.data)]
    for mine, other in pairs:
        if isinstance(other, np.ndarray):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)
        else:
            assert mine == other


def assert_same_episode(ours: Any, theirs: Any) -> None:
    for name in ("t", "t_started", "is_terminated", "is_truncated", "custom_data"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for name in ("observations", "actions", "rewards", "infos"):
        assert_same_column(getattr(ours, name), getattr(theirs, name))
    assert ours.extra_model_outputs.keys() == theirs.extra_model_outputs.keys()
    for name, column in theirs.extra_model_outputs.items():
        assert_same_column(ours.extra_model_outputs[name], column)
    ours.validate()


def assert_same(settings: Any, calls: list[dict[str, Any]]) -> list[list[Any]]:
    ours, metrics = sampled(ReactorEnvRunner, settings, calls)
    theirs, their_metrics = sampled(SingleAgentEnvRunner, settings, calls)
    assert [len(one) for one in ours] == [len(one) for one in theirs]
    chunks: dict[str, str] = {}  # ids are drawn at random: which of theirs is which of ours
    for ours_now, theirs_now in zip(ours, theirs, strict=True):
        for mine, other in zip(ours_now, theirs_now, strict=True):
            assert_same_episode(mine, other)
            assert chunks.setdefault(other.id_, mine.id_) == mine.id_
    assert len(set(chunks.values())) == len(chunks)
    assert metrics.keys() == their_metrics.keys() - LEFT_OUT
    for name in metrics.keys() - TIMED:
        assert str(metrics[name]) == str(their_metrics[name]) or name.endswith("_connector")
    return theirs


class Counting(gymnasium.Env):  # type: ignore[type-arg]
    """Nested observations, infos, and an end that depends on the actions."""

    observation_space = gymnasium.spaces.Box(0, 1000, (2,), np.float64)
    action_space = gymnasium.spaces.MultiDiscrete([3, 2])

    def __init__(self, fails_at: int = -1) -> None:
        self.steps, self.fails_at = 0, fails_at

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.array([0.0, self.np_random.random()]), {"begun": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.steps == self.fails_at:
            raise RuntimeError("as it was told to")
        seen = np.array([self.steps, self.np_random.random()])
        return seen, float(action[0]), self.steps > 4 and action[0] == 1, self.steps >= 11, {"step": self.steps}


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_the_episodes_and_metrics_of_rllibs_own_runner(env: str) -> None:
    theirs = assert_same(config(env_id(env, executor="inline")), [*RANDOM, {"num_timesteps": 9, "force_reset": True}, *CALLS])
    assert sum(len(one) for one in theirs) > len(theirs) * 2


@pytest.fixture
def counting() -> Iterator[str]:
    gymnasium.register("RLlibCounting-v0", Counting)
    yield "RLlibCounting-v0"
    del gymnasium.registry["RLlibCounting-v0"]


@pytest.mark.parametrize("lookback", [0, 3])
def test_infos_lookbacks_and_actions_of_several_parts(lookback: int, counting: str) -> None:
    assert_same(config(env_id(counting, executor="inline"), episode_lookback_horizon=lookback), CALLS)


def test_states_of_modules_are_kept_and_begin_anew_with_each_episode() -> None:
    settings = config(env_id("CartPole-v1", executor="inline"))
    settings.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8], use_lstm=True, lstm_cell_size=4, max_seq_len=5))
    theirs = assert_same(settings, CALLS)
    assert "state_out" in theirs[0][0].extra_model_outputs


def test_workers_change_nothing() -> None:
    several = [sampled(ReactorEnvRunner, config(env_id("CartPole-v1", executor=executor, workers=workers)), MANY[:3])[0]
               for executor, workers in (("inline", 1), ("threads", 2), ("threads", 3))]  # fmt: skip
    for others in several[1:]:
        for mine, other in zip(chain(*several[0]), chain(*others), strict=True):
            assert_same_episode(mine, other)


class Watching(RLlibCallback):  # type: ignore[misc]
    seen: list[Any] = []

    def on_episode_created(self, *, episode: Any, env_index: int, **_: Any) -> None:
        self.seen.append(("created", env_index, len(episode), episode.is_reset))

    def on_episode_start(self, *, episode: Any, env_index: int, **_: Any) -> None:
        episode.custom_data["first"] = float(episode.get_observations(-1)[0])
        self.seen.append(("start", env_index, episode.custom_data["first"], episode.get_infos(-1)))

    def on_episode_end(self, *, episode: Any, env_index: int, prev_episode_chunks: Any, **_: Any) -> None:
        lengths = [len(one) for one in prev_episode_chunks]
        self.seen.append(("end", env_index, len(episode), episode.is_numpy, episode.get_return(), episode.custom_data, lengths))


def test_callbacks_see_what_they_see_in_rllibs_own_runner() -> None:
    settings = config(env_id("CartPole-v1", executor="inline")).callbacks(Watching)
    seen = []
    for kind in (ReactorEnvRunner, SingleAgentEnvRunner):
        Watching.seen = []
        episodes, _ = sampled(kind, settings, CALLS)
        seen.append(Watching.seen)
        assert all(one.is_numpy for one in chain(*episodes))
    assert seen[0] == seen[1]
    assert len([one for one in seen[0] if one[0] == "end"]) > 5


def test_environments_that_fail_are_made_again(counting: str) -> None:
    settings = config(env_id(counting, executor="inline", fails_at=7))
    settings.fault_tolerance(restart_failed_sub_environments=True)
    theirs = assert_same(settings, [{"num_timesteps": 12}, {"num_timesteps": 20}])
    assert len(list(chain(*theirs))) > 3


def test_runners_do_not_begin_alike() -> None:
    def begun(kind: type, env: str, worker: int) -> list[bytes]:
        runner = kind(config=config(env, gym_env_vectorize_mode="sync"), worker_index=worker, num_workers=2)
        try:
            return [one.get_observations(0).tobytes() for one in runner.sample(num_timesteps=3)]
        finally:
            runner.stop()

    theirs = begun(SingleAgentEnvRunner, "CartPole-v1", 1) + begun(SingleAgentEnvRunner, "CartPole-v1", 2)
    assert len(set(theirs)) == 4  # of 6: it is this that must not happen
    ours = begun(ReactorEnvRunner, env_id("CartPole-v1"), 1) + begun(ReactorEnvRunner, env_id("CartPole-v1"), 2)
    assert len(set(ours)) == 6
    assert begun(ReactorEnvRunner, "CartPole-v1", 1) == ours[:3]
    assert len({seed for runner in range(8) for seed in environment_seeds(0, runner, 100)}) == 800


def test_rllibs_own_runner_must_be_told_that_it_is_a_vector_environment() -> None:
    mode = PPOConfig().gym_env_vectorize_mode  # of one who says nothing
    with pytest.raises(ValueError, match=r'Add \.env_runners\(gym_env_vectorize_mode="vector_entry_point"\) to the config, or '):
        SingleAgentEnvRunner(config=config(env_id("CartPole-v1", executor="inline"), gym_env_vectorize_mode=mode))


# ---------------------------------------------------------------------- what it does not have


class Stepping(RLlibCallback):  # type: ignore[misc]
    def on_episode_step(self, **_: Any) -> None: ...


REFUSED = {
    "env_to_module_connector": lambda one: one.env_runners(
        env_to_module_connector=lambda env, spaces, device: FlattenObservations()
    ),
    "module_to_env_connector": lambda one: one.env_runners(add_default_connectors_to_module_to_env_pipeline=False),
    "on_episode_step": lambda one: one.callbacks(Stepping),
    "episodes_to_numpy=False": lambda one: one.env_runners(episodes_to_numpy=False),
    "autoreset_mode": lambda one: one.environment(env_id("CartPole-v1", autoreset_mode="SameStep")),
}


@pytest.mark.parametrize("named", REFUSED)
def test_what_it_does_not_have_is_refused_by_name(named: str) -> None:
    with pytest.raises(ValueError, match=named):
        ReactorEnvRunner(config=REFUSED[named](config(env_id("CartPole-v1"))))
