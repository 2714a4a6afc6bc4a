"""Runs scripts, each in a fork of one interpreter that has imported the host libraries, which take most of a short script's time.

A line on stdin is the folder that a script runs in, the file that its output goes to, and the script with its arguments, as JSON;
the answer is its exit status. Nothing of ours is imported before the fork, and no script can leave anything to the next one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import sys
import threading

HOSTS = (
    "torch._dynamo",  # what the first step of an optimiser imports
    "stable_baselines3", "gymnasium.vector", "gymnasium.envs.classic_control", "pettingzoo", "mpe2.simple_spread_v3", "ale_py",
    "matplotlib.pyplot",
)  # fmt: skip
MOST_SECONDS = 200


def main() -> None:
    for name in HOSTS:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(name)
    assert threading.active_count() == 1
    for line in sys.stdin:
        folder, output, *sys.argv = json.loads(line)
        child = os.fork()
        if not child:
            signal.alarm(MOST_SECONDS)
            os.chdir(folder)
            with open(output, "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            with open(os.devnull) as nothing:
                os.dup2(nothing.fileno(), 0)
            runpy.run_path(sys.argv[0], run_name="__main__")
            return  # and the child's interpreter ends as after any script
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()


main()
