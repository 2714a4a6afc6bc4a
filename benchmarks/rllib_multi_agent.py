"""How fast does a runner of many agents sample in RLlib, and what do environments on several cores gain there?

simple_spread with three agents, sampled by PPO's networks for fragments of 32 steps; only ``sample()`` is timed. Items are steps of
one environment, in which all its agents act. There is one runner, in this process, and torch has one thread, as in a runner that
Ray has given one CPU. RLlib's own way to use more cores is more runners, which is not what is asked here.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from common import OURS, Contender, arguments, benchmark, compared
from showing import print_table, rate_rows

THEIRS = "MultiAgentEnvRunner"
ONE_WORKER = "reactor_rl, one worker"
CASES = {
    "16 environments, one policy": (16, 1),
    "16 environments, a policy for each agent": (16, 3),
}


def spread(_: Any) -> Any:
    """RLlib's wrapper of the environment, as its documentation has it."""
    from mpe2 import simple_spread_v3
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    return ParallelPettingZooEnv(simple_spread_v3.parallel_env())


def policy_of(policies: int, agent: str, episode: Any, **kwargs: Any) -> str:
    """Agents take policies in turn."""
    return f"policy_{int(agent.rpartition('_')[2]) % policies}"


def config_of(environments: int, policies: int) -> Any:
    """PPO as RLlib has it by default."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    register_env("spread", spread)
    config = PPOConfig().environment("spread").debugging(seed=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=environments, rollout_fragment_length=32)
    return config.multi_agent(
        policies={f"policy_{number}" for number in range(policies)}, policy_mapping_fn=partial(policy_of, policies)
    )


def runner_class(name: str) -> Any:
    """RLlib's runner, or ours on one worker or on all cores."""
    from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner

    from reactor_ray.rllib import ReactorMultiAgentEnvRunner

    class OneWorker(ReactorMultiAgentEnvRunner):
        workers = 1

    return {THEIRS: MultiAgentEnvRunner, ONE_WORKER: OneWorker, OURS: ReactorMultiAgentEnvRunner}[name]


def steps_of(episodes: list[Any]) -> int:
    return sum(len(episode) for episode in episodes)


class One(Contender):
    """One runner, in this process."""

    def __init__(self, name: str, environments: int, policies: int) -> None:
        import torch

        torch.set_num_threads(1)
        self.runner = runner_class(name)(config=config_of(environments, policies))

    def timed(self, count: int) -> tuple[float, float]:
        steps, spent = 0, 0.0
        for _ in range(count):
            begin = time.perf_counter()
            episodes = self.runner.sample()
            spent += time.perf_counter() - begin
            steps += steps_of(episodes)
            self.runner.get_metrics()  # lest it keeps all episodes
        return steps, spent

    def close(self) -> None:
        self.runner.stop()


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    environments, policies = CASES[case]
    builders: dict[str, Callable[[], Contender]] = {
        name: partial(One, name, environments, policies) for name in (OURS, ONE_WORKER, THEIRS)
    }
    return compared(builders, options, seconds=2.0).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["contender", "steps", "ours is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    options = arguments(__doc__).parse_args()
    benchmark(__file__, options, list(CASES), measure, show, "Sampling many agents in RLlib")


if __name__ == "__main__":
    main()
