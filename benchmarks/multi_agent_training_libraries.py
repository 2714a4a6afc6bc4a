"""PPO for many agents as libraries have it, each as its documentation advises, with the numbers of all contenders.

None of them is needed: one that is missing is left out, and the command that installs it is said.
"""

from __future__ import annotations

import logging
from typing import Any

import torch
from common import cores, start_ray
from multi_agent_training_cases import Case
from pettingzoo.utils.conversions import parallel_to_aec

RLLIB, RLLIB_ON_OURS = "RLlib", "RLlib, with our runner"
TIANSHOU = "Tianshou"


class RLlib:
    """RLlib's PPO with a runner on each core or, ``ours``, with our runner in its process.

    Its minibatches are of ``batch_size`` rows of each policy, too.
    """

    def __init__(self, case: Case, ours: bool = False) -> None:
        try:
            from ray.rllib.algorithms.ppo import PPOConfig
            from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
            from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv
            from ray.tune.registry import register_env
        except ImportError as error:
            raise ImportError(f'{error}: pip install "ray[rllib]"') from error
        torch.set_num_threads(1)
        start_ray(memory=100_000_000)
        register_env("many_agents", lambda config: ParallelPettingZooEnv(case.make()))
        numbers, runners = case.numbers, 0 if ours else cores()
        env = case.make()
        names = {agent: "all" if case.shared else agent for agent in env.possible_agents}
        env.close()
        config = PPOConfig().environment("many_agents").debugging(seed=0, log_level="ERROR")
        config.env_runners(num_env_runners=runners, num_envs_per_env_runner=numbers.envs // max(runners, 1))
        config.multi_agent(policies=set(names.values()), policy_mapping_fn=lambda agent, episode, **others: names[agent])
        config.rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], fcnet_activation="tanh", vf_share_layers=False))
        config.training(
            lr=numbers.learning_rate, gamma=numbers.gamma, lambda_=numbers.gae_lambda, clip_param=0.2, vf_clip_param=float("inf"),
            vf_loss_coeff=0.5, entropy_coeff=0.0, use_kl_loss=False, grad_clip=0.5, num_epochs=numbers.n_epochs,
            minibatch_size=numbers.batch_size, train_batch_size_per_learner=numbers.envs * numbers.n_steps,
        )  # fmt: skip
        if ours:
            from reactor_ray.rllib import ReactorMultiAgentEnvRunner

            config.env_runners(env_runner_cls=ReactorMultiAgentEnvRunner)
        self.algo, self.steps = config.build_algo(), 0

    def round(self) -> int:
        """Sample and learn; returns steps of environments."""
        before, self.steps = self.steps, int(self.algo.train()["num_env_steps_sampled_lifetime"])
        return self.steps - before

    def close(self) -> None:
        self.algo.stop()


class Tianshou:
    """Tianshou's PPO for each agent, on its vector environment with a process for each copy.

    Agents take turns there: a step of all agents is as many steps of its collector as there are agents.
    """

    def __init__(self, case: Case) -> None:
        try:
            from tianshou.algorithm.modelfree.ppo import PPO
            from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
            from tianshou.algorithm.multiagent.marl import MultiAgentOnPolicyAlgorithm
            from tianshou.algorithm.optim import AdamOptimizerFactory
            from tianshou.data import Collector, VectorReplayBuffer
            from tianshou.env import SubprocVectorEnv
            from tianshou.env.pettingzoo_env import PettingZooEnv
            from tianshou.utils.net.common import Net
            from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic
            from tianshou.utils.torch_utils import policy_within_training_step
        except ImportError as error:
            raise ImportError(f"{error}: pip install tianshou") from error
        if case.shared or case.deaths:
            raise NotImplementedError("no policy that agents share learns there, and an episode ends with the first agent's")
        torch.set_num_threads(1)
        logging.getLogger("tianshou").setLevel(logging.ERROR)
        numbers, self.agents, self.learning = case.numbers, case.agents, policy_within_training_step

        class Seeing(Net):  # type: ignore[misc]
            """Of observations what agents see, without masks, which allow everything."""

            def forward(self, obs: Any, *args: Any, **kwargs: Any) -> Any:
                return super().forward(obs.obs, *args, **kwargs)

        def turns() -> Any:
            return PettingZooEnv(parallel_to_aec(case.make()))

        env = turns()
        algorithms = []
        for _ in range(case.agents):
            bodies = [
                Seeing(state_shape=(case.inputs,), hidden_sizes=(64, 64), activation=torch.nn.Tanh) for _ in ("actor", "critic")
            ]
            actor = DiscreteActor(preprocess_net=bodies[0], action_shape=case.actions, softmax_output=False)
            policy = ProbabilisticActorPolicy(
                actor=actor, dist_fn=lambda logits: torch.distributions.Categorical(logits=logits), action_space=env.action_space,
                action_scaling=False,
            )  # fmt: skip
            algorithms.append(PPO(
                policy=policy, critic=DiscreteCritic(preprocess_net=bodies[1]),
                optim=AdamOptimizerFactory(lr=numbers.learning_rate),
                gamma=numbers.gamma, gae_lambda=numbers.gae_lambda, eps_clip=0.2, vf_coef=0.5, ent_coef=0.0, max_grad_norm=0.5,
                advantage_normalization=True, value_clip=False,
            ))  # fmt: skip
        self.numbers, self.algorithm = numbers, MultiAgentOnPolicyAlgorithm(algorithms=algorithms, env=env)
        self.envs = SubprocVectorEnv([turns for _ in range(numbers.envs)])
        self.size = numbers.envs * numbers.n_steps
        self.buffer = VectorReplayBuffer(self.size * self.agents, numbers.envs)
        self.collector = Collector(self.algorithm, self.envs, self.buffer)
        self.collector.reset()

    def round(self) -> int:
        """Sample and learn; returns steps of environments."""
        with self.learning(self.algorithm.policy):
            self.collector.collect(n_step=self.size * self.agents)
            self.algorithm.update(self.buffer, batch_size=self.numbers.batch_size, repeat=self.numbers.n_epochs)
        self.collector.reset_buffer(keep_statistics=True)
        return self.size

    def close(self) -> None:
        self.envs.close()
