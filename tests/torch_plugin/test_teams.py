"""A team of threads, whichever thread leaves it, closes it or lets go of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

kernels = pytest.importorskip("reactor_torch.kernels")
products: Any = kernels.compiled

pytestmark = [pytest.mark.timeout(60), pytest.mark.skipif(products is None, reason="without the extension there is no team")]

SIZE = 256


def network() -> tuple[Any, Any, Any]:
    """A network that threads are worth, its inputs, and what it gives: the sum of each row of its inputs."""
    sides, given = np.ones((SIZE, SIZE), np.float32), np.zeros((SIZE, SIZE), np.float32)
    layer = ("linear", 0, SIZE, SIZE, 0.0, sides, None, np.zeros_like(sides), None, given, np.zeros_like(sides))
    return products.Network(SIZE, (layer,)), np.arange(SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE) % 7, given


@pytest.fixture
def other() -> Any:
    """Another thread."""
    with ThreadPoolExecutor(1) as other:
        yield other


@pytest.mark.parametrize("end", ["left", "closed", "let go"])
def test_what_another_thread_ends_this_one_has_no_more(end: str, other: ThreadPoolExecutor) -> None:
    teams = [products.Team(2)]
    teams[0].__enter__()
    with pytest.raises(RuntimeError, match="this thread has a team"):
        products.Team(2).__enter__()
    other.submit({"left": lambda: teams[0].__exit__(), "closed": lambda: teams[0].close(), "let go": teams.clear}[end]).result(10)
    computes, inputs, given = network()
    computes.run(inputs)
    with products.Team(2):
        computes.run(inputs)
    assert (given == inputs.sum(1, keepdims=True)).all()


def test_who_loses_a_team_in_the_middle_of_a_work_computes_alone(other: ThreadPoolExecutor) -> None:
    """All parts are computed in both threads, and nobody waits for those of the other."""
    team, both = products.Team(3), threading.Barrier(2, timeout=20)

    def compute() -> None:
        computes, inputs, given = network()
        both.wait()
        for _ in range(50):
            given[:] = 0
            computes.run(inputs)
            assert (given == inputs.sum(1, keepdims=True)).all()

    def take() -> None:
        team.__exit__()
        with team:
            compute()

    team.__enter__()
    taker = other.submit(take)
    compute()
    taker.result(20)
    team.close()


def test_a_team_that_is_closed_in_the_middle_of_a_work(other: ThreadPoolExecutor) -> None:
    computes, inputs, given = network()
    wanted = inputs.sum(1, keepdims=True)
    for _ in range(20):
        team = products.Team(3)
        with team:
            closing = [other.submit(team.close) for _ in range(2)]
            given[:] = 0
            computes.run(inputs)
            assert (given == wanted).all()
            for one in closing:
                one.result(10)


def test_more_threads_than_there_are_entries_do_without() -> None:
    teams = [products.Team(2) for _ in range(70)]
    barrier = threading.Barrier(len(teams), timeout=20)

    def enter(team: Any) -> None:
        with team:
            barrier.wait()
            barrier.wait()

    with ThreadPoolExecutor(len(teams)) as pool:
        for one in [pool.submit(enter, team) for team in teams]:
            one.result(30)
    with teams[0], pytest.raises(RuntimeError, match="this thread has a team"):
        teams[1].__enter__()
    for team in teams:
        team.close()
