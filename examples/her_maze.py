"""A ball finds its way through a maze by hindsight: wherever it has come to counts as where it should have gone.

    python examples/her_maze.py

Needs the extra `[sb3]` and `gymnasium-robotics`. An episode has 150 steps, each of which is paid with 1 where the goal is: at first
that is luck, and then the ball goes there in most episodes. `--env PointMaze_Medium-v3` is a larger maze.
"""

import argparse
from functools import partial

import gymnasium
import gymnasium_robotics
from stable_baselines3 import HerReplayBuffer

from reactor_sb3 import SyncSAC

parser = argparse.ArgumentParser()
parser.add_argument("--env", default="PointMaze_UMaze-v3")
parser.add_argument("--steps", type=int, default=40_000)
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

gymnasium.register_envs(gymnasium_robotics)
ACTORS, STEPS = 4, 4
model = SyncSAC(
    "MultiInputPolicy",
    partial(gymnasium.make, options.env, max_episode_steps=150),
    n_actors=ACTORS,
    train_freq=STEPS,
    gradient_steps=ACTORS * STEPS,
    replay_buffer_class=HerReplayBuffer,
    learning_starts=min(2_000, options.steps // 2),
    batch_size=256,
    gamma=0.98,
    learning_rate=1e-3,
    policy_kwargs={"net_arch": [64, 64]},
    evaluate_every=max(1, options.steps // (8 * ACTORS * STEPS)),
    evaluate_episodes=10,
    workers=options.workers,
    seed=options.seed,
)
with model:
    model.learn(options.steps)
    for one in model.evaluations:
        there = sum(result > 0 for result in one.returns)
        print(f"{one.timesteps:>9,} steps: there in {there} of {len(one.returns)} episodes, mean return {one.mean:.0f}")
    print(model)
    print(f"{model.num_timesteps:,} steps, weights {model.fingerprint()}")
