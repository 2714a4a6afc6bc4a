"""The tables of README and docs, each from a file in benchmarks/results/: one function for each, by the name of its file."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from federation_tables import federation, federation_delays, federation_predicted
from scaling_tables import scaling_model, scaling_model_caller, scaling_model_check, scaling_model_costs
from tabulated import Result, digits, spread, table
from trust_tables import (
    trust,
    trust_injected,
    trust_mistakes,
    trust_model,
    trust_mutants,
    trust_sanitizers,
    trust_simulation,
    trust_traces,
)  # fmt: skip


def times(ratio: dict[str, float]) -> str:
    """How many times as fast."""
    return spread(ratio, "x")


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
            rows[-1].append(spread(of) if of else "-")
    return table(["", unit, *rivals.values(), *([limit] if limit else [])], rows)


def vector_env(result: Result) -> str:
    rivals = {
        "SyncVectorEnv": "`SyncVectorEnv`", "AsyncVectorEnv": "`AsyncVectorEnv`", "SubprocVecEnv (SB3)": "SB3 `SubprocVecEnv`",
        "Ray actors": "Ray actors", "EnvPool (C++)": "EnvPool (C++)",
    }  # fmt: skip
    limit = f"of {result['machine']['cores']} x the bare loop"
    return rates(result, "ReactorVectorEnv", rivals=rivals, limit=limit, case=_counted)


def auto(result: Result) -> str:
    """One row for each environment and number: how many times as fast as SyncVectorEnv, and on what, beside 0, 1 and 2 hogs."""
    rows: dict[str, list[str]] = {}
    for name, found in result["cases"].items():
        case, _, _ = name.partition(" beside ")
        row = rows.setdefault(case, [_counted(case)])
        if "ratios" not in found or "SyncVectorEnv" not in found["ratios"]:
            row += [found.get("error", "-"), "-"]
            continue
        row += [f"{times(found['ratios']['SyncVectorEnv'])}<br>{found['chosen']}"]
        named = found.get("processes_over_sync")
        row += [times(named) if named else "-"]
    head = ["", *(part for hogs in ("quiet", "1 hog", "2 hogs") for part in (f"{hogs}: `auto`", "`processes`"))]
    return table(head, list(rows.values()))


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


def wrapped_games(result: Result) -> str:
    ours = "reactor_rl ReactorVectorEnv"
    rivals = {"reactor_rl, one core": "ours on one core", **{name: f"`{name}`" for name in ("AsyncVectorEnv", "SyncVectorEnv")}}
    return rates(result, ours, rivals={**rivals, "emulators, no pictures": "the emulators alone, one core"})


def wrappers(result: Result) -> str:
    rivals = {"reactor_rl, kernels=False": "`kernels=False`", **{name: f"`{name}`" for name in ("SyncVectorEnv", "AsyncVectorEnv")}}
    rivals["SyncVectorEnv without wrappers"] = "`SyncVectorEnv` without wrappers"
    return rates(result, "reactor_rl ReactorVectorEnv", rivals=rivals)


def own_kernel(result: Result) -> str:
    rivals = {"SyncVectorEnv": "`SyncVectorEnv`", "reactor_rl, in Python": "ours without the kernel"}
    return rates(result, "reactor_rl, own kernel", rivals=rivals, unit="rows a CPU second")


def own_robot(result: Result) -> str:
    """One row for each contender: how many times as fast as SyncVectorEnv, for each number of copies."""
    found = {name.rpartition(" ")[2]: case.get("over_sync", {}) for name, case in result["cases"].items()}
    names = dict.fromkeys(name for case in found.values() for name in case)
    rows = [[name, *[times(case[name]) if name in case else "-" for case in found.values()]] for name in names]
    return table(["x `SyncVectorEnv`", *[f"{copies} copies" for copies in found]], rows)


def q_learning(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="a round", shown=_milliseconds)


def multi_agent(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="a step", shown=_microseconds)


def rllib(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="env steps/s")


def free_threading(result: Result) -> str:
    ours = "ReactorVectorEnv, threads"
    return rates(result, ours, rivals=_others(result, ours))


def _others(result: Result, ours: str) -> dict[str, str]:
    return {name: name for found in result["cases"].values() for name in found.get("rates", {}) if name != ours}


def busy(result: Result) -> str:
    return rates(result, "reactor_rl, named", rivals=_others(result, "reactor_rl, named"), unit="a second")


def startup(result: Result) -> str:
    rows = [
        [name, *(f"{found[key] * 1e3:.0f} ms" for key in ("median", "min", "max"))]
        for name, found in result["cases"]["construct"]["seconds"].items()
    ]
    return table(["", "median", "lowest", "highest"], rows)


def training(result: Result) -> str:
    """Ours as it is and, if there are rows of it, with the setting that is fastest, each against the fastest of either rival's."""
    settings = any(one.startswith("reactor_rl,") for found in result["cases"].values() for one in found.get("rates", {}))
    head = ["", "steps/s", "SB3, sb3-contrib", "SBX", *(["steps/s with", "SB3, sb3-contrib", "SBX"] if settings else [])]
    rows = []
    for name, found in result["cases"].items():
        if "reactor_rl" not in found.get("rates", {}):
            rows.append([name, found.get("error", "-"), *["-"] * (len(head) - 2)])
            continue
        of = {one: rate["median"] for one, rate in found["rates"].items()}
        row = [name]
        for ours in ("reactor_rl", _fastest(of, "reactor_rl,")) if settings else ("reactor_rl",):
            if not ours:  # there is nothing that it could be set to
                row += ["-"] * 3
                continue
            said = "" if ours == "reactor_rl" else f"{ours.removeprefix('reactor_rl, ')}: "
            row.append(f"{said}{of[ours]:,.0f}")
            rivals = _fastest(of, "SB3", "sb3-contrib"), _fastest(of, "SBX")
            row += [times(_of_rounds(found, ours, rival)) if rival else "-" for rival in rivals]
        rows.append(row)
    return table(head, rows)


def _fastest(rates: dict[str, float], *beginnings: str) -> str:
    """Name of the fastest contender of those whose names begin so; empty if there is no such contender."""
    return max((one for one in rates if one.startswith(beginnings)), key=rates.__getitem__, default="")


def _of_rounds(found: dict[str, Any], one: str, other: str) -> dict[str, float]:
    rounds = [a / b for a, b in zip(found["rates"][one]["all"], found["rates"][other]["all"], strict=True)]
    return {"median": statistics.median(rounds), "min": min(rounds), "max": max(rounds)}


REWARDS = (
    "cartpole",
    "pendulum",
    "inverted_double",
    "half_cheetah",
    "half_cheetah_contrib",
    "fetch_reach",
    "lunar_lander",
    "pong",
    "breakout",
    "recurrent",
    "masked_cartpole",
    "masked_four",
    "spread",
    "four_random",
    "four_one_ply",
)


def reward(result: Result) -> str:
    """Seconds of all seeds: with so few, the spread says more than the median."""
    rows = []
    for name, found in result["cases"].items():
        seconds = [run["seconds"] for run in found["runs"] if run["reached"]]
        spread = f"{min(seconds):.1f} to {max(seconds):.1f} s" if seconds else "-"
        reached = f"{found['reached']} of {len(found['runs'])}"
        given_up = [run["seconds"] for run in found["runs"] if not run["reached"]]
        median = f"over {min(given_up):.0f} s" if found["median_seconds"] is None else f"{found['median_seconds']:.1f} s"
        rows.append([name, median, spread, f"{found['median_timesteps']:,.0f}", reached])
    return table(["", "median", "lowest to highest", "steps", "seeds that got there"], rows)


def _interquartile(who: dict[str, Any]) -> str:
    of = who["interquartile"]
    return f"{digits(of['mean'])}<br>{digits(of['low'])} to {digits(of['high'])}".replace("-", "\u2011")


def one_line(result: Result) -> str:
    """Interquartile means of returns, the host's and ours, and how long both took."""
    rows = []
    for name, found in result["cases"].items():
        if not found["seeds"]:
            continue
        row = [name, f"{found['steps']:,}", str(found["seeds"])]
        row += [_interquartile(found[who]) for who in ("host", "ours")]
        row += [f"{found[who]['updates']['median']:,.0f}" for who in ("host", "ours")]
        row += [f"{found[who]['seconds']['median']:,.0f} s" for who in ("host", "ours")]
        rows.append(row)
    head = ["", "steps", "seeds", "its host's return", "ours", "its updates", "ours", "it takes", "ours"]
    return table(head, rows)


def engine(result: Result) -> str:
    """What a message costs. A ring of one is another program than a ring of the other: its rows are no rivals of each other."""
    rows = []
    for name, found in result["cases"].items():
        for one, rate in found["rates"].items():
            ratio = found["ratios"].get(one)
            rows.append([name, one, f"{digits(1e6 / rate['median'])} us", times(ratio) if ratio else "-"])
    return table(["", "", "a message", "ours is"], rows)


def broadcast(result: Result) -> str:
    return rates(result, "reactor_rl", rivals={"Ray": "Ray"}, unit="once", shown=_milliseconds)


def ticks(result: Result) -> str:
    rows = [[name, f"{digits(found['median'])} us", f"{digits(found['min'])} to {digits(found['max'])}"]
            for case in result["cases"].values() for name, found in case["us_per_tick"].items()]  # fmt: skip
    return table(["", "a tick", "lowest to highest"], rows)


def products(result: Result) -> str:
    """GFLOP/s of each product, by shape; the best slice of each contender."""
    rows = []
    for shape, found in result["cases"].items():
        for product, figures in found.items():
            if product != "error":
                rows.append([shape, product, *(f"{rate['max'] / 1e9:.0f}" for rate in figures["rates"].values())])
    return table(["rows x inputs x outputs", "", "reactor_rl", "torch.mm", "numpy.dot", "oneDNN"], rows)


def convolutions(result: Result) -> str:
    """Milliseconds of each pass; the best slice of each contender."""
    rows = []
    for case, found in result["cases"].items():
        for what, figures in found.items():
            if what != "error":
                rows.append([case, what, *(f"{1e3 / rate['max']:.2f} ms" for rate in figures["rates"].values())])
    return table(["", "", "reactor_rl", "torch, channels last", "torch, channels first"], rows)


def evaluate(result: Result) -> str:
    def case(name: str) -> str:
        return f"{name}, {result['cases'][name].get('episodes', 0):,} episodes"

    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="episodes/s", shown=digits, case=case)


def sweep(result: Result) -> str:
    """Wall time of a search, and how many different ones came out of the rounds."""
    rows = []
    for found in result["cases"].values():
        for name, rate in found["rates"].items():
            ratio = found["ratios"].get(name)
            different = f"{found['different'][name]} of {len(found['searches'][name])}"
            rows.append([name, f"{found['trials'] / rate['median']:.1f} s", times(ratio) if ratio else "-", different])
    return table(["", "a search", "ours is", "different searches"], rows)


def multi_agent_training(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"))


def learner(result: Result) -> str:
    """The products alone are no rival, but what all of ours is compared with."""
    others = {name: of for name, of in _others(result, "reactor_rl").items() if name != "products"}
    limit = "the products' share" if any("of_limit" in found for found in result["cases"].values()) else ""
    return rates(result, "reactor_rl", rivals=others, unit="an update", shown=_milliseconds, limit=limit)


def learner_busy(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="an update", shown=_milliseconds)


def learner_split(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="an update", shown=_milliseconds)


def learner_shards(result: Result) -> str:
    return rates(result, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="an update", shown=_milliseconds)


def pipeline(result: Result) -> str:
    ours = "reactor_rl, pipeline=1"
    return rates(result, ours, rivals=_others(result, ours), unit="a round", shown=_milliseconds)


def batched(result: Result) -> str:
    ours = f"reactor_rl {result['machine']['cores']} shards"
    return rates(result, ours, rivals=_others(result, ours), unit="rows/s")


def recovery(result: Result) -> str:
    """What it costs in a step that a worker may be replaced, and what replacing one takes."""
    rows = []
    for name, cost in result["cases"].items():
        what, _, case = name.partition(", ")
        if what == "cost" and "ratios" in cost:
            never, ours = (cost["rates"][f"reactor_rl, restarts={restarts}"]["all"] for restarts in (0, 1000))
            more = statistics.median(1e6 / mine - 1e6 / other for mine, other in zip(ours, never, strict=True))
            rows.append([case, times(cost["ratios"]["reactor_rl, restarts=0"]), f"{more:.0f} us", *["-"] * 4])
            found = result["cases"].get(f"recovery, {case}", {})
            if "seconds" in found:
                same = "all the same" if found["identical"] else "NOT THE SAME"
                seconds = found["seconds"]
                rows[-1][3:] = str(found["kills"]), same, f"{digits(seconds['median'])} s", f"{digits(seconds['max'])} s"
    head = [
        "", "speed of a step, of `restarts=0`'s", "more a step", "workers killed", "trajectory",
        "a step in which one is replaced, median", "longest",
    ]  # fmt: skip
    return table(head, rows)


def kills(result: Result) -> str:
    """What became of runs whose processes were killed."""
    what = {
        "replaced": ("a helper, with `restarts=`", "replaced"), "reported": ("a helper", "reported"),
        "ended": ("the process that has helpers", "all have ended"), "resumed": ("a training with `SaveRun`", "resumed"),
    }  # fmt: skip
    rows = []
    for name, found in result["cases"].items():
        kind, _, case = name.partition(", ")
        killed, then = what[kind]
        if "error" in found:
            rows.append([killed, case, *["-"] * 4, found["error"]])
            continue
        same = "NOT ALL THE SAME" if found["different"] else "all the same" if kind in ("replaced", "resumed") else "-"
        seconds = found.get("seconds")
        after = [f"{then} after {digits(seconds['median'])} s", f"{digits(seconds['max'])} s"] if seconds else [then, "-"]
        left = ", ".join(found["left"]) or "nothing"
        rows.append([killed, case, str(found["kills"]), same, *after, left])
    return table(["killed", "in", "times", "results of all runs", "median", "longest", "left behind"], rows)


def faults(result: Result) -> str:
    """What hung, leaked or got lost in each case of the soak."""
    rows = [
        [name, *(["not possible here", "-", "-", "-"] if found["skipped"] else [f"{found[kind]:,}" for kind in FAULTS])]
        for name, found in result["cases"].items()
    ]
    return table(["", *FAULTS], rows)


FAULTS = ("runs", "hangs", "leaks", "losses")


def inference(result: Result) -> str:
    """The networks that ours evaluates itself: convolutions are left to torch."""
    cases = {name: found for name, found in result["cases"].items() if "rates" not in found or "reactor_rl" in found["rates"]}
    return rates({**result, "cases": cases}, "reactor_rl", rivals=_others(result, "reactor_rl"), unit="a call", shown=_microseconds)


def papers(result: Result, *ours: Result) -> str:
    """Others' figures, as they published them, and ours where there is the like."""
    results = {one["benchmark"]: one for one in ours}
    rows = []
    for name, found in result["cases"].items():
        source = result["sources"][found["source"]]
        value = f"{digits(found['value'])}x {found['against']}" if found["unit"] == "x" else f"{found['value']:,} {found['unit']}"
        here = "-"
        if "beside" in found:
            file, case, rival = found["beside"]
            here = times(results[file]["cases"][case]["ratios"][rival])
        rows.append([name, value, source["where"].partition(";")[0], here, found["caveat"]])
    return table(["", "published", "where", "here", "what to know of it"], rows)


def published(result: Result, ours: Result) -> str:
    """Training as other libraries published it, and ours where there is the like."""
    rows = []
    for name, found in result["cases"].items():
        source, unit = result["sources"][found["source"]], found["unit"]
        beside = f"{found['sb3']:,} {unit}" if "sb3" in found else "-"
        here = f"{digits(ours['cases'][found['beside']]['rates']['reactor_rl']['median'])} {unit}" if "beside" in found else "-"
        machine = found.get("machine", source["machine"])
        rows.append([name, source["shown"], machine, f"{found['value']:,} {unit}", beside, here])
    return table(["", "of", "machine", "published", "SB3 there", "here"], rows)


FRONT = (
    (
        "64 CartPole: `ReactorVectorEnv`",
        "vector_env",
        "CartPole-v1 x 64",
        "ReactorVectorEnv",
        ("AsyncVectorEnv", "SyncVectorEnv", "EnvPool (C++)"),
    ),
    (
        "16 HalfCheetah: `ReactorVectorEnv`",
        "vector_env",
        "HalfCheetah-v5 x 16",
        "ReactorVectorEnv",
        ("AsyncVectorEnv", "SyncVectorEnv", "EnvPool (C++)"),
    ),
    (
        "16 HalfCheetah in CleanRL's wrappers: `ReactorVectorEnv`",
        "wrappers",
        "HalfCheetah x 16, all cores",
        "reactor_rl ReactorVectorEnv",
        ("AsyncVectorEnv", "SyncVectorEnv", ""),
    ),
    (
        "32 Pong, preprocessed: `AtariVectorEnv`",
        "atari",
        "pong x 32",
        "reactor_rl AtariVectorEnv",
        ("ale_py AtariVectorEnv (C++)", "EnvPool (C++)"),
    ),
    ("PPO, 16 CartPole: `SyncPPO`", "training", "PPO, 16 CartPole", "reactor_rl", ("SB3", "SBX")),
    ("16 masked grids: `SyncMaskablePPO`", "training", "MaskablePPO, 16 masked grids", "reactor_rl", ("sb3-contrib", "")),
    (
        "16 CartPole with memory: `SyncRecurrentPPO`",
        "training",
        "RecurrentPPO, 16 CartPole without velocities",
        "reactor_rl",
        ("sb3-contrib", ""),
    ),
    ("SAC, 8 HalfCheetah: `SyncSAC`", "training", "SAC, 8 HalfCheetah, an update a step", "reactor_rl", ("SB3", "SBX")),
)
"""The README's rows: what, the file and the case, ours, and how the names of rivals begin: the usual ones, and last the fastest,
empty where there is nobody.
"""


def against(found: dict[str, Any], rival: str) -> dict[str, float] | None:
    """How many times as fast ours is as a rival, in the fastest of its settings; None if it took no part."""
    names = [one for one in found.get("ratios", {}) if one.startswith(rival)]
    return dict(found["ratios"][max(names, key=lambda one: found["rates"][one]["median"])]) if names else None


def front(*results: Result) -> str:
    """The README's rows: against what most people use, and against the fastest that there is."""
    files = {result["benchmark"]: result for result in results}
    rows = []
    for name, file, case, ours, rivals in FRONT:
        found = files[file]["cases"][case]
        ratios = [against(found, rival) if rival else None for rival in rivals]
        cells = [f"{digits(ratio['median'])}x {rival}" if ratio else "-" for ratio, rival in zip(ratios, rivals, strict=True)]
        rows.append([name, f"{found['rates'][ours]['median']:,.0f}", ", ".join(cells[:-1]), cells[-1]])
    return table(["", "steps/s", "against the usual", "against the fastest"], rows)


def _milliseconds(rate: float) -> str:
    return f"{digits(1e3 / rate)} ms"


def _microseconds(rate: float) -> str:
    return f"{digits(1e6 / rate)} us"


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


ALGORITHMS = {
    "PPO": ("PPO CartPole", "PPO, 16 CartPole"),
    "A2C": ("A2C CartPole", "A2C, 16 CartPole"),
    "DQN": ("DQN CartPole", "DQN, 8 CartPole"),
    "SAC": ("SAC Pendulum", "SAC, 8 HalfCheetah, an update a step"),
    "TD3": ("TD3 Pendulum", "TD3, 8 HalfCheetah, an update a step"),
    "DDPG": ("DDPG Pendulum", "DDPG, 8 HalfCheetah, an update a step"),
    "hindsight": ("DQN BitFlipping, hindsight", "SAC, 8 bits to flip, hindsight"),
    "ARS": ("ARS CartPole", "ARS, 16 Pendulum"),
    "CrossQ": ("CrossQ Pendulum", "CrossQ, 8 HalfCheetah, an update a step"),
    "MaskablePPO": ("MaskablePPO, masked bits", "MaskablePPO, 16 masked grids"),
    "QRDQN": ("QRDQN CartPole", "QRDQN, 8 CartPole"),
    "RecurrentPPO": ("RecurrentPPO CartPole", "RecurrentPPO, 16 CartPole without velocities"),
    "TQC": ("TQC Pendulum", "TQC, 8 HalfCheetah, an update a step"),
    "TRPO": ("TRPO CartPole", "TRPO, 16 CartPole"),
}
"""By algorithm: the line of one_line.json, and the case of training.json."""


def algorithms(learned: Result, trained: Result) -> str:
    """What each algorithm learns in equal steps, its host's and ours, and how fast ours is as its constructor leaves it."""
    rows = []
    for name, (line, case) in ALGORITHMS.items():
        of, found = learned["cases"][line], trained["cases"].get(case, {})
        row = [name, line.removeprefix(name).removesuffix(", hindsight").lstrip(", "), f"{of['steps']:,}", str(of["seeds"])]
        row += [_interquartile(of[who]) for who in ("host", "ours")]
        rates = {one: rate["median"] for one, rate in found.get("rates", {}).items()}
        if "reactor_rl" not in rates:
            rows.append([*row, found.get("error", "-"), *["-"] * 3])
            continue
        rivals = _fastest(rates, "SB3", "sb3-contrib"), _fastest(rates, "SBX")
        row += [case.partition(", ")[2], f"{rates['reactor_rl']:,.0f}"]
        rows.append([*row, *(times(_of_rounds(found, "reactor_rl", rival)) if rival else "-" for rival in rivals)])
    head = ["", "learns", "steps", "seeds", "its host's return", "ours", "trains", "steps/s", "SB3, sb3-contrib", "SBX"]
    return table(head, rows)


TABLES: dict[str, tuple[tuple[str, ...], Callable[..., str]]] = {
    "training_one_core": (("training_one_core",), training),
    **{
        one.__name__: ((one.__name__,), one)
        for one in (
            vector_env, auto, atari, banks, placement, sb3_vec_env, busy, q_learning, multi_agent, startup, training,
            free_threading, convolutions, wrapped_games, wrappers, own_kernel, own_robot,
            frames, engine, broadcast, ticks, learner, learner_split, learner_shards, pipeline, inference, learner_busy, batched,
            recovery, kills, faults, federation, federation_delays, one_line, products, evaluate, sweep, multi_agent_training,
        )
    },
    **{name: ((name,), rllib) for name in ("rllib", "rllib_multi_agent")},
    **{f"reward_{goal}": ((f"reward_{goal}",), reward) for goal in REWARDS},
    "algorithms": (("one_line", "training"), algorithms),
    "papers": (("papers", "broadcast", "vector_env", "q_learning", "multi_agent"), papers),
    "published": (("published", "training"), published),
    "front": (("vector_env", "wrappers", "atari", "training"), front),
    "spreeze": (("training",), spreeze),
    "federation_predicted": (("federation",), federation_predicted),
    "trust": (("model", "simulation", "injected", "sanitizers", "mutants", "kills"), trust),
    **{one.__name__: (("model",), one) for one in (trust_model, trust_mistakes, trust_traces)},
    "trust_simulation": (("simulation",), trust_simulation),
    "trust_injected": (("injected",), trust_injected),
    "trust_sanitizers": (("sanitizers",), trust_sanitizers),
    "trust_mutants": (("mutants",), trust_mutants),
    **{
        one.__name__: (("scaling_model",), one)
        for one in (scaling_model, scaling_model_caller, scaling_model_check, scaling_model_costs)
    },
}  # fmt: skip
"""By its name in a page: the files in benchmarks/results/, and the function that makes a table of them."""
