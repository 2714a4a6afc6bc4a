"""How long until the first step? Construction and reset of 64 CartPoles, and what importing the plugin costs.

Each figure is taken in a fresh interpreter, ours and the rivals' in turn. The time of construction starts after the imports.
The import is the time that ``import reactor_gymnasium`` takes in an interpreter that has imported gymnasium already.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from typing import Any

from common import arguments, print_machine, rounds_of, summary, wanted, write_json
from showing import bar_plot, print_table

ENVS = 64
OURS = "ReactorVectorEnv"
CONSTRUCT = """
import time
import gymnasium
from {module} import {name} as VectorEnv
def make():
    return gymnasium.make("CartPole-v1", disable_env_checker=True)
if __name__ == "__main__":
    begin = time.perf_counter()
    envs = VectorEnv([make] * {envs}{options})
    envs.reset(seed=0)
    ready = time.perf_counter()
    envs.step(envs.action_space.sample())
    print("@@", ready - begin)
    envs.close()
"""
IMPORT = """
import gymnasium
import time
begin = time.perf_counter()
{statement}
print("@@", time.perf_counter() - begin)
"""
CONSTRUCTED: dict[str, tuple[str, str, str]] = {
    OURS: ("reactor_gymnasium", "ReactorVectorEnv", ""),
    "ReactorVectorEnv, context='fork'": ("reactor_gymnasium", "ReactorVectorEnv", ", context='fork'"),
    "ReactorVectorEnv, executor='inline'": ("reactor_gymnasium", "ReactorVectorEnv", ", executor='inline'"),
    "AsyncVectorEnv": ("gymnasium.vector", "AsyncVectorEnv", ""),
    "AsyncVectorEnv, context='forkserver'": ("gymnasium.vector", "AsyncVectorEnv", ", context='forkserver'"),
    "SyncVectorEnv": ("gymnasium.vector", "SyncVectorEnv", ""),
}
IMPORTED = {
    "import reactor_gymnasium": "import reactor_gymnasium",
    "import reactor_rl": "import reactor_rl",
    "import nothing": "pass",
}


def timed(code: str) -> float:
    """Seconds that a fresh interpreter says it took."""
    # Packages are compiled when they are installed, not whenever somebody starts.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=kept)
    for line in process.stdout.splitlines():
        if line.startswith("@@"):
            return float(line[2:])
    raise RuntimeError(process.stderr[-2000:])


def in_turn(codes: dict[str, str], rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in codes}
    for name, code in codes.items():  # once, so that files are cached and compiled
        timed(code)
        found[name].clear()
    names = list(codes)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            found[name].append(timed(codes[name]))
    return found


def construct(options: argparse.Namespace, rounds: int) -> dict[str, Any]:
    codes = {
        name: CONSTRUCT.format(module=module, name=cls, envs=ENVS, options=more)
        for name, (module, cls, more) in CONSTRUCTED.items()
        if name == OURS or wanted(name, options.rivals)
    }
    seconds = in_turn(codes, rounds)
    ratios = {
        name: summary([b / a for a, b in zip(seconds[OURS], found, strict=True)]) for name, found in seconds.items() if name != OURS
    }
    rows = [
        [name, f"{statistics.median(found) * 1e3:,.0f} ms", f"{ratios[name]['median']:.2f}x" if name in ratios else ""]
        for name, found in seconds.items()
    ]
    print_table(f"construct and reset {ENVS} CartPole-v1", ["contender", "takes", "ours is"], rows)
    return {"seconds": {name: {**summary(found), "all": found} for name, found in seconds.items()}, "ratios": ratios}


def imports(rounds: int) -> dict[str, Any]:
    seconds = in_turn({name: IMPORT.format(statement=statement) for name, statement in IMPORTED.items()}, rounds)
    rows = [[name, f"{statistics.median(found) * 1e3:.1f} ms"] for name, found in seconds.items()]
    print_table("after import gymnasium", ["statement", "takes"], rows)
    return {"seconds": {name: {**summary(found), "all": found} for name, found in seconds.items()}}


def main() -> None:
    options = arguments(__doc__).parse_args()
    rounds = rounds_of(options)
    print_machine()
    cases = {}
    if wanted("construct", options.only):
        cases["construct"] = construct(options, rounds)
    if wanted("import", options.only):
        cases["import"] = imports(rounds)
    write_json(options, "startup", cases)
    groups = {name: {one: s["median"] * 1e3 for one, s in found["seconds"].items()} for name, found in cases.items()}
    bar_plot(options.output / "startup.png", "Start-up", groups, "ms, shorter is better")


if __name__ == "__main__":
    main()
