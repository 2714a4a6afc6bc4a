"""The worked examples of ``docs/guide/own-kernel.md``, for tests."""

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

from gymnasium.wrappers import TimeLimit

from reactor_gymnasium import kernel_include

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
