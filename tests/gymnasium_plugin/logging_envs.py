"""Environments with side effects: each writes when it is made and when an episode ends, as recorders, loggers and monitors do."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from envs import Facts

__all__ = ["WRITERS", "Drawn", "Writer", "make"]


class Writer(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes into a folder."""

    def __init__(self, env: Any, folder: str) -> None:
        super().__init__(env)
        self.folder = Path(folder)
        self.begin()

    def begin(self) -> None:
        """Called by the constructor."""

    def end(self) -> None:
        """Called when an episode ends."""

    def step(self, action: Any) -> Any:
        results = super().step(action)
        if results[2] or results[3]:
            self.end()
        return results


class Appends(Writer):
    def begin(self) -> None:
        with open(self.folder / "log.txt", "a") as log:
            log.write("made\n")

    def end(self) -> None:
        with (self.folder / "log.txt").open("a") as log:
            log.write("ended\n")


class KeepsOpen(Writer):
    def begin(self) -> None:
        self.log = open(self.folder / "log.txt", "a", buffering=1)  # noqa: SIM115
        self.log.write("made\n")

    def end(self) -> None:
        self.log.write("ended\n")

    def close(self) -> None:
        self.log.close()
        super().close()


class Numbered(Writer):
    """A folder for each environment, with a file for each episode."""

    def begin(self) -> None:
        self.own = self.folder / f"run_{len(os.listdir(self.folder))}"
        os.makedirs(self.own)

    def end(self) -> None:
        (self.own / f"episode_{len(os.listdir(self.own))}.txt").write_text("over")


class Replaces(Writer):
    """Writes beside a file, and puts that in its place."""

    def end(self) -> None:
        beside = self.folder / "best.tmp"
        beside.write_text("better")
        os.replace(beside, self.folder / "best.txt")


class Makes(Writer):
    def begin(self) -> None:
        tempfile.mkdtemp(dir=self.folder)

    def end(self) -> None:
        os.close(tempfile.mkstemp(dir=self.folder)[0])


WRITERS = [Appends, KeepsOpen, Numbered, Replaces, Makes]


def make(kind: type[Writer], folder: str) -> Any:
    """An environment whose episodes have three steps."""
    return kind(Facts(0, 3), folder)


class Drawn(Facts):
    """Has a map that its constructor, its description and its end draw from the process's generators."""

    def __init__(self) -> None:
        super().__init__(0, 3)
        self.map = np.random.randint(1000) + random.random()

    @property
    def metadata(self) -> Any:
        random.random()
        return {"render_modes": []}

    def observe(self) -> Any:
        return super().observe() + self.map

    def close(self) -> None:
        np.random.rand()
