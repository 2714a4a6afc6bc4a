"""Step 64 CartPoles on all cores, and see that the results are the same on one.

    python examples/vector_env.py

Needs the extra `[gymnasium]`. There is no `if __name__ == "__main__"` on purpose: workers never import this file.
"""

import gymnasium as gym
import numpy as np

from reactor_gymnasium import ReactorVectorEnv

NUM_ENVS, STEPS = 64, 500


class Balanced(gym.Wrapper):
    """Rewards an upright pole. Defined here, in the script itself, which is fine."""

    def step(self, action):
        observation, _, terminated, truncated, info = self.env.step(action)
        return observation, float(np.cos(observation[2])), terminated, truncated, info


def make():
    return Balanced(gym.make("CartPole-v1"))


def episode_returns(workers):
    """Returns of all episodes that end within 500 steps of a policy that pushes towards the side the pole leans to."""
    finished, running = [], np.zeros(NUM_ENVS)
    with ReactorVectorEnv([make] * NUM_ENVS, workers=workers) as envs:
        print(envs)
        observations, _ = envs.reset(seed=0)
        for _ in range(STEPS):
            actions = (observations[:, 2] > 0).astype(np.int64)
            observations, rewards, terminations, truncations, _ = envs.step(actions)
            running += rewards
            ended = terminations | truncations
            finished += running[ended].tolist()
            running[ended] = 0.0
    return finished


one, two = episode_returns(workers=1), episode_returns(workers=2)
print(f"{len(one)} episodes, mean return {np.mean(one):.2f}")
print("the same on one worker and on two:", one == two)
