"""CartPole that shows positions and no velocities: PPO with an LSTM, which has to remember where things were.

    python examples/recurrent_cartpole.py [--steps 200000] [--workers 2] [--plot recurrent_cartpole.png]

Needs the extra `[contrib]`, and matplotlib for the plot.
"""

import argparse

import gymnasium
import numpy as np
from gymnasium import spaces
from torch import nn

from reactor_sb3 import StopOnEvaluation, SyncRecurrentPPO


class Positions(gymnasium.ObservationWrapper):
    """Where the cart is, and how the pole leans."""

    def __init__(self, env):
        super().__init__(env)
        low, high = env.observation_space.low[[0, 2]], env.observation_space.high[[0, 2]]
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation):
        return observation[[0, 2]]


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200_000)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--plot", default=None, help="where to write the learning curve")
options = parser.parse_args()

model = SyncRecurrentPPO(
    "MlpLstmPolicy",
    lambda: Positions(gymnasium.make("CartPole-v1")),
    n_actors=8,
    n_steps=128,
    batch_size=256,  # two whole sequences of 128 steps
    n_epochs=10,
    gamma=0.99,
    gae_lambda=0.95,
    learning_rate=1e-3,
    clip_range=0.2,
    policy_kwargs={
        "lstm_hidden_size": 64,
        "net_arch": [64],
        "ortho_init": False,
        "activation_fn": nn.ReLU,
    },
    seed=options.seed,
    workers=options.workers,
    evaluate_every=10,  # rounds; 10 episodes of the most probable actions, which begin with an empty memory
    evaluate_episodes=10,
    evaluate_steps=1000,
)
with model:
    model.learn(options.steps, callback=StopOnEvaluation(475), log_interval=None)
    for one in model.evaluations:
        print(f"{one.timesteps:>7,} steps: mean return of {len(one.returns)} episodes {one.mean:.1f}")
    print("weights:", model.fingerprint())

if options.plot:
    import matplotlib.pyplot as plt

    plt.plot([one.timesteps for one in model.evaluations], [one.mean for one in model.evaluations])
    plt.xlabel("steps")
    plt.ylabel("mean return of 10 episodes")
    plt.title("SyncRecurrentPPO on CartPole without velocities")
    plt.savefig(options.plot, dpi=110)
