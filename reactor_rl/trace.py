"""Record an execution as a timeline (which worker ran what, and when it waited) that Perfetto and chrome://tracing open.

Workers record on the same monotonic clock, which all processes of a machine share, so that their rows line up.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

__all__ = ["Slice", "Tracing"]

Slice = tuple[Literal["reaction", "wait"], str, int, int, int, int]
"""Kind, name, start and end in ns, time, microstep."""

Event = dict[str, Any]


class Tracing:
    """Record a run while the block runs, then write the trace; made by :meth:`Run.trace`.

    If the block raises, the trace so far is still written if the workers can be asked for it.

    Args:
        ask: Sends every worker of the run a request, and returns their replies in order.
        program: Name of the program that it runs.
        path: File to write.
        labels: Label of each worker, in the order of their replies; ``None`` for their numbers.

    Attributes:
        path: File to write.
        reactions: Number of reactions recorded, once the block has ended.

    Raises:
        FileNotFoundError: If the directory of ``path`` does not exist.
        IsADirectoryError: If ``path`` is a directory.
        PermissionError: If the directory cannot be written to.
    """

    def __init__(
        self,
        ask: Callable[[str, Any], Sequence[Any]],
        program: str,
        path: str | os.PathLike[str],
        labels: Sequence[str] | None = None,
    ) -> None:
        self._ask, self._program, self._labels = ask, program, labels
        self.path = Path(path)
        self.reactions = 0
        # Fail now, not after an hour of recording.
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"cannot write a trace to {str(path)!r}: directory {str(self.path.parent)!r} does not exist")
        if self.path.is_dir():
            raise IsADirectoryError(f"cannot write a trace to {str(path)!r}: it is a directory")
        if not os.access(self.path if self.path.exists() else self.path.parent, os.W_OK):
            raise PermissionError(f"cannot write a trace to {str(path)!r}: no permission")

    def __enter__(self) -> Self:
        self._ask("trace", True)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if error is None:
            self._write(self._ask("trace", False))
            return
        with contextlib.suppress(Exception):  # a run that is over cannot answer; what ended it matters more
            self._write(self._ask("trace", False))

    def _write(self, recorded: Sequence[Sequence[Slice]]) -> None:
        events = list(_events(self._program, recorded, self._labels or [f"worker {worker}" for worker in range(len(recorded))]))
        self.reactions = sum(event.get("cat") == "reaction" for event in events)
        whole = {
            "displayTimeUnit": "ms",
            "otherData": {"program": self._program, "workers": len(recorded)},
            "traceEvents": events,
        }
        self.path.write_text(json.dumps(whole), encoding="utf-8")


def _events(program: str, recorded: Sequence[Sequence[Slice]], labels: Sequence[str]) -> Iterator[Event]:
    """The events of a trace: a row for each worker, and one above them for the ticks."""
    yield {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": program}}
    for worker in range(len(recorded)):
        label = f"{labels[worker]} (caller)" if worker == 0 else labels[worker]
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": worker, "args": {"name": label}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": worker, "args": {"sort_index": worker}}
    origin = min((slices[0][2] for slices in recorded if slices), default=0)
    ticks: dict[int, tuple[int, int]] = {}
    for worker, slices in enumerate(recorded):
        for kind, name, begin, end, time, microstep in slices:
            args: dict[str, Any] = {"tag": [time, microstep]}
            if kind == "reaction":
                args["reactor"], _, args["reaction"] = name.rpartition(".")
                first, last = ticks.get(time, (begin, end))
                ticks[time] = min(first, begin), max(last, end)
            yield {
                "ph": "X", "name": name, "cat": kind, "pid": 0, "tid": worker,
                "ts": (begin - origin) / 1000, "dur": (end - begin) / 1000, "args": args,
            }  # fmt: skip
    for time, (begin, end) in sorted(ticks.items()):
        for phase, at in (("b", begin), ("e", end)):
            yield {"ph": phase, "name": f"tick {time}", "cat": "tick", "id": 0, "pid": 0, "tid": 0, "ts": (at - origin) / 1000}
