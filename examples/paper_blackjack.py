"""The parallel Q-learning experiment of arXiv 2312.04704: Blackjack, 16 actors x 100 steps, batches of 500, 1000 and 2000.

    python examples/paper_blackjack.py [--rounds 500] [--plot paper_blackjack.png]

The network is 3-32-2, Adam learns with 0.01, the discount is 0.99, epsilon 0.1; the target network is copied every ten rounds.
On 32 virtual CPUs the paper's own implementation took 188 ms a round, Ray 273 to 383 ms. Needs the extra `[sb3]`, and matplotlib
for the plot.
"""

import argparse
import time
import warnings

import gymnasium as gym
import numpy as np

from reactor_sb3 import SyncDQN

ACTORS, STEPS = 16, 100
warnings.filterwarnings("ignore", r"1 update\(s\) for a round")  # one, as in the paper


class Flat(gym.ObservationWrapper):
    """Blackjack's tuple (own sum, dealer's card, usable ace) as three floats."""

    def __init__(self, env):
        super().__init__(env)
        self.observation_space = gym.spaces.Box(0.0, 31.0, (3,), np.float32)

    def observation(self, observation):
        return np.array(observation, np.float32)


def make():
    return Flat(gym.make("Blackjack-v1"))


def train(batch_size, rounds):
    """Mean return of each ten rounds, and seconds of a round."""
    model = SyncDQN(
        "MlpPolicy",
        make,
        n_actors=ACTORS,
        train_freq=STEPS,
        gradient_steps=1,  # a large batch once a round, as in the paper
        batch_size=batch_size,
        buffer_size=20_000,
        learning_starts=0,
        learning_rate=0.01,
        gamma=0.99,
        loss="mse",
        target_update_interval=10 * ACTORS * STEPS,
        exploration_initial_eps=0.1,
        exploration_final_eps=0.1,
        policy_kwargs={"net_arch": [32]},
        seed=0,
        stats_window_size=10_000,
    )
    curve = []
    with model:
        model.start()
        begin = time.perf_counter()
        for _ in range(rounds // 10):
            model.learn(10 * ACTORS * STEPS, log_interval=None, reset_num_timesteps=False)
            curve.append(np.mean([episode["r"] for episode in model.ep_info_buffer]))
        seconds = (time.perf_counter() - begin) / (10 * (rounds // 10))
    return curve, seconds


parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=500)
parser.add_argument("--plot", default=None, help="where to write the learning curves")
options = parser.parse_args()
curves = {}
for batch_size in (500, 1000, 2000):
    curves[batch_size], seconds = train(batch_size, options.rounds)
    print(
        f"batch {batch_size}: {1e3 * seconds:.1f} ms a round, {ACTORS * STEPS / seconds:,.0f} steps/s, "
        f"mean return {curves[batch_size][0]:.3f} at first, {curves[batch_size][-1]:.3f} at last"
    )

if options.plot:
    import matplotlib.pyplot as plt

    for batch_size, curve in curves.items():
        plt.plot(10 * np.arange(1, len(curve) + 1), curve, label=f"batch {batch_size}")
    plt.xlabel("rounds of 1,600 steps")
    plt.ylabel("mean return, epsilon 0.1")
    plt.title("Synchronised parallel Q-learning on Blackjack")
    plt.legend()
    plt.savefig(options.plot, dpi=110)
