"""Does a run whose processes are killed at random instants end as one that was left alone, and how long does that take?

Helpers with ``restarts=`` (replaced: the same hash of a trajectory, the same weights), helpers without (reported), the process that
has the helpers (they end by themselves), trainings by SB3's own algorithms with ``SaveRun`` (resumed: the same weights, optimisers,
buffers and statistics). After each case nothing may be left in shared memory. Exits 1 if anything was different.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from common import ENDS, arguments, print_machine, summary, wanted, write_json

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
    began, ends = time.monotonic(), float(os.environ.get(ENDS, "inf"))
    found: Outcome
    match what:
        case "replaced":
            found = helpers_replaced(CASES[name], kills, ends=ends)
        case "reported":
            found = helpers_reported(CASES[name], kills, ends=ends)
        case "ended":
            found = parents_gone(name, kills, ends=ends)
        case _:
            from killed_trainings import trainings_killed

            found = trainings_killed(name, kills, ends=ends)
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


def taken(case: str, share: float) -> dict[str, Any]:
    """Take a case in an interpreter of its own, which begins nothing more after its share of the time."""
    command = [sys.executable, "-W", "ignore", __file__, *sys.argv[1:], "--case", case]
    environment = {**os.environ, ENDS: str(time.time() + share)}
    said = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    lines = [line for line in said.stdout.splitlines() if line.startswith("@@")]
    if said.returncode or not lines:
        print(f"{case}: exit status {said.returncode}\n{said.stderr}", flush=True)
        return {"error": f"exit status {said.returncode}"}
    found: dict[str, Any] = json.loads(lines[-1][2:])
    show(case, found)
    return found


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--kills", type=int, default=None, help="in each case, instead of the usual number")
    parser.add_argument("--jobs", type=int, default=1, help="cases at the same time: results do not depend on it, seconds do")
    options = parser.parse_args()
    options.whole = options.whole and options.kills is None
    if options.case is not None:
        print("\n@@" + json.dumps(measure(options.case, options)))
        return 0
    print_machine()
    names = [name for name in NAMES if wanted(name, options.only)]
    share = float("inf") if options.budget is None else options.budget * options.jobs / len(names)
    with ThreadPoolExecutor(options.jobs) as pool:
        cases = dict(zip(names, pool.map(lambda name: taken(name, share), names), strict=True))
    write_json(options, "kills", cases, jobs=options.jobs)
    return int(any("error" in one or one["different"] or one["left"] for one in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
