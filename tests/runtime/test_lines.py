"""The caller's end of a line: it never waits for longer than it is told to."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from multiprocessing import Pipe, reduction
from typing import Any

import pytest

from reactor_rl.runtime import line as lines
from reactor_rl.runtime.line import Line

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="lines there are those of multiprocessing")

BIG = b"x" * 3_000_000


@pytest.fixture
def ends() -> Iterator[tuple[Line, Any]]:
    mine, theirs = Pipe()
    line = Line(mine)
    yield line, theirs
    line.close()
    theirs.close()


@pytest.mark.timeout(30)
def test_what_nobody_reads_is_kept(ends: tuple[Line, Any]) -> None:
    line, theirs = ends
    line.send(["one", BIG])
    line.send("two")
    assert not line.sent(0.0) and not line.sent(0.01)
    os.set_blocking(theirs.fileno(), False)
    parts = []
    while not line.sent(0.0):
        parts.append(os.read(theirs.fileno(), 1 << 20))
    try:
        while True:
            parts.append(os.read(theirs.fileno(), 1 << 20))
    except BlockingIOError:
        pass
    read = b"".join(parts)
    first = reduction.ForkingPickler.dumps(["one", BIG])
    assert read == struct.pack("!i", len(first)) + bytes(first) + read[4 + len(first) :]
    assert bytes(read[4 + len(first) + 4 :]) == bytes(reduction.ForkingPickler.dumps("two"))


@pytest.mark.timeout(30)
def test_half_a_message_is_none_yet(ends: tuple[Line, Any]) -> None:
    line, theirs = ends
    message = bytes(reduction.ForkingPickler.dumps({"a": 1}))
    for part in (struct.pack("!i", len(message))[:2], struct.pack("!i", len(message))[2:], message[:3]):
        os.write(theirs.fileno(), part)
        with pytest.raises(TimeoutError):
            line.receive(0.01)
    os.write(theirs.fileno(), message[3:])
    theirs.send("next")
    assert line.receive(1.0) == {"a": 1} and line.receive(1.0) == "next"


@pytest.mark.timeout(30)
def test_who_waits_for_an_answer_goes_on_with_the_question(ends: tuple[Line, Any]) -> None:
    line, theirs = ends
    line.send(BIG)
    os.set_blocking(theirs.fileno(), False)
    read = 0
    while read < len(BIG):
        with pytest.raises(TimeoutError):
            line.receive(0.01)
        read += len(os.read(theirs.fileno(), 1 << 22))
    assert line.sent(1.0)


def test_long_messages_have_their_length_as_multiprocessing_s_do(ends: tuple[Line, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    line, theirs = ends
    monkeypatch.setattr(lines, "_MOST", 8)
    line.send("a long one")
    assert theirs.recv() == "a long one"
    message = bytes(reduction.ForkingPickler.dumps("another"))
    os.write(theirs.fileno(), struct.pack("!iQ", -1, len(message)) + message)
    assert line.receive(1.0) == "another"


def test_the_last_words_are_heard_behind_the_end(ends: tuple[Line, Any]) -> None:
    line, theirs = ends
    line.send(BIG)
    theirs.send("I go")
    theirs.close()
    assert line.receive(1.0) == "I go"
    with pytest.raises((EOFError, ConnectionError)):
        line.receive(1.0)
    with pytest.raises(ConnectionError):
        line.sent(1.0)
