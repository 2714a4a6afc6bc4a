"""Turn a composed program into plain data: banks, rows and declarations resolved, shapes checked, indices given."""

from __future__ import annotations

from typing import Any

import numpy as np

from reactor_rl import reactor as declare
from reactor_rl import topology as topo
from reactor_rl.composition import Composition, Instance, Wire
from reactor_rl.errors import ProgramError

__all__ = ["flatten"]


def flatten(program: Composition) -> topo.Topology:
    """Resolve a program.

    Raises:
        ProgramError: If a reaction names a port that its reactor lacks, rows are missing, or shapes do not fit.
    """
    outputs = _outputs(program)
    output_of = {(o.reactor, o.name): o.index for o in outputs}
    inputs: list[topo.InputNode] = []
    timers: list[topo.TimerNode] = []
    actions: list[topo.ActionNode] = []
    index_of: dict[tuple[int, str], int] = {}
    for instance in program.instances:
        for name, declaration in instance._declarations.items():
            key = (instance._index, name)
            match declaration:
                case declare.Input():
                    index_of[key] = len(inputs)
                    inputs.append(_input(program, outputs, len(inputs), key, declaration, program.wires.get(key)))
                case declare.Timer():
                    index_of[key] = len(timers)
                    timers.append(topo.TimerNode(len(timers), *key, declaration.offset, declaration.period))
                case declare.LogicalAction():
                    index_of[key] = len(actions)
                    actions.append(topo.ActionNode(len(actions), *key))
    for name in program.boundary_outputs:
        key = (topo.BOUNDARY, name)
        inputs.append(_input(program, outputs, len(inputs), key, declare.Input(), program.wires.get(key)))
    reactors: list[topo.ReactorNode] = []
    reactions: list[topo.ReactionNode] = []
    for instance in program.instances:
        first = len(reactions)
        for reaction in type(instance._reactor).reactions:
            reactions.append(_reaction(instance, reaction, len(reactions), index_of, output_of))
        reactors.append(
            topo.ReactorNode(
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


def _outputs(program: Composition) -> list[topo.OutputNode]:
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
        topo.OutputNode(
            index, *key, declared[key].shape, declared[key].dtype,
            program.rows_of.get(index, declared[key].rows_declared), tuple(sorted(program.delays.get(index, ()))),
        )
        for index, key in enumerate(order)
    ]  # fmt: skip


def _input(
    program: Composition,
    outputs: list[topo.OutputNode],
    index: int,
    key: tuple[int, str],
    declared: declare.Input,
    wire: Wire | None,
) -> topo.InputNode:
    reactor, name = key
    full = name if reactor == topo.BOUNDARY else f"{program.instances[reactor].name}.{name}"
    if wire is None:  # an input may stay unconnected: it is always absent
        return topo.InputNode(index, reactor, name, declared.shape, declared.dtype, None, (), 0)
    parts = tuple(sorted(wire.parts, key=lambda part: part.at or 0))
    kinds = {outputs[part.output].dtype for part in parts}
    if len(kinds) > 1:
        raise ProgramError(f"{full}: its rows come from ports of different dtypes: {', '.join(sorted(map(str, kinds)))}")
    (dtype,) = kinds
    if not wire.gathers:
        rows, shape = None, _part_shape(outputs[parts[0].output], parts[0])
        if outputs[parts[0].output].dtype is None and parts[0].lo is not None and not parts[0].single:
            rows = (parts[0].hi or 0) - parts[0].lo
    else:
        rows, shape = _gathered(full, outputs, parts, dtype)
    if (declared.shape is not None and declared.shape != shape) or (declared.dtype is not None and declared.dtype != dtype):
        raise ProgramError(
            f"{full} is declared as {declared.dtype}{declared.shape}, but its source provides "
            + (f"{dtype}{shape}" if dtype is not None else "objects")
        )
    initial = wire.initial
    if initial is not topo.MISSING and dtype is not None:
        try:
            array = np.asarray(initial)
            if not np.can_cast(array.dtype, dtype, "same_kind"):
                raise ValueError(f"dtype {array.dtype}")
            initial = np.array(np.broadcast_to(array, shape or ()), dtype)
        except ValueError as error:
            raise ProgramError(f"{full}: the initial value does not fit {dtype}{shape} ({error})") from error
    return topo.InputNode(index, reactor, name, shape, dtype, rows, parts, wire.delay, initial)


def _part_shape(output: topo.OutputNode, part: topo.Part) -> tuple[int, ...] | None:
    if output.shape is None or part.lo is None:
        return output.shape
    return output.shape[1:] if part.single else ((part.hi or 0) - part.lo, *output.shape[1:])


def _gathered(
    name: str, outputs: list[topo.OutputNode], parts: tuple[topo.Part, ...], dtype: Any
) -> tuple[int, tuple[int, ...] | None]:
    """Number of rows and shape of an input that gathers; every row must have a source of the same shape."""
    expected = 0
    rows: set[tuple[int, ...] | None] = set()
    for part in parts:
        if part.at != expected:
            raise ProgramError(f"{name}: row {expected} has no source")
        if part.lo is not None:
            raise ProgramError(f"{name}: rows of {outputs[part.output].name!r} cannot be gathered again; gather whole outputs")
        shape = outputs[part.output].shape
        expected += part.width
        if dtype is None:
            if part.block and outputs[part.output].rows != part.width:
                raise ProgramError(
                    f"{name}: cannot take {part.width} rows from an output of {outputs[part.output].rows or 'no'} rows"
                )
            rows.add(None)
            continue
        assert shape is not None
        if part.block and (not shape or shape[0] != part.width):
            raise ProgramError(f"{name}: cannot take {part.width} rows from an output of shape {shape}")
        rows.add(shape[1:] if part.block else shape)
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
) -> topo.ReactionNode:
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

    return topo.ReactionNode(
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
