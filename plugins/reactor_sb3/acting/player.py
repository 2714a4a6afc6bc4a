"""Episodes with a snapshot of the parameters, a slice of steps at a time: what is evaluated, shown, or played as a match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import Camera, EndedEpisode, StepBuffers
from reactor_rl.plugin import Pickled, aligned_zeros
from reactor_sb3.acting.behaviours import Behaviour, Rollout, Turn
from reactor_sb3.acting.normalization import Normalization
from reactor_sb3.acting.records import Observations
from reactor_sb3.environments.seeded_envs import MakeRows, SeededEnvs, single_envs
from reactor_sb3.streams import Purpose, stream, torch_generator
from reactor_torch import torch_stream

__all__ = ["PlayConfig", "Player", "remembered"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class PlayConfig:
    """The episodes to be played, and when.

    Attributes:
        make: Makes an environment; encoded.
        observations: Layout of observations.
        policy: How it is played.
        seed: Of the trainer.
        every: Rounds from the beginning of one series of episodes to that of the next one, at least.
        episodes: How many episodes a series has.
        steps: How many steps are taken at a tick, at most.
        normalization: As for the actors.
        drawn: Whether actions are drawn, as actors draw theirs, and are not the best ones.
        make_rows: As for the actors.
    """

    make: Pickled
    observations: Observations
    policy: Behaviour
    seed: int
    every: int
    episodes: int
    steps: int
    normalization: Normalization | None = None
    drawn: bool = False
    make_rows: MakeRows = single_envs


def remembered(policy: Behaviour, envs: int) -> dict[str, Array] | None:
    """State that greedy actions depend on besides observations, as episodes begin; ``None`` if there is nothing."""
    memory = policy.memory(range(envs))
    return memory if type(memory) is dict else None


class Player:
    """Plays series of episodes, each with the parameters as they were when it began.

    Args:
        plan: What is played.
        purpose: What for, which decides about the seeds of episodes.
        parameters: Layout of the parameters.
        show: Given the environment before each step, and after the last one of an episode, before the next one begins.

    Attributes:
        envs: One environment.
        began: Steps of training that the parameters of a series have seen, ``None`` between two of them.
        wait: Rounds until the next one may begin.
        snapshot: The parameters.
        memory: What the policy remembers of the episode.
        random: What actions are drawn from, or what a policy draws; ``None`` if nothing is drawn.
    """

    def __init__(
        self, plan: PlayConfig, purpose: Purpose, parameters: npt.DTypeLike, show: Callable[[Any], None] | None = None
    ) -> None:
        self.plan = plan
        self.envs = SeededEnvs((plan.make,), plan.seed, purpose, 0, plan.make_rows)
        self.envs.build()
        self.envs.watch(False)
        self.camera = None if show is None else Camera(self.envs.rows, show)
        self.snapshot: Array = aligned_zeros((), parameters)
        layout = plan.observations if plan.normalization is None else plan.normalization.originals
        self.rows = _row(plan.observations)
        self.given = self.rows if plan.normalization is None else _row(layout)
        given = {key: part[0] for key, part in self.given.items()}
        self.asked = {field.name: field.asked for field in plan.policy.fields if field.asked}
        kept = [field for field in plan.policy.fields if plan.drawn or field.asked or field.told]
        record = {one.name: np.zeros((1, 1, *one.shape), one.dtype) for one in kept}
        self.rollout = Rollout(record, self.rows, {})
        self.out = StepBuffers(layout, given, columns={one.name: record[one.name][0] for one in kept if one.told})
        self.policy = plan.policy.bind(self.snapshot, self.rollout)
        self.memory = remembered(plan.policy, 1)
        self.random = stream(plan.seed, purpose, 0) if plan.drawn or plan.policy.draws else None
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
        self.take(parameters)

    def take(self, parameters: Array) -> None:
        """Play with these parameters from now on."""
        self.snapshot[...] = parameters
        self.policy = self.plan.policy.bind(self.snapshot, self.rollout)  # which may keep weights in a form of its own

    def play(self, steps: int, episodes: int) -> list[EndedEpisode]:
        """Take a slice of steps.

        Args:
            steps: How many, at most.
            episodes: After how many ends of episodes there are no more.

        Returns:
            The episodes that ended.
        """
        plan, envs, choose = self.plan, self.envs, self._draw if self.plan.drawn else self.policy.greedy
        if self.random is not None and plan.policy.draws:
            choose = torch_stream(torch_generator(self.random))(choose)
        envs.begin_round(afresh=False)
        normalizing = None if plan.normalization is None else plan.normalization.by(self.snapshot)
        actions: list[Array] = []
        ended: list[EndedEpisode] = []
        envs.rows.show(self.out)
        envs.rows.raise_failure()
        ask = envs.asking(self.rollout, self.asked) if self.asked else None
        for _ in range(steps):
            if self.camera is not None:
                self.camera.take()
            if normalizing is not None:
                normalizing.observations(self.given, self.rows)
            if ask is not None:
                ask(0)
            actions.append(choose(0, self.memory).copy())  # the next ones may be in the same array
            for end in envs.player.step(actions[-1], self.out):
                self.memory = remembered(plan.policy, 1)
                if envs.reported(end):
                    # A Monitor's, which knows of other wrappers' changes.
                    found = end.info.get("episode", {"r": end.total, "l": end.length})
                    ended.append(end._replace(total=float(np.asarray(found["r"]).item()), length=int(found["l"])))
            if len(ended) == episodes:
                break
        envs.end_round(np.array(actions))
        return ended

    def _draw(self, step: int, memory: Any) -> Array:
        """Actions as an actor draws them."""
        assert self.random is not None
        return self.policy.begin(Turn(self.random, np.zeros(1, np.float32), memory, 0, 1))(step)

    def close(self) -> None:
        """Close the environment."""
        self.envs.rows.close()


def _row(layout: Observations) -> dict[str, Array]:
    """Memory for one observation, ``(1, 1, *shape)``, by key."""
    return {key: aligned_zeros((1, 1, *shape), dtype) for key, (shape, dtype) in layout.parts.items()}
