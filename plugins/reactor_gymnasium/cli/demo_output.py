"""What the demo prints."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Self

from tqdm import tqdm

from reactor_gymnasium.cli.rollout import Rollout

__all__ = ["Progress", "Timed", "print_fingerprints", "print_lines", "print_table"]


EVERY = 5.0
"""Seconds after which somebody who sees no progress bar is told how far it is."""


@dataclass
class Timed:
    """Steps per second of each vector environment, by round, and what ours has chosen to run on."""

    speeds: dict[str, list[float]]
    chosen: str


class Progress:
    """A progress bar, or where there is no terminal for one, a line every five seconds.

    Args:
        total: How many runs there will be.
    """

    def __init__(self, total: int) -> None:
        self._bar = tqdm(total=total, unit="run", leave=False, disable=None)
        self._total, self._done, self._doing, self._said = total, 0, "", time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def begin(self, what: str) -> None:
        """Say what is done next."""
        self._doing = what
        self._bar.set_description(what)
        self._say()

    def update(self) -> None:
        """A run is over."""
        self._done += 1
        self._bar.update()
        self._say()

    def _say(self) -> None:
        if self._bar.disable and time.monotonic() - self._said >= EVERY:
            self._said = time.monotonic()
            print_lines(f"{self._done} of {self._total} runs: {self._doing}")


def print_lines(*lines: str) -> None:
    """Print some lines, at once also where nobody sits before a terminal."""
    for line in lines:
        print(line, flush=True)


def print_table(job: Rollout, timed: Timed) -> None:
    """Print steps per second, lowest and highest, how many times as fast ReactorVectorEnv is, and what it runs on."""
    ours = timed.speeds["ReactorVectorEnv"]
    print_lines(f"\n{job.num_envs} x {job.id:<22} steps/s   {'lowest to highest':<22}  ReactorVectorEnv is")
    for name, speeds in timed.speeds.items():
        ratio = statistics.median(mine / its for mine, its in zip(ours, speeds, strict=True))
        said = "" if name == "ReactorVectorEnv" else f"{ratio:8.2f} x as fast"
        between = f"{min(speeds):,.0f} to {max(speeds):,.0f}"
        print_lines(f"  {name:<22} {statistics.median(speeds):>12,.0f}   {between:<22}  {said}".rstrip())
    print_lines(f"  ReactorVectorEnv has chosen {timed.chosen}")


def print_fingerprints(job: Rollout, fingerprints: dict[int, str]) -> bool:
    """Print one fingerprint per number of workers. Returns whether they are the same."""
    print_lines(f"\n{job.num_envs} x {job.id}: fingerprint of 100 steps")
    for workers, fingerprint in fingerprints.items():
        print_lines(f"  {workers} worker(s)  {fingerprint}")
    same = len(set(fingerprints.values())) == 1
    print_lines("  all the same" if same else "  THEY DIFFER")
    return same
