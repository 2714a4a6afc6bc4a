"""Weights of each algorithm have one fingerprint for any number of learners and workers, and for every executor."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from trainers import INLINE, each, new

LEARNERS = (1, 2, 3, 8)
PLACES = [INLINE] + [{"executor": name, "workers": count} for name in ("threads", "processes") for count in (1, 2, 3, 4)]
SOME = [(2, INLINE), (3, {"executor": "threads", "workers": 3}), (8, {"executor": "processes", "workers": 2})]
BATCH = 200
"""Rows of a minibatch: four blocks, of which the last one is short."""


def fingerprint(algorithm: str, learners: int | None, place: dict[str, Any]) -> str:
    rows: dict[str, Any] = {"rollout_steps": 64, "n_minibatches": 1} if algorithm == "pqn" else {"batch_size": BATCH}
    if algorithm == "ppo":
        rows["n_steps"] = 100
    with new(algorithm, **rows, **place, n_learners=learners) as model:
        model.learn(3 * model.rollout_steps * model.n_envs)
        assert model.n_updates and model.nets.dense
        assert learners in (None, 1) or f"n_learners={min(learners, model.nets.most_blocks)}" in repr(model)
        return str(model.fingerprint())


@cache
def alone(algorithm: str) -> str:
    return fingerprint(algorithm, 1, INLINE)


@each
def test_one_fingerprint(algorithm: str) -> None:
    for learners, place in SOME if algorithm == "sac" else SOME[:1]:
        assert fingerprint(algorithm, learners, place) == alone(algorithm), (learners, place)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: "-".join(map(str, place.values())))
@each
def test_one_fingerprint_everywhere(algorithm: str, place: dict[str, Any]) -> None:
    for learners in LEARNERS:
        assert fingerprint(algorithm, learners, place) == alone(algorithm), learners
