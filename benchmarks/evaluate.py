"""How long do 500 episodes of a saved model take?

A model of Stable-Baselines3 is trained for a while, saved, and loaded by each contender, which plays as many episodes with its best
actions: ``reactor_rl`` by ``evaluate`` on all cores and on one, SB3's ``evaluate_policy`` on its own vector environments with as
many environments side by side, and on one environment, as RL Zoo plays it. ``DummyVecEnv`` and ``SubprocVecEnv`` have torch on one
thread and on the default number. Mean returns of all are in the result: episodes have other seeds there, so these agree within
their intervals. ``LunarLander-v3`` needs Box2D.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from common import Contender, arguments, benchmark, compared
from showing import print_table, rate_rows

OURS = "reactor_rl"
TRAINED = {"LunarLander-v3": 100_000, "HalfCheetah-v5": 20_000}
"""Steps of each model's training."""
ENVS = 8


class Evaluating(Contender):
    """Plays all episodes, again and again, with other seeds each time.

    Args:
        name: Of the contender.
        env: An id.
        model: File of the model.
        episodes: How many.
        means: Gets the mean return and the half width of its 95 % interval, by name.
    """

    def __init__(self, name: str, env: str, model: Path, episodes: int, means: dict[str, tuple[float, float]]) -> None:
        import torch
        from stable_baselines3 import PPO
        from stable_baselines3.common.env_util import make_vec_env
        from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

        self.name, self.env, self.episodes, self.means, self.seed = name, env, episodes, means, 0
        self.threads = 1 if "one thread" in name else torch.get_num_threads()
        self.model = PPO.load(model, device="cpu")
        self.venv: Any = None
        if not name.startswith(OURS):
            made = SubprocVecEnv if "Subproc" in name else DummyVecEnv
            self.venv = make_vec_env(env, 1 if "one environment" in name else ENVS, seed=0, vec_env_cls=made)

    def go(self, count: int) -> float:
        import numpy as np
        import torch
        from stable_baselines3.common.evaluation import evaluate_policy

        from reactor_gymnasium import evaluate

        for _ in range(count):
            self.seed += 1
            if self.venv is None:
                more: dict[str, Any] = {"executor": "inline"} if "one core" in self.name else {}
                returns = evaluate(self.model, self.env, self.episodes, seed=self.seed, **more).returns
            else:
                before = torch.get_num_threads()
                torch.set_num_threads(self.threads)
                returns = np.array(evaluate_policy(self.model, self.venv, self.episodes, return_episode_rewards=True)[0])
                torch.set_num_threads(before)
            self.means[self.name] = float(returns.mean()), float(1.96 * returns.std(ddof=1) / len(returns) ** 0.5)
        return count * self.episodes

    def close(self) -> None:
        if self.venv is not None:
            self.venv.close()


def trained(case: str, path: Path, steps: int) -> None:
    """Save a model that has learned a little."""
    from stable_baselines3 import PPO

    PPO("MlpPolicy", case, n_steps=1024, seed=0, device="cpu").learn(steps).save(path)


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    import gymnasium

    gymnasium.make(case).close()  # for its error, if a package is missing
    episodes = 4 if options.quick else options.episodes
    names = [
        OURS, f"{OURS}, one core", "DummyVecEnv", "DummyVecEnv, one thread", "SubprocVecEnv", "SubprocVecEnv, one thread",
        "one environment",
    ]  # fmt: skip
    means: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.zip"
        trained(case, model, 1024 if options.quick else TRAINED[case])
        makers = {name: partial(Evaluating, name, case, model, episodes, means) for name in names}
        figures = compared(makers, options, fixed=1)  # a slice is a whole evaluation
    return figures.as_json(OURS) | {"episodes": episodes, "means": means}


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS)
    for row in rows:
        mean, half = found["means"].get(row[0], (float("nan"), float("nan")))
        row.append(f"{mean:.1f} +- {half:.1f}")
    print_table(f"{name}: {found['episodes']} episodes", ["contender", "episodes", "ours is", "min-max", "mean return"], rows)


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--episodes", type=int, default=500, help="of one evaluation")
    options = parser.parse_args()
    benchmark(__file__, options, list(TRAINED), measure, show, "Episodes of a saved model", "episodes per second")


if __name__ == "__main__":
    main()
