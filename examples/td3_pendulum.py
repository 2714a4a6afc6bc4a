"""TD3 swings a pendulum up: four actors, each with its own noise, and a learner that learns while they sample.

    python examples/td3_pendulum.py

Needs the extra `[sb3]`. A mean return of about -150 is as good as it gets.
"""

import argparse

import numpy as np
from stable_baselines3.common.noise import NormalActionNoise

from reactor_sb3 import SyncTD3

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=8_000)
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

model = SyncTD3(
    "MlpPolicy",
    "Pendulum-v1",
    n_actors=4,
    train_freq=4,
    gradient_steps=16,
    batch_size=128,
    learning_rate=3e-3,
    gamma=0.98,
    learning_starts=600,
    buffer_size=20_000,
    action_noise=NormalActionNoise(np.zeros(1), np.full(1, 0.3)),
    policy_kwargs={"net_arch": [64, 64]},
    pipeline=1,
    evaluate_every=100,
    evaluate_episodes=5,
    evaluate_steps=200,
    workers=options.workers,
    seed=options.seed,
)
with model:
    model.learn(options.steps)
    for one in model.evaluations:
        print(f"mean return of {len(one.returns)} episodes after {one.timesteps:,} steps: {one.mean:.0f}")
    print(model)
