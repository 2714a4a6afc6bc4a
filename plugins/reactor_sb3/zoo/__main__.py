"""``python -m reactor_sb3.zoo SCRIPT ...``: a script of ``rl_zoo3`` that knows the trainers, with ``--gym-packages`` or without."""

import runpy
import sys

if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
    sys.exit(
        "usage: python -m reactor_sb3.zoo SCRIPT [ARGUMENT ...]\nSCRIPT is a module of rl_zoo3: train, enjoy, record_video, ..."
    )
runpy.run_module(f"rl_zoo3.{sys.argv.pop(1)}", run_name="__main__", alter_sys=True)
