"""Environments that go on when the test says so: through files, because they may live in other processes."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

from envs import Facts

TIMEOUT = 0.01
"""What tests pass as ``timeout`` to a call that must not be over by then."""


def until(*paths: Path) -> None:
    """Wait until one of some files exists.

    Raises:
        TimeoutError: If nobody makes one: who should have is waiting itself.
    """
    end = time.monotonic() + 30
    while not any(path.exists() for path in paths):
        if time.monotonic() > end:
            raise TimeoutError(f"nobody made {paths[0].name}")
        time.sleep(0.0005)


class Gated(Facts):
    """Says when a step begins, and ends it once its gate is open; in the calling thread, which would open it, after ``TIMEOUT``.

    The first reset is not gated. Steps and resets are numbered from 0.
    """

    def __init__(self, index: int, folder: Path, caller: int) -> None:
        super().__init__(index, length=1000)
        self.folder, self.caller = folder, caller

    def pass_gate(self, name: str) -> None:
        (self.folder / f"{self.index}.{name}.began").touch()
        if os.getpid() == self.caller and threading.current_thread() is threading.main_thread():
            time.sleep(3 * TIMEOUT)
        else:
            until(self.folder / f"{self.index}.{name}.open", self.folder / "all.open")

    def step(self, action: Any) -> Any:
        self.pass_gate(f"step-{self.total}")
        return super().step(action)

    def reset(self, **kwargs: Any) -> Any:
        if self.resets:
            self.pass_gate(f"reset-{self.resets}")
        return super().reset(**kwargs)


class Gates:
    """What the test does with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def makers(self, n: int) -> list[Any]:
        """Functions that make ``n`` environments."""
        return [partial(Gated, index, self.folder, os.getpid()) for index in range(n)]

    def begun(self, index: int, name: str) -> None:
        """Wait until an environment is in a step."""
        until(self.folder / f"{index}.{name}.began")

    def count(self) -> int:
        """How many steps have begun."""
        return len(list(self.folder.glob("*.began")))

    def open(self, *indices: int, name: str) -> None:
        """Let some environments end a step."""
        for index in indices:
            (self.folder / f"{index}.{name}.open").touch()

    def open_all(self) -> None:
        """Let everything end from now on."""
        (self.folder / "all.open").touch()
