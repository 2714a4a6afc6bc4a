"""How fast is preprocessed Atari? AtariVectorEnv against EnvPool and ale_py's AtariVectorEnv, both C++ with a thread per core.

All do the same work: frame skip 4, the larger of the last two frames, grey, 84 x 84 by area, a stack of 4, up to 30 no-ops, fire
at the start, clipped rewards, NEXT_STEP resets. Actions are drawn before anything is timed. The limit is the emulator itself: cores
x the steps per second of a bare ``ALEInterface.act`` loop that does nothing with the screen, on one core while the other is
idle; "bare act loops" is the same loop in one process per core at once, which is what the machine really gives.
"""

from __future__ import annotations

import argparse
import multiprocessing
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from common import Contender, arguments, benchmark, compared, cores
from showing import print_table, rate_rows

OURS = "reactor_rl AtariVectorEnv"
ALONE = "bare act loop, one core"
TOGETHER = "bare act loops, all cores"
GAMES = {"pong": "Pong-v5", "breakout": "Breakout-v5", "space_invaders": "SpaceInvaders-v5"}
SIZES = (8, 32)
BATCHES = 64
FRAMESKIP = 4


class Stepped(Contender):
    """A vector environment with the interface of Gymnasium's."""

    def __init__(self, venv: Any, actions: np.ndarray[Any, Any]) -> None:
        self.venv, self.actions = venv, actions
        venv.reset()

    def go(self, count: int) -> float:
        step, actions = self.venv.step, self.actions
        for k in range(count):
            step(actions[k % BATCHES])
        return count * actions.shape[1]

    def close(self) -> None:
        self.venv.close()


class Bare(Contender):
    """The emulator alone."""

    def __init__(self, game: str, actions: np.ndarray[Any, Any]) -> None:
        import ale_py
        from ale_py import roms

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self.ale = ale_py.ALEInterface()
        self.ale.setFloat("repeat_action_probability", 0.0)
        self.ale.loadROM(roms.get_rom_path(game))
        numbers = [action.value for action in self.ale.getMinimalActionSet()]
        self.actions = [numbers[i] for i in actions.ravel()]
        self.ale.reset_game()

    def go(self, count: int) -> float:
        act, game_over, reset, actions = self.ale.act, self.ale.game_over, self.ale.reset_game, self.actions
        for k in range(count):
            action = actions[k % len(actions)]
            for _ in range(FRAMESKIP):
                act(action)
            if game_over():
                reset()
        return count


def _serve(pipe: Connection, game: str, actions: np.ndarray[Any, Any]) -> None:
    bare = Bare(game, actions)
    while (count := pipe.recv()) is not None:
        pipe.send(bare.go(count))


class BareTogether(Contender):
    """The emulator alone, in a process for each core at once."""

    def __init__(self, game: str, actions: np.ndarray[Any, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.workers = []
        for _ in range(cores()):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, game, actions), daemon=True)
            process.start()
            theirs.close()
            self.workers.append((process, ours))
        self.go(1)

    def go(self, count: int) -> float:
        for _, pipe in self.workers:
            pipe.send(count)
        return sum(pipe.recv() for _, pipe in self.workers)

    def close(self) -> None:
        for process, pipe in self.workers:
            pipe.send(None)
            process.join(5)


def ours(game: str, actions: np.ndarray[Any, Any]) -> Contender:
    from reactor_gymnasium import AtariVectorEnv

    return Stepped(AtariVectorEnv(game, actions.shape[1]), actions)


def ale(game: str, actions: np.ndarray[Any, Any]) -> Contender:
    import ale_py

    return Stepped(ale_py.AtariVectorEnv(game, actions.shape[1], num_threads=cores()), actions)


def pool(game: str, actions: np.ndarray[Any, Any]) -> Contender:
    import envpool

    venv = envpool.make_gymnasium(GAMES[game], num_envs=actions.shape[1], num_threads=cores(), reward_clip=True)
    return Stepped(venv, actions.astype(np.int32))


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    import ale_py

    game, _, size = case.partition(" x ")
    space = ale_py.AtariVectorEnv(game, 1).single_action_space
    actions = np.random.default_rng(0).integers(0, space.n, (BATCHES, int(size)))
    kinds: dict[str, Callable[..., Contender]] = {
        OURS: ours, "ale_py AtariVectorEnv (C++)": ale, "EnvPool (C++)": pool, ALONE: Bare, TOGETHER: BareTogether
    }  # fmt: skip
    figures = compared({name: partial(kind, game, actions) for name, kind in kinds.items()}, options)
    found = figures.as_json(OURS)
    if ALONE in figures.rates:
        found["of_limit"] = {key: value / cores() for key, value in figures.ratio(OURS, ALONE).items()}
    return found


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS)
    if "of_limit" in found:
        limit = found["of_limit"]
        rows.append([f"ours / ({cores()} x bare act loop)", "", f"{limit['median']:.2f}", f"{limit['min']:.2f}-{limit['max']:.2f}"])
    print_table(name, ["contender", "steps", "ours is", "min-max"], rows)


def main() -> None:
    names = [f"{game} x {size}" for game in GAMES for size in SIZES]
    benchmark(__file__, arguments(__doc__, rounds=11).parse_args(), names, measure, show, "Preprocessed Atari")


if __name__ == "__main__":
    main()
