"""The tables of the README, from the result files: each stands between two comments that name its file, and says what that says.

python benchmarks/figures.py              # print them
python benchmarks/figures.py --write      # put them into README.md
python benchmarks/figures.py --check      # exit with 1 if README.md has others
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results"
PLACE = re.compile(r"<!-- figures: (\w+) -->\n(.*?)<!-- end of figures -->", re.DOTALL)

Result = dict[str, Any]


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    first, *others = (f"| {' | '.join(line)} |" for line in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *others, ""])


def times(ratio: dict[str, float]) -> str:
    """How many times as fast, in three digits."""
    median = ratio["median"]
    return f"{median:.0f}x" if median >= 100 else f"{median:.1f}x" if median >= 10 else f"{median:.2f}x"


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


TABLES: dict[str, Callable[[Result], str]] = {
    one.__name__: one
    for one in (vector_env, atari, banks, placement, sb3_vec_env, busy, q_learning, multi_agent, startup, training, reward_cartpole)
}


def printed(name: str) -> str:
    """The table of a result file, as Markdown."""
    return TABLES[name](json.loads((RESULTS / f"{name}.json").read_text()))


def replaced(found: re.Match[str], names: list[str]) -> str:
    """What belongs in a place of the README: the table, or what is there if it is not wanted or not to be had."""
    name = found[1]
    if names and name not in names:
        return found[0]
    try:
        return f"<!-- figures: {name} -->\n{printed(name)}<!-- end of figures -->"
    except (FileNotFoundError, KeyError, StopIteration):
        print(f"{name}.json is missing, or of an older benchmark: its table stays as it is until that has run")
        return found[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help=f"which: {', '.join(TABLES)} (default: all)")
    parser.add_argument("--write", action="store_true", help="put them into README.md")
    parser.add_argument("--check", action="store_true", help="exit with 1 if README.md has others")
    options = parser.parse_args()
    readme = ROOT / "README.md"
    before = readme.read_text()
    if not (options.write or options.check):
        for name in options.names or TABLES:
            print(f"{name}\n{printed(name)}")
        return 0
    after = PLACE.sub(lambda found: replaced(found, options.names), before)
    if options.write:
        readme.write_text(after)
        return 0
    print("README.md has what the result files say" if after == before else "README.md has other figures: use --write")
    return int(after != before)


if __name__ == "__main__":
    sys.exit(main())
