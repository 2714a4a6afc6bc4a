"""A log of episodes as JSON lines: written while an evaluation goes on, and read to go on with it."""

from __future__ import annotations

import json
import os
import reprlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from reactor_gymnasium.environments.player import EndedEpisode

__all__ = ["LogFile", "check_log"]

_KEY = "evaluation"
_HEAD = b'{"evaluation": {'
_LINE = b'{"episode": '
_LONGEST = 1 << 20
"""Bytes of a line: what is longer, nobody of us has written."""


def check_log(path: Path, *, goes_on: bool) -> None:
    """See to it that a log can be written, before anything is played; what is there stays as it is.

    Args:
        path: Of the file.
        goes_on: Whether what the file has is read.

    Raises:
        ValueError: If it is no file, or begins as no log does.
        FileNotFoundError: If its folder does not exist.
        PermissionError: If it cannot be written.
    """
    if path.is_dir():
        raise ValueError(f"log must be the path of a file, got the folder {path}")
    if path.exists() and not path.is_file() and (goes_on or path.is_fifo()):
        raise ValueError(f"log must be the path of a file, got {path}, which is something else")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"log: the folder of {path} does not exist")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise PermissionError(f"log: {path} cannot be written")
    if goes_on and path.exists():
        with path.open("rb") as file:
            if (first := file.readline(_LONGEST)) and not (len(first) > len(_HEAD) and first.startswith(_HEAD)):
                _evaluation_in(path, first)


class LogFile:
    """A file that gets a line for each episode that has ended, after a line that says what is evaluated.

    Where it cannot be written any longer, a warning says so, and the evaluation goes on.

    Args:
        path: Of the file.
        about: What is evaluated, plain values.
        goes_on: Whether the file may be there already, with episodes of the same evaluation.

    Attributes:
        known: Episodes that the file has had.

    Raises:
        ValueError: If the file has another evaluation, or something else.
        OSError: If it cannot be read or written.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], *, goes_on: bool) -> None:
        self.path = path
        self.known: list[EndedEpisode] = []
        self.file: BinaryIO | None = None
        check_log(path, goes_on=goes_on)
        head = json.dumps({_KEY: dict(about)}).encode() + b"\n"
        end = 0
        if goes_on and path.exists():
            self.known, end = _episodes_in(path, head)
        file = self.file = path.open("r+b" if end else "wb")
        try:
            if end:
                file.seek(end)
                file.truncate()  # a line whose writer died has no end
            else:
                file.write(head)
                file.flush()
        except BaseException:
            file.close()
            raise

    def add(self, episodes: Sequence[EndedEpisode]) -> None:
        """Write episodes down."""
        if not episodes or self.file is None:
            return
        lines = [
            json.dumps(
                {
                    "episode": one.number, "return": one.total, "length": one.length, "terminated": one.terminated,
                    "infos": one.info, "digest": one.digest,
                }
            )
            for one in episodes
        ]  # fmt: skip
        try:
            self.file.write("".join(f"{line}\n" for line in lines).encode())
            self.file.flush()
            if self.path.is_file():
                os.fsync(self.file.fileno())
        except OSError as error:  # a full disk, say
            warnings.warn(f"{self.path} gets no further episodes: {error}", RuntimeWarning, stacklevel=1)
            self.close()

    def close(self) -> None:
        """Close the file."""
        file, self.file = self.file, None
        if file is not None:
            try:
                file.close()
            except OSError:  # what it could not write then, it cannot write now
                return


def _not_ours(path: Path, why: str) -> ValueError:
    return ValueError(f"{path} is not a log of an evaluation, and stays as it is: {why}. Pass another path as log=")


def _episodes_in(path: Path, head: bytes) -> tuple[list[EndedEpisode], int]:
    """The episodes of a log, and where its last whole line ends: 0 if it is empty.

    Args:
        path: Of the file.
        head: The first line that we would write, which says what is evaluated.

    Raises:
        ValueError: If it is the log of another evaluation, or no log.
    """
    episodes: dict[int, EndedEpisode] = {}
    with path.open("rb") as file:
        first = file.readline(_LONGEST)
        if not first or (len(first) > len(_HEAD) and head.startswith(first) and not first.endswith(b"\n")):
            return [], 0  # its writer died before the first line was there
        _check_alike(path, _evaluation_in(path, first), json.loads(head)[_KEY])
        end = len(first)
        for number, line in enumerate(iter(lambda: file.readline(_LONGEST), b""), 2):
            if not line.endswith(b"\n"):
                if file.read(1) or not (line.startswith(_LINE) or _LINE.startswith(line)):
                    raise _not_ours(path, f"its line {number} is no episode")
                break
            one = _played(path, number, _loaded(path, number, line))
            if episodes.setdefault(one.number, one) != one:
                raise _not_ours(path, f"its line {number} has episode {one.number} once more, and otherwise")
            end += len(line)
    return list(episodes.values()), end


def _evaluation_in(path: Path, first: bytes) -> dict[str, Any]:
    """Read from the first line what is evaluated."""
    found = _loaded(path, 1, first) if first.endswith(b"\n") else {}
    if set(found) != {_KEY} or not isinstance(found[_KEY], dict):
        raise _not_ours(path, "its first line does not say what is evaluated")
    about: dict[str, Any] = found[_KEY]
    return about


def _loaded(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """A line as an object of JSON."""
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise _not_ours(path, f"its line {number} is no JSON ({error})") from error
    if not isinstance(found, dict):
        raise _not_ours(path, f"its line {number} is {reprlib.repr(found)}")
    return found


def _played(path: Path, number: int, found: Mapping[str, Any]) -> EndedEpisode:
    """An episode of a line."""

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    def is_count(value: Any) -> bool:
        return is_number(value) and isinstance(value, int) and 0 <= value < 2**63

    def is_info(value: Any) -> bool:
        return isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**300)

    kinds: dict[str, Callable[[Any], bool]] = {
        "episode": is_count, "return": is_number, "length": is_count, "terminated": lambda value: isinstance(value, bool),
        "infos": lambda value: isinstance(value, dict) and all(map(is_info, value.values())),
        "digest": lambda value: isinstance(value, str),
    }  # fmt: skip
    if set(found) != set(kinds):
        raise _not_ours(path, f"its line {number} has {reprlib.repr(sorted(found))} in place of {sorted(kinds)}")
    for name, alike in kinds.items():
        if not alike(found[name]):
            raise _not_ours(path, f"in its line {number} `{name}` is {reprlib.repr(found[name])}")
    try:
        total = float(found["return"])
    except OverflowError as error:
        raise _not_ours(path, f"in its line {number} `return` is too large") from error
    return EndedEpisode(0, found["episode"], total, found["length"], found["terminated"], True, found["infos"], found["digest"])


def _check_alike(path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse another evaluation. What an older version has not written down is not compared.

    Of a value that is a dict of hashes, such as ``environment``, those are compared that both have: what changes by itself is left
    out of one of them, perhaps.
    """
    for name in {**ours, **theirs}:
        here, there = ours.get(name), theirs.get(name)
        if name not in theirs and isinstance(here, dict):
            continue
        if isinstance(here, dict) and isinstance(there, dict):
            differing = [part for part in here if part in there and here[part] != there[part]]
            if not differing:
                continue
            what = ", ".join(f"`{part}`" if part else "code" for part in differing[:3])
            raise ValueError(
                f"{path} is the log of another evaluation: its {name} differs in {what}. Pass another path, or what that one was "
                "begun with"
            )
        if there != here:
            raise ValueError(
                f"{path} is the log of another evaluation: its {name} is {reprlib.repr(there)}, here it is {here!r}. Pass another "
                "path, or what that one was begun with"
            )
