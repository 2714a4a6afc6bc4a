"""The record of a search as JSON lines: written while it goes on, and read to go on with it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from reactor_sb3.replacing import locked

__all__ = ["Record"]

_KEY = "search"
FILE = "trials.jsonl"


def _text(values: Any) -> str:
    """JSON: of equal values the same text, NaN included."""
    return json.dumps(values)


class Record:
    """A folder with a file of lines: what is searched for, and then each draw, report and end of a training.

    Args:
        path: Of the folder; made if it is not there. ``None`` for a record that is kept nowhere.
        about: What is searched for, plain values.

    Attributes:
        drawn: Hyperparameters of trials that the file has had, by number.
        reports: Reports of trainings that were judged, by trial and repeat: step, value, whether it was to stop, and attributes
            that the pruner keeps.
        ends: Ends of trainings, by trial and repeat.

    Raises:
        ValueError: If the file has another search, or something else, or another process is at work on it.
    """

    def __init__(self, path: str | os.PathLike[str] | None, about: Mapping[str, Any]) -> None:
        self.folder = None if path is None else Path(path).absolute()  # a training may change the working directory
        self.drawn: dict[int, dict[str, Any]] = {}
        self.reports: dict[tuple[int, int], list[tuple[int, float, bool, dict[str, Any]]]] = {}
        self.ends: dict[tuple[int, int], dict[str, Any]] = {}
        self.file: TextIO | None = None
        if self.folder is None:
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"path must be a folder, and {self.folder} is a file")
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / FILE
        self.file = path.open("a+")
        try:
            if not locked(self.file):
                raise ValueError(f"another process carries out the search in {self.folder}: wait for it, or give another path")
            end = self._read(path, about)
        except BaseException:
            self.file.close()
            raise
        self.file.seek(end)
        self.file.truncate()  # a line whose writer died has no end
        if not end:
            self._line({_KEY: dict(about)})

    @property
    def path(self) -> Path | None:
        """The file; ``None`` without a folder."""
        return None if self.folder is None else self.folder / FILE

    def _read(self, path: Path, about: Mapping[str, Any]) -> int:
        """Read what is known. Returns where the last whole line ends."""
        data = path.read_bytes()
        end = data.rfind(b"\n") + 1
        lines = data[:end].splitlines()
        if not lines:
            return 0
        try:
            theirs, *rest = [json.loads(line) for line in lines]
            found = theirs[_KEY]
            for line in rest:
                if "drawn" in line:
                    self.drawn[line["drawn"]] = line["params"]
                    continue
                training = line["trial"], line["repeat"]
                if "step" in line:
                    judged = line["step"], line["value"], line["stops"], line.get("attributes", {})
                    self.reports.setdefault(training, []).append(judged)
                else:
                    self.ends[training] = {name: line[name] for name in ("state", "value", "error", "text", "digest")}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a record of a search: {error}") from error
        ours = json.loads(_text(dict(about)))
        for name in sorted({*ours, *found}):
            if _text(ours.get(name)) != _text(found.get(name)):
                raise ValueError(
                    f"{path} is the record of another search: its {name} is {found.get(name)!r}, here it is {ours.get(name)!r}. "
                    "Pass another path, or what that one was begun with"
                )
        return end

    def draw(self, number: int, params: Mapping[str, Any]) -> None:
        """Note what was drawn for a trial.

        Raises:
            ValueError: If something else was drawn for it before.
        """
        known = self.drawn.get(number)
        if known is None:
            self._line({"drawn": number, "params": dict(params)})
            return
        ours = json.loads(_text(dict(params)))
        for name in sorted({*ours, *known}):
            if _text(ours.get(name)) != _text(known.get(name)):
                raise ValueError(
                    f"{self.folder} is the record of another search: its trial {number} has {name}={known.get(name)!r}, here it "
                    f"has {name}={ours.get(name)!r}. The sampler, its seed, the space or the version of Optuna is another one"
                )

    def report(self, trial: int, repeat: int, step: int, value: float, stops: bool, attributes: Mapping[str, Any]) -> None:
        """Note a report that was judged."""
        more = {"attributes": dict(attributes)} if attributes else {}
        self._line({"trial": trial, "repeat": repeat, "step": step, "value": value, "stops": stops, **more})

    def end(self, trial: int, repeat: int, end: Mapping[str, Any]) -> None:
        """Note how a training has ended."""
        self._line({"trial": trial, "repeat": repeat, **end})

    def folder_of(self, trial: int, repeat: int) -> str | None:
        """The folder of a training."""
        return None if self.folder is None else str(self.folder / f"{trial}-{repeat}")

    def _line(self, values: Mapping[str, Any]) -> None:
        if self.file is None:
            return
        self.file.write(_text(values) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        if self.file is not None:
            self.file.close()
