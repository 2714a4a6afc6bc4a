"""Weights of each algorithm have one fingerprint for any number of learners and workers, and for every executor."""

from __future__ import annotations

import inspect
import time
from functools import cache, partial
from typing import Any

import pytest
from trainers import INLINE, PROCESSES, ROWS, SPACES, Toy, each, new

from reactor_rl.plugin import usable_cores
from reactor_sb3.trainers.learner import AGAIN, TRIED, Sharing
from reactor_torch import Team, kernels

pytestmark = pytest.mark.usefixtures("small_blocks")
LEARNERS = (1, 2, 3, 8)
PLACES = [INLINE] + [{"executor": name, "workers": count} for name in ("threads", "processes") for count in (1, 2, 3, 4)]
SOME = [(2, INLINE), (3, {"executor": "threads", "workers": 3}), (8, {"executor": "processes", "workers": 2})]
BATCH = 200
"""Rows of a minibatch: four blocks, of which the last one is short."""


def batches(algorithm: str, rows: int) -> dict[str, Any]:
    """Arguments for minibatches of about so many rows."""
    known = inspect.signature(ROWS[algorithm].cls).parameters
    of_known = {"batch_size": rows, "n_minibatches": 1}
    found: dict[str, Any] = {name: value for name, value in of_known.items() if name in known}
    return found if ROWS[algorithm].kind == "off-policy" else {"n_steps": rows // 2, **found}


def fingerprint(
    algorithm: str, learners: int | None, place: dict[str, Any], rounds: int = 3, width: int = 32, threads: int = 1, env: Any = Toy
) -> str:
    rows = batches(algorithm, BATCH)
    with new(algorithm, env, **rows, **place, n_learners=learners, policy_kwargs={"net_arch": [width, width]}) as model:
        model.learn(rounds * model.rollout_steps * model.n_envs)
        assert model.n_updates and model.nets.compiled
        assert model.session.threads == threads and model.session.team is None  # it has ended
        assert learners in (None, 1) or f"n_learners={min(learners, model.nets.most_blocks)}" in repr(model)
        return str(model.fingerprint())


@cache
def alone(algorithm: str, rounds: int = 3) -> str:
    return fingerprint(algorithm, 1, INLINE, rounds)


@pytest.mark.slow
@each
def test_one_fingerprint(algorithm: str) -> None:
    for learners, place in SOME if algorithm == "sac" else SOME[:1]:
        assert fingerprint(algorithm, learners, place) == alone(algorithm), (learners, place)


class InTurn:
    """Every other round with gradient workers."""

    def __init__(self, first: bool) -> None:
        self.shared, self.ended, self.seconds = not first, 0, 0.0

    def begin(self) -> bool:
        self.shared = not self.shared
        return self.shared

    def end(self, seconds: float) -> None:
        assert seconds > 0
        self.ended += 1
        self.seconds += seconds


@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
@each
def test_rounds_may_do_without_gradient_workers(algorithm: str, first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[InTurn] = []

    def turns() -> InTurn:
        made.append(InTurn(first))
        return made[0]

    monkeypatch.setattr("reactor_sb3.trainers.session.Sharing", turns)
    monkeypatch.setattr("reactor_sb3.trainers.session.may_learn_alone", lambda config: config.gradients is not None)
    threads = min(2, usable_cores()) if kernels.compiled else 1
    assert fingerprint(algorithm, 2, PROCESSES, 6, threads=threads) == alone(algorithm, 6)
    assert made[0].ended >= 4


@pytest.mark.slow
@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
@pytest.mark.parametrize("turns", [True, False])
@each
def test_threads_change_no_bit(algorithm: str, turns: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_sb3.trainers.placing.usable_cores", lambda: 3)
    entered: list[int] = []

    class Watched(Team):
        def __enter__(self) -> None:
            entered.append(1)
            super().__enter__()

    monkeypatch.setattr("reactor_sb3.trainers.session.Team", Watched)
    wanted = fingerprint(algorithm, None, INLINE, 6, 160)
    assert not entered
    for place, threads in (({"executor": "processes", "workers": 2}, 2), ({"executor": "threads", "workers": 3}, 3)):
        monkeypatch.setattr("reactor_sb3.trainers.session.Sharing", partial(InTurn, turns))
        assert fingerprint(algorithm, None, place, 6, 160, threads) == wanted
        assert 2 <= len(entered) <= 4  # every other round
        entered.clear()


class Slow(Toy):
    """An environment that others wait for."""

    def step(self, action: Any) -> Any:
        time.sleep(1e-3)
        return super().step(action)


@pytest.mark.slow
@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
def test_with_pipeline_threads_take_part_if_rounds_end_sooner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_sb3.trainers.placing.usable_cores", lambda: 3)
    made = [InTurn(True)]
    monkeypatch.setattr("reactor_sb3.trainers.session.Sharing", lambda: made[-1])
    rounds = {"pipeline": 1, "rollout_steps": 32, "gradient_steps": 1}
    wanted = fingerprint("sac", None, {**INLINE, **rounds}, 8, env=Slow)
    assert fingerprint("sac", None, {"executor": "processes", "workers": 2, **rounds}, 8, threads=2, env=Slow) == wanted
    assert made[0].ended >= 4
    assert made[0].seconds > (made[0].ended - 2) * 32e-3  # all that the actors took, for each update


@pytest.mark.slow
@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
@pytest.mark.parametrize("algorithm", ["ppo", "pqn", "dqn"])
def test_threads_that_convolve_change_no_bit(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_sb3.trainers.placing.usable_cores", lambda: 3)
    monkeypatch.setattr("reactor_sb3.trainers.session.Sharing", partial(InTurn, True))
    rows = batches(algorithm, 64)
    found = []
    places: list[Any] = [({"executor": "threads", "workers": 3}, None, 3), (PROCESSES, None, 2), (PROCESSES, 2, 1)]
    if algorithm != "ppo":  # others go the same ways
        places = places[:1]
    for place, learners, threads in [(INLINE, None, 1), *places]:
        with new(algorithm, partial(Toy, SPACES["image"][1]), "CnnPolicy", **rows, **place, n_learners=learners) as model:
            model.learn(4 * model.rollout_steps * model.n_envs)
            assert model.n_updates and model.session.threads == threads
            assert model.nets.compiled == (algorithm != "pqn")  # or autograd learns
            found.append(str(model.fingerprint()))
    assert set(found) == {found[0]}


@pytest.mark.parametrize(("options", "measured"), [
    ({"executor": "processes"}, True), ({"executor": "auto"}, True), ({"executor": "auto", "n_learners": 2}, True),
    ({"executor": "processes", "n_learners": 2}, False), ({"executor": "processes", "restarts": 1}, True),
])  # fmt: skip
def test_rounds_are_measured_unless_a_number_was_named(
    options: dict[str, Any], measured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reactor_sb3.trainers.placing.usable_cores", lambda: 2)
    monkeypatch.setattr("reactor_sb3.trainers.placing.gained", lambda *_, **__: 1e9)
    with new("sac", batch_size=BATCH, workers=2, **options) as model:
        model.learn(model.rollout_steps * model.n_envs)
        assert "n_learners=2" in repr(model)
        assert (model.session.sharing is not None) is measured
        assert model.session.threads == (2 if measured else 1)


def costs(sharing: Sharing, rounds: int, shared: float, alone: float, rarer: int = 1) -> list[bool]:
    """Whether gradient workers took part in each of so many rounds."""
    found = []
    for number in range(rounds):
        found.append(sharing.begin())
        sharing.end((shared if found[-1] else alone) * (1.0 if number % rarer == 0 else 0.1))
    return found


@pytest.mark.parametrize("rarer", [1, 2])  # every other round has less to do
@pytest.mark.parametrize(("shared", "alone", "best"), [(1.0, 2.0, True), (2.0, 1.0, False), (1.0, 0.97, True)])
def test_the_faster_way_is_taken(shared: float, alone: float, best: bool, rarer: int) -> None:
    sharing = Sharing()
    found = costs(sharing, TRIED * 3 * AGAIN, shared, alone, rarer)
    ways = [found[first : first + TRIED] for first in range(0, len(found), TRIED)]
    assert all(len(set(way)) == 1 for way in ways)
    expected = [True, False]
    for times in [AGAIN] if best else [2, 4, 8, 16, AGAIN]:  # sooner where the ways have changed places
        expected += [*[best] * times, not best]
    assert [way[0] for way in ways][: len(expected)] == expected


def test_the_slower_way_is_taken_when_it_has_become_the_faster_one() -> None:
    sharing = Sharing()
    assert not costs(sharing, 3 * TRIED, 2.0, 1.0)[-1]
    assert all(costs(sharing, AGAIN * TRIED + 1, 0.5, 1.0)[-TRIED:])  # it was found out when it was tried again
    assert not any(costs(sharing, 2 * TRIED, 9.0, 1.0)[-TRIED:])  # and at once when this one takes longer


@pytest.mark.parametrize("before", [0, 2, 40])
def test_a_disturbance_of_the_faster_way_is_soon_forgotten(before: int) -> None:
    sharing = Sharing()
    costs(sharing, before * TRIED, 1.0, 2.0)
    assert all(costs(sharing, TRIED, 9.0, 2.0))
    found = costs(sharing, 3 * AGAIN * TRIED, 1.0, 2.0)
    assert 3 * TRIED <= found.count(False) <= 8 * TRIED


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("at", "place"), list(enumerate(PLACES)), ids=str)
@each
def test_one_fingerprint_everywhere(algorithm: str, at: int, place: dict[str, Any]) -> None:
    """That of one learner, by every other number of them in each place."""
    for learners in LEARNERS[at % 2 :: 2]:
        assert fingerprint(algorithm, learners, place) == alone(algorithm), learners
