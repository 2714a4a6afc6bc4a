"""The worked examples of ``docs/guide/own-kernel.md``, for tests, and another kernel."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from reactor_gymnasium import kernel_include, register_kernel

EXAMPLES = Path(__file__).parents[3] / "examples" / "own_kernel"
COMPILER = shutil.which("gcc") or shutil.which("cc")
NAMES = ("grid", "cart", "cart_numba")


@contextmanager
def imported(folder: Path, name: str) -> Iterator[ModuleType]:
    """An example in a folder, compiled where that has to be; forgotten afterwards."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    if name == "cart":
        flags = ["-O2", "-fPIC", "-shared", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", f"-I{kernel_include()}"]
        subprocess.run([str(COMPILER), *flags, "cart.c", "-o", "libcart.so"], cwd=folder, check=True, timeout=120)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        for one in NAMES:
            sys.modules.pop(one, None)


def missing(name: str) -> str | None:
    """Why an example cannot run here."""
    if name == "cart" and COMPILER is None:
        return "there is no C compiler"
    if name == "cart_numba" and importlib.util.find_spec("numba") is None:
        return "there is no numba"
    return None


def env_type(module: ModuleType) -> Any:
    return getattr(module, "GridEnv", None) or module.CartEnv


class Maker:
    """Makes an environment with a time limit: for worker processes by the names of its module and class."""

    def __init__(self, module: str, limit: int = 30) -> None:
        self.module, self.limit = module, limit

    def __call__(self) -> Any:
        return TimeLimit(env_type(importlib.import_module(self.module))(), self.limit)


class Board(gymnasium.Env[Any, Any]):
    """Arrays and numbers of numpy's, in state, constants and infos."""

    def __init__(self, size: int = 3) -> None:
        self.size, self.weights = size, np.arange(float(size))
        self.observation_space: Any = spaces.MultiBinary(size)
        self.action_space: Any = spaces.Discrete(size, start=1)
        self.board, self.total, self.full = np.zeros(size, np.int8), np.float64(0.0), False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.board, self.total, self.full = np.zeros(self.size, np.int8), np.float64(0.0), False
        return self.board.copy(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self.np_random.random() < 0.5:
            self.board[action - 1] = 1
        self.total = self.total + self.weights[action - 1]
        self.full = bool(self.board.all())
        info = {"board": self.board.copy(), "total": self.total, "full": self.full}
        return self.board.copy(), self.total, self.full, False, info


class FastBoard:
    state: Any = {"board": (np.int8, ("size",)), "total": np.float64, "full": bool}
    constants: Any = ("size", "weights")
    infos: Any = {"board": (np.int8, ("size",)), "total": np.float64, "full": bool}

    def __init__(self, rows: Any) -> None:
        self.rows, self.every = rows, np.arange(rows.n)

    def step(self, actions: Any) -> None:
        r = self.rows
        set_ = (r.random() < 0.5) & r.moving
        r.board[self.every[set_], actions[set_] - 1] = 1
        r.total += r.env.weights[actions - 1]
        r.full[:] = r.board.all(axis=1)
        r.rewards[:], r.terminated[:] = r.total, r.full
        for name, column in r.infos.items():
            column[...] = r.state[name]

    def reset(self, row: int, rng: np.random.Generator) -> None:
        self.rows.board[row], self.rows.total[row], self.rows.full[row] = 0, 0.0, False

    def observe(self) -> None:
        self.rows.observations[:] = self.rows.board


register_kernel(Board, FastBoard)
