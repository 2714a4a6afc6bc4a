"""What composing a program hands out: its reactors, its banks, and their ports as ends of connections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from reactor_rl import reactor as declare
from reactor_rl.errors import ProgramError

__all__ = ["Bank", "Instance", "PortRef"]


class Owner(Protocol):
    """The program that is being composed: reactors and ports of another one are refused."""

    name: str


@dataclass(frozen=True, eq=False)
class PortRef:
    """A port of an instance, of every member of a bank, or of the boundary, as an end of a connection.

    ``.rows`` addresses its leading axis: all rows one by one (``.rows``), one row (``.rows[2]``, without the
    axis) or a block of rows (``.rows[2:5]``, with it).
    """

    owner: Instance | Bank | Owner
    name: str
    selection: slice | int | Literal["each"] | None = None

    @property
    def rows(self) -> _Rows:
        if self.selection is not None:
            raise ProgramError(f"{self} already selects rows")
        return _Rows(self.owner, self.name, "each")

    def __str__(self) -> str:
        owner = f"{self.owner.name}." if isinstance(self.owner, Instance | Bank) else ""
        match self.selection:
            case None:
                return f"{owner}{self.name}"
            case "each":
                return f"{owner}{self.name}.rows"
            case slice() as block:
                return f"{owner}{self.name}.rows[{block.start}:{block.stop}]"
            case index:
                return f"{owner}{self.name}.rows[{index}]"


class _Rows(PortRef):
    def __getitem__(self, index: int | slice) -> PortRef:
        if isinstance(index, slice):
            if index.step not in (None, 1) or index.start is None or index.stop is None or not 0 <= index.start < index.stop:
                raise ProgramError(f"{self}: a block of rows is written rows[start:stop] with 0 <= start < stop")
            return PortRef(self.owner, self.name, slice(int(index.start), int(index.stop)))
        if index < 0:
            raise ProgramError(f"{self}: rows are counted from 0, not {index}")
        return PortRef(self.owner, self.name, int(index))


class Instance:
    """One reactor of a program. Its ports are attributes: ``program.connect(a.out, b.inp)``."""

    def __init__(self, program: Owner, index: int, name: str, reactor: declare.Reactor, bank: tuple[str, int, int] | None) -> None:
        self._program, self._index, self.name, self._reactor, self._bank = program, index, name, reactor, bank
        self._declarations = declare.declarations(reactor)

    def __getattr__(self, name: str) -> PortRef:
        if name.startswith("_"):
            raise AttributeError(name)
        if isinstance(self._declarations.get(name), declare.Port):
            return PortRef(self, name)
        ports = ", ".join(sorted(k for k, v in self._declarations.items() if isinstance(v, declare.Port))) or "none"
        raise AttributeError(f"reactor {self.name!r} ({type(self._reactor).__name__}) has no port {name!r}; its ports: {ports}")

    def __repr__(self) -> str:
        return f"<{type(self._reactor).__name__} {self.name!r}>"


class Bank:
    """Several reactors of one class. Its ports stand for the port of every member; ``bank[i]`` is one member."""

    def __init__(self, name: str, members: tuple[Instance, ...]) -> None:
        self.name, self.members = name, members

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Instance]:
        return iter(self.members)

    def __getitem__(self, index: int) -> Instance:
        return self.members[index]

    def __getattr__(self, name: str) -> PortRef:
        if name.startswith("_"):
            raise AttributeError(name)
        getattr(self.members[0], name)
        return PortRef(self, name)

    def __repr__(self) -> str:
        return f"<bank {self.name!r} of {len(self)}>"
