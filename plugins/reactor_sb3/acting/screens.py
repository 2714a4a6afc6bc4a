"""Where a viewer shows what it plays: in a window, in files, or in bytes that somebody else shows."""

from __future__ import annotations

import contextlib
import re
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from reactor_gymnasium.plugin import Film
from reactor_sb3.replacing import replacing, sweep

__all__ = ["Bytes", "Files", "Screen", "Window"]

USUAL_FPS = 30.0
SHARE = 0.25
"""The share of the time between two rounds in which a window may show an episode, as slowly as it really is."""


def _fps(env: Any) -> float:
    return float(env.metadata.get("render_fps") or USUAL_FPS)


class Screen:
    """A screen for a viewer."""

    def begin(self, timesteps: int) -> None:
        """Begin a showing of parameters that have seen so many steps."""

    def steps(self, env: Any, most: int) -> int:
        """How many steps are to be shown at this tick."""
        return most

    def take(self, env: Any) -> None:
        """Show the environment as it is."""

    def end(self) -> bytes | None:
        """End the showing, whole or not, if there is one. Gives what somebody else is to show."""
        return None


class Window(Screen):
    """The environment's own: it shows itself at each step, and waits for as long as the step really takes."""

    def __init__(self) -> None:
        self.shown = 0.0

    def steps(self, env: Any, most: int) -> int:
        """As many as there is time for, none if the last one is to be seen a little longer."""
        now, pace = time.perf_counter(), 1 / _fps(env)
        if now - self.shown < pace:
            return 0
        steps = max(1, min(most, int(SHARE * (now - self.shown) / pace)))
        self.shown = now + (steps - 1) * pace
        return steps


class Films(Screen, ABC):
    """A film for each showing.

    Args:
        suffix: What it is, see :class:`~reactor_gymnasium.film.Film`.
    """

    def __init__(self, suffix: str) -> None:
        self.suffix, self.timesteps = suffix, 0
        self.film: Film | None = None
        self.writing = contextlib.ExitStack()

    def begin(self, timesteps: int) -> None:
        self.timesteps = timesteps

    def take(self, env: Any) -> None:
        picture = env.render()
        try:
            if self.film is None:
                self.file = self.writing.enter_context(self.new_file())
                self.film = Film(self.file.name, self.suffix, _fps(env))
            self.film.add(picture)
        except Exception as error:  # nothing is left of a film that cannot be written
            self.film = None
            with contextlib.suppress(Exception):
                self.writing.__exit__(type(error), error, error.__traceback__)
            raise

    def end(self) -> bytes | None:
        film, self.film = self.film, None
        if film is None:
            return None
        with self.writing:
            film.close()
            return self.written()

    @abstractmethod
    def new_file(self) -> AbstractContextManager[Any]:
        """The file that a film is written to, for as long as it is written."""

    def written(self) -> bytes | None:
        """The part of a whole film that somebody else is to show."""
        return None


class Bytes(Films):
    """GIFs that somebody else shows."""

    def __init__(self) -> None:
        super().__init__(".gif")

    def new_file(self) -> AbstractContextManager[Any]:
        return tempfile.NamedTemporaryFile(suffix=self.suffix)

    def written(self) -> bytes:
        return Path(self.file.name).read_bytes()


class Files(Films):
    """Files: ``run-12800.mp4`` where it is to be ``run.mp4``. Each has its name when it is complete.

    Args:
        path: What the user has named. Its folder is made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path.suffix.lower())
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep(path.parent, re.escape(path.stem) + r"-\d+" + re.escape(path.suffix))

    def new_file(self) -> AbstractContextManager[Any]:
        return replacing(self.path.with_name(f"{self.path.stem}-{self.timesteps}{self.path.suffix}"))
