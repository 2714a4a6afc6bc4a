"""What ``restarts=`` stands for: how often workers are replaced, where environments can be brought back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reactor_gymnasium.environments.ways import goes_again
from reactor_gymnasium.vector.arguments import checked_number
from reactor_rl import Recover

__all__ = ["replacing"]


def replacing(restarts: int, executor: str, makes: Iterable[Any] = (), unit: str = "environment") -> Recover | None:
    """What a program of environments is started with.

    Args:
        restarts: How often workers may be replaced; 0 for never.
        executor: Name of the executor; only processes can be replaced.
        makes: What makes the environments, encoded; each kind is tried once with two that are thrown away.
        unit: What each of them is called in messages.

    Raises:
        TypeError: If ``restarts`` is no integer.
        ValueError: If it is negative, there are threads, or an environment does not do the same again, or cannot be tried.
    """
    checked_number("restarts", restarts, 0)
    if not restarts or executor == "inline":
        return None
    if executor == "threads":
        raise ValueError(f"restarts={restarts}: a thread cannot be replaced; use executor='processes'")
    for number, make in enumerate(makes):
        try:
            again = goes_again(make)
        except Exception as error:
            raise ValueError(
                f"restarts={restarts}: {unit} {number} could not be brought back, for another one of its kind raised "
                f"{error!r} when it was tried: reset(seed=...), then random actions. Leave restarts out"
            ) from error
        if not again:
            raise ValueError(
                f"restarts={restarts}: {unit} {number} could not be brought back, for another one of its kind does not do the "
                "same after the same seed and actions. Have it draw from its own np_random, or leave restarts out"
            )
    return Recover(restarts=restarts)
