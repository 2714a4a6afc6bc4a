"""``JointEnv``: all agents of a PettingZoo environment as one environment of Gymnasium's, for hosts that know no other kind.

Nobody who learns steps one: actors have units as rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from reactor_pettingzoo.agents import EnvFn

__all__ = ["JointEnv"]


class JointEnv(gymnasium.Env[dict[str, Any], Any]):
    """All agents as one. What is returned may be used again by the next step.

    Args:
        env_fn: Makes the environment.
        agents: Its agents, as ``make_unit`` takes them.
        make_unit: Makes of an environment and its agents a :class:`~reactor_gymnasium.environments.unit_rows.Unit` of one row, with
            ``copy``, ``specs``, spaces, and ``seen()``, a dict of what everybody sees. Its ``step()`` takes what its
            ``allowed()`` gives.
    """

    def __init__(self, env_fn: EnvFn, agents: Any, make_unit: Callable[[Any, Any], Any]) -> None:
        self.env_fn, self.agents, self.make_unit = env_fn, agents, make_unit
        self.unit = unit = make_unit(env_fn(), agents)
        self.metadata = {**getattr(self.env, "metadata", {}), "render_fps": unit.specs.fps}
        self.name, self.render_mode = unit.specs.name, getattr(self.env, "render_mode", None)
        self.observation_space, self.action_space = unit.observation_space, unit.action_space

    @property
    def env(self) -> Any:
        """The environment."""
        return self.unit.copy.env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        self.unit.reset(seed=seed, options=options)
        return self.unit.seen(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Take a step: an action of everybody who is there or, where agents take turns, of one."""
        unit = self.unit
        unit.step(unit.allowed(action))
        _, terminated, truncated = unit.ended[0] if unit.ended else (0, False, False)
        return unit.seen(), unit.rewards[0], terminated, truncated, unit.infos.get(0, {})

    def render(self) -> Any:
        """The environment's picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        if hasattr(self.env, "close"):
            self.env.close()

    # The state is the unit's. A pickle is of that, and of what made the environment.

    def __getstate__(self) -> Any:
        return self.unit.__getstate__()

    def __setstate__(self, state: Any) -> None:
        self.unit.__setstate__(state)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return JointEnv, (self.env_fn, self.agents, self.make_unit), self.__getstate__()
