"""Environments of many agents in RLlib: what is sampled is what RLlib's own runner samples, on any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tree")
pytest.importorskip("ray.rllib.algorithms", exc_type=ImportError)
pytest.importorskip("mpe2")

import torch
from mpe2 import simple_spread_v3
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.env import env_runner
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
from ray.tune.registry import register_env
from rllib_envs import RLlibCrowd, Turns, Unlike

from reactor_ray.rllib import ReactorMultiAgentEnvRunner
from reactor_ray.rllib.settings import environment_seeds

pytestmark = pytest.mark.usefixtures("one_thread")


class Inline(ReactorMultiAgentEnvRunner):
    """Starts nothing."""

    executor = "inline"


MODULES = ("even", "odd")
CALLS: list[dict[str, Any]] = [
    {}, {"num_timesteps": 8}, {"num_timesteps": 1}, {"num_timesteps": 60, "explore": False}, {"num_episodes": 6}, {},
]  # fmt: skip


def mapping(agent: str, episode: Any, **kwargs: Any) -> str:
    """Two agents have one module, the others the other."""
    return MODULES[ord(agent[-1]) % 2]


def configured(env: Any, *, separate: bool = False, **env_config: Any) -> Any:
    register_env("spread", lambda _: ParallelPettingZooEnv(simple_spread_v3.parallel_env(max_cycles=7)))
    register_env("plain", lambda _: simple_spread_v3.parallel_env(max_cycles=7))
    config = PPOConfig().environment(env, env_config=env_config, disable_env_checking=True).debugging(seed=3)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=5, rollout_fragment_length=9)
    config.rl_module(model_config={"fcnet_hiddens": [8]})
    return config.multi_agent(policies=set(MODULES), policy_mapping_fn=mapping if separate else lambda agent, episode, **_: "odd")


def facts(episodes: list[Any]) -> list[Any]:
    """All that episodes hold but ids and times. Episodes are numbered as they come, instead."""
    numbers: dict[str, int] = {}
    found = []
    for episode in episodes:
        of_agents = {}
        for agent, one in sorted(episode.agent_episodes.items()):
            number = numbers.setdefault(one.id_, len(numbers))
            steps = [(one.get_observations(), one.get_actions(), one.get_rewards(), one.get_infos())]
            back = [one.observations, one.actions, one.rewards, one.infos, *(v for _, v in sorted(one.extra_model_outputs.items()))]
            # RLlib counts steps in which an agent was not there yet from the episode's begin, even in a later chunk of it, and
            # looks back to before the begin of episodes that had no step when they were cut.
            where = episode.env_t_to_agent_t[agent]
            back_to = min(where.lookback, episode.env_t_started)
            known = [number for number in where.data if number != episode.SKIP_ENV_TS_TAG]
            assert one.multi_agent_episode_id == episode.id_
            flags = (one.module_id, one.is_terminated, one.is_truncated, one.t_started, one.t)
            kinds = [str(buffer.data.dtype) for buffer in (one.observations, one.actions, one.rewards)]
            of_agents[agent] = (number, flags, kinds, steps, [(b.data, b.lookback) for b in back], known, back_to)
        times = (episode.env_t_started, episode.env_t, episode.is_terminated, episode.is_truncated)
        found.append((numbers.setdefault(episode.id_, len(numbers)), times, of_agents))
    return found


def same(one: Any, other: Any) -> None:
    """Equal, arrays of float32 (which networks computed) within their rounding."""
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert one.shape == other.shape
        tolerance = 1e-5 if np.float32 in (one.dtype, other.dtype) else 0.0
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            same(value, other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


def sampled(runner: Any) -> tuple[list[Any], dict[str, Any]]:
    """What a runner samples in calls of all kinds, and the metrics of it."""
    torch.manual_seed(0)
    episodes = []
    for arguments in CALLS:
        episodes += runner.sample(**arguments)
    metrics = runner.get_metrics()
    return facts(episodes), {key: peeked(metrics[key]) for key in sorted(metrics) if counted(key)}


def counted(key: str) -> bool:
    return ("steps" in key or "episode" in key) and "duration" not in key and "failures" not in key and "length" not in key


def peeked(value: Any) -> Any:
    return {key: peeked(one) for key, one in value.items()} if isinstance(value, dict) else value.peek()


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """RLlib's batches have agents in the order of a set of strings, which is another one in each process; ours in that of rows."""
    monkeypatch.setattr(MultiAgentEpisode, "get_agents_that_stepped", lambda self: sorted(self.get_observations(-1)))


def pair(config: Any) -> tuple[Any, Any]:
    """Our runner and RLlib's, with the same weights and seeds of environments."""
    ours, theirs = Inline(config=config), MultiAgentEnvRunner(config=config)
    theirs.module.set_state(ours.module.get_state())
    theirs._seed = environment_seeds(3, 0, 5)
    return ours, theirs


@pytest.mark.usefixtures("in_order")
@pytest.mark.parametrize(
    ("env", "separate", "lookback"),
    [("spread", False, 1), (RLlibCrowd, True, 3), (RLlibCrowd, False, 0)],
    ids=["spread", "crowd", "cut"],
)
def test_episodes_and_metrics_are_those_of_rllib(env: Any, separate: bool, lookback: int) -> None:
    config = configured(env, separate=separate).env_runners(episode_lookback_horizon=lookback)
    ours, theirs = pair(config)
    try:
        assert ours.stepwise is None
        same(sampled(ours), sampled(theirs))
    finally:
        ours.stop()
        theirs.stop()


@pytest.mark.usefixtures("in_order")
def test_what_needs_each_step_is_sampled_by_rllibs_own_loop() -> None:
    class Counting(RLlibCallback):
        def on_episode_step(self, *, episode: Any, metrics_logger: Any, **kwargs: Any) -> None:
            metrics_logger.log_value("steps_of_callbacks", episode.env_t, reduce="sum")

    ours, theirs = pair(configured(RLlibCrowd, separate=True).callbacks(Counting))
    try:
        assert ours.stepwise == "Counting.on_episode_step"
        same(sampled(ours), sampled(theirs))
    finally:
        ours.stop()
        theirs.stop()


def test_workers_and_executors_change_nothing() -> None:
    runner = Inline(config=configured(RLlibCrowd, separate=True))
    try:
        expected = None
        for executor, workers in [("inline", 1), *(("threads", n) for n in (2, 3, 4)), ("processes", 2)]:
            runner.executor, runner.workers = executor, workers
            runner.make_env()
            found = sampled(runner)
            if expected is None:
                expected = found
            np.testing.assert_equal(found, expected)
    finally:
        runner.stop()


def test_random_actions_and_resets_between_fragments() -> None:
    runner = Inline(config=configured("plain"))
    try:
        (first, *_) = runner.sample(num_timesteps=15, random_actions=True)
        assert not first.agent_episodes["agent_0"].extra_model_outputs
        chunk = runner.sample(num_timesteps=15)[0]
        assert chunk.id_ == first.id_ and chunk.env_t_started == 3 and chunk.agent_episodes["agent_0"].observations.lookback == 0
        assert [episode.env_t_started for episode in runner.sample(num_timesteps=15, force_reset=True)] == [0] * 5
    finally:
        runner.stop()


def test_the_seeds_of_all_environments_of_all_runners_differ() -> None:
    seeds = [
        seed
        for evaluation in (False, True)
        for runner in range(20)
        for seed in environment_seeds(3, runner, 20, evaluation=evaluation)
    ]
    assert len(set(seeds)) == len(seeds) == 800
    assert environment_seeds(3, 1, 2) == environment_seeds(3, 1, 20)[:2]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """RLlib logs what environments raise, and pytest would keep it, with all that its frames hold."""
    monkeypatch.setattr(env_runner.logger, "exception", lambda *_: None)


@pytest.mark.usefixtures("silent")
def test_environments_that_fail_are_made_anew(tmp_path: Path) -> None:
    config = configured(RLlibCrowd, broke=tmp_path / "broke").fault_tolerance(restart_failed_sub_environments=True)
    runner = Inline(config=config)
    try:
        before = runner.env
        episodes = runner.sample(num_timesteps=150)
        assert (tmp_path / "broke").exists() and runner.env is not before
        assert sum(episode.env_t - episode.env_t_started for episode in episodes) >= 150
    finally:
        runner.stop()


@pytest.mark.parametrize(
    ("config", "error", "match"),
    [
        (lambda: configured(Unlike), ValueError, "'dog' has Discrete"),
        (lambda: configured("spread").env_runners(gym_env_vectorize_mode="async"), ValueError, "gym_env_vectorize_mode='async'"),
    ],
)
def test_what_it_refuses(config: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Inline(config=config())


@pytest.mark.usefixtures("silent")
def test_agents_that_take_turns_are_refused() -> None:
    runner = Inline(config=configured(Turns, kind="together"))
    try:
        with pytest.raises(RuntimeError) as caught:
            runner.sample(num_timesteps=60)
        assert "need RLlib's own MultiAgentEnvRunner" in str(caught.value.__cause__)
    finally:
        runner.stop()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("separate", [False, True], ids=["shared", "separate"])
def test_ppo_trains(separate: bool) -> None:
    config = configured("spread").env_runners(env_runner_cls=Inline)
    config.training(train_batch_size_per_learner=60, minibatch_size=30, num_epochs=1).env_runners(rollout_fragment_length="auto")
    modules = MODULES if separate else MODULES[1:]
    config.multi_agent(policies=set(modules), policy_mapping_fn=lambda agent, episode, **_: modules[int(agent[-1]) % len(modules)])
    algorithm = config.build_algo()
    try:
        before = {module: algorithm.get_module(module).get_state() for module in modules}
        result = algorithm.train()
        assert algorithm.env_runner.stepwise is None
        assert result["env_runners"]["num_env_steps_sampled"] >= 60
        for module in modules:
            after = algorithm.env_runner.module[module].get_state()
            assert any(not np.array_equal(before[module][name], value) for name, value in after.items())
    finally:
        algorithm.stop()
