"""PPO on an Atari game in one file, in the manner of CleanRL, on all cores.

    python examples/cleanrl/ppo_atari.py --game breakout --total-timesteps 10000000

Needs the extras `[sb3,atari]`. A line that ends with `# was:` is what differs from a script for ALE's own vector environment, whose
frames are the same, bit for bit: put back what it says, and the weights are the same too.
"""

import argparse
import hashlib
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from reactor_gymnasium import AtariVectorEnv  # was: from ale_py import AtariVectorEnv


@dataclass
class Args:
    game: str = "pong"
    total_timesteps: int = 10_000_000
    num_envs: int = 8
    num_steps: int = 128  # of each environment in a rollout
    update_epochs: int = 4
    num_minibatches: int = 4
    learning_rate: float = 2.5e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_coef: float = 0.1
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5
    device: str = "cpu"
    seed: int = 1


parser = argparse.ArgumentParser()
for field in fields(Args):
    parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default)
args = Args(**vars(parser.parse_args()))
batch_size = args.num_envs * args.num_steps
iterations = args.total_timesteps // batch_size

torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)
device = torch.device(args.device)

# Grey frames of 84 x 84, four in a stack, every fourth frame, clipped rewards; an episode is a life.
envs = AtariVectorEnv(args.game, args.num_envs, autoreset_mode="SameStep", episodic_life=True, reward_clipping=True)


def initialised(layer, gain=2**0.5):
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(
            initialised(nn.Conv2d(4, 32, 8, stride=4)),
            nn.ReLU(),
            initialised(nn.Conv2d(32, 64, 4, stride=2)),
            nn.ReLU(),
            initialised(nn.Conv2d(64, 64, 3, stride=1)),
            nn.ReLU(),
            nn.Flatten(),
            initialised(nn.Linear(64 * 7 * 7, 512)),
            nn.ReLU(),
        )
        self.actor = initialised(nn.Linear(512, int(envs.single_action_space.n)), 0.01)
        self.critic = initialised(nn.Linear(512, 1), 1.0)

    def forward(self, frames):
        features = self.network(frames / 255.0)
        return Categorical(logits=self.actor(features)), self.critic(features).flatten()


agent = Agent().to(device)
optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)

shape = (args.num_steps, args.num_envs)
observations = torch.zeros(*shape, *envs.single_observation_space.shape, dtype=torch.uint8, device=device)
actions, log_probs, rewards, dones, values = (torch.zeros(shape, device=device) for _ in range(5))

score = np.zeros(args.num_envs)  # of the lives that are going on
scores = []
observation, _ = envs.reset(seed=args.seed)
observation = torch.tensor(observation, device=device)
for iteration in range(iterations):
    optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - iteration / iterations)

    # Rollout: dones[t] says whether a life ended with the action of step t.
    for step in range(args.num_steps):
        observations[step] = observation
        with torch.no_grad():
            policy, values[step] = agent(observation)
            action = policy.sample()
            actions[step], log_probs[step] = action, policy.log_prob(action)
        observation, reward, terminated, truncated, infos = envs.step(action.cpu().numpy())
        observation = torch.tensor(observation, device=device)
        done = terminated | truncated
        rewards[step], dones[step] = torch.tensor(reward).to(device), torch.tensor(done).to(device)
        score += reward
        scores += score[done].tolist()
        score[done] = 0

    # Generalised advantage estimation (Schulman et al. 2016).
    advantages = torch.zeros(shape, device=device)
    with torch.no_grad():
        next_value, advantage = agent(observation)[1], 0.0
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
            policy, value = agent(observed)
            ratio = (policy.log_prob(taken) - old_log_prob).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
            policy_loss = -torch.min(advantage * ratio, advantage * clipped).mean()
            value_loss = 0.5 * (value - target).square().mean()
            loss = policy_loss + args.vf_coef * value_loss - args.ent_coef * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
            optimizer.step()
    print(f"{(iteration + 1) * batch_size:>10,} steps: mean score of the last lives {np.mean(scores[-100:] or [0]):.2f}")

envs.close()
digest = hashlib.sha256(b"".join(parameter.detach().cpu().numpy().tobytes() for parameter in agent.parameters())).hexdigest()
print(f"{iterations * batch_size:,} steps, {len(scores)} lives, weights {digest[:16]}")
