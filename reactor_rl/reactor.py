"""Reactors as the user declares them: ports, timers, logical actions and reactions.

Declarations stand at class level, so that the topology of a program is known before anything runs. An instance may fix shapes,
periods and widths in its ``__init__`` by assigning a declaration to the same name (``self.returns = Output((n,),
np.float32)``). Everything heavy is built in a startup reaction, which runs on the worker that the reactor lives on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import numpy as np

from reactor_rl.errors import ProgramError

if TYPE_CHECKING:
    import numpy.typing as npt


__all__ = ["Input", "LogicalAction", "Output", "Reaction", "Reactor", "Timer", "reaction", "shutdown", "startup"]


class Clock(Protocol):
    """The part of a worker that its reactors use."""

    time: int
    microstep: int

    def request_stop(self) -> None: ...


class Declaration:
    """A port, timer or action of a reactor, which its reactions name. At run time a handle stands in its place."""

    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    # A declaration is replaced by a run-time handle before any reaction runs; these attributes exist on the
    # handles, and are declared here so that type checkers accept `self.port.value` in reactions.
    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


class Port(Declaration):
    """An array port (with a dtype) or an object port (without)."""

    def __init__(self, shape: int | Iterable[int] | None = None, dtype: npt.DTypeLike | None = None) -> None:
        if shape is not None and dtype is None:
            raise ProgramError("a port with a shape needs a dtype too: Output((4,), np.float32)")
        if isinstance(shape, int | np.integer):
            shape = (int(shape),)
        self.shape: tuple[int, ...] | None = None if shape is None else tuple(int(n) for n in shape)
        if self.shape is not None and any(n < 0 for n in self.shape):
            raise ProgramError(f"a port cannot have the negative shape {self.shape}")
        self.dtype: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)
        if self.dtype is not None and self.dtype.hasobject:
            raise ProgramError(f"an array port cannot have dtype {self.dtype}; leave shape and dtype out for an object port")


class Input(Port):
    """An input port. Shape and dtype come from the connection; given here, they are checked against it.

    At run time, in a reaction that declares it:

    * ``.value``: a read-only view (array ports) or this reactor's own copy (object ports), valid until the
      reaction returns. Raises :class:`~reactor_rl.errors.AbsentError` where it is absent.
    * ``.present``: whether there is a value at this tag; for an input made of rows, a mask of shape ``(n,)``.

    Raises:
        ProgramError: If a shape is negative or lacks a dtype, or the dtype is one of objects.
    """


class Output(Port):
    """An output port.

    Args:
        shape: Shape of an array port; with ``dtype``. The leading axis is what ``.rows`` addresses.
        dtype: dtype of an array port. Without it, the port carries any picklable object.
        rows: Number of rows of an object port whose ``.rows`` are connected one by one.

    At run time, in a reaction that declares it as an effect:

    * ``.set(value)`` copies ``value`` in (array ports) or serialises it (object ports).
    * ``.buffer``: the writable slot itself, shape ``shape``, to be filled completely; taking it makes the port present.
    * ``.rows[i].set(value)`` writes one row.

    Raises:
        ProgramError: If a shape is negative or lacks a dtype, the dtype is one of objects, ``rows`` is not positive, or ``rows``
            is given for an array port.
    """

    def __init__(
        self, shape: int | Iterable[int] | None = None, dtype: npt.DTypeLike | None = None, *, rows: int | None = None
    ) -> None:
        if shape is None and dtype is not None:
            shape = ()
        super().__init__(shape, dtype)
        if rows is not None and self.shape is not None:
            raise ProgramError("`rows` is for object ports; the rows of an array port are its leading axis")
        if rows is not None and rows < 1:
            raise ProgramError(f"rows must be >= 1, got {rows}")
        self.rows_declared = rows


class Timer(Declaration):
    """Triggers at tick ``offset`` and every ``period`` ticks after that (``period=None``: once).

    Raises:
        ProgramError: If ``offset`` is negative or ``period`` is not positive.
    """

    def __init__(self, offset: int = 0, period: int | None = None) -> None:
        if offset < 0:
            raise ProgramError(f"a timer's offset must be a number of ticks >= 0, got {offset}")
        if period is not None and period < 1:
            raise ProgramError(f"a timer's period must be a number of ticks >= 1, got {period}; leave it out to fire once")
        self.offset, self.period = int(offset), None if period is None else int(period)


class LogicalAction(Declaration):
    """An event that a reactor schedules for itself.

    At run time: ``.schedule(delay=0, value=None)`` in a reaction that declares it as an effect; ``delay`` is in
    ticks, and 0 means the next microstep of this tick. Two events of one action never share a tag: the later one
    moves to the next free microstep. ``.present`` and ``.value`` in a reaction that declares it as a trigger or in ``uses``.
    """


class _BuiltinTrigger(Declaration):
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name  # by reference: a reactor class that travels by value must still name this very object


startup = _BuiltinTrigger("startup")
"""Trigger of reactions that run once, on the reactor's worker, before tick 0."""
shutdown = _BuiltinTrigger("shutdown")
"""Trigger of reactions that run once, at the end of the last tick."""


@dataclass(frozen=True)
class Reaction:
    """A method with its triggers, its other inputs, and its effects."""

    name: str
    function: Callable[[Any], None]
    triggers: tuple[Declaration, ...]
    uses: tuple[Declaration, ...]
    effects: tuple[Declaration, ...]
    cost: float | None

    @property
    def __isabstractmethod__(self) -> bool:
        return getattr(self.function, "__isabstractmethod__", False)

    def __call__(self, reactor: Any) -> None:
        self.function(reactor)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self.function.__get__(instance, owner)


_Method = TypeVar("_Method", bound=Callable[[Any], None])
_OneOrMore = Declaration | Iterable[Declaration]


def _several(value: _OneOrMore, what: str) -> tuple[Declaration, ...]:
    declarations = (value,) if isinstance(value, Declaration) else tuple(value)
    for item in declarations:
        if not isinstance(item, Declaration):
            raise ProgramError(f"{what} takes ports, timers and actions declared in the class body, not {item!r}")
    return declarations


def reaction(
    *triggers: Declaration, uses: _OneOrMore = (), effects: _OneOrMore = (), cost: float | None = None
) -> Callable[[_Method], _Method]:
    """Declare a method as a reaction.

    Args:
        *triggers: Inputs, timers, logical actions, ``startup`` or ``shutdown``. The reaction runs at a tag if any is present.
        uses: Inputs and actions that it reads without being triggered by them.
        effects: Outputs that it may write and actions that it may schedule.
        cost: Expected seconds per execution, for placement. Never changes a result.

    Raises:
        ProgramError: If it has no trigger, or an argument cannot have the role that it is given.
    """
    if not triggers or (len(triggers) == 1 and callable(triggers[0]) and not isinstance(triggers[0], Declaration)):
        raise ProgramError("a reaction needs at least one trigger: @reaction(self_input) or @reaction(startup)")
    triggering = _several(triggers, "@reaction")
    reads = _several(uses, "uses=")
    writes = _several(effects, "effects=")
    for item in triggering:
        if isinstance(item, Output):
            raise ProgramError(f"the output {item.name!r} cannot trigger a reaction; declare it in effects=")
    for item in reads:
        if not isinstance(item, Input | LogicalAction | Timer):
            raise ProgramError(f"uses= takes inputs, actions and timers, not {item.name or item!r}")
    for item in writes:
        if not isinstance(item, Output | LogicalAction):
            raise ProgramError(f"effects= takes outputs and logical actions, not {item.name or item!r}")

    def declare(function: _Method) -> _Method:
        declared: Any = Reaction(function.__name__, function, triggering, reads, writes, cost)
        return declared  # type: ignore[no-any-return]

    return declare


class Reactor:
    """Private state, ports, timers, actions and reactions. Subclass it; ``__init__`` takes light, picklable parameters only.

    Attributes:
        bank_index: Position in its bank, 0 for a reactor that is not in one.
        tag: ``(time, microstep)`` now; time counts ticks.
    """

    bank_index: int = 0
    _worker_clock: Clock
    reactions: ClassVar[tuple[Reaction, ...]] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # Declaration order over the whole class hierarchy; a method that a subclass declares again keeps its place.
        reactions: dict[str, Reaction] = {r.name: r for base in reversed(cls.__mro__[1:]) for r in getattr(base, "reactions", ())}
        for name, value in vars(cls).items():
            if isinstance(value, Reaction):
                reactions[name] = value
            elif name in reactions and not isinstance(value, Declaration):
                # A plain override of an inherited reaction keeps what that one declared.
                old = reactions[name]
                reactions[name] = Reaction(name, value, old.triggers, old.uses, old.effects, old.cost)
        cls.reactions = tuple(reactions.values())

    @property
    def tag(self) -> tuple[int, int]:
        """The tag ``(time, microstep)`` of the reaction that is running."""
        return self._worker_clock.time, self._worker_clock.microstep

    def request_stop(self) -> None:
        """Make the current tick the last one; shutdown reactions run at its end."""
        self._worker_clock.request_stop()


def declarations(instance: Reactor) -> dict[str, Declaration]:
    """Collect the ports, timers and actions of one reactor by name; those assigned in ``__init__`` replace the class's."""
    declarations: dict[str, Declaration] = {}
    for cls in reversed(type(instance).__mro__):
        for name, value in vars(cls).items():
            if isinstance(value, Declaration):
                declarations[name] = value
            else:
                declarations.pop(name, None)
    for name, value in vars(instance).items():
        if isinstance(value, Declaration):
            value.name = name
            declarations[name] = value
    return declarations
