"""Which judge runs which statement, so that a mutant is judged by those alone, the quickest first."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from choosing import Statement

FUTURE = "from __future__ import annotations"
SIMULATION = "simulation"


@dataclass
class Reached:
    """Judges by statement: its file and name."""

    seconds: dict[str, float] = field(default_factory=dict)
    """How long each judge took."""
    judges: dict[tuple[str, str], set[str]] = field(default_factory=lambda: defaultdict(set))

    def simulated(self, statement: Statement) -> bool:
        return SIMULATION in self.judges[statement.file, statement.name]

    def tests(self, statement: Statement) -> list[str]:
        """Return names of tests that run a statement, the quickest first."""
        return sorted(self.judges[statement.file, statement.name] - {SIMULATION}, key=lambda name: (self.seconds[name], name))

    def note(self, judge: str, seconds: float, numbers: list[int], found: list[Statement]) -> None:
        self.seconds[judge] = seconds
        for number in numbers:
            self.judges[found[number].file, found[number].name].add(judge)

    def read(self, notes: Path, found: list[Statement]) -> None:
        """Read what the plugin has noted of tests. What runs while modules are imported, each test runs."""
        lines = [json.loads(line) for line in notes.read_text().splitlines()]
        names = {name: seconds for name, seconds, _ in lines if name}
        for name, seconds, numbers in lines:
            for judge in [name] if name else names:
                self.note(judge, seconds or names[judge], numbers, found)


def mark(source: str, numbered: Mapping[int, Statement]) -> str:
    """Return a source in which each of these statements first sets its byte (see ``hits.py``)."""
    lines = source.encode().splitlines(keepends=True)
    # What runs at the end of an interpreter may find its module without names.
    for number, one in sorted(numbered.items(), key=lambda item: item[1], reverse=True):
        line = lines[one.line - 1]
        lines[one.line - 1] = line[: one.column] + f"_HITS and _HITS.__setitem__({number}, 1); ".encode() + line[one.column :]
    marked = b"".join(lines).decode()
    if FUTURE not in marked:
        return source
    return marked.replace(FUTURE, FUTURE + "; from hits import HITS as _HITS", 1)
