"""``make_vec``: the arguments of ``gymnasium.make_vec``, and ours."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, _find_spec
from gymnasium.error import Error

from reactor_gymnasium.vector_env import ReactorVectorEnv

__all__ = ["OURS", "make_vec"]

Wrap = Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]]

OURS = (
    "shared_memory", "copy", "context", "daemon", "observation_mode", "autoreset_mode", "max_concurrency", "workers", "executor",
    "caller_works",
)  # fmt: skip
"""Keywords that are meant for :class:`ReactorVectorEnv` and not for the environment."""


def make_vec(
    id: str | EnvSpec,
    num_envs: int = 1,
    vectorization_mode: None = None,
    vector_kwargs: dict[str, Any] | None = None,
    wrappers: Sequence[Wrap] | None = None,
    **kwargs: Any,
) -> ReactorVectorEnv:
    """Make a :class:`ReactorVectorEnv` of a registered environment.

    Args:
        id: An id, ``"module:id"``, or a spec. Of a ``reactor/`` twin, what it is the twin of.
        num_envs: How many copies.
        vectorization_mode: Only ``None``: the mode is this.
        vector_kwargs: Keywords of :class:`ReactorVectorEnv`.
        wrappers: Put around each environment, in order.
        **kwargs: ``workers``, ``executor``, ``autoreset_mode`` and the other keywords of :class:`ReactorVectorEnv`; everything
            else goes to ``gymnasium.make``.

    Raises:
        gymnasium.error.Error: If there is no such id, or a vectorization mode is given.
    """
    if vectorization_mode is not None:
        raise Error(
            "make_vec of reactor_gymnasium makes a ReactorVectorEnv; for "
            f"vectorization_mode={vectorization_mode!r} use gymnasium.make_vec"
        )
    spec = copy.deepcopy(id if isinstance(id, EnvSpec) else _find_spec(_base(id)))
    if spec.entry_point is None:
        raise Error(f"Cannot create vectorized environment for {spec.id} because it doesn't have an entry point defined.")
    vector = dict(vector_kwargs or {})
    for name in OURS:
        if name in kwargs:
            if name in vector:
                raise TypeError(f"{name} was given twice, in vector_kwargs and by itself")
            vector[name] = kwargs.pop(name)
    make_kwargs = {**spec.kwargs, **kwargs}
    spec.kwargs = {}
    make_one = partial(_make_one, spec, make_kwargs, tuple(wrappers or ()))
    envs = ReactorVectorEnv([make_one] * num_envs, **vector)
    envs.spec = copy.deepcopy(spec)
    envs.spec.kwargs = {**make_kwargs, **({"num_envs": num_envs} if num_envs != 1 else {})}
    if vector:
        envs.spec.kwargs["vector_kwargs"] = vector
    if wrappers:
        envs.spec.kwargs["wrappers"] = wrappers
    return envs


def _make_one(spec: EnvSpec, kwargs: dict[str, Any], wrappers: tuple[Wrap, ...]) -> gymnasium.Env[Any, Any]:
    env = gymnasium.make(spec, **copy.copy(kwargs))
    for wrap in wrappers:
        env = wrap(env)
    return env


def _base(id: str) -> str:
    """What an id of a twin stands for: ``reactor/ALE.Pong-v5`` is ``ALE/Pong-v5``."""
    module, colon, name = id.rpartition(":")
    if not name.startswith("reactor/"):
        return id
    from reactor_gymnasium.twins import original

    return f"{module}{colon}{original(name.removeprefix('reactor/'))}"
