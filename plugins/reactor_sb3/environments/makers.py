"""What a trainer may be given as ``env``: anything that more of can be made, for every actor makes its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import gymnasium
from stable_baselines3.common import monitor
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from stable_baselines3.common.vec_env.patch_gym import _patch_env

from reactor_gymnasium.plugin import EnvFn, thrown_away
from reactor_rl.plugin import global_random_state, loads

__all__ = ["LazyEnv", "EnvMaker", "maker_of", "spare_envs"]


class EnvMaker:
    """Makes one environment as SB3 does, without a ``Monitor``.

    Args:
        env_fn: What the user has passed.
    """

    def __init__(self, env_fn: EnvFn) -> None:
        self.env_fn = env_fn

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return _patch_env(self.env_fn())

    def throw_away(self) -> gymnasium.Env[Any, Any]:
        """An environment that is only looked at and timed: a Monitor around it opens no log, which would empty the real one's."""
        writer = monitor.ResultsWriter
        monitor.ResultsWriter = lambda *_, **__: None  # type: ignore[misc, assignment]
        try:
            return self()
        finally:
            monitor.ResultsWriter = writer  # type: ignore[misc]


class _Copies:
    """Copies of an environment as it was when the trainer was given it."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.pickled = cloudpickle.dumps(env)

    def __call__(self) -> gymnasium.Env[Any, Any]:
        env: gymnasium.Env[Any, Any] = loads(self.pickled)
        return env


def maker_of(env: Any) -> EnvMaker:
    """A function that makes environments, from whatever the user has passed as ``env``.

    Raises:
        TypeError: If no more of it can be made.
    """
    if isinstance(env, EnvMaker):
        return env
    if isinstance(env, VecEnv):
        lazy = _lazy(env)
        if lazy is not None:
            return lazy.make
        raise TypeError(
            f"a live {type(env).__name__} cannot be taken apart and given to actors, each of which makes its own environments: "
            'pass an id ("CartPole-v1") or a function that makes one environment, and n_actors= for how many'
        )
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise TypeError(
            "a vector environment cannot be given to actors, each of which makes its own environments: pass an id or a function "
            "that makes one environment, and n_actors= for how many"
        )
    if isinstance(env, str):
        return EnvMaker(partial(gymnasium.make, env))
    if isinstance(env, gymnasium.Env) or (hasattr(env, "reset") and hasattr(env, "step") and not isinstance(env, type)):
        return EnvMaker(_rebuilding(env))
    if callable(env):
        return EnvMaker(env)
    raise TypeError(f"env={env!r} is neither an id, nor a function that makes an environment, nor an environment")


def _rebuilding(env: gymnasium.Env[Any, Any]) -> EnvFn:
    spec = getattr(env, "spec", None)
    if spec is not None:
        # A specification may be of no use here (its id is not registered, say): then there is still the pickle.
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = gymnasium.make(spec)
            again.close()
            if str(again) == str(env):  # the same wrappers, in the same order
                return partial(gymnasium.make, spec)
    try:
        copies = _Copies(env)
        copies()
    except Exception as error:
        raise TypeError(
            f"{env} cannot be made again: Gymnasium has no complete specification of it, and it cannot be pickled "
            f"({type(error).__name__}: {error}). Pass a function that makes one environment instead"
        ) from error
    return copies


def _lazy(env: VecEnv) -> LazyEnv | None:
    """What `get_env()` of a trainer consists of."""
    inner = env.unwrapped
    first = inner.envs[0] if type(inner) is DummyVecEnv else None
    while first is not None and not isinstance(first, LazyEnv):
        first = getattr(first, "env", None)
    return first


class LazyEnv(gymnasium.Env[Any, Any]):
    """An environment that is made when it is first used. What ``get_env()`` holds: the actors have their own.

    Args:
        make: Makes it.
        like: One that has been made already, for its spaces and what else can be known beforehand.
    """

    def __init__(self, make: EnvMaker, like: gymnasium.Env[Any, Any]) -> None:
        self.make = make
        self.observation_space, self.action_space = like.observation_space, like.action_space
        self.metadata, self.spec = dict(like.metadata), like.spec
        self.render_mode = like.get_wrapper_attr("render_mode") if like.has_wrapper_attr("render_mode") else None
        self._env: gymnasium.Env[Any, Any] | None = None

    @property
    def env(self) -> gymnasium.Env[Any, Any]:
        """The environment itself."""
        if self._env is None:
            self._env = self.make()
        return self._env

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """See Gymnasium; before it is used, this is all there is (`DummyVecEnv` asks, to tell environments apart)."""
        return self if self._env is None else self._env.unwrapped

    def reset(self, **kwargs: Any) -> Any:
        """See Gymnasium."""
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        """See Gymnasium."""
        return self.env.step(action)

    def render(self) -> Any:
        """See Gymnasium."""
        return self.env.render()

    def close(self) -> None:
        """See Gymnasium."""
        if self._env is not None:
            self._env.close()

    def has_wrapper_attr(self, name: str) -> bool:
        """See Gymnasium."""
        return hasattr(self, name) or self.env.has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        """See Gymnasium."""
        return getattr(self, name) if name in vars(self) or hasattr(type(self), name) else self.env.get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, **kwargs: Any) -> bool:
        """See Gymnasium."""
        return self.env.set_wrapper_attr(name, value, **kwargs)

    def __str__(self) -> str:
        return f"<LazyEnv{self.make.env_fn}>"


def spare_envs(make: EnvMaker, count: int) -> DummyVecEnv:
    """What ``get_env()`` gives: as many environments as the actors have, made when they are first used."""
    with global_random_state():
        like = thrown_away(make)
        like.close()

    def spare() -> gymnasium.Env[Any, Any]:
        return Monitor(LazyEnv(make, like))

    env_fns: list[Callable[[], gymnasium.Env[Any, Any]]] = [spare] * count
    return DummyVecEnv(env_fns)
