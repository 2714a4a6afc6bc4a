"""Where the time of an environment's steps goes: the environment itself, the wrappers around it, its infos, its resets."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.infos import decode_infos, encode_infos, info_adder, info_columns, merge_infos
from reactor_gymnasium.placement import makespan, place, random_actions
from reactor_rl.plugin import dumps, global_random_state, loads

__all__ = ["WARM", "StepProfile", "profile"]

SECONDS, STEPS, FEWEST = 0.6, 2000, 10
"""No step is begun after so many seconds, if there are ``FEWEST``, nor after so many steps. Chosen: somebody waits in front of a
terminal, and medians of hundreds of steps do not move any more.
"""
WARM = 3
"""Steps that are not timed: standard wrappers look at the first one more closely."""
INFOS = 16
"""Infos that are put together as those of one step of a vector environment; their cost for each info is what is told."""
ROUNDS = 200
"""Steps of a vector environment that are put together from steps that were timed. With so many the mean of the longest share is
known to a percent or so, unless steps differ by orders of magnitude.
"""
SIMULATING = ("mj_step", "mj_step1", "mj_step2")
"""MuJoCo's functions that simulate."""

_clock = time.perf_counter


@dataclass(frozen=True)
class StepProfile:
    """Times of steps, in seconds; every other step with a watch on the environment inside of all wrappers, or on MuJoCo.

    Attributes:
        steps: Of each step that was not watched, the time that it took, wrappers included.
        inside: Of each step of which the environment was, the time that it spent there; empty if that cannot be watched.
        resets: Of each reset, the time that it took.
        episodes: How many episodes have ended; if none has, the one reset is one that nothing called for.
        info: Mean time that it takes to bring the infos of a step, if it has any, to the caller of a vector environment.
        simulation: Of each step of which MuJoCo was, the time that it spent in ``mj_step``; empty where MuJoCo is not imported.
    """

    steps: npt.NDArray[np.float64]
    inside: npt.NDArray[np.float64]
    resets: npt.NDArray[np.float64]
    episodes: int
    info: float
    simulation: npt.NDArray[np.float64] = field(default_factory=lambda: np.array([]))

    @property
    def simulated(self) -> float | None:
        """The share of a median step that MuJoCo simulates; ``None`` if it does not."""
        return min(1.0, float(np.median(self.simulation)) / float(np.median(self.steps))) if np.any(self.simulation) else None

    @property
    def wrappers(self) -> float | None:
        """The share of a median step that wrappers take."""
        if not len(self.inside):
            return None
        return max(0.0, 1.0 - float(np.median(self.inside)) / float(np.median(self.steps)))

    @property
    def infos(self) -> float:
        """The share of a step's time, on the way to the caller, that is spent on infos."""
        return self.info / (float(np.mean(self.steps)) + self.info)

    @property
    def every(self) -> float:
        """Steps between two resets."""
        return (len(self.steps) + len(self.inside) + len(self.simulation)) / max(self.episodes, 1)

    @property
    def reset(self) -> float:
        """The share of all the time that resets take; 0 if no episode has ended."""
        of_resets = float(np.mean(self.resets))
        return of_resets / (of_resets + self.every * float(np.mean(self.steps))) if self.episodes else 0.0

    def speed_up(self, num_envs: int, workers: int, helper_cost: float) -> float:
        """How many times as fast several workers are expected to be as one.

        Each step of the vector environment is put together from steps and resets that were timed, drawn at random, so that
        steps in which a few environments reset while the others wait are among them.

        Args:
            num_envs: How many environments there are.
            workers: How many workers, the caller included.
            helper_cost: Seconds that helpers cost in a step; see :func:`reactor_rl.plugin.tick_cost`.
        """
        of_steps = np.repeat(self.steps, 2)  # for those that were watched
        took = np.concatenate([of_steps, self.resets]) if self.episodes else of_steps
        steps = np.random.default_rng(0).choice(took, (ROUNDS, num_envs))
        alone, shared = (
            statistics.mean(
                makespan([one._replace(cost=float(row[one.lo : one.hi].sum())) for one in place(None, 0, num_envs, count)])
                for row in steps
            )
            for count in (1, workers)
        )
        return alone / (shared + (helper_cost if workers > 1 else 0.0))


def profile(env: gymnasium.Env[Any, Any]) -> StepProfile:
    """Time random steps of an environment that is thrown away afterwards. Global random generators are put back.

    Raises:
        Exception: What the environment raises.
    """
    steps: list[float] = []
    inside: list[float] = []
    simulation: list[float] = []
    resets: list[float] = []
    infos: list[dict[str, Any]] = []
    episodes = 0
    sample = random_actions(env.action_space).__next__
    with global_random_state():
        env.reset(seed=0)
        for _ in range(WARM):
            *_, terminated, truncated, _ = env.step(sample())
            if terminated or truncated:
                env.reset()
        until = _clock() + SECONDS
        for number in range(STEPS):
            action = sample()
            if number % 2:
                physics = number % 4 == 3 and "mujoco" in sys.modules
                with _simulating() if physics else _watched(env.unwrapped, "step") as spent:
                    *_, terminated, truncated, info = env.step(action)
                if physics:
                    simulation.append(sum(spent))
                else:
                    inside += spent
            else:
                begin = _clock()
                *_, terminated, truncated, info = env.step(action)
                steps.append(_clock() - begin)
            infos.append(info)
            if terminated or truncated:
                episodes += 1
                resets.append(_reset(env))
            if number + 1 >= FEWEST and _clock() > until:
                break
        if not resets:
            resets.append(_reset(env))
    return StepProfile(np.array(steps), np.array(inside), np.array(resets), episodes, _info_cost(infos), np.array(simulation))


def _reset(env: gymnasium.Env[Any, Any]) -> float:
    begin = _clock()
    env.reset()
    return _clock() - begin


@contextmanager
def _watched(thing: Any, name: str) -> Iterator[list[float]]:
    """Time that calls of an object's or module's function take within the block, as one number; nothing where it takes no watch."""
    function, own, spent, seen = getattr(thing, name), vars(thing).get(name), 0.0, list[float]()

    def watched(*args: Any, **kwargs: Any) -> Any:
        nonlocal spent
        begin = _clock()
        try:
            return function(*args, **kwargs)
        finally:
            spent += _clock() - begin

    try:
        setattr(thing, name, watched)
    except AttributeError:
        yield seen
        return
    try:
        yield seen
    finally:
        if own is None:
            delattr(thing, name)
        else:
            setattr(thing, name, own)
    seen.append(spent)


@contextmanager
def _simulating() -> Iterator[list[float]]:
    """Time that MuJoCo simulates within the block, a number for each of its functions that simulate."""
    seen = list[float]()
    with ExitStack() as watches:
        spent = [watches.enter_context(_watched(sys.modules["mujoco"], name)) for name in SIMULATING]
        yield seen
    seen += [seconds for of_one in spent for seconds in of_one]


def _info_cost(infos: list[dict[str, Any]]) -> float:
    """Mean seconds of taking infos apart, pickling them, and putting them together again, for each of these."""
    took = []
    for first in range(0, len(infos), INFOS):
        some = {row: info for row, info in enumerate(infos[first : first + INFOS]) if info}
        begin = _clock()
        if some:
            merge_infos([decode_infos(loads(dumps(encode_infos(info_columns(0, {}, some)))))], info_adder(INFOS))
        took.append(_clock() - begin if some else 0.0)
    return statistics.median(took) / INFOS if took else 0.0
