"""Where reactors are placed, and what is only recommended."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from trainers import ROWS

from reactor_rl.autotune import WORTH_IT
from reactor_sb3 import SyncDQN, SyncSAC
from reactor_sb3.trainers.costs import LearnerCost, actor_cost, learner_cost
from reactor_sb3.trainers.placing import Placement, best_slices, choose_placement, gained, placed, recommendations, threads_of
from reactor_torch import kernels


def loads(homes: dict[str, int], actor: float, learner: float, evaluator: float) -> list[float]:
    cost = {"learner": learner, "logger": 0.0, "evaluator": evaluator}
    found = [0.0] * (1 + max(homes.values()))
    for name, worker in homes.items():
        found[worker] += cost.get(name, actor)
    return found


def test_without_overlap_the_actors_are_shared_out_evenly() -> None:
    homes = placed(16, 4, 1.0, 100.0, {}, overlap=False)
    assert loads(homes, 1.0, 0.0, 0.0) == [4.0] * 4
    assert homes["learner"] == homes["logger"] == 0


def test_with_overlap_the_learner_counts() -> None:
    assert loads(placed(12, 4, 1.0, 4.0, {}, overlap=True), 1.0, 4.0, 0.0) == [4.0] * 4
    homes = placed(4, 2, 1.0, 100.0, {}, overlap=True)  # the learner alone takes longer than all actors
    assert [homes[f"actor[{index}]"] for index in range(4)] == [1] * 4


def test_the_evaluator_has_the_learner_s_time_for_nothing() -> None:
    homes = placed(8, 2, 1.0, 3.0, {"evaluator": 3.0}, overlap=False)
    assert homes["evaluator"] == 1
    assert sum(home == 1 for name, home in homes.items() if name.startswith("actor")) == 4
    homes = placed(8, 2, 1.0, 3.0, {"evaluator": 5.0}, overlap=False)  # of which two are left
    assert sum(home == 1 for name, home in homes.items() if name.startswith("actor")) == 3
    homes = placed(9, 2, 1.0, 3.0, {"evaluator": 4.0}, overlap=True)
    assert loads(homes, 1.0, 3.0, 4.0) == [8.0, 8.0]


def test_one_worker_has_everything() -> None:
    assert set(placed(3, 1, 1.0, 1.0, {"evaluator": 1.0}, overlap=True).values()) == {0}


@pytest.mark.parametrize(
    ("chosen", "slices", "options", "threads"),
    [
        ("inline", 1, {}, 4),
        ("processes", 1, {}, 4),
        ("processes", 1, {"evaluate_every": 3}, 3),  # which goes on meanwhile
        ("inline", 1, {"evaluate_every": 3}, 4),
        ("processes", 2, {}, 1),
        ("processes", 1, {"pipeline": 1}, 4),  # of which rounds show whether they are faster
        ("processes", 1, {"pipeline": 1, "evaluate_every": 3}, 3),
        ("processes", 1, {"split": True}, 1),
        ("inline", 1, {"workers": 1}, 1),
        ("processes", 1, {"workers": 9}, 4),
        ("inline", 1, {"executor": "inline"}, 1),
        ("processes", 1, {"n_learners": 3}, 3),
        ("processes", 1, {"n_learners": 1}, 1),
        ("processes", 1, {"pipeline": 1, "n_learners": 2}, 2),
        ("processes", 1, {"pipeline": 1, "n_learners": 1, "learner_threads": 2}, 2),
        ("inline", 1, {"executor": "inline", "learner_threads": 3}, 3),
        ("processes", 2, {"learner_threads": 2}, 1),
    ],
)
def test_learners_have_the_cores_that_wait(
    chosen: Any, slices: int, options: dict[str, Any], threads: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr("reactor_sb3.trainers.placing.usable_cores", lambda: 4)
    with SyncSAC("MlpPolicy", "Pendulum-v1", seed=0, **options) as model:
        config = model.program_config()
        assert config.helped is (kernels.compiled is not None)
    config = replace(config, helped=True)
    assert threads_of(config, Placement(chosen, 4, {}, None, None, slices=slices, split=model.split)) == threads
    assert threads_of(replace(config, helped=False), Placement(chosen, 4, {}, None, None)) == 1
    monkeypatch.setattr("reactor_sb3.trainers.placing.may_start_processes", lambda: False)
    assert threads_of(config, Placement(chosen, 4, {}, None, None)) == options.get("learner_threads", 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("actor", "learner", "pipeline", "meeting", "updates", "words"),
    [
        (0.010, 0.020, 0, 1.0, 1, ["pipeline=1"]),
        (0.010, 0.020, 1, 1.0, 1, []),
        (0.010, 0.001, 0, 1.0, 1, []),
        (0.0001, 0.00001, 0, 1.0, 1, ["longer rounds"]),
        (0.010, 0.090, 1, 0.050, 1, []),
    ],
)
def test_what_changes_results_is_only_recommended(
    actor: float, learner: float, pipeline: int, meeting: float, updates: int, words: list[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr("reactor_sb3.trainers.placing.tick_cost", lambda **_: meeting)
    monkeypatch.setattr("reactor_sb3.trainers.placing.usable_cores", lambda: 2)
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=4, pipeline=pipeline, seed=0) as model:
        homes = placed(4, 2, actor, learner, {}, overlap=bool(pipeline))
        found = recommendations(model.program_config(), Placement("processes", 2, homes, actor, learner, updates))
        assert [any(word in sentence for sentence in found) for word in words] == [True] * len(found) == [True] * len(words)


@pytest.mark.parametrize(("helped", "advised"), [(None, True), (0.090, True), (0.045, False)])
def test_what_threads_have_shortened_needs_no_pipeline(helped: float | None, advised: bool, monkeypatch: Any) -> None:
    """A round is 40 ms of sampling and 90 ms of learning on one thread, or 95 ms with ``pipeline=1``."""
    monkeypatch.setattr("reactor_sb3.trainers.placing.usable_cores", lambda: 2)
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=4, seed=0) as model:
        homes = placed(4, 2, 0.020, 0.090, {}, overlap=False)
        choice = Placement("processes", 2, homes, 0.020, 0.090, helped=helped)
        assert any("pipeline=1" in sentence for sentence in recommendations(model.program_config(), choice)) is advised


@pytest.mark.skipif(sys.platform != "linux", reason="threads of C are counted there")
@pytest.mark.parametrize("threads", [1, 3])
def test_what_a_learner_costs(threads: int) -> None:
    with SyncSAC("MlpPolicy", "Pendulum-v1", n_actors=2, gradient_steps=4, seed=0) as model:
        before, weights = len(os.listdir("/proc/self/task")), model.fingerprint()
        cost = learner_cost(model, threads)
        assert 0 < cost.helped <= cost.alone < 10 and cost.updates == 4
        assert (len(os.listdir("/proc/self/task")), model.fingerprint()) == (before, weights)
    if threads == 1:
        assert cost.helped == cost.alone


TD3 = ROWS["td3"].cls


@pytest.mark.parametrize(
    ("algorithm", "learner", "updates", "words"),
    [
        (SyncSAC, 0.060, 30, ["split=True"]),
        (SyncSAC, 0.030, 30, []),
        (TD3, 0.060, 30, []),  # its critics learn twice as often as its actor
        (SyncSAC, 0.003, 30, []),  # they would meet for longer than they compute
    ],
)
def test_to_learn_side_by_side_is_only_recommended(algorithm: Any, learner: float, updates: int, words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reactor_sb3.trainers.placing.tick_cost", lambda **_: 5e-5)
        patch.setattr("reactor_sb3.trainers.placing.usable_cores", lambda: 2)
        with algorithm("MlpPolicy", "Pendulum-v1", n_actors=2, pipeline=1, seed=0) as model:
            homes = placed(2, 2, 1e-3, learner, {}, overlap=True)
            found = recommendations(model.program_config(), Placement("processes", 2, homes, 1e-3, learner, updates))
            shared = Placement("processes", 2, homes, 1e-3, learner, updates, slices=2)
            assert not any("split" in sentence for sentence in recommendations(model.program_config(), shared))
    assert [word for word in ("split=True",) if any(word in sentence for sentence in found)] == words


class Slow(gymnasium.Env[Any, Any]):
    """An environment that takes its time for what it does."""

    observation_space, action_space = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)

    def __init__(self, reset: float, step: float) -> None:
        self.seconds = reset, step

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        time.sleep(self.seconds[0])
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds[1])
        return np.zeros(3, np.float32), 0.0, False, False, {}


@pytest.mark.slow
@pytest.mark.parametrize(("reset", "step", "steps"), [(0.3, 0.0, 2), (0.3, 0.0, 6), (0.3, 0.01, 1000)])
def test_what_a_round_of_an_actor_costs(reset: float, step: float, steps: int) -> None:
    with SyncDQN("MlpPolicy", lambda: Slow(reset, step), n_actors=1, train_freq=steps, seed=0) as model:
        given, begin = model.program_config(), time.perf_counter()
        cost = actor_cost(given)
        taken = time.perf_counter() - begin
    assert step * steps <= cost < 2 * step * steps + 0.2  # episodes that begin are no part of it
    assert taken < 3.0  # a whole round has not been sampled where it takes 10 s


def test_nothing_is_measured_when_an_executor_is_named(monkeypatch: Any) -> None:
    def measured(*_: Any) -> float:
        raise AssertionError("it was measured")

    monkeypatch.setattr("reactor_sb3.trainers.placing.actor_cost", measured)
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=2, seed=0, executor="inline") as model:
        model.learn(8)
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=2, seed=0) as model, pytest.raises(AssertionError, match="it was measured"):
        model.learn(8)


@pytest.mark.parametrize(
    ("actors", "workers", "learner", "evaluator", "overlap", "shared"),
    [
        (4, 2, 10.0, 0.0, False, 2.0 + 10.0),
        (5, 2, 10.0, 0.0, False, 3.0 + 10.0),
        (1, 2, 10.0, 0.0, False, 1.0 + 10.0),
        (1, 2, 10.0, 0.0, True, 10.0),
        (4, 2, 2.0, 0.0, True, 3.0),
        (4, 4, 2.0, 0.0, True, 2.0),
        (4, 2, 10.0, 3.0, False, 2.0 + 10.0),
        (4, 2, 1.0, 3.0, False, 2.0 + 3.0),
        (4, 2, 1.0, 3.0, True, 4.0),
    ],
)
def test_what_a_round_gains(actors: int, workers: int, learner: float, evaluator: float, overlap: bool, shared: float) -> None:
    alone = WORTH_IT * (actors + evaluator) + learner
    assert gained(actors, workers, 1.0, learner, evaluator, overlap=overlap) == pytest.approx(alone - shared)


def test_with_pipeline_threads_have_the_cores_in_turn_with_the_actors() -> None:
    assert gained(4, 2, 1.0, 10.0, 0.0, overlap=True, helped=6.0) == pytest.approx(WORTH_IT * 4 + 6.0 - (2.0 + 6.0))
    assert gained(4, 2, 1.0, 10.0, 0.0, overlap=True, helped=9.0) == pytest.approx(WORTH_IT * 4 + 9.0 - 10.0)  # on one thread


@pytest.mark.parametrize(("helper", "executor"), [(0.7e-3, "processes"), (0.9e-3, "inline"), (float("inf"), "inline")])
def test_helpers_are_taken_where_they_pay(monkeypatch: Any, helper: float, executor: str) -> None:
    monkeypatch.setattr("reactor_sb3.trainers.placing.actor_cost", lambda *_: 0.5e-3)
    monkeypatch.setattr("reactor_sb3.trainers.placing.learner_cost", lambda *_: LearnerCost(5e-3, 5e-3, 1))
    monkeypatch.setattr("reactor_sb3.trainers.placing.tick_cost", lambda **_: helper)
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=4, seed=0, workers=2) as model:  # of 2 ms, less a tenth, 1 ms is left
        found = choose_placement(model.program_config(), model)
    assert (found.executor, found.workers) == (executor, 2 if executor == "processes" else 1)


def test_gradient_workers_go_round_and_actors_are_spread_beside_them() -> None:
    homes = placed(4, 2, 1.0, 100.0, {"evaluator": 2.0}, overlap=False, learners=4)
    assert [homes[name] for name in ("learner", *(f"gradient_worker[{index}]" for index in range(3)), "evaluator")] == [
        0,
        1,
        0,
        1,
        1,
    ]
    assert [homes[f"actor[{index}]"] for index in range(4)].count(0) == 3  # the evaluator has the time of the fourth and a fifth


@pytest.mark.parametrize(
    ("learners", "workers", "shared"), [(2, 2, 2.0 + 5.0), (3, 2, 2.0 + 10.0 * 2 / 3), (2, 4, 1.0 + 5.0), (4, 4, 1.0 + 2.5)]
)
def test_what_a_round_gains_by_shards(learners: int, workers: int, shared: float) -> None:
    found = gained(4, workers, 1.0, 10.0, 0.0, overlap=False, learners=learners)
    assert found == pytest.approx(WORTH_IT * 14.0 - shared)


def test_what_a_round_gains_where_one_shard_has_more_to_do() -> None:
    with TD3("MlpPolicy", "Pendulum-v1", n_actors=4, split=True, policy_delay=1, seed=0) as model:
        share = model.program_config().largest_share(1)
    assert share == pytest.approx(9 / 14, rel=0.2)  # by passes through networks
    for workers, learned in ((2, 10.0 * share), (1, 10.0)):
        found = gained(4, workers, 1.0, 10.0, 0.0, overlap=False, learners=2, share=share)
        assert found == pytest.approx(WORTH_IT * 14.0 - 4.0 / workers - learned)


@pytest.mark.parametrize(
    ("blocks", "n_learners", "workers", "helper", "executor", "slices"),
    [
        (4, None, 2, 1e-4, "processes", 2), (4, None, 4, 1e-4, "processes", 4), (4, None, 3, 1e-4, "processes", 3),
        (3, None, 8, 1e-4, "processes", 3), (4, 2, 4, 1e-4, "processes", 2),  # a cap
        (4, None, 2, 1e-3, "inline", 1),  # they would meet for longer than it saves
        (4, 1, 2, 1e-4, "inline", 1), (1, None, 2, 1e-4, "inline", 1), (4, 8, 1, 1e-4, "inline", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("helped", [False, True])
def test_gradients_are_shared_out_where_that_pays(
    blocks: int, n_learners: int | None, workers: int, helper: float, executor: str, slices: int, helped: bool, monkeypatch: Any
) -> None:
    """An actor's round takes no time, and the learner's ten updates 1 ms each. Where threads can help, they do so instead."""
    monkeypatch.setattr("reactor_sb3.trainers.placing.actor_cost", lambda *_: 1e-9)
    monkeypatch.setattr("reactor_sb3.trainers.placing.learner_cost", lambda *_: LearnerCost(10e-3, 10e-3, 10))
    monkeypatch.setattr("reactor_sb3.trainers.placing.tick_cost", lambda **_: helper)
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=1, n_learners=n_learners, seed=0, workers=workers) as model:
        found = choose_placement(replace(model.program_config(), blocks=blocks, exchanged=0, helped=helped), model)
    executor, slices = ("inline", 1) if helped else (executor, slices)
    assert (found.executor, found.slices, found.workers) == (executor, slices, slices if executor == "processes" else 1)


@pytest.mark.parametrize(
    ("executor", "n_learners", "slices"), [("processes", 3, 3), ("inline", 3, 3), ("threads", 9, 4), ("inline", None, 1)]
)
def test_a_number_and_an_executor_are_taken_as_they_are(executor: Any, n_learners: int | None, slices: int) -> None:
    how: dict[str, Any] = {"executor": executor, "n_learners": n_learners, "workers": 2}
    with SyncDQN("MlpPolicy", "CartPole-v1", n_actors=1, seed=0, **how) as model:
        assert choose_placement(replace(model.program_config(), blocks=4), model).slices == slices


def test_what_is_exchanged_costs_time(monkeypatch: Any) -> None:
    monkeypatch.setattr("reactor_sb3.trainers.placing.tick_cost", lambda **_: 1e-5)
    with SyncSAC("MlpPolicy", "Pendulum-v1", n_actors=1, seed=0, workers=2) as model:
        config = replace(model.program_config(), blocks=4, helped=False)
        assert config.exchanged > 1e6  # bytes: five networks of 256-256
        assert [best_slices(replace(config, exchanged=size), 1e-6, LearnerCost(10e-3, 10e-3, 10)) for size in (10**5, 10**8)] == [
            2,
            1,
        ]
