"""``SyncDQN`` as Stable-Baselines3's own tests use ``DQN``: with one environment, or with a live ``DummyVecEnv``."""

from __future__ import annotations

from typing import Any

from gymnasium import Env
from stable_baselines3.common.vec_env import DummyVecEnv

from reactor_sb3 import SyncDQN
from reactor_sb3.environments.makers import LazyEnv


class HostSyncDQN(SyncDQN):
    """As many actors as the ``DummyVecEnv`` has environments, or one, in this process; other vector environments stay refused."""

    def __init__(self, policy: Any, env: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("executor", "inline")
        kwargs.setdefault("n_actors", env.num_envs if type(env) is DummyVecEnv else 1)
        super().__init__(policy, _one_of(env), *args, **kwargs)

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        # As SB3 asserts; what SyncDQN is given does not say how many environments there are to be.
        assert type(env) is not DummyVecEnv or env.num_envs == self.n_envs
        super().set_env(_one_of(env), force_reset)

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> Any:
        return SyncDQN._wrap_env(_one_of(env), verbose, monitor_wrapper)


def _one_of(env: Any) -> Any:
    """The first environment of a live ``DummyVecEnv``, for the actors to have copies of; anything else as it is."""
    if type(env) is not DummyVecEnv:
        return env
    first: Env[Any, Any] = env.envs[0]
    inner: Any = first
    while inner is not None and not isinstance(inner, LazyEnv):
        inner = getattr(inner, "env", None)
    return first if inner is None else env  # what a SyncDQN's own get_env() gives is no live one
