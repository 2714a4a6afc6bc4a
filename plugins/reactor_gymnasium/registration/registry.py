"""Gymnasium's registry, in helpers as in the caller: what was registered here can be made there."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import gymnasium
from gymnasium.envs.registration import EnvSpec

from reactor_rl.plugin import dumps, loads

__all__ = ["repeat_registrations"]


def repeat_registrations() -> Callable[[], None]:
    """A function that registers in a helper what is registered here, entry points defined in ``__main__`` included."""
    pickled: dict[str, bytes] = {}
    for name, spec in gymnasium.registry.items():
        with contextlib.suppress(Exception):  # one that cannot travel is missed only if it is made
            pickled[name] = dumps(spec)
    return partial(_register, pickled)


def _register(pickled: dict[str, bytes]) -> None:
    # A package that registers its environments when it is imported will find them there already.
    warnings.filterwarnings("ignore", message=".*Overriding environment .* already in registry")
    for name, data in pickled.items():
        if name not in gymnasium.registry:
            try:
                gymnasium.registry[name] = loads(data)
            except Exception as error:  # on a machine without its module, say, which matters only if it is made
                gymnasium.registry[name] = EnvSpec(name, entry_point=partial(_missing, error))


def _missing(error: Exception, **_: Any) -> NoReturn:
    raise error
