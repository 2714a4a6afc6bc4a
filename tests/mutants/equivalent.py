"""Statements without which nothing is wrong that a test could notice, each with the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {}
"""By file and name of the statement (``function: text``). They are not judged."""
