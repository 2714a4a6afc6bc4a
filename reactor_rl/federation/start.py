"""From a program to a run on several nodes: cut it, give each node its part, and start home's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from reactor_rl import graph as graphs
from reactor_rl.federation.carrier import Carrier
from reactor_rl.federation.cut import GATEWAY, Part, cut
from reactor_rl.federation.home import FederatedRun, Home
from reactor_rl.federation.host import Parcel
from reactor_rl.federation.links import HOME
from reactor_rl.federation.placing import On, nodes_of
from reactor_rl.federation.post_office import END
from reactor_rl.federation.recovering import RecoveringCarrier
from reactor_rl.federation.timed import TimedCarrier
from reactor_rl.reactor import Reactor
from reactor_rl.runtime.arithmetic import arithmetic
from reactor_rl.runtime.executor import Reactors
from reactor_rl.runtime.supervisor import Settings, equip
from reactor_rl.schedule import Arrivals, check_names, expected_ends
from reactor_rl.topology import Topology

__all__ = ["start_federated"]

LATENCY = 1e-3
"""Seconds that a message between two nodes is expected to take. Only decides what home does first while it waits."""


def start_federated(
    topology: Topology,
    reactors: Callable[[bool], Sequence[bytes | Reactor]],
    setup: Sequence[Callable[[], None]],
    settings: Settings,
    carrier: Carrier,
    on: On | None,
) -> FederatedRun:
    """Start a program on the nodes of a carrier.

    Args:
        topology: The program.
        reactors: Its reactors, pickled.
        setup: What runs in every process before reactors are built.
        settings: How home and each node run their part; its ``workers`` do not count, for the carrier has them.
        carrier: What carries the nodes.
        on: Where the user wants what.

    Raises:
        ProgramError: If the program cannot run so.
        RunError: If the nodes cannot be had.
    """
    if settings.tick_timeout is not None:
        carrier = TimedCarrier(carrier, settings.tick_timeout)
    if settings.recover is not None:
        carrier = RecoveringCarrier(carrier, settings.recover)
        settings = replace(settings, recover=None)  # home's own workers are not replaced
    nodes = nodes_of(topology, carrier.workers, on)
    ends = expected_ends(topology, graphs.build(topology), nodes, carrier.workers, settings.costs)
    check_names(topology.reactors, settings.placement or {})
    parts = cut(topology, nodes, carrier.nodes)
    pickled = reactors(False)
    parcels = [_parcel(topology, part, pickled, setup, settings, carrier, ends) for part in parts]
    home = parcels[HOME]
    plan, executor = equip(home.part.topology, setup, home.settings, home.arrivals)
    helpers = Home(plan, executor, parts, carrier)
    given: dict[int, bytes | Reactor] = {**home.reactors, home.part.gateway: helpers.office.gateway}
    shares: list[Reactors] = [{index: given[index] for index in plan.reactors_of(w)} for w in range(plan.schedule.workers)]
    try:
        carrier.launch([parcel.packed() for parcel in parcels[1:]])
        return FederatedRun(topology, nodes, plan, executor, shares, helpers, carrier, settings.tick_timeout)
    except BaseException:
        carrier.close(0.0)
        raise


def _parcel(
    topology: Topology, part: Part, pickled: Sequence[bytes | Reactor], setup: Sequence[Callable[[], None]], settings: Settings,
    carrier: Carrier, ends: Sequence[float],
) -> Parcel:  # fmt: skip
    names = {reactor.name for reactor in part.topology.reactors} - {GATEWAY}
    mine = replace(
        settings, executor=carrier.inside, workers=carrier.workers[part.node], costs=_of(settings.costs, names),
        placement=_of(settings.placement, names), caller_works=settings.caller_works or part.node != HOME,
    )  # fmt: skip
    due = {
        reaction: (link.index, LATENCY + max(ends[writer] for output in link.outputs for writer in topology.writers[output]))
        for reaction, link in part.gates.items()
        if link.target == part.node and not link.early
    }
    arrivals = Arrivals(part.gateway, due, END if part.node == HOME else None)
    own: dict[int, bytes] = {}
    for index, whole in enumerate(part.reactors):
        reactor = pickled[whole]
        assert isinstance(reactor, bytes)
        own[index] = reactor
    return Parcel(part, own, tuple(setup), mine, arrivals, arithmetic())


def _of(mapping: Mapping[str, float] | Mapping[str, int] | None, names: set[str]) -> dict[str, int] | None:
    return None if mapping is None else {name: value for name, value in mapping.items() if name in names}  # type: ignore[misc]
