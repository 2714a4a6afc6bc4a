"""Targets of ``verify`` and ``bench``: rollouts of vector environments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_gymnasium.make import make_vec
from reactor_gymnasium.vector.sharded import ShardedVectorEnv
from reactor_rl.plugin import Target, require_extra

__all__ = ["Linear", "RolloutTarget", "rollout", "without_banner"]

SIZE = 200
"""Rows of the matrix: its products are large enough that the libraries under numpy would share them among
threads, if they were allowed to, and other numbers of threads show in the last bits.
"""
COLUMNS = 60
"""Columns of what the matrix is multiplied by."""


class Linear(gymnasium.Env[npt.NDArray[np.float32], np.int64]):
    """``x <- tanh(A x)`` for a fixed ``A``, (200, 200) float32, and ``x``, (200, 60); one column is seen, the sum is the reward."""

    observation_space = spaces.Box(-np.inf, np.inf, (SIZE,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self) -> None:
        self.a = (np.random.default_rng(0).standard_normal((SIZE, SIZE)) / np.sqrt(SIZE)).astype(np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Draw ``x`` anew."""
        super().reset(seed=seed)
        self.x = self.np_random.standard_normal((SIZE, COLUMNS)).astype(np.float32)
        return self.x[:, 0], {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One product; action 1 negates it."""
        self.x = np.tanh(self.a @ self.x) * np.float32(1 - 2 * int(action))
        return self.x[:, 0], float(self.x.sum()), False, False, {}


class RolloutTarget(Target[ShardedVectorEnv]):
    """Random actions, seeded, in ``num_envs`` copies of an environment.

    Args:
        id: As for :func:`reactor_gymnasium.make_vec`.
        num_envs: How many copies.
        seed: Seeds the environments and the actions.
        **kwargs: For :func:`reactor_gymnasium.make_vec`.
    """

    def __init__(self, id: str, num_envs: int = 8, seed: int = 0, **kwargs: Any) -> None:
        self.id, self.num_envs, self.seed, self.kwargs = id, num_envs, seed, kwargs

    def make(self, executor: Any = "auto", workers: int | None = None) -> ShardedVectorEnv:
        """The vector environment."""
        envs: ShardedVectorEnv = make_vec(self.id, self.num_envs, executor=executor, workers=workers, **self.kwargs)
        return envs

    def begin(self, envs: ShardedVectorEnv) -> Any:
        """Reset; gives what that returns."""
        envs.action_space.seed(self.seed)
        return envs.reset(seed=self.seed)

    def play(self, envs: ShardedVectorEnv, ticks: int) -> Iterator[Any]:
        """Take ``ticks`` steps; yields what each returns, which the next may overwrite."""
        for _ in range(ticks):
            yield envs.step(envs.action_space.sample())

    def outcome(self, envs: ShardedVectorEnv, ticks: int) -> Iterator[Any]:
        """The results of the reset and of each of ``ticks`` steps."""
        yield self.begin(envs)
        yield from self.play(envs, ticks)

    def __repr__(self) -> str:
        return f"Rollout({self.id!r}, num_envs={self.num_envs}, seed={self.seed})"


def rollout(id: str = "CartPole-v1", num_envs: int = 8, seed: int = 0, **kwargs: Any) -> RolloutTarget:
    """See :class:`Rollout`; a target of ``python -m reactor_rl verify reactor_gymnasium:rollout CartPole-v1 num_envs=8``."""
    return RolloutTarget(id, num_envs, seed, **kwargs)


def without_banner(id: str) -> gymnasium.Env[Any, Any]:
    """An environment whose emulator, if it has one, does not introduce itself."""
    if id.startswith("ALE/"):
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return gymnasium.make(id)


def _atari(**kwargs: Any) -> RolloutTarget:
    with require_extra("atari", "an Atari game"):
        import ale_py  # noqa: F401  (registers its environments)

    return RolloutTarget("ALE/Pong-v5", num_envs=4, **kwargs)


def _mujoco() -> RolloutTarget:
    import mujoco  # noqa: F401  (says at once that it is missing)

    return RolloutTarget("HalfCheetah-v5", num_envs=4)


def _linear() -> RolloutTarget:
    id = "reactor_gymnasium/Linear-v0"
    if id not in gymnasium.registry:
        gymnasium.register(id, "reactor_gymnasium.cli.targets:Linear")
    return RolloutTarget(id, num_envs=4)


cartpole = partial(rollout, "CartPole-v1")
shards = partial(rollout, "CartPole-v1", num_envs=50, shards=4)
blackjack = partial(rollout, "Blackjack-v1")
pong = _atari
atari = partial(_atari, preprocess=True)
half_cheetah = _mujoco
linear = _linear
