"""A helper that dies in the middle of what it says."""

from __future__ import annotations

import os
import struct
from multiprocessing import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

from reactor_rl.runtime.line import Line
from reactor_rl.runtime.processes import ProcessesExecutor


@pytest.mark.parametrize("said", [b"", b"\0", struct.pack("!i", 100) + b"torn"])
def test_a_message_that_breaks_off_is_the_end_of_the_line(said: bytes) -> None:
    mine, theirs = Pipe()
    os.write(theirs.fileno(), said)
    theirs.close()
    executor: Any = SimpleNamespace(_lines=[Line(mine)])
    with mine, pytest.raises(EOFError):
        ProcessesExecutor.receive(executor, 1, 1.0)


def test_who_is_gone_is_sent_nothing_more() -> None:
    mine, theirs = Pipe()
    line = Line(mine)
    line.send(b"x" * 3_000_000)
    executor: Any = SimpleNamespace(_lines=[line])
    with mine:
        assert ProcessesExecutor.sent(executor, 1, 0.0) is False
        theirs.close()
        assert ProcessesExecutor.sent(executor, 1, 0.0) is True
