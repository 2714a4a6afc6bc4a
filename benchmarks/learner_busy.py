"""What does one minibatch update cost beside a process that never sleeps?

SB3's ``train`` with as many threads as torch takes of itself, and with one, against ours, alone and beside a hog (a loop in a
process of its own). Ours of SAC and TD3 is a trainer as its constructor leaves it, which has threads in rounds where that pays, and
beside it one on one thread; PPO's has one. SB3's threads meet at the end of every operation, and wait there for the one whose core
the hog has.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import learner
import learner_split
import torch
from busy import Hogs
from common import Contender, arguments, benchmark, compared
from learner import OURS, LearnsPPO
from showing import print_table, rate_rows

ALONE = f"{OURS}, one thread"
DEFAULT = "SB3, default threads"
THREADS = torch.get_num_threads()
"""What torch takes of itself: nobody has told it otherwise yet."""
WORK = {
    "SAC 256-256, batch 256": "SAC 17-256-256, batch 256",
    "TD3 256-256, batch 256": "TD3 17-256-256, batch 256",
    "PPO 64-64, batch 64": "PPO 4-64-64, batch 64",
}
"""The case of ``learner.py`` that each is; the first two are cases of ``learner_split.py`` as well."""
HOGS = {"alone": 0, "beside a hog": 1}


class Theirs(Contender):
    """SB3's ``train``."""

    def __init__(self, work: str, threads: int) -> None:
        self.train, self.threads = learner.Theirs(learner.CASES[WORK[work]]), threads

    def go(self, count: int) -> float:
        torch.set_num_threads(self.threads)
        try:
            return self.train.go(count)
        finally:
            torch.set_num_threads(1)


def cases() -> dict[str, tuple[str, int]]:
    """Work and hogs of each case, by its name."""
    return {f"{work}, {where}": (work, hogs) for work in WORK for where, hogs in HOGS.items()}


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    work, hogs = cases()[name]
    makers: dict[str, Callable[[], Contender]] = {}
    if work in learner_split.CASES:
        makers[OURS] = partial(learner_split.Learns, work, workers=2)
        makers[ALONE] = partial(learner_split.Learns, work, executor="inline")
    else:
        makers[OURS] = partial(LearnsPPO, learner.CASES[WORK[work]], True)
    makers |= {DEFAULT: partial(Theirs, work, THREADS), "SB3, one thread": partial(Theirs, work, 1)}
    with Hogs(hogs):
        figures = compared(makers, options, seconds=0.7)
    return figures.as_json(OURS) | {"default_threads": THREADS}


def show(name: str, found: dict[str, Any]) -> None:
    title = f"{name}; default threads: {found['default_threads']}"
    print_table(title, ["learner", "an update", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))


def main() -> None:
    options, label = arguments(__doc__, rounds=5).parse_args(), "us, shorter is better"
    title = "One minibatch update beside a process that never sleeps"
    benchmark(__file__, options, list(cases()), measure, show, title, label, bar=lambda rate: 1e6 / rate)


if __name__ == "__main__":
    main()
