"""The caller's end of the pipe to a helper process, which never waits for longer than it is told to.

A helper may stop at any moment, even in the middle of a message that is larger than the pipe's buffer. Outgoing bytes are
therefore kept here until the pipe takes them, and a partly received message until the rest is there. The other end is an
ordinary connection of ``multiprocessing``, whose wire format this uses.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from multiprocessing import reduction
from typing import Any

__all__ = ["Line"]

_POSIX = os.name == "posix"
_LENGTH, _LONG = struct.Struct("!i"), struct.Struct("!Q")
_MOST = 0x7FFFFFFF
"""Longest message, in bytes, whose length is one number; for longer ones that number is -1 and the length follows. The same format
as ``multiprocessing.connection`` has on POSIX.
"""


class Line:
    """The caller's end of the pipe to one helper.

    Args:
        connection: An end of a duplex pipe of ``multiprocessing``, which belongs to this object from now on.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._unsent: list[memoryview] = []
        self._begin(_LENGTH)
        if _POSIX:
            os.set_blocking(connection.fileno(), False)

    def _begin(self, form: struct.Struct | None, size: int = 0) -> None:
        """Expect a length next, or (``form`` is None) a message of ``size`` bytes."""
        self._form, self._coming, self._come = form, bytearray(size if form is None else form.size), 0

    def send(self, message: Any) -> None:
        """Send a message, as much of it as the pipe takes at once.

        Raises:
            OSError: If the other end is gone.
        """
        if not _POSIX:
            self._connection.send(message)
            return
        data = reduction.ForkingPickler.dumps(message)
        size = len(data)
        head = _LENGTH.pack(size) if size <= _MOST else _LENGTH.pack(-1) + _LONG.pack(size)
        self._unsent += [memoryview(head), memoryview(data)]
        self._push()

    def sent(self, timeout: float) -> bool:
        """Wait until everything is sent, and return whether it is.

        Raises:
            OSError: If the other end is gone.
        """
        if self._unsent:
            self._wait(select.POLLOUT, timeout)
            self._push()
        return not self._unsent

    def receive(self, timeout: float) -> Any:
        """Receive the next message.

        Raises:
            TimeoutError: If not all of it has come in time. A later call continues.
            EOFError, OSError: If the other end is gone.
        """
        if not _POSIX:
            if not self._connection.poll(timeout):
                raise TimeoutError
            return self._connection.recv()
        end = time.monotonic() + timeout
        while not self._pull():
            left = end - time.monotonic()
            if left <= 0.0:
                raise TimeoutError
            self._wait(select.POLLIN | (select.POLLOUT if self._unsent else 0), left)
            with contextlib.suppress(OSError):  # the other end may have sent something before it closed
                self._push()
        # The next message is begun before this one is unpickled, for that may raise.
        data = self._coming
        self._begin(_LENGTH)
        return reduction.ForkingPickler.loads(data)

    def _wait(self, events: int, timeout: float) -> bool:
        """Wait for the pipe, and return whether one of the events, or its end, has come."""
        poll = select.poll()
        poll.register(self._connection.fileno(), events)
        return bool(poll.poll(1000.0 * timeout))

    def _push(self) -> None:
        """Send as much as the pipe takes."""
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                gone = os.write(self._connection.fileno(), self._unsent[0])
                self._unsent[0] = self._unsent[0][gone:]
                if not self._unsent[0]:
                    del self._unsent[0]

    def _pull(self) -> bool:
        """Take the bytes that have come, and return whether a message is complete."""
        while True:
            if self._come == len(self._coming):
                if self._form is None:
                    return True
                (size,) = self._form.unpack(self._coming)
                self._begin(*(_LONG, 0) if size < 0 else (None, size))
                continue
            # Polled, not read until BlockingIOError: Ctrl-C while that is handled would show the user two tracebacks.
            if not self._wait(select.POLLIN, 0.0):
                return False
            came = os.readv(self._connection.fileno(), [memoryview(self._coming)[self._come :]])
            if not came:
                raise EOFError
            self._come += came

    def hang_up(self) -> None:
        """Shut the pipe down, for every process that has inherited this end: a helper in the middle of a message gets an error."""
        if _POSIX:
            with contextlib.suppress(OSError):
                _End(fileno=os.dup(self._connection.fileno())).shutdown(socket.SHUT_RDWR)
        else:
            self.close()

    def close(self) -> None:
        """Close this end."""
        self._connection.close()


class _End(socket.socket):
    """A socket that closes with its last reference without a ResourceWarning: an interrupt may prevent an explicit close."""

    def __del__(self) -> None:
        self.close()
