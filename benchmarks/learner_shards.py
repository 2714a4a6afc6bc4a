"""What does a second core gain in a learner of PPO?

The learner's part of a round of ``SyncPPO`` alone, from the arrival of a rollout to the last update: as its constructor leaves it,
which has threads for images and dense layers where that pays, and with a number that is named: gradient workers. With
``executor="inline"`` both slices are computed one after the other: what is lost there is what slices cost.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, compared
from showing import print_table, rate_rows

OURS = "reactor_rl"
CASES: dict[str, tuple[str, list[int], int, int]] = {
    "CnnPolicy, batch 256": ("CnnPolicy", [], 256, 256),
    "CnnPolicy, batch 64": ("CnnPolicy", [], 64, 256),
    "MlpPolicy 256-256, batch 256": ("MlpPolicy", [256, 256], 256, 2048),
    "MlpPolicy 64-64, batch 64": ("MlpPolicy", [64, 64], 64, 2048),
}
"""Policy, hidden layers, rows of a minibatch and of a round."""


def classes_of(policy: str) -> tuple[Any, Any]:
    """An environment that costs nothing, and a ``SyncPPO`` that knows how long it has learned."""
    import gymnasium
    from gymnasium import spaces

    from reactor_sb3 import SyncPPO

    images = spaces.Box(0, 255, (4, 84, 84), np.uint8)

    class Constant(gymnasium.Env[Any, Any]):
        observation_space = images if policy == "CnnPolicy" else spaces.Box(-1, 1, (17,), np.float32)
        action_space = spaces.Discrete(6)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.seen = np.random.default_rng(0).integers(0, 2, self.observation_space.shape).astype(self.observation_space.dtype)
            return self.seen, {}

        def step(self, action: Any) -> Any:
            return self.seen, 1.0, False, False, {}

    class Timed(SyncPPO):
        learned = 0.0

        def _updates(self) -> Any:
            begin = time.perf_counter()
            yield from super()._updates()
            self.learned += time.perf_counter() - begin

    return Constant, Timed


class Learns(Contender):
    def __init__(self, case: str, **how: Any) -> None:
        policy, hidden, batch, self.rows = CASES[case]
        env, trainer = classes_of(policy)
        steps = self.rows // 8
        self.updates = self.rows // batch * (epochs := 2)
        self.model = trainer(
            policy, env, n_actors=2, envs_per_actor=4, n_steps=steps, batch_size=batch, n_epochs=epochs, seed=0,
            policy_kwargs={"net_arch": hidden}, **how,
        )  # fmt: skip
        self.model.learn(self.rows)

    def timed(self, count: int) -> tuple[float, float]:
        self.model.learned = 0.0
        self.model.learn(count * self.rows, reset_num_timesteps=False, log_interval=None)
        return count * self.updates, self.model.learned

    def close(self) -> None:
        self.model.close()


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    places: dict[str, dict[str, Any]] = {
        OURS: {"workers": 2},
        "reactor_rl, n_learners=2, processes": {"n_learners": 2, "executor": "processes", "workers": 2},
        "reactor_rl, n_learners=2, threads": {"n_learners": 2, "executor": "threads", "workers": 2},
        "reactor_rl, n_learners=2, inline": {"n_learners": 2, "executor": "inline"},
        "n_learners=1": {"executor": "inline"},
    }
    return compared({one: partial(Learns, name, **how) for one, how in places.items()}, options).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["learner", "an update", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))


def main() -> None:
    options = arguments(__doc__).parse_args()
    benchmark(__file__, options, list(CASES), measure, show, "Updates of a learner with shards", "updates per second")


if __name__ == "__main__":
    main()
