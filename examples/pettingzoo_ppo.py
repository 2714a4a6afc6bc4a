"""Train one policy for all agents with Stable-Baselines3, agents as rows, then let it act for each of them.

    python examples/pettingzoo_ppo.py [--steps 200000] [--workers 2]

Needs `reactor-rl[sb3,pettingzoo]`.
"""

import argparse
from functools import partial

import torch
from mpe2 import simple_spread_v3
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from reactor_pettingzoo import MultiAgentRunner, ParallelVectorEnv
from reactor_sb3 import from_vector_env

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200_000, help="of all agents together")
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
options = parser.parse_args()

torch.set_num_threads(1)
make = partial(simple_spread_v3.parallel_env, N=3, max_cycles=25)
env = VecMonitor(from_vector_env(ParallelVectorEnv(make, num_envs=8, workers=options.workers)))  # 24 rows: 8 copies, 3 agents
model = PPO("MlpPolicy", env, n_steps=128, batch_size=512, learning_rate=1e-3, gamma=0.95, seed=0, device="cpu")

with MultiAgentRunner(make, {"ppo": model}, num_envs=8, workers=options.workers) as runner:
    before = runner.run(episodes=64, seed=1)
model.learn(options.steps)
env.close()
with MultiAgentRunner(make, {"ppo": model}, num_envs=8, workers=options.workers) as runner:
    after = runner.run(episodes=64, seed=1)
print(after)
print(f"return of an agent before training {before.returns_of_policies['ppo']}, after it {after.returns_of_policies['ppo']}")
