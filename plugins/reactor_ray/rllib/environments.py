"""``env_id``: a ``ReactorVectorEnv`` under a name that RLlib's configs take."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import ray
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv, VectorWrapper
from ray.tune.registry import register_env

from reactor_gymnasium import AtariVectorEnv, ReactorVectorEnv, make_vec
from reactor_gymnasium.plugin import checked_seed, one_seed
from reactor_ray.rllib.settings import environment_seeds

__all__ = ["PREFIX", "RunnerVectorEnv", "as_taken", "env_id", "own_cpus"]

PREFIX = "ReactorVectorEnv/"
"""Begins the names of these environments."""


def env_id(id: str, **kwargs: Any) -> str:
    """Register ``reactor_gymnasium.make_vec(id, ...)`` with Ray, and return its name for ``config.environment(...)``.

    A :class:`~reactor_ray.rllib.ReactorEnvRunner` needs nothing else. RLlib's own runner must be told that this is a vector
    environment, with ``config.env_runners(gym_env_vectorize_mode="vector_entry_point")``; under its default mode it asks for single
    ones, and gets an error that says so.

    Each runner steps its environments on as many workers as it has CPUs (``num_cpus_per_env_runner``), and seeds them by
    (runner, environment). ``env_config`` has further keywords.

    Args:
        id: An id of Gymnasium's, or ``"module:id"``.
        **kwargs: As for :func:`reactor_gymnasium.make_vec`: ``workers``, ``executor``, and what the environment itself takes.

    Example:
        >>> from ray.rllib.algorithms.ppo import PPOConfig
        >>> from reactor_ray.rllib import ReactorEnvRunner, env_id
        >>> config = PPOConfig().environment(env_id("CartPole-v1")).env_runners(env_runner_cls=ReactorEnvRunner)
    """
    name = PREFIX + id.replace(":", "/")
    if kwargs.get("copy") is False:
        raise ValueError("env_id(copy=False): RLlib keeps the observations of many steps; leave it out")
    if kwargs:
        name += f"({', '.join(f'{key}={value!r}' for key, value in sorted(kwargs.items()))})"
    register_env(name, partial(_make, id, kwargs))
    return name


class RunnerVectorEnv(VectorWrapper):  # not generic in Gymnasium 1.2
    """A vector environment as a runner needs it: seeds keyed by runner and environment, and actions of the space's own dtype."""

    def __init__(self, env: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(env)
        dtype = env.single_action_space.dtype
        self._integers = dtype if dtype is not None and np.issubdtype(dtype, np.integer) else None

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset all environments. An int is RLlib's seed of the runner, from which theirs are made."""
        seeds: Any = seed
        if seed is not None and one_seed(seed):
            seeds = as_taken(self.env, environment_seeds(checked_seed(seed), 0, self.num_envs))
        return super().reset(seed=seeds, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments with an array of actions, or a list of single ones."""
        if self._integers is not None:
            actions = np.asarray(actions)
            if np.issubdtype(actions.dtype, np.integer):  # RLlib's are 32 bits wide, which is not what the space has
                actions = actions.astype(self._integers, copy=False)
        return super().step(actions)


def as_taken(env: VectorEnv[Any, Any, Any], seeds: list[int]) -> list[int] | int:
    """Seeds as a vector environment takes them: one for each environment, or the first for all if it steps its rows by itself."""
    each = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv | ReactorVectorEnv | AtariVectorEnv)
    return seeds if each else seeds[0]


def _make(id: str, kwargs: Mapping[str, Any], context: Mapping[str, Any]) -> RunnerVectorEnv:
    """Called by RLlib in a runner, with ``env_config`` and ``num_envs`` if it wants a vector environment."""
    if "num_envs" not in context:
        raise ValueError(
            f"env_id({id!r}) is a vector environment, but RLlib asks for a single one. Add "
            '.env_runners(gym_env_vectorize_mode="vector_entry_point") to the config, or '
            ".env_runners(env_runner_cls=ReactorEnvRunner), which needs no mode"
        )
    return RunnerVectorEnv(make_vec(id, **{"workers": own_cpus(), **kwargs, **context}))


def own_cpus() -> int | None:
    """How many CPUs Ray has given to this runner; ``None`` in a process of the user's, which may use all of its own."""
    if not ray.is_initialized() or ray.get_runtime_context().get_actor_id() is None:
        return None
    return max(int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)), 1)
