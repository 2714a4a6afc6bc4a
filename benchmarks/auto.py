"""Is ``executor="auto"`` ever slower than one core? ReactorVectorEnv as it is made by default, against SyncVectorEnv.

Six environments, 2, 8 and 64 of each, on a machine that is quiet but for this and beside one and two hogs, which are loops that
never sleep. Everything is made with the hogs there, and then timed in many short turns. ``executor="processes"`` takes part to show
what is lost where ``auto`` stays on one core. It takes long: take it in portions with ``--only "Pong" --merge``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from busy import Hogs
from common import RESULTS, Contender, arguments, compared, run_cases
from machine import load
from recording import write_json
from showing import print_table, rate_rows
from vector_env import ENVIRONMENTS, Gymnasium, action_batches, make_env, sync_env

OURS, NAMED, RIVAL = "ReactorVectorEnv, auto", "ReactorVectorEnv, processes", "SyncVectorEnv"
SIZES, HOGS = (2, 8, 64), (0, 1, 2)
CASES = {f"{env} x {size} beside {hogs} hogs": (env, size, hogs) for env in ENVIRONMENTS for size in SIZES for hogs in HOGS}


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    from reactor_gymnasium import ReactorVectorEnv

    env_id, size, hogs = CASES[case]
    batches = action_batches(env_id, size)
    chosen: dict[str, Any] = {"load": load(0.3)}

    def ours(executor: Any) -> Contender:
        envs = ReactorVectorEnv([partial(make_env, env_id)] * size, executor=executor)
        if executor == "auto":
            chosen.update(chosen=envs.executor, said=repr(envs))
        return Gymnasium(envs, batches)

    builders: dict[str, Callable[[], Contender]] = {
        RIVAL: partial(sync_env, env_id, size, batches),
        OURS: partial(ours, "auto"),
        NAMED: partial(ours, "processes"),
    }
    with Hogs(hogs):
        figures = compared(builders, options, seconds=0.1, warm_up=0.1)
    found = figures.as_json(OURS) | chosen
    if NAMED in figures.rates:
        found["processes_over_sync"] = figures.ratio(NAMED, RIVAL)
    return found


def show(name: str, found: dict[str, Any]) -> None:
    print_table(f"{name}: {found['chosen']}", ["contender", "steps", "auto is", "min-max"], rate_rows(found, OURS))


def main() -> None:
    parser = arguments(__doc__, rounds=31)
    parser.add_argument(
        "--merge", action="store_true", help="put these cases into the file of results, beside those that are there"
    )
    options = parser.parse_args()
    path = RESULTS / "auto.json"
    cases = run_cases(__file__, options, list(CASES), measure, show=show)
    if cases is None:
        return
    if options.merge and not options.quick:
        options.output = RESULTS
        there = json.loads(path.read_text())["cases"] if path.exists() else {}
        cases = {name: (there | cases)[name] for name in CASES if name in there or name in cases}
        options.whole = len(cases) == len(CASES)
    write_json(options, "auto", cases)


if __name__ == "__main__":
    main()
