"""Whether an environment gives the same again: from the same seed and actions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import gymnasium

from reactor_gymnasium.placing.step_cost import drawn
from reactor_rl.plugin import canonical, generator_states, moved, new_hash

__all__ = ["difference", "global_draws"]

Env = gymnasium.Env[Any, Any]
SEED = 20_231
PARTS = ("observation", "reward", "terminated", "truncated", "info")


def global_draws(make: Callable[[], Env], steps: int) -> dict[str, tuple[str, ...]]:
    """The process's generators that an environment draws from (or seeds) when it is made, reset, and stepped.

    Raises:
        Exception: What the environment raises.
    """
    drew: dict[str, tuple[str, ...]] = {}
    before = generator_states()
    env = make()
    drew["made"] = moved(before)
    with contextlib.closing(env):
        before = generator_states()
        env.reset(seed=SEED)
        drew["reset"] = moved(before)
        stepped: set[str] = set()
        for action in islice(drawn(env.action_space), steps):
            before = generator_states()
            *_, terminated, truncated, _ = env.step(action)
            stepped.update(moved(before))
            if terminated or truncated:
                env.reset()
        drew["stepped"] = tuple(sorted(stepped))
    return drew


def difference(first: Env, second: Env, steps: int) -> str | None:
    """Step two environments that should be the same in turn, by the same actions; where they differ first, None if they do not.

    They are reset from one seed at first, and without one whenever an episode is over.

    Raises:
        Exception: What an environment raises.
    """
    action_space = first.action_space
    pairs = zip(_played(first, action_space), _played(second, action_space), strict=True)
    for number, (one, other) in enumerate(islice(pairs, steps + 1)):
        for part, a, b in zip(PARTS, one, other, strict=True):
            if a != b:
                return f"{part} of {f'step {number}' if number else 'the reset'}"
    return None


def _played(env: Env, action_space: gymnasium.Space[Any]) -> Iterator[tuple[bytes | None, ...]]:
    """Digests of what it gives: at its reset, and at every step together with the reset that comes of it."""
    observation, info = env.reset(seed=SEED)
    yield _digest(observation), None, None, None, _digest(info)
    for action in drawn(action_space):
        observation, reward, terminated, truncated, info = env.step(action)
        again = env.reset()[0] if terminated or truncated else None
        yield tuple(_digest(part) for part in ((observation, again), reward, terminated, truncated, info))


def _digest(value: Any) -> bytes | None:
    """None for what has no content that could be compared."""
    digest = new_hash()
    try:
        canonical(value, digest)
    except Exception:
        return None
    return bytes(digest.digest())
