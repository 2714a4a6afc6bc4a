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
