"""A robot's arm learns to reach places by hindsight: what it has reached by mistake counts as what it should have reached.

    python examples/her_fetch_reach.py

Needs the extra `[sb3]`, `gymnasium-robotics` and, as long as that knows no later one, `mujoco<3.12`. Each step costs -1 until the
gripper is where it should be, 50 steps long: a mean return of about -2 is as good as it gets, and -50 is never there.
`--env FetchPush-v4 --steps 1000000` has it push a block, which takes an hour or two.
"""

import argparse

import gymnasium
import gymnasium_robotics
import numpy as np
from stable_baselines3 import HerReplayBuffer

from reactor_sb3 import SyncSAC

parser = argparse.ArgumentParser()
parser.add_argument("--env", default="FetchReach-v4")
parser.add_argument("--steps", type=int, default=10_000)
parser.add_argument("--actors", type=int, default=2)
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

gymnasium.register_envs(gymnasium_robotics)
model = SyncSAC(
    "MultiInputPolicy",
    options.env,
    n_actors=options.actors,
    gradient_steps=options.actors,
    replay_buffer_class=HerReplayBuffer,
    replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
    learning_starts=min(1_000, options.steps // 2),
    batch_size=256,
    gamma=0.95,
    learning_rate=1e-3,
    policy_kwargs={"net_arch": [64, 64]},
    evaluate_every=max(1, options.steps // (10 * options.actors)),
    evaluate_episodes=5,
    workers=options.workers,
    seed=options.seed,
)
with model:
    model.learn(options.steps)
    for one in model.evaluations:
        print(f"{one.timesteps:>9,} steps: mean return of {len(one.returns)} episodes {one.mean:.1f}")
    print(f"there at the end of the last {len(model.ep_success_buffer)} episodes: {np.mean(model.ep_success_buffer):.0%}")
    print(model)
    print(f"{model.num_timesteps:,} steps, weights {model.fingerprint()}")
