"""PQN in one file, in the manner of CleanRL, on all cores: Q-learning without replay and without a target network.

    python examples/cleanrl/pqn.py --total-timesteps 100000

After Gallici et al. 2024. Needs the extra `[sb3]`, for torch. A line that ends with `# was:` is what differs from a script for
Gymnasium's vector environments. Put back what it says, and the weights are the same, bit for bit.
"""

import argparse
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
    num_steps: int = 32  # of each environment in a rollout
    update_epochs: int = 4
    num_minibatches: int = 4
    learning_rate: float = 1e-3
    gamma: float = 0.99
    q_lambda: float = 0.65
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_fraction: float = 0.2
    max_grad_norm: float = 10.0
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
space, n_actions = envs.single_observation_space, int(envs.single_action_space.n)


def hidden(inputs, outputs):
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, 2**0.5)
    nn.init.zeros_(layer.bias)
    return [layer, nn.LayerNorm(outputs), nn.ReLU()]


q_network = nn.Sequential(*hidden(int(np.prod(space.shape)), 120), *hidden(120, 84), nn.Linear(84, n_actions))
optimizer = torch.optim.RAdam(q_network.parameters(), lr=args.learning_rate)

shape = (args.num_steps, args.num_envs)
observations = torch.zeros(*shape, *space.shape)
actions = torch.zeros(shape, dtype=torch.int64)
rewards, dones, values = (torch.zeros(shape) for _ in range(3))

returns_of_episodes = []
observation, _ = envs.reset(seed=args.seed)
observation = torch.tensor(observation)
for iteration in range(iterations):
    progress = min(iteration / (args.exploration_fraction * iterations), 1)
    epsilon = args.start_e + progress * (args.end_e - args.start_e)
    optimizer.param_groups[0]["lr"] = args.learning_rate * (1 - iteration / iterations)

    # Rollout: dones[t] says whether the episode ended with the action of step t, values[t] what the best action was worth there.
    for step in range(args.num_steps):
        observations[step] = observation
        with torch.no_grad():
            values[step], greedy = q_network(observation).max(1)
        random = rng.integers(n_actions, size=args.num_envs)
        action = np.where(rng.random(args.num_envs) < epsilon, random, greedy.numpy())
        actions[step] = torch.tensor(action)
        observation, reward, terminated, truncated, infos = envs.step(action)
        observation = torch.tensor(observation)
        rewards[step], dones[step] = torch.tensor(reward), torch.tensor(terminated | truncated).float()
        if "final_info" in infos:
            returns_of_episodes += infos["final_info"]["episode"]["r"][infos["_final_info"]].tolist()

    # Q(lambda) returns, from the last step to the first.
    returns = torch.zeros(shape)
    with torch.no_grad():
        next_value = q_network(observation).amax(1)
        later = next_value
        for step in reversed(range(args.num_steps)):
            mixed = args.q_lambda * later + (1 - args.q_lambda) * next_value
            returns[step] = later = rewards[step] + args.gamma * (1 - dones[step]) * mixed
            next_value = values[step]

    flat = [part.flatten(0, 1) for part in (observations, actions, returns)]
    for _ in range(args.update_epochs):
        for rows in np.array_split(rng.permutation(batch_size), args.num_minibatches):
            observed, taken, target = (part[rows] for part in flat)
            loss = 0.5 * nn.functional.mse_loss(q_network(observed).gather(1, taken[:, None]).flatten(), target)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(q_network.parameters(), args.max_grad_norm)
            optimizer.step()
    if returns_of_episodes and iteration % 20 == 19:
        print(
            f"{(iteration + 1) * batch_size:>8,} steps: mean return of the last episodes {np.mean(returns_of_episodes[-100:]):.1f}"
        )

envs.close()
digest = hashlib.sha256(b"".join(parameter.detach().numpy().tobytes() for parameter in q_network.parameters())).hexdigest()
print(f"{iterations * batch_size:,} steps, {len(returns_of_episodes)} episodes, weights {digest[:16]}")
