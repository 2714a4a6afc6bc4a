"""A program: composed, started and drawn by the user."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, cast

from reactor_rl.autotune import choose, measured
from reactor_rl.composition import Composition
from reactor_rl.drawing.draw import draw, html_figure
from reactor_rl.errors import ProgramError
from reactor_rl.federation.cut import On
from reactor_rl.federation.home import start_federated
from reactor_rl.federation.in_process import transport_for
from reactor_rl.federation.transport import NodeTransport
from reactor_rl.flatten import flatten
from reactor_rl.graph import build
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.limits import usable_cores
from reactor_rl.runtime.run import Run
from reactor_rl.runtime.supervisor import RunSettings, check, start
from reactor_rl.settings import ExecutorName, Recover
from reactor_rl.topology import Topology

__all__ = ["Program"]

_log = logging.getLogger(__name__)


class Program(Composition):
    """A fixed topology of reactors.

    Args:
        name: Its name, in drawings and traces.

    Example:
        >>> import numpy as np
        >>> from reactor_rl import Input, Output, Program, Reactor, Timer, reaction
        >>> class Count(Reactor):
        ...     tick = Timer(period=1)
        ...     out = Output((), np.int64)
        ...     def __init__(self):
        ...         self.n = 0
        ...     @reaction(tick, effects=out)
        ...     def count(self):
        ...         self.n += 1
        ...         self.out.set(self.n)
        >>> program = Program("counter")
        >>> counter = program.add(Count)
        >>> program.connect(counter.out, program.output("n"))
        >>> with program.start(executor="inline") as run:
        ...     run.run(ticks=3)
        ...     int(run.n)
        3
    """

    reserved = frozenset(dir(Run))
    _flat: tuple[int, Topology] | None = None

    def start(
        self,
        *,
        executor: ExecutorName | NodeTransport = "auto",
        workers: int | None = None,
        start_method: str | None = None,
        caller_works: bool = True,
        debug: bool = False,
        fingerprint: Literal["boundary", "all", "off"] = "boundary",
        costs: Mapping[str, float] | None = None,
        placement: Mapping[str, int] | None = None,
        spin: float | None = None,
        recover: Recover | None = None,
        timeout: float | None = None,
        nodes: Any = None,
        on: On | None = None,
    ) -> Run:
        """Compile the program for some workers, start them, and run the startup reactions.

        Args:
            executor: ``"inline"`` (the caller's thread), ``"threads"``, ``"processes"``, or ``"auto"``, which measures
                a throw-away copy and chooses. For several nodes: ``"federated"`` (all in this process, to try it out),
                ``"ray"``, or a transport that a plugin makes. Never changes a result.
            workers: Number of workers (of each node), the caller's thread included; ``None`` for the cores that this process may
                use.
            start_method: How processes start: ``"forkserver"`` (the default if the system has it), ``"spawn"`` or ``"fork"``.
            caller_works: Whether the caller's thread takes its share of the reactors; if not, helpers have all of them.
            debug: Fill every array slot with a pattern before it is written and after its last reader.
            fingerprint: Which ports :meth:`Run.fingerprint` covers: the boundary's outputs, all ports, or none.
            costs: Expected seconds per tick, by name of reactor, in place of the declared costs. Never changes a result.
            placement: The worker of every reactor, by name, counted from 0 among those that share the reactors. Needs a named
                executor, because ``"auto"`` chooses the workers. Never changes a result.
            spin: Seconds that a waiting worker spins, yielding the processor, before it parks; by default 200 us. Set more for a
                caller that is busy for longer between two ticks, and 0 if workers outnumber cores.
            recover: Replace helper processes that die, with the same results; see :class:`reactor_rl.Recover`. ``None``: the run
                is over when one dies. With several nodes, lost nodes are replaced, and nodes whose workers die or hang; home's own
                workers are not.
            timeout: Most seconds that the caller waits for a helper or another node, in a tick or for a snapshot. Then it
                raises :class:`WorkerHungError` or, with ``recover``, replaces that one. The caller's own share is not timed.
            nodes: Number of nodes, home included, or another description that the executor understands; ``None`` for all that it
                has.
            on: The node of a reactor, by name of the reactor or of a bank (one node for all its members, or a sequence with one
                for each); node 0 is home. Reactors that are not named are placed so that no node waits for another in the middle of
                a tick: banks are spread if possible, everything else is at home. Never changes a result.

        Raises:
            ProgramError: If the program cannot run: a causality loop, rows without a source, ``workers < 1``, a placement that
                does not fit, a ``spin`` out of range, settings that ``recover`` cannot be combined with.
            ArenaError: If not enough memory is available to share.
        """
        transport = transport_for(executor, nodes, workers)
        if transport is None and on is not None:
            raise ProgramError(f"on= needs an executor with several nodes, 'federated' or 'ray', got {executor!r}")
        settings = RunSettings(
            executor=cast(ExecutorName, executor) if transport is None else transport.inside, workers=workers,
            start_method=start_method, caller_works=caller_works, debug=debug, fingerprint=fingerprint, costs=costs,
            placement=placement, spin=spin, recover=recover, timeout=timeout,
        )  # fmt: skip
        # Recovery of nodes has the limits of recovery of workers, except that threads are allowed.
        check(settings if transport is None or recover is None else replace(settings, executor="processes"))
        topology, why = self.topology(), ""
        if transport is not None:
            federated = start_federated(topology, self._pickled, self.setup, settings, transport, on)
            _log.info("started %r", federated)
            return federated
        if executor == "auto":
            inline = partial(start, topology, self._pickled, self.setup, RunSettings(fingerprint="off"))
            choice = choose(
                topology, build(topology), workers or usable_cores(), partial(measured, topology, inline),
                caller_works=caller_works, costs=costs, replaced=recover is not None,
            )  # fmt: skip
            settings = replace(settings, executor=choice.executor, workers=choice.workers, costs=choice.costs)
            why = choice.why
        run = start(topology, self._pickled, self.setup, settings, why)
        _log.info("started %r", run)
        return run

    def _pickled(self, by_reference: bool) -> tuple[bytes | Reactor, ...]:
        return self.pickled_reactors(by_reference=by_reference)

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """Draw the program: return the text of the picture, and write it to ``path`` if one is given.

        Args:
            path: File to write. Its ending (``.mmd``, ``.dot``, ``.svg``) chooses the format if ``format`` does not.
            format: ``"mermaid"``, ``"dot"`` or ``"svg"``.
        """
        return draw(self.topology(), path, format)

    def _repr_html_(self) -> str | None:
        """The picture of the program in a notebook; nothing while it is incomplete."""
        try:
            return html_figure(repr(self), self.draw(format="svg"))
        except ProgramError:
            return None

    def topology(self) -> Topology:
        """Return the program as plain data, checked for completeness.

        Raises:
            ProgramError: If an input lacks rows, or ports do not fit.
        """
        if self._flat is None or self._flat[0] != self.changes:
            self._flat = self.changes, flatten(self)
        return self._flat[1]
