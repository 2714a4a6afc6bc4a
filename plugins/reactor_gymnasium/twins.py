"""A twin ``reactor/<id>`` of every registered id, for tools that know nothing but ids.

Gymnasium 1.4 has no registry of vectorisers; what it has is a spec's ``vector_entry_point``. So
``gymnasium.make_vec("reactor/CartPole-v1", num_envs=64)`` comes here. A namespace's slash becomes a dot: ``reactor/ALE.Pong-v5``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import NameNotFound

__all__ = ["original", "register"]

_NAMESPACE = "reactor/"


def register() -> int:
    """Give every id that is registered by now its twin. Returns how many are new.

    Importing ``reactor_gymnasium`` does this once; call it for ids that are registered later.
    """
    found = 0
    for name, spec in list(gymnasium.registry.items()):
        twin = _NAMESPACE + name.replace("/", ".")
        if name.startswith(_NAMESPACE) or twin in gymnasium.registry or spec.entry_point is None:
            continue
        gymnasium.registry[twin] = EnvSpec(
            id=twin,
            entry_point=spec.entry_point,
            reward_threshold=spec.reward_threshold,
            nondeterministic=spec.nondeterministic,
            max_episode_steps=spec.max_episode_steps,
            order_enforce=spec.order_enforce,
            disable_env_checker=spec.disable_env_checker,
            kwargs=dict(spec.kwargs),
            vector_entry_point=f"{__name__}:{name}",
        )
        found += 1
    return found


def original(name: str) -> str:
    """The id whose twin is ``reactor/<name>``.

    Raises:
        gymnasium.error.NameNotFound: If there is none.
    """
    for found in gymnasium.registry:
        if not found.startswith(_NAMESPACE) and found.replace("/", ".") == name:
            return found
    raise NameNotFound(
        f"no registered environment has the twin reactor/{name}; register it first, then call reactor_gymnasium.register()"
    )


def _make(name: str, num_envs: int, **kwargs: Any) -> Any:
    from reactor_gymnasium.make import make_vec

    return make_vec(name, num_envs, **kwargs)


def __getattr__(name: str) -> Callable[..., Any]:
    """Entry points by id: Gymnasium looks up ``reactor_gymnasium.twins:<id>`` as an attribute of this module."""
    if name in gymnasium.registry:
        return partial(_make, name)
    raise AttributeError(name)
