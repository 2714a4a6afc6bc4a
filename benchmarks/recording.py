"""A result file: the figures of a run, with the machine that they were taken on and what else it had to do."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from machine import is_much, load, machine

_began: dict[str, Any] = {}
"""When this run began, and how busy the machine was then."""


def write_json(options: argparse.Namespace, name: str, cases: Mapping[str, Any], **more: Any) -> Path:
    """Write the results of this run, with the machine that they were measured on and what else it had to do."""
    options.output.mkdir(parents=True, exist_ok=True)
    path = Path(options.output) / f"{name}.json"
    end = load()
    begin = _began.get("load", end)
    whole = getattr(options, "whole", not options.quick)
    run = {
        "whole": whole,
        "arguments": _recorded(sys.argv[1:]),
        "began": _began.get("at"),
        "ended": time.strftime("%Y-%m-%d %H:%M:%S"),
        "load": {"before": begin, "after": end},
        "under_load": is_much(begin),
    }
    content = {"benchmark": name, "quick": options.quick, "run": run, "machine": machine(), **more, "cases": cases}
    path.write_text(json.dumps(content, indent=1) + "\n")
    print(f"wrote {path.name}" + ("" if whole else f" of a part, to {path.parent.name}"))
    if run["under_load"]:
        print("warning: the machine was busy when this run began; the file says so. Take it again.")
    return path


def _recorded(arguments: list[str]) -> list[str]:
    """Arguments without the folder that the results go to: it is one of this machine."""
    rest = iter(arguments)
    kept = []
    for argument in rest:
        if argument == "--output":
            next(rest, None)
        elif not argument.startswith("--output="):
            kept.append(argument)
    return kept


def print_machine() -> None:
    """Show the machine and what others do on it. A benchmark calls it first."""
    _began.update(at=time.strftime("%Y-%m-%d %H:%M:%S"), load=load())
    found, others = machine(), _began["load"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    print(f"{found['cores']} cores, {found['cpu']}, {found['memory_gb']} GB, {found['system']}, Python {found['python']}")
    taken = "unknown" if others["taken"] is None else f"{others['taken']:.0%}"
    print(f"load average {others['average']}, share of the cores that others take: {taken}")
    if is_much(others):
        print("warning: other programs are busy on this machine: ratios wander, and rates are not those of a quiet one")
    print(versions, flush=True)
