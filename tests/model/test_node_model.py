"""No order in which nodes answer, and no loss of one, goes wrong; and mistakes in what home does are found."""

from __future__ import annotations

import pytest

from .nodes import BROKEN_NODES, NODE_FAULTS, NODE_PROGRAMS, NodeModel, node_scenarios
from .search import Found, search

SEVERAL = [
    pytest.param(name, fault, marks=pytest.mark.slow if fault == "2 nodes lost, kept" else ())
    for name in NODE_PROGRAMS
    for fault in NODE_FAULTS
]


@pytest.mark.parametrize(("name", "fault"), SEVERAL)
def test_nodes_keep_to_the_protocol(name: str, fault: str) -> None:
    for what, scenario in node_scenarios(name, **NODE_FAULTS[fault]):
        found = search(NodeModel(scenario))
        assert not found.problem, (what, found.problem, found.trace)
        assert found.states > 10


@pytest.mark.parametrize("broken", BROKEN_NODES)
def test_broken_federation_is_found(broken: str) -> None:
    found, how = Found(), BROKEN_NODES[broken]
    for _, scenario in node_scenarios(how.program, broken=broken, **how.how):
        found = search(NodeModel(scenario))
        if found.problem:
            break
    assert found.problem
    assert 3 < len(found.trace) < 30
