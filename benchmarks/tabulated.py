"""What the tables of README and docs are made with."""

from __future__ import annotations

from typing import Any

Result = dict[str, Any]


def digits(value: float) -> str:
    """A number with three digits that count, and all of those before its point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    first, *others = (f"| {' | '.join(line)} |" for line in (head, *rows))
    return "\n".join([first, "|---" * len(head) + "|", *others, ""])


def spread(found: dict[str, float], unit: str = "") -> str:
    """The median of the rounds, and lowest and highest below it."""
    return (
        f"{digits(found['median'])}{unit}<br>{digits(found['min'])}\u2011{digits(found['max'])}"  # a hyphen that no line ends with
    )


def processors(result: Result) -> str:
    """Names of the processors that a result file was taken on: pieces of a long run may be of several."""
    in_pieces = str(result.get("benchmark", "")).startswith("reward_")
    runs = [run for case in result["cases"].values() for run in case["runs"]] if in_pieces else []
    of_pieces = {run["cpu"] for run in runs if "cpu" in run}
    return " and ".join(sorted(of_pieces) or [result["machine"]["cpu"]]).replace("(R)", "")


def small_print(result: Result) -> str:
    """When and on what a result file was taken, and how busy the machine was just before."""
    machine = result["machine"]
    if "run" not in result:  # of the first day of this project
        date, average, taken = machine["date"], machine["load_before"], None
    else:
        date, before = result["run"]["began"].split()[0], result["run"]["load"]["before"]
        average, taken = before["average"], before["taken"]
    others = "" if taken is None else f", others took {100 * taken:.0f} % of them"
    cores = f"{machine['cores']} core{'s' * (machine['cores'] > 1)} of {processors(result)}"
    return f"<small>Taken on {date}; load average {average} on {cores} before{others}.</small>\n"
