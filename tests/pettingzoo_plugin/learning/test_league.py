"""Self-play: the same league wherever it runs, opponents by rule, and what snapshots are."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from learning_envs import EVALUATED, Late, make, outcome
from pettingzoo.classic.tictactoe import tictactoe
from runner_envs import Herd

from reactor_pettingzoo.learning import League, SyncIPPO
from reactor_pettingzoo.learning.league import Pool, elo_of
from reactor_pettingzoo.runner.tournament import Tournament

GAME = tictactoe.env
LEAGUE = League(every=2, size=3, opponents=3)
PROCESSES: dict[str, Any] = {"executor": "processes", "workers": 2}
THREADS: dict[str, Any] = {"executor": "threads", "workers": 2}


def trained(**how: Any) -> SyncIPPO:
    return make(GAME, **{"league": LEAGUE, "n_actors": 4, "envs_per_actor": 1, "n_steps": 24, **EVALUATED, **how})


def all_of(model: Any) -> dict[str, Any]:
    """With all that a league is."""
    pool = {name: one.tolist() for name, one in model.policy.pool.named_buffers()}
    return {**outcome(model), "pool": pool}


@cache
def alone(pipeline: int) -> dict[str, Any]:
    with trained(pipeline=pipeline) as model:
        return all_of(model.learn(24 * 4 * 9))


@pytest.mark.parametrize(("pipeline", "place"), [(0, THREADS), pytest.param(1, PROCESSES, marks=pytest.mark.slow)])
def test_the_same_league_on_any_workers(pipeline: int, place: dict[str, Any]) -> None:
    with trained(pipeline=pipeline, **place) as model:
        assert all_of(model.learn(24 * 4 * 9)) == alone(pipeline)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
@pytest.mark.parametrize("executor", ["threads", "processes"])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_the_same_league_on_all_workers(pipeline: int, executor: Any, workers: int) -> None:
    with trained(pipeline=pipeline, executor=executor, workers=workers) as model:
        assert all_of(model.learn(24 * 4 * 9)) == alone(pipeline)


@pytest.mark.parametrize("pipeline", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_resumed_is_uninterrupted(pipeline: int, tmp_path: Path) -> None:
    with trained(pipeline=pipeline) as model:
        model.learn(24 * 4 * 5)
        model.save_checkpoint(tmp_path / "run.zip")
    with SyncIPPO.resume(tmp_path / "run.zip", **THREADS) as resumed:
        assert all_of(resumed.learn(24 * 4 * 4, reset_num_timesteps=False))["pool"] == alone(pipeline)["pool"]
        assert resumed.fingerprint() == alone(pipeline)["weights"]


def test_the_pool_has_snapshots_and_games() -> None:
    found = alone(0)["pool"]
    assert sorted(found["rounds"]) == [4, 6, 8] and found["counts"] == [9, 5]
    games = np.array(found["games"])
    assert games[:, 0].sum() > 20 and (games[:, 1] <= games[:, 0]).all()
    assert len(set(map(tuple, found["weights"]))) == 3


def test_opponents_are_snapshots_and_do_not_learn() -> None:
    with trained() as model:
        first = torch.cat([one.flatten() for one in model.policies["main"].parameters()]).detach().clone()
        model.learn(24 * 4)
        agents = model.policy.agents
        now = {name: torch.cat([one.flatten() for one in agents[name].parameters()]) for name in agents}
        assert all(torch.equal(now[f"opponent_{number}"], first) for number in range(3))
        assert not torch.equal(now["main"], first)
        model.learn(24 * 4 * 2)
        newest = torch.cat([one.flatten() for one in agents["opponent_0"].parameters()])
        assert not torch.equal(newest, first)
        assert torch.equal(newest, model.policy.pool.weights[model.policy.pool.newest])


def test_main_plays_both_sides() -> None:
    """And a game that it has won is counted as won."""
    with trained(n_epochs=1) as model:
        seen: list[Any] = []
        over = model.policy.pool.round_over

        def noting(seed: int, policy: Any, slots: Any, scores: Any, late: int) -> Any:
            rollouts = model.session.rollouts
            ended, rewards = rollouts.steps("dones"), rollouts.steps("next_observations:rewards")
            assert np.array_equal(rollouts.steps("rewards"), rewards[..., 0])  # an opponent's are not counted
            seen.append((scores, (1 + np.sign(rewards[ended][:, 0])) / 2, rollouts.steps("observations:acts")[:, :, 0].mean()))
            return over(seed, policy, slots, scores, late)

        model.policy.pool.round_over = noting
        model.learn(24 * 4 * 6)
    for scores, paid, share in seen:
        assert np.array_equal(scores, paid) and 0.4 < share < 0.6
    assert {0.0, 1.0} <= {score for scores, _, _ in seen for score in scores}


def test_games_are_counted_for_who_was_played() -> None:
    """With ``pipeline=1`` a round that is learned from was played against the opponents of the round before."""
    for late in (0, 1):
        policy = torch.nn.Linear(2, 2)
        pool = Pool(policy, League(every=1, size=4, opponents=2, rule="latest"))
        nobody, won = np.zeros(0, np.int64), np.array([0.0, 1.0, 0.5])
        pool.round_over(0, policy, nobody, np.zeros(0), late)  # after this one, the second snapshot is played
        assert pool.drawn.tolist() == [[1, 1], [0, 0]]
        pool.round_over(0, policy, np.array([0, 1, 1]), won, late)
        assert pool.games[1 - late].tolist() == [3.0, 1.5] and pool.games[late].tolist() == [0.0, 0.0]


def test_rules() -> None:
    played, won = np.array([10.0, 10.0, 0.0]), np.array([10.0, 0.0, 0.0])
    drawn = {}
    for rule in ("latest", "uniform", "pfsp"):
        league = League(opponents=3, rule=rule)  # type: ignore[arg-type]
        rounds = [league.draw(0, number, 2, played, won) for number in range(400)]
        assert rounds == [league.draw(0, number, 2, played, won) for number in range(400)]
        assert all(one[0] == 2 for one in rounds)
        drawn[rule] = np.bincount([place for one in rounds for place in one[1:]], minlength=3) / 800
    assert drawn["latest"].tolist() == [0, 0, 1]
    assert np.allclose(drawn["uniform"], 1 / 3, atol=0.06)
    weights = np.array([1 / 12, 11 / 12, 1 / 2]) ** 2
    assert np.allclose(drawn["pfsp"], weights / weights.sum(), atol=0.06)


def test_a_report_has_payoffs_and_ratings() -> None:
    with trained() as model:
        model.learn(24 * 4 * 4)
        report = model.league_report(episodes=4, workers=1, executor="inline")
    assert report.tournament.names == ("round 0", "round 2", "round 4", "now")
    assert report.tournament.payoffs.shape == (2, 4, 4)
    assert abs(sum(report.elo.values())) < 1e-6 and "Elo: round 0" in str(report)


def test_ratings() -> None:
    payoffs = np.array([[0.0, 0.8, 1.0], [-0.8, 0.0, 0.8], [-1.0, -0.8, 0.0]])
    both = np.stack([payoffs, -payoffs])
    found = elo_of(Tournament(("a", "b", "c"), both, both, both, 100, 0, 0.0, ""))
    assert found["a"] > found["b"] > found["c"]
    assert found["a"] - found["b"] == pytest.approx(400 * np.log10(9), abs=60)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="a league is of two agents with equal spaces, and"):
        make(Herd, league=LEAGUE)
    with pytest.raises(ValueError, match="rule='best': there are 'latest', 'uniform', 'pfsp'"):
        League(rule="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="every"):
        League(every=0)
    with make(partial(Late, 4)) as model, pytest.raises(ValueError, match="there are no snapshots without a league"):
        model.snapshots()
