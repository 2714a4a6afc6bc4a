"""Our trainers as their hosts' own tests use the algorithms, in this process: ``HostSyncSAC`` in the place of ``SAC``."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from reactor_sb3 import ALGORITHMS


class _Inline:
    """An environment that is given is the only one, as there."""

    def __init__(self, policy: Any, env: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("executor", "inline")
        if not isinstance(env, VecEnv):
            kwargs.setdefault("n_actors", 1)
            kwargs.setdefault("envs_per_actor", 1)
        elif kwargs.get("seed") is not None:
            # SB3 seeds this space, which is that of its first environment and which its IdentityEnv draws from. Ours are copies.
            env.action_space.seed(kwargs["seed"])
        super().__init__(policy, env, *args, **kwargs)  # type: ignore[call-arg]


def __getattr__(name: str) -> Any:
    row = ALGORITHMS.get(name.removeprefix("Host"))
    if row is None or name == row.name:
        raise AttributeError(name)
    globals()[name] = made = type(name, (_Inline, row.cls), {"__module__": __name__})
    return made
