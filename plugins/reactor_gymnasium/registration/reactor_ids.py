"""A twin ``reactor/<id>`` of every registered id, for tools that know nothing but ids.

What is registered later gets its twin at once: ``gymnasium.register`` is then a function that calls Gymnasium's and adds it. Only
who took hold of the function before this was imported goes past it, and :func:`register` catches up with that.

Gymnasium 1.4 has no registry of vectorisers; what it has is a spec's ``vector_entry_point``. So
``gymnasium.make_vec("reactor/CartPole-v1", num_envs=64)`` comes here. A namespace's slash becomes a dot: ``reactor/ALE.Pong-v5``.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import gymnasium
from gymnasium.envs import registration
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import NameNotFound

__all__ = ["follow", "original", "register"]

_NAMESPACE = "reactor/"
_ENTRY_POINTS = "reactor_gymnasium.registration.entry_points"


def register() -> int:
    """Give every id that is registered by now its twin. Returns how many are new.

    Importing ``reactor_gymnasium`` does this once, and what is registered afterwards with ``gymnasium.register`` needs it no more.
    """
    known = len(gymnasium.registry)
    for name in list(gymnasium.registry):
        if _twin(name) not in gymnasium.registry:
            _add(name)
    return len(gymnasium.registry) - known


def follow() -> None:
    """Give what is registered from now on its twin at once."""
    plain = registration.register
    if hasattr(plain, "__reactor_twins__"):
        return

    @wraps(plain)
    def register_with_twin(id: str, *args: Any, **kwargs: Any) -> None:
        plain(id, *args, **kwargs)
        _add(next(reversed(gymnasium.registry)))
        if id in gymnasium.registry:  # it may have been there before
            _add(id)

    register_with_twin.__reactor_twins__ = True  # type: ignore[attr-defined]
    for module in (registration, gymnasium.envs, gymnasium):
        if vars(module).get("register") is plain:
            module.register = register_with_twin  # type: ignore[attr-defined]


def _twin(name: str) -> str:
    return _NAMESPACE + name.replace("/", ".")


def _add(name: str) -> None:
    spec, twin = gymnasium.registry[name], _twin(name)
    if name.startswith(_NAMESPACE) or spec.entry_point is None:
        return
    gymnasium.registry[twin] = EnvSpec(
        id=twin,
        entry_point=spec.entry_point,
        reward_threshold=spec.reward_threshold,
        nondeterministic=spec.nondeterministic,
        max_episode_steps=spec.max_episode_steps,
        order_enforce=spec.order_enforce,
        disable_env_checker=spec.disable_env_checker,
        kwargs=dict(spec.kwargs),
        vector_entry_point=f"{_ENTRY_POINTS}:{name}",
    )


def original(name: str) -> str:
    """The id whose twin is ``reactor/<name>``.

    Raises:
        gymnasium.error.NameNotFound: If there is none.
    """
    for registered in gymnasium.registry:
        if not registered.startswith(_NAMESPACE) and registered.replace("/", ".") == name:
            return registered
    raise NameNotFound(
        f"no registered environment has the twin reactor/{name}; register it first, then call reactor_gymnasium.register()"
    )
