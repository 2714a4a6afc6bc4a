"""The reactor that shows a snapshot of the policy at play while training goes on: in a window, in films, or in TensorBoard."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.plugin import Film
from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_sb3.acting.player import PlayConfig, Player
from reactor_sb3.replacing import replacing, sweep
from reactor_sb3.streams import Purpose

__all__ = ["Pace", "Place", "Show", "Showing", "ViewConfig", "Viewer", "show_whole"]

LONGEST = 10_000
"""Steps of a showing for which the training's end waits, at most: of some environments no episode ends. Ten times the usual limit
of MuJoCo's environments.
"""
SHARE = 0.25
"""The share of the time between two rounds in which a window may show an episode, as slowly as it really is. The worker that shows
it has an actor besides, mostly: at most a quarter of its time is taken from that. Chosen.
"""

Place = Literal["human", "tensorboard"] | Path


@dataclass(frozen=True)
class ViewConfig:
    """The configuration of a viewer.

    Attributes:
        play: What it plays, in an environment that can be seen.
        where: ``"human"``, ``"tensorboard"``, or the path that names its films.
        fps: Pictures a second.
    """

    play: PlayConfig
    where: Place
    fps: float


@dataclass(frozen=True)
class Showing:
    """One that somebody else is to show.

    Attributes:
        timesteps: Steps of training that the policy has seen.
        gif: What it has played.
    """

    timesteps: int
    gif: bytes


class Pace:
    """How many steps a window, which waits for as long as a step really takes, has time for.

    Args:
        fps: Steps a second.
    """

    def __init__(self, fps: float) -> None:
        self.step, self.shown = 1 / fps, 0.0

    def steps(self, most: int) -> int:
        """As many as there is time for, none if the last one is to be seen a little longer."""
        now = time.perf_counter()
        if now - self.shown < self.step:
            return 0
        steps = max(1, min(most, int(SHARE * (now - self.shown) / self.step)))
        self.shown = now + (steps - 1) * self.step
        return steps


class Show:
    """Showings, one after the other: a film of each, or none where the environment has a window, in which it shows itself.

    Args:
        plan: What is shown, and where. The folder of files is made, and what killed viewers have left there is removed.
        parameters: Layout of the parameters.
    """

    def __init__(self, plan: ViewConfig, parameters: npt.DTypeLike) -> None:
        self.plan, self.player = plan, Player(plan.play, Purpose.WATCHING, parameters, self.take)
        self.film: Film | None = None
        self.gifs: list[bytes] = []
        self.left = 0
        if isinstance(path := plan.where, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
            sweep(path.parent, re.escape(path.stem) + r"-\d+" + re.escape(path.suffix))

    def begin(self, timesteps: int, parameters: npt.NDArray[Any]) -> None:
        """Begin a showing of parameters that have seen so many steps."""
        self.player.begin(timesteps, parameters)
        self.left, path, fps = self.plan.play.episodes, self.plan.where, self.plan.fps
        if isinstance(path, Path):
            file = replacing(path.with_name(f"{path.stem}-{timesteps}{path.suffix}"))
            self.film = Film(file, path.suffix.lower(), fps)
        elif path == "tensorboard":
            self.film = Film(self._bytes(), ".gif", fps)

    @contextmanager
    def _bytes(self) -> Iterator[Any]:
        """A file of which the bytes are kept when the block ends."""
        with tempfile.NamedTemporaryFile(suffix=".gif") as file:
            yield file
            self.gifs.append(Path(file.name).read_bytes())

    def take(self, env: Any) -> None:
        """Film the environment as it is."""
        if self.film is not None:
            self.film.add(env.render())

    def play(self, steps: int) -> Showing | None:
        """Show so many steps; :meth:`end` if all episodes are over."""
        self.left -= len(self.player.play(steps, self.left))
        return None if self.left else self.end()

    def end(self) -> Showing | None:
        """End the showing, whole or not, if there is one. Gives what somebody else is to show."""
        film, self.film = self.film, None
        timesteps, self.player.began = self.player.began, None
        if film is not None:
            film.close()
        return Showing(timesteps, self.gifs.pop()) if timesteps is not None and self.gifs else None

    def close(self) -> None:
        """End the showing, and close the environment."""
        try:
            self.end()
        finally:
            self.player.close()


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
        self.shows: Show | None = None

    @reaction(startup)
    def build(self) -> None:
        """Make the environment."""
        self.shows = Show(self.plan, self.record)
        self.pace = Pace(self.plan.fps) if self.plan.where == "human" else None

    @reaction(timesteps, uses=(parameters, changed), effects=showing)
    def show(self) -> None:
        """A slice of a showing, or the beginning of one if it is time."""
        shows, most = self.shows, self.plan.play.steps
        assert shows is not None
        if shows.player.due() and (self.parameters.present or self.changed.present):
            shows.begin(int(self.timesteps.value), self.changed.value if self.changed.present else self.parameters.value)
        if shows.player.began is None:
            return
        steps = most if self.pace is None else self.pace.steps(most)
        if steps and (showing := shows.play(steps)) is not None:
            self.showing.set(showing)

    @reaction(shutdown)
    def close(self) -> None:
        """End the showing, and close the environment."""
        if self.shows is not None:
            shows, self.shows = self.shows, None
            shows.close()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy() if self.shows is None else {}

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
    shows = Show(plan, parameters.dtype)
    try:
        shows.begin(timesteps, parameters)
        return shows.play(LONGEST) or shows.end()
    finally:
        shows.close()
