"""DQN in one file, in the manner of CleanRL, on all cores.

    python examples/cleanrl/dqn.py --total-timesteps 100000

Needs the extra `[sb3]`, for torch. A line that ends with `# was:` is what differs from a script for Gymnasium's vector
environments. Put back what it says, and the weights are the same, bit for bit.
"""

import argparse
import copy
import hashlib
from dataclasses import dataclass, fields

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import RecordEpisodeStatistics
from torch import nn

from reactor_gymnasium import ReactorVectorEnv  # was: from gymnasium.vector import AsyncVectorEnv


@dataclass
class Args:
    env_id: str = "CartPole-v1"
    total_timesteps: int = 100_000
    num_envs: int = 8
    buffer_size: int = 20_000
    learning_starts: int = 2_000
    train_frequency: int = 2  # steps of each environment between two updates
    batch_size: int = 128
    target_network_frequency: int = 60  # steps of each environment between two copies
    learning_rate: float = 5e-4
    gamma: float = 0.99
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_fraction: float = 0.5
    seed: int = 1


parser = argparse.ArgumentParser()
for field in fields(Args):
    parser.add_argument("--" + field.name.replace("_", "-"), type=field.type, default=field.default)
args = Args(**vars(parser.parse_args()))

torch.set_num_threads(1)  # threads cost more than they bring in networks of this size
torch.manual_seed(args.seed)
rng = np.random.default_rng(args.seed)


def make_env():
    return RecordEpisodeStatistics(gym.make(args.env_id))


env_fns = [make_env] * args.num_envs
envs = ReactorVectorEnv(env_fns, autoreset_mode="SameStep")  # was: envs = AsyncVectorEnv(env_fns, autoreset_mode="SameStep")
space, n_actions = envs.single_observation_space, int(envs.single_action_space.n)

q_network = nn.Sequential(
    nn.Linear(int(np.prod(space.shape)), 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, n_actions)
)
target_network = copy.deepcopy(q_network)
optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)

# A ring of transitions: (buffer_size, ...).
observations = np.zeros((args.buffer_size, *space.shape), space.dtype)
next_observations = np.zeros_like(observations)
actions = np.zeros(args.buffer_size, np.int64)
rewards, terminations = np.zeros(args.buffer_size, np.float32), np.zeros(args.buffer_size, np.float32)
filled = 0

returns_of_episodes = []
observation, _ = envs.reset(seed=args.seed)
for step in range(args.total_timesteps // args.num_envs):
    progress = min(step * args.num_envs / (args.exploration_fraction * args.total_timesteps), 1)
    epsilon = args.start_e + progress * (args.end_e - args.start_e)
    with torch.no_grad():
        greedy = q_network(torch.tensor(observation)).argmax(1).numpy()
    action = np.where(rng.random(args.num_envs) < epsilon, rng.integers(n_actions, size=args.num_envs), greedy)
    next_observation, reward, terminated, truncated, infos = envs.step(action)

    # What an episode ended with is in the infos; in its place the first observation of the next one has come.
    last = next_observation.copy()
    if "final_obs" in infos:
        for index in np.flatnonzero(infos["_final_obs"]):
            last[index] = infos["final_obs"][index]
        returns_of_episodes += infos["final_info"]["episode"]["r"][infos["_final_info"]].tolist()
    rows = np.arange(filled, filled + args.num_envs) % args.buffer_size
    observations[rows], next_observations[rows], actions[rows] = observation, last, action
    rewards[rows], terminations[rows] = reward, terminated  # a time limit ends no values
    filled += args.num_envs
    observation = next_observation

    if filled < args.learning_starts:
        continue
    if step % args.train_frequency == 0:
        rows = rng.integers(min(filled, args.buffer_size), size=args.batch_size)
        with torch.no_grad():
            next_values = target_network(torch.tensor(next_observations[rows])).amax(1)
            target = torch.tensor(rewards[rows]) + args.gamma * (1 - torch.tensor(terminations[rows])) * next_values
        values = q_network(torch.tensor(observations[rows])).gather(1, torch.tensor(actions[rows])[:, None]).flatten()
        loss = nn.functional.mse_loss(values, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if step % args.target_network_frequency == 0:
        target_network.load_state_dict(q_network.state_dict())
    if returns_of_episodes and step % 1000 == 999:
        print(f"{filled:>8,} steps: mean return of the last episodes {np.mean(returns_of_episodes[-100:]):.1f}")

envs.close()
digest = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in q_network.parameters())).hexdigest()
print(f"{filled:,} steps, {len(returns_of_episodes)} episodes, weights {digest[:16]}")
