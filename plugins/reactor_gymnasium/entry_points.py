"""What ``gymnasium.make_vec`` calls for a twin: an attribute of this module for every registered id."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium

from reactor_gymnasium.make import make_vec

__all__: list[str] = []


def _make(name: str, num_envs: int, **kwargs: Any) -> Any:
    return make_vec(name, num_envs, **kwargs)


def __getattr__(name: str) -> Callable[..., Any]:
    """Gymnasium looks up ``reactor_gymnasium.entry_points:<id>``."""
    if name in gymnasium.registry:
        return partial(_make, name)
    raise AttributeError(name)
