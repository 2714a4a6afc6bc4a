"""``python -m reactor_rl diff a.zip b.zip``: the first entry in which two checkpoints differ, for who debugs a resumed run."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from reactor_rl.plugin import UsageError
from reactor_sb3.checkpoints.archive import Archive, opened
from reactor_sb3.checkpoints.document import check_format, take

__all__ = ["Difference", "differences", "main"]

_LONGEST = 60
"""Characters of a value that is shown: two of them and the words in between make a line of a wide terminal."""


class Difference(NamedTuple):
    """An entry that two checkpoints do not have in common.

    Attributes:
        entry: Where it is, such as ``state.policy.q_net.q_net.0.weight``.
        said: How the two differ.
    """

    entry: str
    said: str


def main(argv: list[str]) -> int:
    """Name the first entry in which two checkpoints differ; executes nothing of them."""
    parser = argparse.ArgumentParser(
        prog="python -m reactor_rl diff",
        description="Compares two checkpoints of save_checkpoint(), SaveCheckpoint or SaveRun, and names the first entry that "
        "differs. Pickles are compared as bytes and never loaded. The exit status is 0 if nothing differs, 1 if something does.",
    )
    parser.add_argument("a", help="a checkpoint")
    parser.add_argument("b", help="another one")
    parser.add_argument("--all", action="store_true", help="name every entry that differs")
    options = parser.parse_args(argv)
    try:
        found = list(differences(options.a, options.b))
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    for one in found if options.all else found[:1]:
        print(f"{one.entry}: {one.said}")
    if not found:
        print("the same")
    elif len(found) > 1 and not options.all:
        print(f"and {len(found) - 1} more entries, which --all lists")
    return 1 if found else 0


def differences(a: str, b: str) -> Iterator[Difference]:
    """Go through two checkpoints in the order in which the first one was written.

    Yields:
        What differs, entry by entry; the versions and machines that wrote them do not count.

    Raises:
        FileNotFoundError: If one of them is not there.
        ValueError: If one of them is damaged or no checkpoint.
    """
    states = []
    for path in (a, b):  # what is wrong with one is not the other's fault
        with opened(path, allow_pickle=True) as archive:
            check_format(archive.document)
            states.append(take(archive.document.pop("state", None), _Stored))
    with opened(a, allow_pickle=True) as first, opened(b, allow_pickle=True) as second:
        for name in first.document | second.document:
            if name not in ("versions", "machine", "state"):
                pair = first.document.get(name), second.document.get(name)
                if pair[0] != pair[1]:
                    yield Difference(name, _said(*pair))
        yield from _values("state", states[0], states[1], (first, second))


@dataclass(frozen=True)
class _Stored:
    """An array or pickle that has an entry of its own."""

    kind: str
    name: str


def _values(entry: str, one: Any, other: Any, archives: tuple[Archive, Archive]) -> Iterator[Difference]:
    """Two values of documents, in which arrays and pickles are :class:`_Stored`."""
    if isinstance(one, (dict, list, tuple)) and type(one) is type(other):
        parts, others = (value if isinstance(value, dict) else dict(enumerate(value)) for value in (one, other))
        for key in parts | others:
            if key in parts and key in others:
                yield from _values(f"{entry}.{key}", parts[key], others[key], archives)
            else:
                yield Difference(f"{entry}.{key}", f"only in the {'first' if key in parts else 'second'}")
    elif not isinstance(one, _Stored) or not isinstance(other, _Stored) or one.kind != other.kind:
        if repr(one) != repr(other):  # NaN is like itself, and 1 is not like 1.0
            yield Difference(entry, _said(one, other))
    elif one.kind in ("tensor", "array"):
        if said := _of_arrays(archives[0].array(one.name), archives[1].array(other.name)):
            yield Difference(entry, said)
    else:
        pickles = archives[0].pickled(one.name), archives[1].pickled(other.name)
        if pickles[0] != pickles[1]:
            yield Difference(entry, f"pickles of {len(pickles[0])} and {len(pickles[1])} bytes differ")


def _of_arrays(one: Any, other: Any) -> str:
    """How two arrays differ; empty if they do not."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype} of shape {one.shape} and {other.dtype} of shape {other.shape}"
    raw, others = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (one, other))
    wrong = (raw != others).reshape(-1, max(one.dtype.itemsize, 1)).any(1)
    if not wrong.any():
        return ""
    at = np.unravel_index(int(wrong.argmax()), one.shape)
    where = [int(index) for index in at]
    return f"{int(wrong.sum())} of {one.size} elements differ, first {where}: {_said(one[at], other[at])}"


def _said(one: Any, other: Any) -> str:
    texts = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for text in map(repr, (one, other))]
    return f"{texts[0]} and {texts[1]}"
