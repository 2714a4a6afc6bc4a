"""PPO in one file, in the manner of CleanRL, on all cores.

    python examples/cleanrl/ppo.py --total-timesteps 100000

Needs the extra `[sb3]`, for torch. A line that ends with `# was:` is what differs from a script for Gymnasium's vector
environments. Put back what it says, and the weights are the same, bit for bit.
"""

import argparse
import hashlib
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import RecordEpisodeStatistics
from torch import nn
from torch.distributions import Categorical

from reactor_gymnasium import ReactorVectorEnv  # was: from gymnasium.vector import AsyncVectorEnv


@dataclass
class Args:
    env_id: str = "CartPole-v1"
    total_timesteps: int = 100_000
    num_envs: int = 8
    num_steps: int = 128  # of each environment in a rollout
    update_epochs: int = 4
    num_minibatches: int = 4
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    seed: int = 1


parser = argparse.ArgumentParser()
for field in fields(Args):
    parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default)
args = Args(**vars(parser.parse_args()))
batch_size = args.num_envs * args.num_steps
iterations = args.total_timesteps // batch_size

torch.set_num_threads(1)  # threads cost more than they bring in networks of this size
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)


def make_env():
    return RecordEpisodeStatistics(gym.make(args.env_id))


env_fns = [make_env] * args.num_envs
envs = ReactorVectorEnv(env_fns, autoreset_mode="SameStep")  # was: envs = AsyncVectorEnv(env_fns, autoreset_mode="SameStep")


def linear(inputs, outputs, gain=2**0.5):
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


def mlp(outputs, gain):
    inputs = int(np.prod(envs.single_observation_space.shape))
    return nn.Sequential(linear(inputs, 64), nn.Tanh(), linear(64, 64), nn.Tanh(), linear(64, outputs, gain))


actor, critic = mlp(int(envs.single_action_space.n), 0.01), mlp(1, 1.0)
parameters = [*actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(parameters, lr=args.learning_rate, eps=1e-5)

shape = (args.num_steps, args.num_envs)
observations = torch.zeros(*shape, *envs.single_observation_space.shape)
actions, log_probs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))

returns_of_episodes = []
observation, _ = envs.reset(seed=args.seed)
observation = torch.tensor(observation)
for iteration in range(iterations):
    optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - iteration / iterations)

    # Rollout: dones[t] says whether the episode ended with the action of step t.
    for step in range(args.num_steps):
        observations[step] = observation
        with torch.no_grad():
            policy = Categorical(logits=actor(observation))
            action = policy.sample()
            actions[step], log_probs[step] = action, policy.log_prob(action)
            values[step] = critic(observation).flatten()
        observation, reward, terminated, truncated, infos = envs.step(action.numpy())
        observation = torch.tensor(observation)
        rewards[step], dones[step] = torch.tensor(reward), torch.tensor(terminated | truncated).float()
        if "final_info" in infos:
            returns_of_episodes += infos["final_info"]["episode"]["r"][infos["_final_info"]].tolist()

    # Generalised advantage estimation (Schulman et al. 2016).
    advantages = torch.zeros(shape)
    with torch.no_grad():
        next_value, advantage = critic(observation).flatten(), 0.0
        for step in reversed(range(args.num_steps)):
            goes_on = 1 - dones[step]
            delta = rewards[step] + args.gamma * goes_on * next_value - values[step]
            advantages[step] = advantage = delta + args.gamma * args.gae_lambda * goes_on * advantage
            next_value = values[step]
    targets = advantages + values

    # Clipped updates (Schulman et al. 2017) in shuffled minibatches.
    flat = [part.flatten(0, 1) for part in (observations, actions, log_probs, advantages, targets)]
    for _ in range(args.update_epochs):
        for rows in np.array_split(rng.permutation(batch_size), args.num_minibatches):
            observed, taken, old_log_prob, advantage, target = (part[rows] for part in flat)
            policy = Categorical(logits=actor(observed))
            ratio = (policy.log_prob(taken) - old_log_prob).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
            value_loss = 0.5 * (critic(observed).flatten() - target).square().mean()
            loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, args.max_grad_norm)
            optimizer.step()
    if returns_of_episodes and iteration % 10 == 9:
        print(
            f"{(iteration + 1) * batch_size:>8,} steps: mean return of the last episodes {np.mean(returns_of_episodes[-100:]):.1f}"
        )

envs.close()
digest = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in parameters)).hexdigest()
print(f"{iterations * batch_size:,} steps, {len(returns_of_episodes)} episodes, weights {digest[:16]}")
