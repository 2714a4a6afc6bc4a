"""Costs of a round: seconds of an actor's part and of the learner's, taken on throw-away copies of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from reactor_gymnasium.plugin import no_traces
from reactor_rl import Program
from reactor_rl.plugin import global_random_state
from reactor_sb3.acting.actor import Actor
from reactor_sb3.environments.copies import without_logs
from reactor_sb3.trainers.learner import throw_away_update
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.program import ProgramConfig
from reactor_torch import Team

__all__ = ["LearnerCost", "actor_cost", "learner_cost", "lone_actor"]

ROUNDS, SECONDS = 3, 0.2
"""Rounds that are timed at most, of which the shortest counts, and seconds after which there is no further one: a user waits for
this at the start of a training.
"""
PROBE = 4
"""Steps by which it is found out whether whole rounds are short enough to be timed. More than one, as the first has what is done
once.
"""


@contextlib.contextmanager
def lone_actor(config: ProgramConfig, steps: int) -> Iterator[Callable[[], Any]]:
    """A throw-away actor: gives a function that lets it sample a round of so many steps, and returns what it has noted.

    Episodes begin with the first one.
    """
    record, actor_config = config.parameters, replace(config.actors, steps=steps)
    program = Program("throw-away actor")
    actor = program.add(Actor, actor_config, 0, name="actor")
    program.connect(program.input("parameters", (), record.dtype), actor.parameters)
    program.connect(program.input("changed", (), record.dtype), actor.changed)
    program.connect(program.input("exploration", (steps,), np.float32), actor.exploration)
    program.connect(program.input("orders", (2,), np.bool_), actor.orders)
    program.connect(actor.transitions, program.output("transitions"))
    rates, orders = np.zeros(steps, np.float32), np.zeros(2, np.bool_)
    with no_traces(), without_logs(), program.start(executor="inline", fingerprint="off") as run:

        def sample() -> Any:
            run.set(parameters=record, exploration=rates, orders=orders)
            run.tick()
            return run.transitions

        yield sample


def actor_cost(config: ProgramConfig) -> float:
    """Seconds of a round of an actor whose episodes have begun: the shortest of up to three.

    Rounds that would take more than 0.2 s are reckoned from a few steps. The process's global random generators are put back
    afterwards.
    """
    steps = config.actors.steps
    few = min(PROBE, steps)
    with no_traces():
        cost = _shortest(config, few) * steps / few
        return cost if few == steps or cost > SECONDS else _shortest(config, steps)


def _shortest(config: ProgramConfig, steps: int) -> float:
    taken: list[float] = []
    with lone_actor(config, steps) as sample:
        longer = config.actors.longer(sample())
        while len(taken) < ROUNDS and sum(taken) < SECONDS:
            begin = time.perf_counter()
            sample()
            taken.append(time.perf_counter() - begin)
    return min(taken) * longer


class LearnerCost(NamedTuple):
    """The learner's part of a round.

    Attributes:
        alone: Seconds of it on one thread.
        helped: Seconds with the threads that may help, or alone if that is less.
        updates: How many it has.
    """

    alone: float
    helped: float
    updates: int


def learner_cost(learning: Model, threads: int) -> LearnerCost:
    """Time a few updates of a throw-away copy of the networks; the shortest counts.

    Args:
        learning: The trainer.
        threads: How many threads may compute dense layers and convolutions.
    """
    best = {}
    with global_random_state(), learning.limited_threads():
        update, count = throw_away_update(learning), learning.updates_due()
        for number in sorted({1, threads}):
            with contextlib.closing(Team(number)) as team:
                best[number] = min(_seconds(update, team) for _ in range(1 + ROUNDS))
    return LearnerCost(best[1] * count, min(best.values()) * count, count)


def _seconds(update: Callable[[], object], team: Team) -> float:
    begin = time.perf_counter()
    with team:
        update()
    return time.perf_counter() - begin
