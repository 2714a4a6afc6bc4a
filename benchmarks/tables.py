"""The tables of README and docs, each from a file in benchmarks/results/: one function for each, by the name of its file."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

Result = dict[str, Any]


def digits(value: float) -> str:
    """A number with three digits that count, and all of those before its point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    first, *others = (f"| {' | '.join(line)} |" for line in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *others, ""])


def times(ratio: dict[str, float]) -> str:
    """How many times as fast, in three digits."""
    return f"{digits(ratio['median'])}x"


def rates(
    result: Result, ours: str, *, rivals: dict[str, str], unit: str = "steps/s", shown: Callable[[float], str] = "{:,.0f}".format,
    limit: str = "", case: Callable[[str], str] = str,
) -> str:  # fmt: skip
    """One row for each case: our figure, and how many times as fast as each rival it is (median of the rounds)."""
    rows = []
    for name, found in result["cases"].items():
        if "rates" not in found or ours not in found["rates"]:
            rows.append([case(name), found.get("error", "-"), *["-"] * (len(rivals) + bool(limit))])
            continue
        cells = [times(found["ratios"][rival]) if rival in found["ratios"] else "-" for rival in rivals]
        rows.append([case(name), shown(found["rates"][ours]["median"]), *cells])
        if limit:
            of = found.get("of_limit", {})
            rows[-1].append(f"{of['median']:.2f}" if "median" in of else "-")
    return table(["", unit, *rivals.values(), *([limit] if limit else [])], rows)


def vector_env(result: Result) -> str:
    rivals = {
        "SyncVectorEnv": "`SyncVectorEnv`", "AsyncVectorEnv": "`AsyncVectorEnv`", "SubprocVecEnv (SB3)": "SB3 `SubprocVecEnv`",
        "Ray actors": "Ray actors", "EnvPool (C++)": "EnvPool (C++)",
    }  # fmt: skip
    limit = f"of {result['machine']['cores']} x the bare loop"
    return rates(result, "ReactorVectorEnv", rivals=rivals, limit=limit, case=_counted)


def _counted(name: str) -> str:
    env_id, _, count = name.partition(" x ")
    return f"{count} {env_id.removeprefix('ALE/').rpartition('-')[0]}{' (RGB)' if env_id.startswith('ALE/') else ''}"


def atari(result: Result) -> str:
    rivals = {"ale_py AtariVectorEnv (C++)": "`ale_py.AtariVectorEnv`", "EnvPool (C++)": "EnvPool"}
    limit = f"of {result['machine']['cores']} x a bare `ALEInterface.act` loop"
    return rates(result, "reactor_rl AtariVectorEnv", rivals=rivals, limit=limit)


def placement(result: Result) -> str:
    rivals = {
        "ReactorVectorEnv, equal shards": "equal shards",
        **{name: f"`{name}`" for name in ("SyncVectorEnv", "AsyncVectorEnv")},
    }
    return rates(result, "ReactorVectorEnv", rivals=rivals)


def banks(result: Result) -> str:
    """The best of each kind, with torch's threads as they suit it, against the best with two banks."""
    first = next(found["best_ratios"] for found in result["cases"].values())
    ours = "reactor_rl two banks"
    rows = [
        [
            name,
            f"{found['rates'][found['best'][ours]]['median']:,.0f}",
            *(times(found["best_ratios"][kind]) if kind in found["best_ratios"] else "-" for kind in first),
        ]
        for name, found in result["cases"].items()
    ]
    return table(["", "steps/s", *(kind.removeprefix("reactor_rl ") for kind in first)], rows)


def sb3_vec_env(result: Result) -> str:
    rivals = {"SB3 DummyVecEnv": "`DummyVecEnv`", "SB3 SubprocVecEnv": "`SubprocVecEnv`"}
    return rates(result, "reactor_rl ReactorVecEnv", rivals=rivals)


def q_learning(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="a round", shown=lambda r: f"{1e3 / r:.1f} ms")


def multi_agent(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="a step", shown=lambda r: f"{1e6 / r:,.1f} us")


def _others(result: Result, ours: str) -> dict[str, str]:
    return {name: name for found in result["cases"].values() for name in found.get("rates", {}) if name != ours}


def busy(result: Result) -> str:
    return rates(result, "reactor_rl, named", rivals=_others(result, "reactor_rl, named"), unit="a second")


def startup(result: Result) -> str:
    seconds = result["cases"]["construct"]["seconds"]
    return table(list(seconds), [[f"{found['median'] * 1e3:.0f} ms" for found in seconds.values()]])


def training(result: Result) -> str:
    """Ours as it is, and with the setting of ours that is fastest, each against the fastest of either rival's."""
    rows = []
    for name, found in result["cases"].items():
        of = {one: rate["median"] for one, rate in found["rates"].items()}
        best = {who: max((one for one in of if one.startswith(who)), key=of.__getitem__) for who in ("reactor_rl,", "SB3", "SBX")}
        row = [name]
        for ours in ("reactor_rl", best["reactor_rl,"]):
            said = "" if ours == "reactor_rl" else f"{ours.removeprefix('reactor_rl, ')}: "
            row.append(f"{said}{of[ours]:,.0f}")
            row += [f"{_of_rounds(found, ours, best[rival]):.2f}x" for rival in ("SB3", "SBX")]
        rows.append(row)
    return table(["", "steps/s", "SB3", "SBX", "steps/s with", "SB3", "SBX"], rows)


def _of_rounds(found: dict[str, Any], one: str, other: str) -> float:
    pairs = zip(found["rates"][one]["all"], found["rates"][other]["all"], strict=True)
    return statistics.median(a / b for a, b in pairs)


def reward_cartpole(result: Result) -> str:
    """Seconds of all seeds: with five, the spread says more than the median."""
    rows = []
    for name, found in result["cases"].items():
        seconds = [run["seconds"] for run in found["runs"] if run["reached"]]
        spread = f"{min(seconds):.1f} to {max(seconds):.1f} s" if seconds else "-"
        reached = f"{found['reached']} of {len(found['runs'])}"
        median = "-" if found["median_seconds"] is None else f"{found['median_seconds']:.1f} s"  # most seeds never got there
        rows.append([name, median, spread, f"{found['median_timesteps']:,.0f}", reached])
    return table(["", "median", "lowest to highest", "steps", "seeds that got there"], rows)


def frames(result: Result) -> str:
    """Microseconds a frame, and what a way of making it costs before that."""
    cases = dict(result["cases"])
    start = cases.pop("start")
    rows = []
    for name in next(iter(cases.values()))["us_per_frame"]:
        found = [case["us_per_frame"].get(name) for case in cases.values()]
        first, size = start["ms_to_first_frame"].get(name), start["megabytes"].get(name.partition(",")[0])
        cells = [digits(one["median"]) if one else "-" for one in found]
        rows.append([name, *cells, f"{digits(first['median'])} ms" if first else "-", f"{digits(size)} MB" if size else "-"])
    return table(["us a frame", *cases, "until the first frame", "installed"], rows)


def spreeze(result: Result) -> str:
    """Spreeze's two rates, of SAC with minibatches of 256: steps of all environments, and transitions learned from."""
    kinds = {"SAC, 8 HalfCheetah, an update a step": 1, "SAC, 8 HalfCheetah, an update every 8 steps": 8}
    rows = []
    contenders = {
        "`SyncSAC`, `split=True`": "reactor_rl, split=True",
        "`SyncSAC`": "reactor_rl",
        "SB3 `SAC` at its best": "SB3",
        "SBX `SAC` (JAX) at its best": "SBX",
    }
    for shown, begin in contenders.items():
        row = [shown]
        for case, steps in kinds.items():
            rates = {name: rate["median"] for name, rate in result["cases"][case]["rates"].items()}
            best = rates[begin] if begin in rates else max(rate for name, rate in rates.items() if name.startswith(begin))
            row += [f"{digits(best)} Hz", f"{digits(256e-3 * best / steps)} kHz"]
        rows.append(row)
    head = [part for case in kinds for part in (f"{case.rpartition(', ')[2]}: sampling", "learned from")]
    return table(["", *head], rows)


TABLES: dict[str, tuple[str, Callable[[Result], str]]] = {
    **{one.__name__: (one.__name__, one)
       for one in (vector_env, atari, banks, placement, sb3_vec_env, busy, q_learning, multi_agent, startup, training,
                   reward_cartpole, frames)},
    "spreeze": ("training", spreeze),
}  # fmt: skip
"""By its name in a page: the file in benchmarks/results/, and the function that makes a table of it."""
