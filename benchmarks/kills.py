"""Does a run whose processes are killed at random instants end as one that was left alone, and how long does that take?

Helpers with ``restarts=`` (replaced: the same hash of a trajectory, the same weights), helpers without (reported), the process that
has the helpers (they end by themselves), trainings by SB3's own algorithms with ``SaveRun`` (resumed: the same weights, optimisers,
buffers and statistics). After each case nothing may be left in shared memory. Exits 1 if anything was different.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from common import arguments, run_cases, summary, write_json

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "soak"))
from killed_runs import CASES, Outcome, helpers_replaced, helpers_reported, left_behind, parents_gone

REPLACED, REPORTED, GONE, RESUMED = "replaced", "reported", "ended", "resumed"
SOME = ("CartPole x 16", "ALE/Pong x 16", "SyncDQN", "MultiAgentRunner x 6")
NAMES = [
    *(f"{REPLACED}, {name}" for name in CASES),
    *(f"{REPORTED}, {name}" for name in SOME),
    *(f"{GONE}, {name}" for name in SOME),
    *(f"{RESUMED}, {name}" for name in ("PPO", "SAC", "DQN")),
]
KILLS = {REPLACED: 100, REPORTED: 25, GONE: 25, RESUMED: 30}


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    what, _, name = case.partition(", ")
    kills = options.kills or (2 if options.quick else KILLS[what])
    began = time.monotonic()
    found: Outcome
    match what:
        case "replaced":
            found = helpers_replaced(CASES[name], kills)
        case "reported":
            found = helpers_reported(CASES[name], kills)
        case "ended":
            found = parents_gone(name, kills)
        case _:
            from killed_trainings import trainings_killed

            found = trainings_killed(name, kills)
    return {
        "kills": found.kills,
        "runs": found.runs,
        "different": found.different,
        "twice": found.twice,
        "left": left_behind(),
        "took": round(time.monotonic() - began, 1),
        **({"seconds": summary(found.seconds)} if found.seconds else {}),
    }


def show(name: str, found: dict[str, Any]) -> None:
    seconds = found.get("seconds")
    after = f" after {seconds['median']:.2f} s, at most {seconds['max']:.2f} s" if seconds else ""
    left = f"; LEFT BEHIND: {found['left']}" if found["left"] else ""
    print(
        f"{name}: {found['kills']} kills in {found['runs']} runs{after}, {found['different']} different, struck twice in a tick "
        f"{found['twice']}, {found['took']} s{left}",
        flush=True,
    )


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=None, help="in each case, instead of the usual number")
    options = parser.parse_args()
    options.whole = options.whole and options.kills is None
    cases = run_cases(__file__, options, NAMES, measure, limit=3600.0, show=show)
    if cases is None:
        return 0
    write_json(options, "kills", cases)
    return int(any("error" in one or one["different"] or one["left"] for one in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
