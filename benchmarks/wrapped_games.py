"""What does a step of Atari games in the usual wrappers cost, eight of them in a vector environment?

The wrappers are SB3's ``AtariWrapper`` around a ``Monitor``, as ``make_atari_env`` has it, or Gymnasium's ``AtariPreprocessing``
with a stack of four frames, all with their default arguments. ``emulators``: a loop that does nothing but emulate four frames for
each step and reset games that are over.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, compared
from showing import print_table, rate_rows

NUMBER = 8
OURS = "reactor_rl ReactorVectorEnv"
EMULATORS = "emulators, no pictures"


def of_sb3(game: str) -> Any:
    import ale_py
    import gymnasium
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.monitor import Monitor

    gymnasium.register_envs(ale_py)
    return AtariWrapper(Monitor(gymnasium.make(f"{game}NoFrameskip-v4")))


def of_gymnasium(game: str) -> Any:
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)
    return FrameStackObservation(AtariPreprocessing(gymnasium.make(f"ALE/{game}-v5", frameskip=1)), 4)


CASES = {
    f"8 {game}, {wrappers}": partial(make, game)
    for game in ("Pong", "Breakout")
    for wrappers, make in (("`AtariWrapper` (SB3)", of_sb3), ("`AtariPreprocessing` (Gymnasium)", of_gymnasium))
}


class Steps(Contender):
    """``step`` of a vector environment, with random actions drawn before."""

    def __init__(self, envs: Any) -> None:
        self.envs = envs
        self.actions = np.random.default_rng(0).integers(0, envs.single_action_space.n, (64, NUMBER))
        envs.reset(seed=0)

    def go(self, count: int) -> float:
        step, actions = self.envs.step, self.actions
        for number in range(count):
            step(actions[number % 64])
        return count * NUMBER

    def close(self) -> None:
        self.envs.close()


class Emulators(Contender):
    """One after the other."""

    def __init__(self, make: Callable[[], Any]) -> None:
        games = [make().unwrapped for _ in range(NUMBER)]
        self.emulators = [game.ale for game in games]
        self.actions = np.random.default_rng(0).choice(games[0]._action_set, (64, NUMBER))
        for game in games:
            game.reset(seed=0)

    def go(self, count: int) -> float:
        for number in range(count):
            for ale, action in zip(self.emulators, self.actions[number % 64], strict=True):
                for _ in range(4):
                    ale.act(action)
                if ale.game_over():
                    ale.reset_game()
        return count * NUMBER


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    from reactor_gymnasium import ReactorVectorEnv

    makes = [CASES[case]] * NUMBER
    builders: dict[str, Callable[[], Contender]] = {
        OURS: lambda: Steps(ReactorVectorEnv(makes)),
        "reactor_rl, one core": lambda: Steps(ReactorVectorEnv(makes, executor="inline")),
        "AsyncVectorEnv": lambda: Steps(AsyncVectorEnv(makes)),
        "SyncVectorEnv": lambda: Steps(SyncVectorEnv(makes)),
        EMULATORS: lambda: Emulators(CASES[case]),
    }
    return compared(builders, options, seconds=1.5).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["contender", "steps", "ours is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, "Atari games in the usual wrappers")


if __name__ == "__main__":
    main()
