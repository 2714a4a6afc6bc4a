"""The tables of the scaling model's page, all from its one file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabulated import Result, digits, spread, table


def scaling_model_costs(result: Result) -> str:
    """What was measured of each part, in microseconds."""
    found = result["cases"]["costs"]
    names = {
        "tokens": {
            "signal": "a SIGNAL to a worker that spins", "wake": "a SIGNAL to a worker that is parked",
            "wait": "a WAIT whose token is there", "hop": "from a SIGNAL until a worker that spins goes on",
            "rise": "from a SIGNAL until a worker that is parked goes on", "begin": "what a helper does at a tick besides its list",
        },
        "parts": {
            "before": "the caller before a tick, in any case", "before_row": "and for each environment",
            "after": "the caller after a tick (copies and the rest), in any case", "after_row": "and for each environment",
            "tick": "a tick, in any case", "shard": "a shard's reaction, in any case",
            "row": "and for each environment, one that computes nothing included",
        },
        "AsyncVectorEnv": {
            "send": "`AsyncVectorEnv`: the caller, for each message", "take": "the caller, for each answer",
            "child": "the other process, for each step", "rise": "from a write until the reader goes on",
        },
        "SubprocVecEnv (SB3)": {
            "send": "SB3 `SubprocVecEnv`: the caller, for each message", "take": "the caller, for each answer",
            "child": "the other process, for each step",
        },
        "Ray actors": {
            "call": "Ray: the caller, for each call", "take": "the caller, for each answer",
            "answer": "from a call until its answer is there",
        },
    }  # fmt: skip
    rows = [
        [said, f"{_fine(1e6 * found[group][part])} us"]
        for group, of in names.items()
        if group in found
        for part, said in of.items()
    ]
    return table(["part of a step", "takes"], rows)


def _fine(value: float) -> str:
    return digits(value) if value >= 1 else f"{value:.3f}"


def scaling_model_check(result: Result) -> str:
    """Predicted and measured, on the cores that there were, with the step that was measured and that the prediction is for."""
    rows = [
        [
            f"{what}, {kind}", f"{digits(1e6 * one['environment'])} us", f"{one['rates'][kind]['median']:,.0f}", f"{rate:,.0f}",
            spread(one["predicted_of_measured"][kind]),
        ]
        for what, one in result["cases"].items()
        for kind, rate in one.get("predicted", {}).items()
    ]  # fmt: skip
    head = ["step aimed at x environments", "a step took", "measured, steps/s", "predicted for that step", "predicted / measured"]
    return table(head, rows)


def scaling_model(result: Result) -> str:
    """Steps a second on paper, each kind where it is fastest, and on how many cores that is."""

    def best(made: dict[str, Any]) -> str:
        rate = max(made["rates"].values())
        return f"{rate:,.0f} ({min(int(count) for count, one in made['rates'].items() if one > 0.999 * rate)})"

    return _on_paper(result, best)


def scaling_model_caller(result: Result) -> str:
    """From how many cores on the caller is the bottleneck."""
    return _on_paper(result, lambda made: str(made["caller_from"] or "-"))


def _on_paper(result: Result, cell: Callable[[dict[str, Any]], str]) -> str:
    kinds = list(dict.fromkeys(kind for made in result["predicted"].values() for kind in made))
    rows = [[what, *(cell(made[kind]) if kind in made else "-" for kind in kinds)] for what, made in result["predicted"].items()]
    return table(["environments", *kinds], rows)
