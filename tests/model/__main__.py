"""How many states does the protocol have, with everything that may go wrong, and is what real runs do among them?

``python -m tests.model`` searches all programs and faults, the broken protocols, and follows recorded runs; it writes
``benchmarks/results/model.json`` and prints the tables, in about ten minutes of one core. With ``--merge`` what the file has is not
done again, so that it can be taken in pieces: ``--only``, or ``--budget`` seconds. Exits 1 if the protocol has a problem, a mistake
is not found, or a run is refused.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benchmarks")]

from common import RESULTS, arguments, wanted  # noqa: E402
from recording import print_machine, write_json  # noqa: E402
from showing import print_table  # noqa: E402

from .nodes import BROKEN_NODES, NODE_FAULTS, NODE_PROGRAMS, NodeModel, node_scenarios  # noqa: E402
from .programs import BROKEN, FAULTS, PROGRAMS, scenarios  # noqa: E402
from .recorded import tally  # noqa: E402
from .search import Found, check, search  # noqa: E402

MOST = 6_000_000
"""States of one scenario at which a search gives up."""
PAUSE = 30.0
"""Seconds between two times that the file is written."""
TRACES = {"threads": (120, 0), "processes": (40, 0), "processes, helpers die": (50, 2)}
"""Runs, and how often each helper dies at most."""


def searched(scenarios: Iterator[tuple[str, Any]], search: Callable[[Any], Found]) -> dict[str, Any]:
    """Search the scenarios of one program and one kind of faults."""
    total: dict[str, Any] = {"scenarios": 0, "states": 0, "steps": 0, "seconds": 0.0, "largest": 0, "problems": []}
    for what, scenario in scenarios:
        found = search(scenario)
        total["scenarios"] += 1
        total["states"] += found.states
        total["steps"] += found.steps
        total["seconds"] = round(total["seconds"] + found.seconds, 2)
        total["largest"] = max(total["largest"], found.states)
        if found.problem:
            total["problems"].append({"scenario": what, "problem": found.problem, "trace": found.trace})
    return total


def mistake(scenarios: Iterator[tuple[str, Any]], search: Callable[[Any], Found]) -> dict[str, Any]:
    """Search a broken protocol, until the mistake is found."""
    states = 0
    for what, scenario in scenarios:
        found = search(scenario)
        states += found.states
        if found.problem:
            return {"found": True, "scenario": what, "states": states, "trace": found.trace, "problem": found.problem[:200]}
    return {"found": False, "states": states, "trace": []}


def followed(executor: str, runs: int, deaths: int) -> dict[str, Any]:
    """Record real runs and follow them."""
    began = time.perf_counter()
    found = tally(executor, runs, deaths, first=7)
    return {
        "runs": found.runs, "events": found.events, "deaths": found.deaths, "replaced": found.replaced,
        "refused": len(found.refused), "why": [why for why, _ in found.refused], "widest": found.widest,
        "exchanged": found.exchanged[0], "exchanged_refused": found.exchanged[1],
        "left_out": found.left_out[0], "left_out_refused": found.left_out[1], "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def federated(scenario: Any) -> Found:
    return search(NodeModel(scenario), MOST)


def parts() -> dict[str, dict[str, Callable[[], dict[str, Any]]]]:
    """Everything that is done, by case and part."""
    ticks = partial(check, most=MOST)
    cases: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {
        name: {
            fault: partial(lambda name, how: searched(scenarios(name, **how), ticks), name, how) for fault, how in FAULTS.items()
        }
        for name in PROGRAMS
    }
    for name in NODE_PROGRAMS:
        cases[f"nodes: {name}"] = {
            fault: partial(lambda name, how: searched(node_scenarios(name, **how), federated), name, how)
            for fault, how in NODE_FAULTS.items()
        }
    cases["broken"] = {
        broken: partial(lambda broken, one: mistake(scenarios(one.program, broken=broken, **one.how), ticks), broken, one)
        for broken, one in BROKEN.items()
    }
    cases["broken nodes"] = {
        broken: partial(lambda broken, one: mistake(node_scenarios(one.program, broken=broken, **one.how), federated), broken, one)
        for broken, one in BROKEN_NODES.items()
    }
    cases["traces"] = {name: partial(followed, name.partition(",")[0], *how) for name, how in TRACES.items()}
    return cases


def show(name: str, case: dict[str, Any]) -> None:
    if name.startswith("broken"):
        rows = [
            [part, "found" if one["found"] else "NOT FOUND", str(len(one["trace"])), f"{one['states']:,}"]
            for part, one in case.items()
        ]
        print_table(name, ["mistake", "", "steps", "states"], rows)
    elif name == "traces":
        rows = [
            [
                part, f"{one['runs']}", f"{one['events']:,}", f"{one['deaths']}", f"{one['refused']}",
                f"{one['exchanged_refused']} of {one['exchanged']}", f"{one['left_out_refused']} of {one['left_out']}",
            ]
            for part, one in case.items()
        ]  # fmt: skip
        print_table(name, ["", "runs", "events", "deaths", "refused", "exchanged: refused", "left out: refused"], rows)
    else:
        rows = [
            [
                part,
                str(one["scenarios"]),
                f"{one['states']:,}",
                f"{one['steps']:,}",
                f"{one['seconds']:.1f}",
                str(len(one["problems"])),
            ]
            for part, one in case.items()
        ]
        print_table(name, ["", "scenarios", "states", "steps", "seconds", "problems"], rows)


def wrong(case: dict[str, Any]) -> int:
    """How much of a case is not as it should be."""
    return sum(bool(one.get("problems") or one.get("refused") or not one.get("found", True)) for one in case.values())


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--merge", action="store_true", help="do what is missing in the result file that there is")
    options = parser.parse_args()
    if options.merge and not options.quick:
        options.output = RESULTS
    print_machine()
    todo = parts()
    file = options.output / "model.json"
    cases: dict[str, Any] = json.loads(file.read_text())["cases"] if options.merge and file.exists() else {}
    written, ends = time.monotonic(), time.monotonic() + (options.budget or float("inf"))

    def write() -> None:
        done = {name: {part: cases[name][part] for part in todo[name] if part in cases[name]} for name in todo if name in cases}
        options.whole = all(part in done.get(name, {}) for name, some in todo.items() for part in some)
        states = sum(one.get("states", 0) for name, case in done.items() if not name.startswith("broken") for one in case.values())
        write_json(options, "model", done, states=states)

    for name, some in todo.items():
        if not wanted(name, options.only) or (options.quick and "3" in name):
            continue
        case = cases.setdefault(name, {})
        for part, do in some.items():
            if part not in case and time.monotonic() < ends:
                case[part] = do()
            if time.monotonic() - written > PAUSE:
                write()
                written = time.monotonic()
        show(name, case)
    write()
    return int(any(wrong(case) for case in cases.values()))


if __name__ == "__main__":
    sys.exit(main())
