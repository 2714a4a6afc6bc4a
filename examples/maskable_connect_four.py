"""Connect four against a player who drops chips at random: PPO that never tries a full column, on all cores.

    python examples/maskable_connect_four.py [--steps 100000] [--workers 2] [--plot maskable_connect_four.png]

Needs the extras `[contrib]` and `[pettingzoo]`, pygame, and matplotlib for the plot. A return is 1 for a game that is won and -1
for one that is lost.
"""

import argparse

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo.classic import connect_four_v3

from reactor_sb3 import SyncMaskablePPO


class ConnectFour(gymnasium.Env):
    """PettingZoo's game for its first player; both see the board, and a column that is full is forbidden."""

    def __init__(self) -> None:
        self.game = connect_four_v3.raw_env()
        self.observation_space = spaces.Box(0, 1, (84,), np.float32)
        self.action_space = spaces.Discrete(7)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.game.reset()
        return self.seen(), {}

    def step(self, action):
        self.game.step(int(action))
        if not self.over():
            self.game.step(int(self.np_random.choice(np.flatnonzero(self.action_masks()))))
        return self.seen(), float(self.game.rewards["player_0"]), self.over(), False, {}

    def action_masks(self):  # what actors ask for before each action
        return np.array(self.game.board[:7]) == 0

    def over(self):
        return bool(self.game.terminations["player_0"])

    def seen(self):
        return self.game.observe("player_0")["observation"].astype(np.float32).flatten()


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--plot", default=None, help="where to write the learning curve")
options = parser.parse_args()

model = SyncMaskablePPO(
    "MlpPolicy",
    ConnectFour,
    n_actors=8,
    n_steps=64,
    batch_size=128,
    learning_rate=1e-3,
    ent_coef=0.01,
    seed=options.seed,
    workers=options.workers,
    evaluate_every=20,  # rounds; 50 games of the most probable moves, with masks, on a snapshot of the weights
    evaluate_episodes=50,
    evaluate_steps=2000,
)
with model:
    model.learn(options.steps, log_interval=None)
    for one in model.evaluations:
        print(f"{one.timesteps:>7,} steps: mean return of {len(one.returns)} games {one.mean:.2f}")
    print("weights:", model.fingerprint())

if options.plot:
    import matplotlib.pyplot as plt

    plt.plot([one.timesteps for one in model.evaluations], [one.mean for one in model.evaluations])
    plt.xlabel("steps")
    plt.ylabel("mean return of 50 games")
    plt.title("SyncMaskablePPO plays connect four")
    plt.savefig(options.plot, dpi=110)
