"""Greedy episodes with a snapshot of the parameters, a slice of steps at a time: what is evaluated, and what is shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import as_number, own
from reactor_rl.plugin import Pickled, aligned_zeros
from reactor_sb3.acting.normalization import Normalization
from reactor_sb3.acting.policy import Policy, Rollout
from reactor_sb3.acting.records import Observations
from reactor_sb3.environments.kept_env import KeptEnv
from reactor_sb3.streams import Purpose

__all__ = ["Episode", "PlayPlan", "Player"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PlayPlan:
    """What is played, and when.

    Attributes:
        make: Makes an environment; encoded.
        observations: Layout of observations.
        policy: How it is played.
        seed: Of the trainer.
        every: Rounds from the beginning of one series of episodes to that of the next one, at least.
        episodes: How many episodes a series has.
        steps: How many steps are taken at a tick, at most.
        normalization: As for the actors.
    """

    make: Pickled
    observations: Observations
    policy: Policy
    seed: int
    every: int
    episodes: int
    steps: int
    normalization: Normalization | None = None


class Episode(NamedTuple):
    """One that has ended."""

    total: float
    length: int


class Player:
    """Plays series of greedy episodes, each with the parameters as they were when it began.

    Args:
        plan: What is played.
        purpose: What for, which decides about the seeds of episodes.
        parameters: Layout of the parameters.

    Attributes:
        env: The environment.
        began: Steps of training that the parameters of a series have seen, ``None`` between two of them.
        wait: Rounds until the next one may begin.
        snapshot: The parameters.
    """

    def __init__(self, plan: PlayPlan, purpose: Purpose, parameters: npt.DTypeLike) -> None:
        self.plan = plan
        self.env = KeptEnv(plan.make, plan.seed, purpose, 0)
        self.snapshot: Array = aligned_zeros((), parameters)
        self.given = self.rows = _row(plan.observations)
        if plan.normalization is not None:
            self.given = _row(plan.normalization.originals)
        self.put = (plan.observations if plan.normalization is None else plan.normalization.originals).writer(self.given)
        self.policy = plan.policy.bind(self.snapshot, Rollout({}, self.rows, {}))
        self.began: int | None = None
        self.wait = 0

    def due(self) -> bool:
        """Count a round. Returns whether a series is to begin with it."""
        self.wait -= 1
        return self.began is None and self.wait <= 0

    def begin(self, timesteps: int, parameters: Array) -> None:
        """Begin a series.

        Args:
            timesteps: Steps of training that the parameters have seen.
            parameters: Those to play with.
        """
        self.began, self.wait = timesteps, self.plan.every
        self.snapshot[...] = parameters

    def play(self, steps: int, episodes: int) -> Iterator[Episode | None]:
        """Take a slice of steps, to be gone through to its end.

        Args:
            steps: How many, at most.
            episodes: After how many ends of episodes there are no more.

        Yields:
            ``None`` before each step; after the last one of an episode, before the next one begins, what it came to.
        """
        plan, env, greedy = self.plan, self.env, self.policy.greedy
        env.begin_round(afresh=False)
        normalizing = None if plan.normalization is None else plan.normalization.by(self.snapshot)
        actions: list[Any] = []
        for step in range(steps):
            yield None
            self.put(0, env.observation)
            if normalizing is not None:
                normalizing.observations(self.given, self.rows)
            action = greedy(0, None)[0]
            actions.append(action)
            observation, reward, terminated, truncated, info = env.inner.step(action.copy())
            env.length += 1
            env.total += as_number(reward)
            if terminated or truncated or env.length >= env.limit:
                found = info.get(
                    "episode", {"r": env.total, "l": env.length}
                )  # a Monitor's, which knows of other wrappers' changes
                yield Episode(float(np.asarray(found["r"]).item()), int(found["l"]))
                env.reset(step + 1)
                episodes -= 1
                if not episodes:
                    break
            else:
                env.observation = own(observation)
        env.end_round(np.array(actions))

    def close(self) -> None:
        """Close the environment."""
        self.env.env.close()


def _row(layout: Observations) -> dict[str, Array]:
    """Memory for one observation, ``(1, 1, *shape)``, by key."""
    return {key: aligned_zeros((1, 1, *shape), dtype) for key, (shape, dtype) in layout.parts.items()}
