"""Composing a program: reactor instances, banks, connections with delays, and the ports of the boundary."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import cloudpickle
import numpy as np

from reactor_rl import reactor as declare
from reactor_rl import topology as topo
from reactor_rl.errors import ProgramError

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Bank", "Instance", "PortRef", "Composition", "Connection"]


class Owner(Protocol):
    """The program that an end of a connection belongs to; ends of another program are refused."""

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
            raise ProgramError(f"{self}: rows are counted from 0, got {index}")
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


@dataclass
class Connection:
    """Sources of one input, as far as they have been connected."""

    delay: int
    initial: Any
    sources: list[topo.PortRows] = field(default_factory=list)
    gathers: bool = False


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


class Composition:
    """Reactors and their connections, as far as they have been composed.

    Args:
        name: Its name, in drawings and traces.

    Attributes:
        reserved: Names that a boundary port cannot have.
        instances: The reactors, by index.
        boundary_inputs: Declaration of each boundary input, by name.
        boundary_outputs: Names of the boundary's outputs.
        connections: Connection of each input, by reactor and name.
        connected: Numbers of the connected outputs, in the order of connection.
        rows_of: Number of rows of an output whose rows are connected one by one.
        delays: Delays, in ticks, after which an output is read.
        changes: Number of changes so far, by which derived data is known to be out of date.
        setup: Functions that every helper runs before its reactors are built.
    """

    reserved: Container[str] = ()

    def __init__(self, name: str = "program") -> None:
        self.name = name
        self.instances: list[Instance] = []
        self.boundary_inputs: dict[str, declare.Output] = {}
        self.boundary_outputs: list[str] = []
        self.connections: dict[tuple[int, str], Connection] = {}
        self.connected: dict[tuple[int, str], int] = {}
        self.rows_of: dict[int, int] = {}
        self.delays: dict[int, set[int]] = {}
        self.changes = 0
        self.setup: list[Callable[[], None]] = []
        self._names: set[str] = set()

    def add(self, cls: type[declare.Reactor], /, *args: Any, name: str | None = None, **params: Any) -> Instance:
        """Add one reactor, made by ``cls(*args, **params)``.

        Args:
            cls: A subclass of :class:`~reactor_rl.Reactor`.
            *args: Positional parameters of its ``__init__``.
            name: Its name; by default the class's in snake case, numbered if taken.
            **params: Keyword parameters of its ``__init__``.

        Raises:
            ProgramError: If ``cls`` is not a subclass of Reactor, or the name is taken.
        """
        return self._instance(cls, args, params, self._fresh_name(cls, name), None)

    def bank(self, cls: type[declare.Reactor], n: int, /, *args: Any, name: str | None = None, **params: Any) -> Bank:
        """Add ``n`` reactors of one class. An ``__init__`` with a parameter ``bank_index`` receives it.

        Raises:
            ProgramError: See :meth:`add`; or if ``n < 1``.
        """
        if n < 1:
            raise ProgramError(f"a bank needs at least one member, got n={n}")
        base = self._fresh_name(cls, name)
        wants_index = "bank_index" in inspect.signature(cls.__init__).parameters
        members = []
        for index in range(n):
            member_params = {**params, "bank_index": index} if wants_index else params
            members.append(self._instance(cls, args, member_params, f"{base}[{index}]", (base, index, n)))
        return Bank(base, tuple(members))

    def input(
        self, name: str, shape: int | tuple[int, ...] | None = None, dtype: npt.DTypeLike | None = None, *, rows: int | None = None
    ) -> PortRef:
        """Add a boundary input, which the caller sets before a tick with ``run.set(name=value)``.

        Without a dtype it carries any picklable object (``rows``: how many, if its rows are connected one by one).

        Raises:
            ProgramError: If the name is taken or is not an identifier.
        """
        self._boundary_name(name)
        self.boundary_inputs[name] = declare.Output(shape, dtype, rows=rows)
        return PortRef(self, name)

    def output(self, name: str) -> PortRef:
        """Add a boundary output, which the caller reads after a tick as ``run.name``.

        Raises:
            ProgramError: If the name is taken or is not an identifier.
        """
        self._boundary_name(name)
        self.boundary_outputs.append(name)
        return PortRef(self, name)

    def connect(self, source: PortRef, target: PortRef, *, after: int | None = None, initial: Any = topo.MISSING) -> None:
        """Connect an output to an input.

        Args:
            source: An output port, a boundary input, or rows of one. ``bank.port`` stands for every member's.
            target: An input port, a boundary output, or rows of one.
            after: Delay in ticks, at least 1. Without it the value arrives at the same tag.
            initial: With ``after``: the value that arrives at ticks ``0`` to ``after - 1``.

        Raises:
            ProgramError: If the ends do not fit together, the input has a source already, or ``after < 1``.
        """
        if not isinstance(source, PortRef) or not isinstance(target, PortRef):
            raise ProgramError(f"connect() takes two ports, got {source!r} and {target!r}")
        if after is not None and (isinstance(after, bool) or not isinstance(after, int | np.integer) or after < 1):
            raise ProgramError(
                f"connect({source}, {target}): after must be an integer >= 1, got {after!r}. For the same tag leave it out; for "
                "the next microstep (Lingua Franca's `after 0`) use a logical action"
            )
        if initial is not topo.MISSING and after is None:
            raise ProgramError(f"connect({source}, {target}): `initial` is for delayed connections; add after=1 or more")
        pairs = list(self._pairs(source, target))
        for one, other in pairs:  # check everything before anything changes
            self._check_ends(one, other)
        for one, other in pairs:
            self._connect_one(one, other, int(after or 0), self._initial_of(one, initial))
        self.changes += 1

    def worker_setup(self, function: Callable[[], None]) -> None:
        """Run ``function()`` in every helper before its reactors are built (to repeat registrations, say). Pickled by value."""
        self.setup.append(function)

    def pickled_reactors(self, *, by_reference: bool = False) -> tuple[bytes | declare.Reactor, ...]:
        """Pickle every reactor by itself, so that no two ever share an object, whatever the executor.

        Args:
            by_reference: Return reactors that cannot be pickled as they are, for workers that are forks of the caller.

        Raises:
            ProgramError: If a reactor cannot be pickled.
        """
        return tuple(_pickled(instance, by_reference) for instance in self.instances)

    def __repr__(self) -> str:
        inputs, outputs = ", ".join(self.boundary_inputs), ", ".join(self.boundary_outputs)
        return f"{type(self).__name__}({self.name!r}, reactors={len(self.instances)}, inputs=[{inputs}], outputs=[{outputs}])"

    # ------------------------------------------------------------------ inside

    def _fresh_name(self, cls: type[declare.Reactor], name: str | None) -> str:
        if not (isinstance(cls, type) and issubclass(cls, declare.Reactor)):
            raise ProgramError(f"expected a subclass of Reactor, got {cls!r}")
        if name is None:
            base = name = _snake(cls.__name__)
            number = 2
            while name in self._names:
                name, number = f"{base}_{number}", number + 1
        elif name in self._names:
            raise ProgramError(f"the program {self.name!r} already has a reactor named {name!r}")
        self._names.add(name)
        return name

    def _boundary_name(self, name: str) -> None:
        if not name.isidentifier() or name.startswith("_"):
            raise ProgramError(f"a boundary port's name must be an identifier without a leading underscore, got {name!r}")
        if name in self.reserved:
            raise ProgramError(f"a boundary port cannot be named {name!r}: a run has a method of that name")
        if name in self.boundary_inputs or name in self.boundary_outputs:
            raise ProgramError(f"the program {self.name!r} already has a boundary port named {name!r}")

    def _instance(
        self,
        cls: type[declare.Reactor],
        args: tuple[Any, ...],
        params: Mapping[str, Any],
        name: str,
        bank: tuple[str, int, int] | None,
    ) -> Instance:
        reactor = cls(*args, **params)
        reactor.bank_index = bank[1] if bank else 0
        instance = Instance(self, len(self.instances), name, reactor, bank)
        self.instances.append(instance)
        self.changes += 1
        return instance

    def _pairs(self, source: PortRef, target: PortRef) -> Iterator[tuple[PortRef, PortRef]]:
        """Resolve banks and `.rows` to one-to-one connections."""
        sources = [PortRef(m, source.name, source.selection) for m in source.owner] if isinstance(source.owner, Bank) else [source]
        targets = [PortRef(m, target.name, target.selection) for m in target.owner] if isinstance(target.owner, Bank) else [target]
        if source.selection == "each":
            if len(sources) > 1 or target.selection is not None:
                raise ProgramError(
                    f"connect({source}, {target}): .rows of one output go to one plain port of each member of a bank"
                )
            sources = [PortRef(source.owner, source.name, i) for i in range(len(targets))]
        if target.selection == "each":
            if len(targets) > 1 or source.selection is not None:
                raise ProgramError(
                    f"connect({source}, {target}): .rows of one input gather one plain port of each member of a bank"
                )
            targets = [PortRef(target.owner, target.name, i) for i in range(len(sources))]
        if len(sources) == 1:
            sources *= len(targets)
        if len(sources) != len(targets):
            hint = f"; to gather in index order connect it to {target}.rows" if len(targets) == 1 else ""
            raise ProgramError(f"connect({source}, {target}): {len(sources)} sources for {len(targets)} inputs{hint}")
        yield from zip(sources, targets, strict=True)

    def _declared(self, ref: PortRef) -> tuple[int, declare.Port]:
        """Look up the reactor's index (or BOUNDARY) and the declaration behind a reference."""
        if isinstance(ref.owner, Composition):
            if ref.owner is not self:
                raise ProgramError(f"{ref} belongs to another program, {ref.owner.name!r}")
            if ref.name in self.boundary_inputs:
                return topo.BOUNDARY, self.boundary_inputs[ref.name]
            return topo.BOUNDARY, declare.Input()
        assert isinstance(ref.owner, Instance)
        if ref.owner._program is not self:
            raise ProgramError(f"{ref} belongs to another program, {ref.owner._program.name!r}")
        port = ref.owner._declarations[ref.name]
        assert isinstance(port, declare.Port)
        return ref.owner._index, port

    def _check_ends(self, source: PortRef, target: PortRef) -> None:
        _, out = self._declared(source)
        owner, inp = self._declared(target)
        if not isinstance(out, declare.Output):
            raise ProgramError(
                f"connect({source}, {target}): {source} is an input; connect an output (or a boundary input) to an input"
            )
        if not isinstance(inp, declare.Input):
            raise ProgramError(f"connect({source}, {target}): {target} is an output; it cannot be written from outside its reactor")
        if source.selection is not None:
            n = (out.shape[0] if out.shape else None) if out.dtype is not None else out.rows_declared
            if n is None:
                raise ProgramError(f"{source}: this port has no rows; give it a leading axis, or rows=n for an object port")
            last = source.selection if isinstance(source.selection, int) else source.selection.stop - 1  # type: ignore[union-attr]
            if last >= n:
                raise ProgramError(f"{source}: this port has {n} rows")
        connection = self.connections.get((owner, target.name))
        if connection is None:
            return
        if target.selection is None or not connection.gathers:
            raise ProgramError(f"connect({source}, {target}): {target} already has a source; an input has one")
        lo = target.selection if isinstance(target.selection, int) else target.selection.start  # type: ignore[union-attr]
        hi = lo + 1 if isinstance(target.selection, int) else target.selection.stop  # type: ignore[union-attr]
        if any(piece.at is not None and piece.at < hi and lo < piece.at + piece.width for piece in connection.sources):
            raise ProgramError(f"connect({source}, {target}): that row already has a source; a row has one")

    def _initial_of(self, source: PortRef, initial: Any) -> Any:
        """Select one reader's part of an initial value: its rows, if the value has the shape of the whole output."""
        shape = self._declared(source)[1].shape
        if initial is topo.MISSING or source.selection is None or shape is None or np.shape(initial) != shape:
            return initial
        return np.asarray(initial)[source.selection]

    def _connect_one(self, source: PortRef, target: PortRef, delay: int, initial: Any) -> None:
        writer, out = self._declared(source)
        owner, _ = self._declared(target)
        assert isinstance(out, declare.Output)
        key = (writer, source.name)
        index = self.connected.setdefault(key, len(self.connected))
        self.delays.setdefault(index, set()).add(delay)
        lo = hi = at = None
        single, width = False, 1
        if source.selection is not None:
            self.rows_of[index] = out.shape[0] if out.shape else out.rows_declared or 0
            if isinstance(source.selection, int):
                lo, hi, single = source.selection, source.selection + 1, True
            elif isinstance(source.selection, slice):
                lo, hi = source.selection.start, source.selection.stop
        if isinstance(target.selection, int):
            at = target.selection
        elif isinstance(target.selection, slice):
            at, width = target.selection.start, target.selection.stop - target.selection.start
        piece = topo.PortRows(index, lo, hi, single, at, width, isinstance(target.selection, slice))
        connection = self.connections.get((owner, target.name))
        if connection is None:
            self.connections[owner, target.name] = connection = Connection(delay, initial, gathers=at is not None)
        elif connection.delay != delay:
            raise ProgramError(
                f"connect({source}, {target}): all rows of one input have the same delay; it is {connection.delay} so far"
            )
        elif not _same_initial(connection.initial, initial):
            raise ProgramError(f"connect({source}, {target}): all rows of one input have the same initial value, or none has one")
        connection.sources.append(piece)


def _same_initial(one: Any, other: Any) -> bool:
    if one is topo.MISSING or other is topo.MISSING:
        return one is other
    return bool(np.array_equal(one, other)) if isinstance(one, np.ndarray | np.generic) else bool(one == other)


def _pickled(instance: Instance, by_reference: bool) -> bytes | declare.Reactor:
    try:
        return cloudpickle.dumps(instance._reactor)  # type: ignore[no-any-return]
    except Exception as error:
        if by_reference:
            return instance._reactor
        raise ProgramError(
            f"reactor {instance.name!r} cannot be pickled ({type(error).__name__}: {error}). Pass light parameters to its "
            "__init__ and build the heavy parts in a startup reaction, on the worker that it lives on"
        ) from error
