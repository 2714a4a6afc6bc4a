"""RLlib's PPO on CartPole, with ReactorEnvRunner and ReactorPPOTorchLearner: three settings of a config, the rest is RLlib's."""

import argparse

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

from reactor_ray.rllib import ReactorEnvRunner, ReactorPPOTorchLearner, env_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--envs", type=int, default=16, help="environments of a runner")
    parser.add_argument("--runners", type=int, default=0, help="0: one in this process")
    options = parser.parse_args()

    ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    config = (
        PPOConfig()
        .environment(env_id("CartPole-v1"))
        .env_runners(env_runner_cls=ReactorEnvRunner, num_env_runners=options.runners, num_envs_per_env_runner=options.envs)
        .learners(learner_class=ReactorPPOTorchLearner)
        .training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True))
        .debugging(seed=0, log_level="ERROR")
    )
    algo = config.build_algo()
    for _ in range(options.iterations):
        found = algo.train()
        steps, mean = found["num_env_steps_sampled_lifetime"], found["env_runners"]["episode_return_mean"]
        print(f"{steps:,.0f} steps: mean return of an episode {mean:.1f}")
    algo.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
