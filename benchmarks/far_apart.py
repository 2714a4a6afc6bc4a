"""Machines that are far apart, all of them on this one: network namespaces, and a process that carries packets between them, late.

Each namespace has nothing but a loopback and a TUN device. What is sent there, the carrying process reads, holds for the delay, and
writes to the device of the namespace that it is for. (``tc netem`` does the same where the kernel has it.) A namespace has no name:
it ends with its last process, and so does the carrying process, so that nothing is left behind. Linux only, and only as root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fcntl import ioctl
from ipaddress import IPv4Address

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
DEVICE = "far"


def address(number: int) -> str:
    """Of a namespace, from 0; that of :func:`network` is the first."""
    return f"10.77.0.{number + 1}"


class Network:
    """Where the namespaces are joined.

    Args:
        delay: Seconds that a packet takes from one namespace to another.
    """

    def __init__(self, delay: float) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            command = [sys.executable, __file__, "carry", str(delay), str(other.fileno())]
            self._carrying = subprocess.Popen(command, pass_fds=[other.fileno()])

    def enter(self, number: int) -> None:
        """Take this thread, and whatever it starts from now on, to a namespace of its own.

        Raises:
            OSError: It may not, or the kernel has no namespaces or no TUN devices.
        """
        _enter(number, self._socket)

    def start(self, number: int, command: Sequence[str], **how: object) -> subprocess.Popen[bytes]:
        """Start a command in another namespace of its own; further arguments are those of ``Popen``."""
        there = [sys.executable, __file__, "enter", str(number), str(self._socket.fileno()), *command]
        return subprocess.Popen(there, pass_fds=[self._socket.fileno()], **how)  # type: ignore[call-overload, no-any-return]

    def close(self) -> None:
        """No packet arrives any more."""
        self._socket.close()
        self._carrying.terminate()
        self._carrying.wait(10)


@contextmanager
def network(delay: float) -> Iterator[Network]:
    """A network of delayed links, on which this thread has the first address. It has left the machine's own for good."""
    found = Network(delay)
    try:
        found.enter(0)
        yield found
    finally:
        found.close()


def round_trip(number: int) -> float:
    """Seconds from here to another namespace and back: what it takes to be told that nobody listens at a port."""
    begin = time.perf_counter()
    with socket.socket() as asking:
        asking.settimeout(10)
        said = asking.connect_ex((address(number), 9))
        took = time.perf_counter() - begin
    if said != errno.ECONNREFUSED:
        raise RuntimeError(f"port 9 of {address(number)} is not closed: {os.strerror(said)}")
    return took


def _enter(number: int, carrying: socket.socket) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, f"cannot make a network namespace: {os.strerror(error)}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        ioctl(device, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
        for command in (
            "link set lo up",
            f"address add {address(number)}/24 dev {DEVICE}",
            f"link set {DEVICE} up txqueuelen 10000",
        ):
            subprocess.run(["ip", *command.split()], check=True, timeout=10)
        socket.send_fds(carrying, [IPv4Address(address(number)).packed], [device])
    finally:
        os.close(device)


def _carry(delay: float, told: socket.socket) -> None:
    """Carry packets until nobody is left who could send any."""
    os.setpriority(os.PRIO_PROCESS, 0, -15)  # a real link does not wait for cores
    devices: dict[bytes, int] = {}
    held: deque[tuple[float, int, bytes]] = deque()  # all take as long, so the first that came is the first due
    while True:
        wait = max(0.0, held[0][0] - time.monotonic()) if held else None
        ready, _, _ = select.select([told, *devices.values()], [], [], wait)
        now = time.monotonic()
        for one in ready:
            if one is told:
                whose, descriptors, _, _ = socket.recv_fds(told, 16, 1)
                if not descriptors:
                    return
                devices[whose] = descriptors[0]
                continue
            try:
                held.extend((now + delay, devices[packet[16:20]], packet) for packet in _read(one) if packet[16:20] in devices)
            except OSError:  # its namespace has ended
                devices = {whose: device for whose, device in devices.items() if device != one}
        while held and held[0][0] <= time.monotonic():
            _, to, packet = held.popleft()
            with suppress(OSError):
                os.write(to, packet)


def _read(device: int) -> Iterator[bytes]:
    """What has been sent; not more than some of it, lest others wait."""
    with suppress(BlockingIOError):
        for _ in range(64):
            yield os.read(device, 1 << 16)


if __name__ == "__main__":
    what, value, descriptor, *command = sys.argv[1:]
    with socket.socket(fileno=int(descriptor)) as other:
        if what == "carry":
            _carry(float(value), other)
        else:
            _enter(int(value), other)
    if command:
        os.execvp(command[0], command)
