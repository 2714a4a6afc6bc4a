"""How long do the episodes take that tell what a saved model is worth?

A model of Stable-Baselines3 is trained for a while, saved, and loaded by each contender, which plays as many episodes with its best
actions: ``reactor_rl`` by ``evaluate`` on all cores and on one, SB3's ``evaluate_policy`` on its own vector environments with as
many environments side by side, and on one environment, as RL Zoo plays it. ``DummyVecEnv`` and ``SubprocVecEnv`` have torch on one
thread and on the default number. Their environments stay from one evaluation to the next; ``evaluate`` makes its own each time,
and finds out how the model may be asked, and both are timed. Mean returns of all are in the result: episodes have other seeds
there, so these agree within their intervals. ``LunarLander-v3`` needs Box2D.
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
TRAINED = {"LunarLander-v3": 65_536, "HalfCheetah-v5": 8_192}
"""Steps of each model's training. A lander that has learned for longer hovers until it is cut off, whoever plays it."""
EPISODES = {"LunarLander-v3": 200, "HalfCheetah-v5": 48}
"""Of an evaluation: some 350 and 1,000 steps each. The slowest contender has to come to its end, too."""
PARTS = 4
"""A fourth of an evaluation warms up."""
ENVS = 8
NO_PICTURES = {"render_mode": None}
"""SB3 asks for some unless it is told; LunarLander then simulates the particles of its engines, too, which takes most of a step."""


class Evaluating(Contender):
    """Plays episodes, again and again, with other seeds each time.

    Args:
        name: Of the contender.
        env: An id.
        model: File of the model.
        episodes: How many for each unit of work.
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
            count = 1 if "one environment" in name else ENVS
            self.venv = make_vec_env(env, count, seed=0, vec_env_cls=made, env_kwargs=NO_PICTURES)

    def go(self, count: int) -> float:
        import numpy as np
        import torch
        from stable_baselines3.common.evaluation import evaluate_policy

        from reactor_gymnasium import evaluate

        self.seed += 1
        episodes = count * self.episodes
        if self.venv is None:
            more: dict[str, Any] = {"executor": "inline"} if "one core" in self.name else {}
            returns = evaluate(self.model, self.env, episodes, seed=self.seed, **more).returns
        else:
            before = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            returns = np.array(evaluate_policy(self.model, self.venv, episodes, return_episode_rewards=True)[0])
            torch.set_num_threads(before)
        self.means[self.name] = float(returns.mean()), float(1.96 * returns.std(ddof=1) / len(returns) ** 0.5)
        return episodes

    def close(self) -> None:
        if self.venv is not None:
            self.venv.close()


def trained(case: str, path: Path, steps: int) -> None:
    """Save a model that has learned a little."""
    import torch
    from stable_baselines3 import PPO
    from stable_baselines3.common.env_util import make_vec_env

    before = torch.get_num_threads()
    torch.set_num_threads(1)  # layers as small as these gain nothing by more
    PPO(
        "MlpPolicy", make_vec_env(case, 16, seed=0, env_kwargs=NO_PICTURES), n_steps=256, batch_size=256, n_epochs=6,
        learning_rate=1e-3, gamma=0.995, gae_lambda=0.98, seed=0, device="cpu",
    ).learn(steps).save(path)  # fmt: skip
    torch.set_num_threads(before)


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    import gymnasium

    gymnasium.make(case).close()  # for its error, if a package is missing
    episodes = PARTS if options.quick else options.episodes or EPISODES[case]
    names = [
        OURS, f"{OURS}, one core", "DummyVecEnv", "DummyVecEnv, one thread", "SubprocVecEnv", "SubprocVecEnv, one thread",
        "one environment",
    ]  # fmt: skip
    means: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.zip"
        trained(case, model, 4096 if options.quick else TRAINED[case])
        makers = {name: partial(Evaluating, name, case, model, max(1, episodes // PARTS), means) for name in names}
        figures = compared(makers, options, fixed=PARTS)  # a slice is a whole evaluation
    return figures.as_json(OURS) | {"episodes": max(1, episodes // PARTS) * PARTS, "means": means}


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS)
    for row in rows:
        mean, half = found["means"].get(row[0], (float("nan"), float("nan")))
        row.append(f"{mean:.1f} +- {half:.1f}")
    print_table(f"{name}: {found['episodes']} episodes", ["contender", "episodes", "ours is", "min-max", "mean return"], rows)


def main() -> None:
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--episodes", type=int, default=0, help="of one evaluation")
    options = parser.parse_args()
    benchmark(__file__, options, list(TRAINED), measure, show, "Episodes of a saved model", "episodes per second")


if __name__ == "__main__":
    main()
