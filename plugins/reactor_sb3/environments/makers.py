"""A trainer's ``env`` as makers of environments: every actor makes its own."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, unwrap_vec_normalize
from stable_baselines3.common.vec_env.patch_gym import _patch_env

from reactor_gymnasium.plugin import EnvFn, MakerTrial, check_made, looked_at, make_probe
from reactor_rl.plugin import Pickled, dumps
from reactor_sb3.environments.copies import copies_of, without_logs
from reactor_sb3.environments.live_vec_env import env_fns_of, shown_to_actors

__all__ = ["EnvMaker", "LazyEnv", "lazy_envs", "live_count", "maker_of", "spare_envs"]


class EnvMaker:
    """Makes environments as SB3 does, without a ``Monitor``.

    Args:
        env_fns: What the user has passed: one function for all environments, or one for each.
    """

    def __init__(self, *env_fns: EnvFn) -> None:
        self.env_fns = env_fns

    def __call__(self) -> gymnasium.Env[Any, Any]:
        env = self.env_fns[0]()
        check_made(env)
        return _patch_env(env)

    def of(self, number: int) -> EnvMaker:
        """Makes environment ``number``."""
        return self if len(self.env_fns) == 1 else EnvMaker(self.env_fns[number])

    def pickled(self, count: int) -> tuple[Pickled, ...]:
        """Makers of the first ``count`` environments, encoded."""
        if len(self.env_fns) == 1:
            return (Pickled(dumps(self)),) * count
        return tuple(Pickled(dumps(self.of(number))) for number in range(count))

    def throw_away(self) -> gymnasium.Env[Any, Any]:
        """An environment that is only looked at, timed or evaluated in: what it tells belongs in no log of episodes."""
        with without_logs():
            return self()


def maker_of(env: Any) -> EnvMaker:
    """Makers of environments, from whatever the user has passed as ``env``.

    Raises:
        TypeError: If no more of it can be made.
        RuntimeError: If it is a vector environment that is closed, or in the middle of a step.
    """
    if isinstance(env, EnvMaker):
        return env
    if isinstance(env, VecEnv):
        lazy = _lazy(env)
        return EnvMaker(*env_fns_of(env)) if lazy is None else lazy.makes
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise TypeError(
            "a vector environment of Gymnasium's cannot be given to actors, each of which makes its own environments: pass an id "
            "or a function that makes one environment, and n_actors= for how many"
        )
    if isinstance(env, str):
        return EnvMaker(partial(gymnasium.make, env))
    if isinstance(env, gymnasium.Env) or (hasattr(env, "reset") and hasattr(env, "step") and not isinstance(env, type)):
        return EnvMaker(copies_of(env))
    if callable(env):
        return EnvMaker(env)
    raise TypeError(
        f"env must be an id, a function that makes an environment, or an environment, got {env!r}"
        + (": one for all actors, and n_actors= for how many" if isinstance(env, list | tuple) else "")
    )


def live_count(env: Any) -> int | None:
    """How many environments there are to be, if ``env`` says so: a live vector environment does."""
    return env.num_envs if isinstance(env, VecEnv) and _lazy(env) is None else None


def lazy_envs(env: Any, count: int) -> VecEnv | None:
    """The environment that SB3 is given: a live vector environment, or ``count`` like ``env``, each made when it is used.

    Args:
        env: As the user has passed it; ``None`` for a model without one.
        count: How many the actors have.

    Raises:
        TypeError: If no more of it can be made.
        ValueError: If its actions do not count from 0.
    """
    if env is None or live_count(env) is not None or (isinstance(env, VecEnv) and unwrap_vec_normalize(env) is not None):
        found: VecEnv | None = env
    else:
        found = spare_envs(maker_of(env), count)
    match None if found is None else found.action_space:
        case spaces.Discrete(start=start) | spaces.MultiDiscrete(start=start) as space if np.any(start):
            raise ValueError(f"{space} counts from {start}; wrap the environment so that actions count from 0")
    return found


def _lazy(env: VecEnv) -> LazyEnv | None:
    """The environments of a trainer's ``get_env()``, unless more has been wrapped around them."""
    inner = shown_to_actors(env)
    first = inner.envs[0] if type(inner) is DummyVecEnv else None
    while first is not None and not isinstance(first, LazyEnv):
        first = getattr(first, "env", None)
    return first


class EnvFacts:
    """The spaces, metadata, spec and render mode of an environment."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata, self.spec = dict(env.metadata), env.spec
        self.render_mode = env.get_wrapper_attr("render_mode") if env.has_wrapper_attr("render_mode") else None


_OWN = frozenset(
    (
        "makes",
        "number",
        "observation_space",
        "action_space",
        "metadata",
        "spec",
        "render_mode",
        "_env",
        "_np_random",
        "_np_random_seed",
    )
)


def _not_there(name: str, remedy: str) -> AttributeError:
    return AttributeError(
        f"there is no attribute {name!r} here: the environments that a trainer steps are its actors', and those in .envs of "
        f"get_env() and training_env are others. Call {remedy} or env_method() of get_env(), which reach the actors'"
    )


class LazyEnv(gymnasium.Env[Any, Any]):
    """An environment that is made when it is first used. What ``get_env()`` holds: the actors have their own.

    Args:
        makes: Makes all environments of a trainer.
        number: Of this one.
        like: What is known of one that has been made already.
    """

    def __init__(self, makes: EnvMaker, number: int, like: EnvFacts) -> None:
        self.makes, self.number = makes, number
        self.observation_space, self.action_space = like.observation_space, like.action_space
        self.metadata, self.spec, self.render_mode = dict(like.metadata), like.spec, like.render_mode
        self._env: gymnasium.Env[Any, Any] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse what would reach nobody.

        Raises:
            AttributeError: If this is no attribute of an environment that has not been made.
        """
        if name not in _OWN and not hasattr(type(self), name):
            raise _not_there(name, f"set_attr({name!r}, ...)")
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        raise _not_there(name, f"get_attr({name!r})")

    @property
    def env(self) -> gymnasium.Env[Any, Any]:
        """The environment itself."""
        if self._env is None:
            self._env = self.makes.of(self.number).throw_away()
        return self._env

    @property
    def unwrapped(self) -> gymnasium.Env[Any, Any]:
        """See Gymnasium; before it is used, this is all there is (`DummyVecEnv` asks, to tell environments apart)."""
        return self if self._env is None else self._env.unwrapped

    def reset(self, **kwargs: Any) -> Any:
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        return self.env.step(action)

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        if self._env is not None:
            self._env.close()

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self, name) or self.env.has_wrapper_attr(name)

    def get_wrapper_attr(self, name: str) -> Any:
        return getattr(self, name) if name in vars(self) or hasattr(type(self), name) else self.env.get_wrapper_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, **kwargs: Any) -> bool:
        return self.env.set_wrapper_attr(name, value, **kwargs)

    def __str__(self) -> str:
        return f"<LazyEnv{self.makes.of(self.number).env_fns[0]}>"


def spare_envs(makes: EnvMaker, count: int) -> DummyVecEnv:
    """The value of ``get_env()``: as many environments as the actors have, made when they are first used."""
    trial = MakerTrial([makes.of(0), makes.of(0)] if len(makes.env_fns) == 1 and count > 1 else [makes])
    like = looked_at(partial(make_probe, trial.maker), EnvFacts)
    trial.warn("env")

    def spare(number: int) -> gymnasium.Env[Any, Any]:
        return Monitor(LazyEnv(makes, number, like))

    return DummyVecEnv([partial(spare, number) for number in range(count)])
