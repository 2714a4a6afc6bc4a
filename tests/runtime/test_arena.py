"""The layout: nothing overlaps, no two workers write into one cache line, and what is gathered lies together."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import ProgramSpec, build
from random_programs import QUIET, programs

from reactor_rl import Input, Output, Program, ProgramError, Reactor, graph, reaction, startup
from reactor_rl.runtime.channel import ControlBlock
from reactor_rl.runtime.plan import CELL, LINE, ArenaLayout, aligned_zeros, lay_out
from reactor_rl.schedule import compile_schedule
from reactor_rl.topology import Topology

WORD = 8


def laid_out(program: Program, workers: int) -> tuple[Topology, ArenaLayout]:
    topology = program.topology()
    return topology, lay_out(topology, compile_schedule(topology, graph.build(topology), workers))


def extents(topology: Topology, layout: ArenaLayout) -> Iterator[tuple[int, int, int]]:
    """First byte, end, and writer of everything that somebody writes; buffers are written by whoever owns a place in them."""
    for output in topology.outputs:
        index, writer = output.index, layout.owner[output.index]
        stamps = layout.stamps[index]
        yield stamps.whole * WORD, (stamps.whole + stamps.size) * WORD, writer
        if layout.cells[index] >= 0:
            yield layout.cells[index], layout.cells[index] + CELL * output.ring * (output.rows or 1), writer
    for buffer in layout.buffers:
        yield buffer.offset, buffer.offset + buffer.nbytes, -1


@pytest.mark.slow
@settings(QUIET, max_examples=100)
@given(programs(), st.integers(1, 4))
def test_nothing_overlaps_and_workers_keep_off_each_other_s_lines(spec: ProgramSpec, workers: int) -> None:
    try:
        topology, layout = laid_out(build(spec), workers)
    except ProgramError:
        assume(False)
    everything = sorted(extents(topology, layout))
    assert all(begin >= (ControlBlock.NEXT + ControlBlock.PER_WORKER * workers) * WORD for begin, _, _ in everything)
    for (_, end, writer), (begin, _, other) in pairwise(everything):
        assert end <= begin
        if writer != other and -1 not in (writer, other):
            assert (end - 1) // LINE < begin // LINE
    assert max((end for _, end, _ in everything), default=0) <= layout.size
    assert all(buffer.offset % LINE == 0 and buffer.offset >= layout.words * WORD for buffer in layout.buffers)


class Source(Reactor):
    out = Output((3,), np.float64)

    @reaction(startup, effects=out)
    def begin(self) -> None:
        """Write."""


class Sink(Reactor):
    rows = Input()

    @reaction(rows)
    def read(self) -> None:
        """Read."""


def test_what_one_input_gathers_is_one_buffer_and_a_second_one_gets_copies() -> None:
    program = Program()
    sources = program.bank(Source, 4)
    first, second = program.add(Sink), program.add(Sink)
    program.connect(sources.out, first.rows.rows)
    for index in range(4):  # the other way round
        program.connect(sources[3 - index].out, second.rows.rows[index])
    topology, layout = laid_out(program, 2)
    one, other = (layout.gathers[inp.index] for inp in topology.inputs)
    assert one != other and layout.buffers[one].shape == layout.buffers[other].shape == (4, 3)
    assert [[place.lo for place in places] for places in layout.places] == [[0, 3], [1, 2], [2, 1], [3, 0]]
    assert [[place.buffer for place in places] for places in layout.places] == [[one, other]] * 4


def test_a_delay_of_d_ticks_takes_d_plus_one_slots() -> None:
    program = Program()
    source, sink = program.add(Source), program.add(Sink)
    program.connect(source.out, sink.rows, after=3)
    topology, layout = laid_out(program, 1)
    (buffer,) = layout.buffers
    assert topology.outputs[0].ring == buffer.ring == 4 and buffer.nbytes == 4 * 3 * 8
    assert len(layout.stamps[0].times) == 4


def test_aligned_zeros() -> None:
    kept = []
    for size in range(1, 200, 7):
        for shape in ((size,), (2, size), ()):
            array = aligned_zeros(shape, np.float32)
            assert array.ctypes.data % LINE == 0 and array.shape == shape and not array.any() and array.flags.writeable
            kept.append(array)


def test_workers_write_into_different_lines() -> None:
    program = Program()
    program.bank(Source, 3)
    _, layout = laid_out(program, 3)
    lines = [range(s.whole * WORD // LINE, ((s.whole + s.size) * WORD - 1) // LINE + 1) for s in layout.stamps]
    assert sorted(layout.owner) == [0, 1, 2]
    assert len({line for each in lines for line in each}) == sum(map(len, lines))


class Where(Reactor):
    """Tells where in a line its array begins."""

    out = Output((2, 3), np.float32)
    told = Output((), np.int64)

    @reaction(startup, effects=(out, told))
    def tell(self) -> None:
        self.told.set(self.out.buffer.ctypes.data % LINE)
        self.out.buffer[...] = 0


def test_arrays_begin_with_a_line_in_every_executor() -> None:
    """Linear algebra gives other last bits for other alignments."""
    for executor, workers in (("inline", 1), ("threads", 2), ("processes", 2)):
        program = Program("where")
        bank = program.bank(Where, 3)
        program.connect(bank.told, program.output("told").rows)
        with program.start(executor=executor, workers=workers) as run:
            run.tick()
            assert run.told.tolist() == [0, 0, 0], executor
