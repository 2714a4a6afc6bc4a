"""Where a viewer shows what it plays: in a window, in files, or in bytes that somebody else shows."""

from __future__ import annotations

import contextlib
import io
import re
import time
from pathlib import Path
from typing import Any, Protocol

from reactor_sb3.acting.film import Film
from reactor_sb3.replacing import replacing, sweep

__all__ = ["Bytes", "Files", "Screen", "Window"]

USUAL_FPS = 30.0
SHARE = 0.25
"""Of the time between two rounds, how much a window may show of an episode: it does so as slowly as it really is."""


def _fps(env: Any) -> float:
    return float(env.metadata.get("render_fps") or USUAL_FPS)


class Screen(Protocol):
    """What a viewer shows things on."""

    def begin(self, timesteps: int) -> None:
        """Begin a showing of parameters that have seen so many steps."""

    def steps(self, env: Any, most: int) -> int:
        """How many steps are to be shown at this tick."""

    def take(self, env: Any) -> None:
        """Show the environment as it is."""

    def end(self) -> bytes | None:
        """End the showing, whole or not, if there is one. Gives what somebody else is to show."""


class Window:
    """The environment's own: it shows itself at each step, and waits for as long as the step really takes."""

    def __init__(self) -> None:
        self.shown = 0.0

    def begin(self, timesteps: int) -> None:
        """See :class:`Screen`."""

    def steps(self, env: Any, most: int) -> int:
        """As many as there is time for, none if the last one is to be seen a little longer."""
        now, pace = time.perf_counter(), 1 / _fps(env)
        if now - self.shown < pace:
            return 0
        steps = max(1, min(most, int(SHARE * (now - self.shown) / pace)))
        self.shown = now + (steps - 1) * pace
        return steps

    def take(self, env: Any) -> None:
        """See :class:`Screen`."""

    def end(self) -> None:
        """See :class:`Screen`."""


class Bytes:
    """A GIF in memory."""

    def __init__(self) -> None:
        self.film: Film | None = None

    def begin(self, timesteps: int) -> None:
        """See :class:`Screen`."""
        self.film, self.file = None, io.BytesIO()

    def steps(self, env: Any, most: int) -> int:
        """See :class:`Screen`."""
        return most

    def take(self, env: Any) -> None:
        """See :class:`Screen`."""
        if self.film is None:
            self.film = Film(self.file, ".gif", _fps(env))
        self.film.add(env.render())

    def end(self) -> bytes | None:
        """See :class:`Screen`."""
        film, self.film = self.film, None
        if film is None:
            return None
        film.close()
        return self.file.getvalue()


class Files:
    """A film for each showing: ``run-12800.mp4`` where it is to be ``run.mp4``. It has its name when it is complete.

    Args:
        path: What the user has named.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.film: Film | None = None
        self.writing = contextlib.ExitStack()
        sweep(path.parent, re.escape(path.stem) + r"-\d+" + re.escape(path.suffix))

    def begin(self, timesteps: int) -> None:
        """See :class:`Screen`."""
        self.target = self.path.with_name(f"{self.path.stem}-{timesteps}{self.path.suffix}")

    def steps(self, env: Any, most: int) -> int:
        """See :class:`Screen`."""
        return most

    def take(self, env: Any) -> None:
        """See :class:`Screen`."""
        picture = env.render()
        try:
            if self.film is None:
                self.film = Film(self.writing.enter_context(replacing(self.target)), self.path.suffix.lower(), _fps(env))
            self.film.add(picture)
        except Exception as error:
            self._abandon(error)
            raise

    def end(self) -> None:
        """See :class:`Screen`."""
        film, self.film = self.film, None
        if film is not None:
            with self.writing:
                film.close()

    def _abandon(self, error: Exception) -> None:
        """Leave nothing of a film that cannot be written."""
        self.film = None
        with contextlib.suppress(Exception):
            self.writing.__exit__(type(error), error, error.__traceback__)
