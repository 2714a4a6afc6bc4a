"""What do threads and ``split=True`` gain on two cores?

An update of SAC or TD3, everything included: minibatches sampled from a replay buffer, the critics, the actor, the entropy
coefficient and the targets. Ours is the learner's part of a round, from the arrival of transitions to the last update; SB3's is its
``train``, with one thread and with two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, compared
from showing import print_table, rate_rows

OURS = "reactor_rl"
CASES = {
    "SAC 256-256, batch 256": ("SAC", 256),
    "TD3 256-256, batch 256": ("TD3", 256),
    "SAC 256-256, batch 1024": ("SAC", 1024),
}
"""Algorithm and rows of a minibatch."""
FEATURES, ACTIONS, HIDDEN = 17, 6, [256, 256]
"""As HalfCheetah has them, and the layers that the papers have."""
UPDATES = 64
"""Of a round."""


def env_class() -> Any:
    """Environments that cost nothing."""
    import gymnasium
    from gymnasium import spaces

    class Random(gymnasium.Env[Any, Any]):
        observation_space = spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)
        action_space = spaces.Box(-1, 1, (ACTIONS,), np.float32)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.step(None)[0], {}

        def step(self, action: Any) -> Any:
            return self.np_random.standard_normal(FEATURES, np.float32), self.np_random.normal(), False, False, {}

    return Random


def timed_class(algorithm: str) -> Any:
    """A trainer that knows how long it has learned."""
    from reactor_sb3 import ALGORITHMS

    base = ALGORITHMS[f"Sync{algorithm}"].cls

    class Timed(base):  # type: ignore[misc]
        learned = 0.0

        def _updates(self, gradient_steps: int, batch_size: int) -> Any:
            begin = time.perf_counter()
            yield from super()._updates(gradient_steps, batch_size)
            self.learned += time.perf_counter() - begin

    return Timed


class Learns(Contender):
    """Rounds of ours."""

    def __init__(self, case: str, **how: Any) -> None:
        algorithm, batch = CASES[case]
        self.model = timed_class(algorithm)(
            "MlpPolicy", env_class(), n_actors=2, envs_per_actor=4, train_freq=8, gradient_steps=UPDATES, batch_size=batch, seed=0,
            learning_starts=2000, buffer_size=20_000, policy_kwargs={"net_arch": HIDDEN}, **how,
        )  # fmt: skip
        self.round = 8 * self.model.n_envs
        self.model.learn(3000, log_interval=None)

    def timed(self, count: int) -> tuple[float, float]:
        self.model.learned = 0.0
        self.model.learn(count * self.round, reset_num_timesteps=False, log_interval=None)
        return count * UPDATES, self.model.learned

    def close(self) -> None:
        self.model.close()


class Theirs(Contender):
    """SB3's ``train``."""

    def __init__(self, case: str, threads: int) -> None:
        import stable_baselines3
        from stable_baselines3.common.logger import configure

        algorithm, self.batch = CASES[case]
        self.threads = threads
        self.model = getattr(stable_baselines3, algorithm)(
            "MlpPolicy", env_class()(), batch_size=self.batch, device="cpu", seed=0, buffer_size=20_000,
            policy_kwargs={"net_arch": HIDDEN},
        )  # fmt: skip
        rng = np.random.default_rng(0)
        for _ in range(3000):
            seen, following = rng.normal(size=(2, 1, FEATURES)).astype(np.float32)
            actions = rng.uniform(-1, 1, (1, ACTIONS))
            self.model.replay_buffer.add(seen, following, actions, rng.normal(size=1), np.zeros(1), [{}])
        self.model.set_logger(configure(None, []))

    def go(self, count: int) -> float:
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            self.model.train(count * UPDATES, self.batch)
        finally:
            torch.set_num_threads(before)
        return count * UPDATES


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    torch.set_num_threads(1)
    makers: dict[str, Callable[[], Contender]] = {
        OURS: partial(Learns, name, workers=2),
        "reactor_rl, one thread": partial(Learns, name, executor="inline"),
        "reactor_rl, split=True, processes": partial(Learns, name, split=True, executor="processes", workers=2),
        "reactor_rl, split=True, threads": partial(Learns, name, split=True, executor="threads", workers=2),
        "reactor_rl, split=True, inline": partial(Learns, name, split=True, executor="inline"),
        "reactor_rl, n_learners=2, processes": partial(Learns, name, n_learners=2, executor="processes", workers=2),
        "SB3, one thread": partial(Theirs, name, 1),
        "SB3, two threads": partial(Theirs, name, 2),
    }
    return compared(makers, options).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["learner", "an update", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))


def main() -> None:
    options, label = arguments(__doc__).parse_args(), "updates per second"
    benchmark(__file__, options, list(CASES), measure, show, "Updates of critics and an actor", label)


if __name__ == "__main__":
    main()
