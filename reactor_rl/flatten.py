"""Turn a composed program into plain data: banks, rows and declarations resolved, shapes checked, indices given."""

from __future__ import annotations

from typing import Any

import numpy as np

from reactor_rl import reactor as declare
from reactor_rl import topology as topo
from reactor_rl.composition import Composition, Connection, Instance
from reactor_rl.errors import ProgramError

__all__ = ["flatten"]


def flatten(program: Composition) -> topo.Topology:
    """Resolve a program.

    Raises:
        ProgramError: If a reaction names a port that its reactor lacks, rows are missing, or shapes do not fit.
    """
    outputs = _outputs(program)
    output_of = {(o.reactor, o.name): o.index for o in outputs}
    inputs: list[topo.InputSpec] = []
    timers: list[topo.TimerSpec] = []
    actions: list[topo.ActionSpec] = []
    index_of: dict[tuple[int, str], int] = {}
    for instance in program.instances:
        for name, declaration in instance._declarations.items():
            key = (instance._index, name)
            match declaration:
                case declare.Input():
                    index_of[key] = len(inputs)
                    inputs.append(_input(program, outputs, len(inputs), key, declaration, program.connections.get(key)))
                case declare.Timer():
                    index_of[key] = len(timers)
                    timers.append(topo.TimerSpec(len(timers), *key, declaration.offset, declaration.period))
                case declare.LogicalAction():
                    index_of[key] = len(actions)
                    actions.append(topo.ActionSpec(len(actions), *key))
    for name in program.boundary_outputs:
        key = (topo.BOUNDARY, name)
        inputs.append(_input(program, outputs, len(inputs), key, declare.Input(), program.connections.get(key)))
    reactors: list[topo.ReactorSpec] = []
    reactions: list[topo.ReactionSpec] = []
    for instance in program.instances:
        first = len(reactions)
        for reaction in type(instance._reactor).reactions:
            reactions.append(_reaction(instance, reaction, len(reactions), index_of, output_of))
        reactors.append(
            topo.ReactorSpec(
                instance._index,
                instance.name,
                type(instance._reactor).__name__,
                instance._bank,
                tuple(range(first, len(reactions))),
            )
        )
    return topo.Topology(
        program.name, tuple(reactors), tuple(reactions), tuple(outputs), tuple(inputs), tuple(timers), tuple(actions),
        writers={o.index: tuple(r.index for r in reactions if o.index in r.effects) for o in outputs},
        readers={i.index: tuple(r.index for r in reactions if i.index in r.triggers + r.uses) for i in inputs},
    )  # fmt: skip


def _outputs(program: Composition) -> list[topo.OutputSpec]:
    """List connected outputs in the order in which they were connected, then the others."""
    declared: dict[tuple[int, str], declare.Output] = {
        (topo.BOUNDARY, name): port for name, port in program.boundary_inputs.items()
    }
    for instance in program.instances:
        for name, port in instance._declarations.items():
            if isinstance(port, declare.Output):
                declared[instance._index, name] = port
    order = [*program.connected, *(key for key in declared if key not in program.connected)]
    return [
        topo.OutputSpec(
            index, *key, declared[key].shape, declared[key].dtype,
            program.rows_of.get(index, declared[key].rows_declared), tuple(sorted(program.delays.get(index, ()))),
        )
        for index, key in enumerate(order)
    ]  # fmt: skip


def _input(
    program: Composition,
    outputs: list[topo.OutputSpec],
    index: int,
    key: tuple[int, str],
    declared: declare.Input,
    connection: Connection | None,
) -> topo.InputSpec:
    reactor, name = key
    full = name if reactor == topo.BOUNDARY else f"{program.instances[reactor].name}.{name}"
    if connection is None:  # an input may stay unconnected: it is always absent
        return topo.InputSpec(index, reactor, name, declared.shape, declared.dtype, None, (), 0)
    sources = tuple(sorted(connection.sources, key=lambda piece: piece.at or 0))
    kinds = {outputs[piece.output].dtype for piece in sources}
    if len(kinds) > 1:
        raise ProgramError(f"{full}: its rows come from ports of different dtypes: {', '.join(sorted(map(str, kinds)))}")
    (dtype,) = kinds
    if not connection.gathers:
        rows, shape = None, _shape_of(outputs[sources[0].output], sources[0])
        if outputs[sources[0].output].dtype is None and sources[0].lo is not None and not sources[0].single:
            rows = (sources[0].hi or 0) - sources[0].lo
    else:
        rows, shape = _gathered(full, outputs, sources, dtype)
    if (declared.shape is not None and declared.shape != shape) or (declared.dtype is not None and declared.dtype != dtype):
        raise ProgramError(
            f"{full} is declared as {declared.dtype}{declared.shape}, but its source provides "
            + (f"{dtype}{shape}" if dtype is not None else "objects")
        )
    initial = connection.initial
    if initial is not topo.MISSING and dtype is not None:
        try:
            array = np.asarray(initial)
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise ValueError(f"dtype {array.dtype}")
            initial = np.array(np.broadcast_to(array, shape or ()), dtype)
        except ValueError as error:
            raise ProgramError(f"{full}: the initial value does not fit {dtype}{shape} ({error})") from error
    return topo.InputSpec(index, reactor, name, shape, dtype, rows, sources, connection.delay, initial)


def _shape_of(output: topo.OutputSpec, piece: topo.PortRows) -> tuple[int, ...] | None:
    if output.shape is None or piece.lo is None:
        return output.shape
    return output.shape[1:] if piece.single else ((piece.hi or 0) - piece.lo, *output.shape[1:])


def _gathered(
    name: str, outputs: list[topo.OutputSpec], sources: tuple[topo.PortRows, ...], dtype: Any
) -> tuple[int, tuple[int, ...] | None]:
    """Number of rows and shape of an input that gathers; every row must have a source of the same shape."""
    expected = 0
    rows: set[tuple[int, ...] | None] = set()
    for piece in sources:
        if piece.at != expected:
            raise ProgramError(f"{name}: row {expected} has no source")
        if piece.lo is not None:
            raise ProgramError(f"{name}: rows of {outputs[piece.output].name!r} cannot be gathered again; gather whole outputs")
        shape = outputs[piece.output].shape
        expected += piece.width
        if dtype is None:
            if piece.block and outputs[piece.output].rows != piece.width:
                raise ProgramError(
                    f"{name}: cannot take {piece.width} rows from an output of {outputs[piece.output].rows or 'no'} rows"
                )
            rows.add(None)
            continue
        assert shape is not None
        if piece.block and (not shape or shape[0] != piece.width):
            raise ProgramError(f"{name}: cannot take {piece.width} rows from an output of shape {shape}")
        rows.add(shape[1:] if piece.block else shape)
    if len(rows) > 1:
        raise ProgramError(f"{name}: its rows have different shapes: {', '.join(sorted(map(str, rows)))}")
    (row,) = rows
    return expected, None if row is None else (expected, *row)


def _reaction(
    instance: Instance,
    reaction: declare.Reaction,
    index: int,
    index_of: dict[tuple[int, str], int],
    output_of: dict[tuple[int, str], int],
) -> topo.ReactionSpec:
    def resolve(items: tuple[declare.Declaration, ...], kind: type[declare.Declaration]) -> tuple[int, ...]:
        numbers: list[int] = []
        for item in items:
            if not isinstance(item, kind):
                continue
            own = instance._declarations.get(item.name)
            if not isinstance(own, kind):
                raise ProgramError(f"{instance.name}.{reaction.name} names {item.name!r}, which this reactor does not have")
            number = (output_of if kind is declare.Output else index_of)[instance._index, item.name]
            if number not in numbers:
                numbers.append(number)
        return tuple(numbers)

    return topo.ReactionSpec(
        index=index,
        reactor=instance._index,
        name=reaction.name,
        cost=reaction.cost,
        startup=declare.startup in reaction.triggers,
        shutdown=declare.shutdown in reaction.triggers,
        triggers=resolve(reaction.triggers, declare.Input),
        uses=resolve(reaction.uses, declare.Input),
        effects=resolve(reaction.effects, declare.Output),
        trigger_timers=resolve(reaction.triggers, declare.Timer),
        use_timers=resolve(reaction.uses, declare.Timer),
        trigger_actions=resolve(reaction.triggers, declare.LogicalAction),
        use_actions=resolve(reaction.uses, declare.LogicalAction),
        effect_actions=resolve(reaction.effects, declare.LogicalAction),
    )
