"""Which transport an executor's name stands for, and who gets which share."""

from __future__ import annotations

import pytest

from reactor_rl import ProgramError
from reactor_rl.federation.cut import spread_workers
from reactor_rl.federation.in_process import transport_for


@pytest.mark.parametrize("executor", ["auto", "inline", "threads", "processes"])
def test_one_machine_has_no_nodes(executor: str) -> None:
    assert transport_for(executor) is None
    with pytest.raises(ProgramError, match="nodes=2 needs an executor"):
        transport_for(executor, 2)


def test_a_name_that_nobody_offers() -> None:
    with pytest.raises(ProgramError, match=r"executor must be .*, got 'pigeons'"):
        transport_for("pigeons", 2)


@pytest.mark.parametrize("workers", [[1], [2, 2, 2], [1, 8, 3], [4, 1]])
@pytest.mark.parametrize("shares", [1, 2, 3, 5, 12, 100])
def test_shares_are_contiguous_and_even(workers: list[int], shares: int) -> None:
    nodes = spread_workers(workers, shares)
    assert nodes == sorted(nodes) and len(nodes) == shares
    for node, count in enumerate(workers):
        assert abs(nodes.count(node) - shares * count / sum(workers)) < 1
