"""Tables of the page that says how the runtime is tested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tabulated import Result, table

BROKEN = ("broken", "broken nodes")
REPORTED = {"address": "AddressSanitizer", "undefined": "UndefinedBehaviorSanitizer", "thread": "ThreadSanitizer"}


def _searched(result: Result) -> Iterator[tuple[str, dict[str, Any]]]:
    """Programs of the model, with what was found by kind of fault."""
    for name, case in result["cases"].items():
        if name not in (*BROKEN, "traces"):
            yield name, case


def _problems(case: dict[str, Any]) -> int:
    return sum(len(one["problems"]) for one in case.values())


def trust_model(result: Result) -> str:
    """States of each kind of fault, by program."""
    programs = dict(_searched(result))
    faults = {fault: None for case in programs.values() for fault in case}
    rows = [
        [fault, *(f"{case[fault]['states']:,}" if fault in case else "" for case in programs.values())] for fault in faults
    ]  # fmt: skip
    rows.append(["scenarios", *(f"{sum(one['scenarios'] for one in case.values()):,}" for case in programs.values())])
    rows.append(["problems", *(str(_problems(case)) for case in programs.values())])
    return table(["states", *programs], rows)


def trust_mistakes(result: Result) -> str:
    """Protocols with a mistake, and how long a way leads to what is wrong with them."""
    rows = [
        [name, str(len(one["trace"])) if one["found"] else "NOT FOUND", f"{one['states']:,}"]
        for case in BROKEN
        for name, one in result["cases"][case].items()
    ]
    return table(["mistake", "shortest way, steps", "states until then"], rows)


def trust_traces(result: Result) -> str:
    rows = [
        [
            name, str(one["runs"]), f"{one['events']:,}", str(one["deaths"]), str(one["refused"]),
            f"{one['left_out_refused']} of {one['left_out']}", f"{one['exchanged_refused']} of {one['exchanged']}",
        ]
        for name, one in result["cases"]["traces"].items()
    ]  # fmt: skip
    head = ["", "runs", "events", "deaths", "refused", "one event left out: refused", "two exchanged: refused"]
    return table(head, rows)


def trust_simulation(result: Result) -> str:
    counted = ("schedules", "points", "switches", "kills", "ctrl_c", "failures")
    rows = [[name, *(f"{one[key]:,}" for key in counted)] for name, one in result["cases"].items()]
    return table(["what strikes", "schedules", "points", "switches", "kills", "Ctrl-C", "failures"], rows)


def trust_injected(result: Result) -> str:
    """Calls that failed, by place, and what came of it."""
    known = ("faults", "left", "bad", "seconds", "calls")
    outcomes = list(dict.fromkeys(key for one in result["cases"].values() for key in one if key not in known))
    rows = [
        [name, f"{one['faults']:,}", *(f"{one.get(key, 0):,}" for key in outcomes), str(one["left"]), str(one["bad"])]
        for name, one in result["cases"].items()
    ]
    of_all = [sum(one.get(key, 0) for one in result["cases"].values()) for key in ("faults", *outcomes, "left", "bad")]
    rows.append(["all", *(f"{number:,}" for number in of_all)])
    return table(["calls of", "faults", *outcomes, "something left", "not as it should be"], rows)


def trust_sanitizers(result: Result) -> str:
    rows = []
    for name, one in result["cases"].items():
        kind, _, what = name.partition(" / ")
        minutes = (one["cpu_seconds"] + one.get("cpu_seconds_to_compile", 0.0)) / 60
        of = "executor `threads`, Python without a lock" if what == "free-threaded" else f"`{what}`"
        counted = [str(one[key]) for key in ("tests", "failed", "reports", "meant")]
        rows.append([REPORTED[kind], of, *counted, f"{minutes:.1f}"])
    return table(["", "of", "tests", "failed", "reports", "on `ABORT`", "minutes of a core"], rows)


def trust_mutants(result: Result) -> str:
    """Statements of each file that were deleted, and how many of them somebody has noticed."""
    cases = dict(result["cases"])
    cases["all"] = cases.pop("all")  # at the end
    rows = [
        [
            name.removeprefix("reactor_rl/"), str(one["statements"]), str(one["equivalent"]), str(one["judged"]),
            str(one["noticed"]), str(one["by"].get("simulation", 0) + one["by"].get("simulation, time", 0)),
        ]
        for name, one in cases.items()
    ]  # fmt: skip
    return table(["file", "statements", "change nothing", "deleted", "noticed", "by the simulation"], rows)


def trust(model: Result, simulation: Result, injected: Result, sanitizers: Result, mutants: Result, kills: Result) -> str:
    """One line for each method: what it says, and how much of it was done."""
    mistakes = [one["found"] for case in BROKEN for one in model["cases"][case].values()]
    problems = sum(_problems(case) for _, case in _searched(model))
    traces = list(model["cases"]["traces"].values())
    runs, events, refused = (sum(one[key] for one in traces) for key in ("runs", "events", "refused"))
    spoilt = sum(one["left_out"] + one["exchanged"] for one in traces)
    noticed = sum(one["left_out_refused"] + one["exchanged_refused"] for one in traces)
    points = simulation["cases"]["all"]
    faults = [(one["faults"], one["bad"]) for one in injected["cases"].values()]
    reports = list(sanitizers["cases"].values())
    tests, found = (sum(one[key] for one in reports) for key in ("tests", "reports"))
    minutes = sum(one["cpu_seconds"] + one.get("cpu_seconds_to_compile", 0.0) for one in reports) / 60
    every = mutants["cases"]["all"]
    killed = [one for one in kills["cases"].values() if "kills" in one]
    wrong = sum(one["different"] + one["twice"] + len(one["left"]) for one in killed)
    rows = [
        ["model", "no order of steps breaks a rule of the protocol",
         f"{model['states']:,} states, {problems} problems; {sum(mistakes)} of {len(mistakes)} mistakes found"],
        ["recorded runs", "what real runs do is what the model allows",
         f"{runs} runs, {events:,} events, {refused} refused; {noticed} of {spoilt} spoilt ones refused"],
        ["simulation", "the code itself gives the same values, whoever goes on, dies or is interrupted",
         "{schedules:,} schedules, {points:,} points, {kills:,} kills, {ctrl_c:,} Ctrl-C, {failures} failures".format(**points)],
        ["failing calls", "each ends in an error that says why, or changes nothing",
         f"{sum(count for count, _ in faults):,} faults, {sum(bad for _, bad in faults)} not as they should be"],
        ["kills of real processes", "no result differs, nothing is left",
         f"{sum(one['kills'] for one in killed):,} kills, {wrong} results that differ or things left"],
        ["sanitizers", "no report in what is written in C",
         f"{minutes:.0f} minutes of a core, {tests:,} tests, {found} reports"],
        ["mutants", "a deleted statement is noticed", f"{every['noticed']} of {every['judged']}"],
    ]  # fmt: skip
    return table(["method", "what it says", "how much"], rows)
