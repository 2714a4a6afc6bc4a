"""The random generators that belong to the whole process: Python's, numpy's and, where it is loaded, torch's.

Whoever draws from one shares it with everything else in the process, so that what is drawn depends on who else draws, and when.
"""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from reactor_rl.fingerprint import canonical, new_hash

__all__ = ["generator_states", "global_random_state", "moved"]


class _Generator(NamedTuple):
    name: str
    get: Callable[[], Any]
    put_back: Callable[[Any], Any]


def generator_states() -> dict[str, bytes]:
    """A digest of the state of each generator, by name."""
    digests: dict[str, bytes] = {}
    for generator in _generators():
        digest = new_hash()
        canonical(generator.get(), digest)
        digests[generator.name] = digest.digest()
    return digests


def moved(before: dict[str, bytes]) -> tuple[str, ...]:
    """The generators that something has drawn from (or seeded) since :func:`generator_states` gave ``before``, by name."""
    after = generator_states()
    return tuple(name for name in before if before[name] != after[name])


@contextlib.contextmanager
def global_random_state() -> Iterator[None]:
    """Put back the state of every generator, however the block ends."""
    states = [(generator.put_back, generator.get()) for generator in _generators()]
    try:
        yield
    finally:
        for put_back, state in states:
            put_back(state)


def _generators() -> Iterator[_Generator]:
    yield _Generator("random", random.getstate, random.setstate)
    if "numpy" in sys.modules:
        import numpy as np

        yield _Generator("np.random", np.random.get_state, np.random.set_state)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        yield _Generator("torch", torch.get_rng_state, torch.set_rng_state)
