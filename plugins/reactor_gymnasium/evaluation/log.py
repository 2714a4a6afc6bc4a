"""A log of episodes as JSON lines: written while an evaluation goes on, and read to go on with it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from reactor_gymnasium.evaluation.episodes import Played

__all__ = ["EpisodeLog", "episodes_in"]

_KEY = "evaluation"


class EpisodeLog:
    """A file that gets a line for each episode that has ended, after a line that says what is evaluated.

    Args:
        path: Of the file.
        about: What is evaluated, plain values.
        goes_on: Whether the file may be there already, with episodes of the same evaluation.

    Attributes:
        known: Episodes that the file has had.

    Raises:
        ValueError: If the file has another evaluation, or something else.
        FileNotFoundError: If its folder does not exist.
    """

    def __init__(self, path: str | Path, about: Mapping[str, Any], *, goes_on: bool) -> None:
        self.path = Path(path)
        self.known: list[Played] = []
        if goes_on and self.path.exists() and self.path.stat().st_size:
            self.known, end = episodes_in(self.path, about)
            self.file: TextIO = self.path.open("r+")
            self.file.seek(end)
            self.file.truncate()  # a line whose writer died has no end
        else:
            self.file = self.path.open("w")
        if not self.file.tell():
            self._line({_KEY: dict(about)})

    def add(self, episodes: Sequence[Played]) -> None:
        """Write episodes down."""
        for one in episodes:
            self._line(
                {
                    "episode": one.number, "return": one.total, "length": one.length, "terminated": one.terminated,
                    "infos": dict(one.infos), "digest": one.digest,
                }
            )  # fmt: skip
        if episodes:
            self.file.flush()
            os.fsync(self.file.fileno())

    def _line(self, values: Mapping[str, Any]) -> None:
        self.file.write(json.dumps(values) + "\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.file.close()


def episodes_in(path: Path, about: Mapping[str, Any]) -> tuple[list[Played], int]:
    """The episodes of a log, and where its last whole line ends.

    Args:
        path: Of the file.
        about: What is evaluated.

    Raises:
        ValueError: If it is the log of another evaluation, or no log.
    """
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    lines = data[:end].splitlines()
    if not lines:
        return [], 0
    try:
        theirs, *rest = [json.loads(line) for line in lines]
        found = theirs[_KEY]
        episodes = [
            Played(one["episode"], one["return"], one["length"], one["terminated"], one["infos"], one["digest"]) for one in rest
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a log of an evaluation: {error}") from error
    ours = json.loads(json.dumps(dict(about)))
    differing = [name for name in sorted({*ours, *found}) if ours.get(name) != found.get(name)]
    if differing:
        name = differing[0]
        raise ValueError(
            f"{path} is the log of another evaluation: its {name} is {found.get(name)!r}, here it is {ours.get(name)!r}. Pass "
            "another path, or what that one was begun with"
        )
    return episodes, end
