"""Does it pay to place unlike environments by what they cost? Against equal shards, and against the limit.

The environments of a case stand in the order of its name, so that equal contiguous shards cost unequally (but for the last case).
The limit is the number of cores times the rate of a bare loop over all of them, which is to say: the sum of their step times over
the cores. ``Still`` always returns the same frame. Observations are raw RGB frames; with full_action_space action spaces are equal.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any
from unittest import mock

import gymnasium
import numpy as np
from common import Contender, arguments, benchmark, compared, cores
from gymnasium import spaces
from showing import print_table, rate_rows
from vector_env import BATCHES, Gymnasium

OURS = "ReactorVectorEnv"
EVEN = "ReactorVectorEnv, equal shards"
LOOP = "bare loop, one core"
CASES = {
    "2 MontezumaRevenge, 4 Pong, 6 Still": ["MontezumaRevenge"] * 2 + ["Pong"] * 4 + ["Still"] * 6,
    "4 Pong, 12 Still": ["Pong"] * 4 + ["Still"] * 12,
    "4 MontezumaRevenge, 4 Pong": ["MontezumaRevenge"] * 4 + ["Pong"] * 4,
    "8 Pong": ["Pong"] * 8,
}


class Still(gymnasium.Env[Any, Any]):
    """The spaces of a game, and nothing behind them."""

    observation_space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    action_space: Any = spaces.Discrete(18)

    def __init__(self) -> None:
        self.frame = np.zeros((210, 160, 3), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.frame, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.frame, 0.0, False, False, {}


def make_env(game: str) -> Any:
    if game == "Still":
        return Still()
    import ale_py

    gymnasium.register_envs(ale_py)
    return gymnasium.make(f"ALE/{game}-v5", full_action_space=True, disable_env_checker=True)


def functions_of(case: str) -> list[Any]:
    return [partial(make_env, game) for game in CASES[case]]


class Loop(Contender):
    """The environments, stepped one after the other, and what comes out of them forgotten."""

    def __init__(self, case: str, batches: list[Any]) -> None:
        self.envs, self.batches = [make() for make in functions_of(case)], batches
        self.over = [False] * len(self.envs)
        for index, env in enumerate(self.envs):
            env.reset(seed=index)

    def go(self, count: int) -> float:
        over = self.over
        for k in range(count):
            for index, (env, action) in enumerate(zip(self.envs, self.batches[k % BATCHES], strict=True)):
                if over[index]:
                    env.reset()
                    over[index] = False
                else:
                    _, _, terminated, truncated, _ = env.step(action)
                    over[index] = terminated or truncated
        return count * len(self.envs)

    def close(self) -> None:
        for env in self.envs:
            env.close()


class Ours(Gymnasium):
    """With equal shards it is told that nothing is known about costs; everything else is the same."""

    def __init__(self, case: str, batches: list[Any], measured: bool, seen: dict[str, Any]) -> None:
        import reactor_gymnasium.vector.vector_env as ours
        from reactor_gymnasium.placement import StepCosts

        def unknown(*_: Any) -> StepCosts:
            return StepCosts(None, "equal shards")

        with mock.patch.object(ours, "env_costs", ours.env_costs if measured else unknown):
            envs = ours.ReactorVectorEnv(functions_of(case))
        seen[OURS if measured else EVEN] = repr(envs)
        super().__init__(envs, batches)


def other(name: str, case: str, batches: list[Any]) -> Contender:
    return Gymnasium(getattr(gymnasium.vector, name)(functions_of(case)), batches)


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    space = spaces.Discrete(18, seed=0)
    batches = [np.array([space.sample() for _ in CASES[case]]) for _ in range(BATCHES)]
    seen: dict[str, Any] = {}
    figures = compared(
        {
            "AsyncVectorEnv": partial(other, "AsyncVectorEnv", case, batches),  # forks, so it comes first
            LOOP: partial(Loop, case, batches),
            "SyncVectorEnv": partial(other, "SyncVectorEnv", case, batches),
            EVEN: partial(Ours, case, batches, False, seen),
            OURS: partial(Ours, case, batches, True, seen),
        },
        options,
    )
    found = figures.as_json(OURS)
    found["chosen"] = seen
    if LOOP in figures.rates:
        found["of_limit"] = {
            name: {key: value / cores() for key, value in figures.ratio(name, LOOP).items()} for name in (OURS, EVEN)
        }
    return found


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS)
    for one, limit in found.get("of_limit", {}).items():
        rows.append([f"{one} / limit", "", f"{limit['median']:.2f}", f"{limit['min']:.2f}-{limit['max']:.2f}"])
    print_table(name, ["contender", "steps", "ours is", "min-max"], rows)
    print("\n".join(f"  {said}" for said in found["chosen"].values()))


def main() -> None:
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, "Placement")


if __name__ == "__main__":
    main()
