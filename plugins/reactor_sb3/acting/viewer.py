"""The reactor that shows a snapshot of the policy at play while training goes on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_sb3.acting.player import PlayConfig, Player
from reactor_sb3.acting.screens import Bytes, Files, Screen, Window
from reactor_sb3.streams import Purpose

__all__ = ["Showing", "Viewer", "ViewConfig", "show_whole"]

LONGEST = 10_000
"""Steps of a showing for which the training's end waits, at most: of some environments no episode ends."""


@dataclass(frozen=True)
class ViewConfig:
    """The configuration of a viewer.

    Attributes:
        play: What it plays, in an environment that can be seen.
        where: ``"human"``, ``"tensorboard"``, or the path that names its films.
    """

    play: PlayConfig
    where: Literal["human", "tensorboard"] | Path

    def screen(self) -> Screen:
        """The screen that it shows things on."""
        match self.where:
            case "human":
                return Window()
            case "tensorboard":
                return Bytes()
            case path:
                return Files(path)


@dataclass(frozen=True)
class Showing:
    """One that somebody else is to show.

    Attributes:
        timesteps: Steps of training that the policy has seen.
        gif: What it has played.
    """

    timesteps: int
    gif: bytes


class Viewer(Reactor):
    """Plays greedy episodes for somebody to see, a slice of steps at each tick, with the parameters as they were when it began.

    It gives nothing to anybody who learns. Nothing of it is saved: a run that is resumed begins a showing anew.
    """

    parameters = Input()
    changed = Input()
    """See :class:`~reactor_sb3.acting.actor.Actor`."""
    timesteps = Input()
    """Steps of training that the parameters of this tick have seen, ``()``, int64."""
    showing = Output()

    def __init__(self, plan: ViewConfig, parameters: npt.DTypeLike) -> None:
        self.plan, self.record = plan, np.dtype(parameters)
        self.player: Player | None = None

    @reaction(startup)
    def build(self) -> None:
        """Make the environment."""
        self.player = Player(self.plan.play, Purpose.WATCHING, self.record)
        self.screen = self.plan.screen()
        self.left = 0

    @reaction(timesteps, uses=(parameters, changed), effects=showing)
    def show(self) -> None:
        """A slice of a showing, or the beginning of one if it is time."""
        player, screen = self.player, self.screen
        assert player is not None
        if player.due() and (self.parameters.present or self.changed.present):
            timesteps = int(self.timesteps.value)
            player.begin(timesteps, self.changed.value if self.changed.present else self.parameters.value)
            screen.begin(timesteps)
            self.left = self.plan.play.episodes
        if player.began is None:
            return
        steps = player.look(lambda env: screen.steps(env, self.plan.play.steps))
        if not steps:
            return
        self.left -= len(player.play(steps, self.left, screen.take))
        if not self.left:
            gif = screen.end()
            if gif is not None:
                self.showing.set(Showing(player.began, gif))
            player.began = None

    @reaction(shutdown)
    def close(self) -> None:
        """End the showing, and close the environment."""
        if self.player is not None:
            player, self.player = self.player, None
            try:
                self.screen.end()
            finally:
                player.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy() if self.player is None else {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


def show_whole(plan: ViewConfig, timesteps: int, parameters: npt.NDArray[Any]) -> Showing | None:
    """A showing from its beginning to its end, here and now.

    Args:
        plan: As of a viewer.
        timesteps: Steps of training that the parameters have seen.
        parameters: Those to play with.

    Returns:
        What somebody else is to show, if anything.
    """
    screen = plan.screen()
    player = Player(plan.play, Purpose.WATCHING, parameters.dtype)
    try:
        player.begin(timesteps, parameters)
        screen.begin(timesteps)
        player.play(LONGEST, plan.play.episodes, screen.take)
        gif = screen.end()
        return None if gif is None else Showing(timesteps, gif)
    finally:
        try:
            screen.end()  # what there is of it, after an error
        finally:
            player.close()
