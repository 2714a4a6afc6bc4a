"""Run simulated runs until one is not as it should be: ``python simulated.py 300`` tries so many seeds."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "simulation"), str(Path(__file__).parents[1])]

from simulated_runs import run_seed  # noqa: E402


def main(most: int) -> int:
    for seed in range(most):
        if (error := run_seed(seed).error) is not None:
            sys.stdout.write(f"FAILED seed {seed} - {error!r}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
