"""How fast does an RLlib env runner sample, and a PPO iteration run? 16 CartPoles; RLlib's own runner and learner are the rivals.

"sample" is ``sample()`` of a runner in this process, 128 steps of each environment a call, with a new PPO module of RLlib's
default size. "iteration" is ``algo.train()``: 16 environments of a local runner, and the learner in the same process, with the
settings of RLlib's own CartPole example (6 epochs, minibatches of 128, 4,000 steps). There ours are ReactorEnvRunner and
ReactorPPOTorchLearner, and the runner with RLlib's learner. What is learned is the same, bit for bit: see
``tests/ray_plugin/rllib/test_algorithms.py``.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from common import Contender, arguments, benchmark, compared, cores, start_ray
from showing import print_table, rate_rows

ENVS = 16
OURS = "reactor_rl"
RUNNER = f"{OURS}, RLlib's learner"
RLLIB = "RLlib, SyncVectorEnv"
CASES = ["sample, CartPole x 16", "iteration, CartPole x 16"]
CONTENDERS = {
    # The runner is ours or RLlib's; the environment ReactorVectorEnv with these arguments, or RLlib's default for None.
    OURS: (True, {"executor": "inline"}),
    RUNNER: (True, {"executor": "inline"}),
    f"{OURS}, {cores()} workers": (True, {"executor": "processes", "workers": cores()}),
    f"{OURS}, SyncVectorEnv": (True, None),
    RLLIB: (False, None),
    "RLlib, ReactorVectorEnv": (False, {"executor": "inline"}),
}


def config(name: str, seed: int = 0) -> Any:
    from ray.rllib.algorithms.ppo import PPOConfig

    from reactor_ray.rllib import ReactorEnvRunner, env_id

    ours, vector = CONTENDERS[name]
    settings = PPOConfig().env_runners(num_env_runners=0, num_envs_per_env_runner=ENVS).debugging(seed=seed, log_level="ERROR")
    if ours:
        settings.env_runners(env_runner_cls=ReactorEnvRunner)
    if vector is None:
        return settings.environment("CartPole-v1")
    if not ours:
        settings.env_runners(gym_env_vectorize_mode="vector_entry_point")
    return settings.environment(env_id("CartPole-v1", **vector))


def trained(name: str, seed: int = 0) -> Any:
    """An algorithm with the settings of RLlib's own CartPole example."""
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    from reactor_ray.rllib import ReactorPPOTorchLearner

    settings = config(name, seed).training(lr=0.0003, num_epochs=6, vf_loss_coeff=0.01)
    if name == OURS:
        settings.learners(learner_class=ReactorPPOTorchLearner)
    settings.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="linear", vf_share_layers=True))
    return settings.build_algo()


class Sampling(Contender):
    def __init__(self, name: str) -> None:
        from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

        settings = config(name)
        self.runner = (settings.env_runner_cls or SingleAgentEnvRunner)(config=settings)

    def go(self, count: int) -> float:
        return sum(len(episode) for _ in range(count) for episode in self.runner.sample(num_timesteps=128 * ENVS))

    def close(self) -> None:
        self.runner.stop()


class Iterating(Contender):
    def __init__(self, name: str) -> None:
        start_ray(memory=100_000_000)
        self.algo = trained(name)
        self.steps = 0.0

    def go(self, count: int) -> float:
        before = self.steps
        for _ in range(count):
            self.steps = self.algo.train()["num_env_steps_sampled_lifetime"]
        return self.steps - before

    def close(self) -> None:
        self.algo.stop()


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    sampling = case.startswith("sample")
    contender: Any = Sampling if sampling else Iterating
    names = [name for name in CONTENDERS if name != RUNNER] if sampling else [OURS, RUNNER, RLLIB]
    builders = {name: partial(contender, name) for name in names}
    return compared(builders, options, seconds=1.0 if sampling else 4.0).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["contender", "environment steps", f"{OURS} is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    benchmark(__file__, arguments(__doc__).parse_args(), CASES, measure, show, "RLlib", "environment steps per second")


if __name__ == "__main__":
    main()
