"""Which transport an executor's name stands for, and who gets which share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from reactor_rl import ProgramError
from reactor_rl.federation.cut import spread_workers
from reactor_rl.federation.in_process import InProcess, transport_for


@pytest.mark.parametrize("executor", ["auto", "inline", "threads", "processes"])
def test_one_machine_has_no_nodes(executor: str) -> None:
    assert transport_for(executor) is None
    with pytest.raises(ProgramError, match="nodes=2 needs an executor"):
        transport_for(executor, 2)


def test_a_name_that_nobody_offers() -> None:
    with pytest.raises(ProgramError, match=r"executor must be .*, got 'pigeons'"):
        transport_for("pigeons", 2)


def test_a_plugin_offers_a_transport_under_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "rrl_pigeons-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rrl-pigeons\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[reactor_rl.transports]\npigeons = rrl_pigeons:Pigeons\n")
    (tmp_path / "rrl_pigeons.py").write_text("def Pigeons(nodes, workers):\n    return 'pigeons', nodes, workers\n")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        transport: Any = transport_for("pigeons", "a loft", 2)
    finally:
        sys.modules.pop("rrl_pigeons", None)
    assert transport == ("pigeons", "a loft", 2)


def test_of_a_node_in_this_process_nobody_says_where_it_is() -> None:
    assert InProcess(2, 1).describe(1) == ""


@pytest.mark.parametrize("workers", [[1], [2, 2, 2], [1, 8, 3], [4, 1]])
@pytest.mark.parametrize("shares", [1, 2, 3, 5, 12, 100])
def test_shares_are_contiguous_and_even(workers: list[int], shares: int) -> None:
    nodes = spread_workers(workers, shares)
    assert nodes == sorted(nodes) and len(nodes) == shares
    for node, count in enumerate(workers):
        assert abs(nodes.count(node) - shares * count / sum(workers)) < 1
