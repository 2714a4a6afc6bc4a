"""What does a kernel of one's own gain: the examples of docs/guide/own-kernel.md, in numpy, numba and C?

Seconds are CPU time of the calling thread, which steps all rows: other programs on the machine do not count. The cart's kernel in C
is compiled first, which needs a C compiler; numba is optional (``pip install numba``).
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from common import Contender, VectorSteps, arguments, benchmark, compared
from showing import print_table, rate_rows

EXAMPLES = Path(__file__).parents[1] / "examples" / "own_kernel"
KINDS = {"grid, numpy": ("grid", "GridEnv", 30), "cart, C": ("cart", "CartEnv", 200), "cart, numba": ("cart_numba", "CartEnv", 200)}
"""By kind of kernel: module, class of environments, and the limit of an episode."""
CASES = {f"{kind} x {rows}": (kind, rows) for kind in KINDS for rows in (8, 64, 512)}
OURS = "reactor_rl, own kernel"
FOLDER = tempfile.TemporaryDirectory()  # removed when the interpreter ends


def steps(envs: Any, who: str = "") -> Contender:
    """A vector environment and 64 batches of random actions, of which each was taken once."""
    envs.action_space.seed(0)
    contender = VectorSteps(envs, [envs.action_space.sample() for _ in range(64)], time.thread_time)
    contender.go(64)
    if who not in repr(envs):
        raise RuntimeError(f"no kernel steps: {envs!r}")
    return contender


def module_of(kind: str) -> Any:
    """The module of an example, from a copy in which the kernel is compiled."""
    folder = Path(FOLDER.name)
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    sys.path.insert(0, str(folder))
    if kind == "cart, C":
        from reactor_gymnasium import kernel_include

        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise NotImplementedError("there is no C compiler")
        flags = ["-O2", "-fPIC", "-shared", "-ffp-contract=off", f"-I{kernel_include()}"]
        subprocess.run([compiler, *flags, "cart.c", "-o", "libcart.so"], cwd=folder, check=True)
    return importlib.import_module(KINDS[kind][0])


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    from gymnasium.vector import SyncVectorEnv
    from gymnasium.wrappers import TimeLimit

    from reactor_gymnasium import ReactorVectorEnv

    kind, rows = CASES[case]
    try:
        module = module_of(kind)
    except ImportError as error:
        return {"error": f"{error}"}
    _, owner, limit = KINDS[kind]

    def make() -> Any:
        return TimeLimit(getattr(module, owner)(), limit)

    ours = partial(ReactorVectorEnv, [make] * rows, executor="inline")
    builders: dict[str, Callable[[], Contender]] = {
        OURS: lambda: steps(ours(), "stepped by the"),
        "reactor_rl, in Python": lambda: steps(ours(kernels=False)),
        "SyncVectorEnv": lambda: steps(SyncVectorEnv([make] * rows)),
    }
    return compared(builders, options, seconds=0.5).as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    if "error" in found:
        print(f"{name}: {found['error']}")
    else:
        print_table(name, ["contender", "steps", "ours is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    benchmark(__file__, arguments(__doc__).parse_args(), list(CASES), measure, show, "Kernels of one's own", "rows per CPU second")


if __name__ == "__main__":
    main()
