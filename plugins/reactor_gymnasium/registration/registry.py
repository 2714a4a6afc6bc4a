"""Gymnasium's registry, in helpers as in the caller: what was registered here can be made there."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from functools import partial

import gymnasium

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
            gymnasium.registry[name] = loads(data)
