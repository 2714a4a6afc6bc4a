"""PPO, DQN and SAC of RLlib's new API stack train on ReactorEnvRunner, here and in actors."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

pytest.importorskip("tree")
pytest.importorskip("ray.rllib.algorithms", exc_type=ImportError)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from ray.rllib.algorithms.dqn import DQNConfig
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.algorithms.sac import SACConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    from reactor_ray.rllib import ReactorEnvRunner, ReactorPPOTorchLearner, env_id

CASES = {
    "PPO": (PPOConfig, "CartPole-v1", {"train_batch_size": 120, "minibatch_size": 60, "num_epochs": 2}),
    "DQN": (DQNConfig, "CartPole-v1", {"num_steps_sampled_before_learning_starts": 20, "train_batch_size": 8}),
    "SAC": (SACConfig, "Pendulum-v1", {"num_steps_sampled_before_learning_starts": 20, "train_batch_size": 8}),
}


def config(name: str, kind: type | None = ReactorEnvRunner) -> Any:
    algorithm, env, training = CASES[name]
    settings = algorithm().environment(env_id(env)).training(**training).debugging(seed=0, log_level="ERROR")
    settings.env_runners(
        env_runner_cls=kind, num_env_runners=0, num_envs_per_env_runner=2, gym_env_vectorize_mode="vector_entry_point"
    )
    if name != "PPO":
        settings.env_runners(rollout_fragment_length=4).reporting(min_sample_timesteps_per_iteration=30)
    return settings.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[8], head_fcnet_hiddens=[8]))


def trained(settings: Any, iterations: int) -> tuple[list[Any], Any]:
    algo = settings.build_algo()
    try:
        results = [algo.train() for _ in range(iterations)]
        return [(one["num_env_steps_sampled_lifetime"], one["env_runners"].get("episode_return_mean")) for one in results], results
    finally:
        algo.stop()


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("name", CASES)
def test_an_algorithm_trains(name: str) -> None:
    seen, results = trained(config(name), 2)
    assert seen[1][0] >= 2 * 30
    assert results[1]["learners"]["default_policy"]["num_module_steps_trained_lifetime"] > 0


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("learners", [0, 2])
def test_ppo_learns_on_either_runner_with_either_learner_to_the_same_bits(learners: int) -> None:
    many = {"num_learners": learners}
    ours, _ = trained(config("PPO").learners(**many), 3)
    theirs, reports = trained(config("PPO", SingleAgentEnvRunner).learners(**many), 3)
    both, ours_reports = trained(config("PPO").learners(learner_class=ReactorPPOTorchLearner, **many), 3)
    assert ours == theirs == both
    for report, expected in zip(ours_reports, reports, strict=True):
        learned, expected_learned = (
            {name: value for name, value in one["learners"]["default_policy"].items() if "throughput" not in name}
            for one in (report, expected)
        )
        assert learned == expected_learned


@pytest.mark.usefixtures("cluster")
def test_runners_in_actors_have_their_cpus_for_workers() -> None:
    settings = config("PPO").env_runners(num_env_runners=1, num_cpus_per_env_runner=2)
    settings.environment(env_id("CartPole-v1", executor="threads"))
    algo = settings.build_algo()
    try:
        algo.train()
        found = algo.env_runner_group.foreach_env_runner(
            lambda runner: (type(runner).__name__, repr(runner.env.unwrapped)), local_env_runner=False
        )
        assert found[0][0] == "ReactorEnvRunner"
        assert "workers=2" in found[0][1]
    finally:
        algo.stop()
