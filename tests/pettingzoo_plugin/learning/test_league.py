"""Self-play: the same league wherever it runs, opponents by rule, and what snapshots are."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_other import every_other
from gymnasium import spaces
from killing import Killing
from learning_envs import EVALUATED, Late, make, outcome
from pettingzoo import AECEnv
from pettingzoo.classic.tictactoe import tictactoe
from places import PROCESSES, THREADS
from runner_envs import Herd, Matrix
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from reactor_pettingzoo.learning import League, Payoffs, SyncIPPO
from reactor_pettingzoo.learning.league import Pool
from reactor_pettingzoo.learning.payoffs import nash_of
from reactor_pettingzoo.runner.tournament import Tournament, tournament
from reactor_rl import RecoveryWarning

GAME = tictactoe.env
LEAGUE = League(every=2, size=3, opponents=3, games=2)


def trained(game: Any = GAME, **how: Any) -> SyncIPPO:
    return make(game, **{"league": LEAGUE, "n_actors": 4, "envs_per_actor": 1, "n_steps": 24, **EVALUATED, **how})


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
@every_other(pipeline=[0, 1], executor=["threads", "processes"], workers=[1, 2, 3, 4])
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


KILLED = """
import sys
from killing import Dying
from test_league import trained

if __name__ == "__main__":
    trained().learn(24 * 4 * 9, callback=Dying("run.zip", saved=5, dies=7))
"""


@pytest.mark.faults
def test_killed_and_resumed(tmp_path: Path) -> None:
    folders = [str(folder) for folder in [Path(__file__).parent, *Path(__file__).parents[1:3]]]
    (tmp_path / "killed.py").write_text(f"import sys\nsys.path[:0] = {folders!r}\n{KILLED}")
    done = subprocess.run([sys.executable, "killed.py"], cwd=tmp_path, timeout=100, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    with SyncIPPO.resume(tmp_path / "run.zip", executor="inline") as resumed:
        assert all_of(resumed.learn(resumed.remaining_timesteps, reset_num_timesteps=False)) == alone(0)


@pytest.mark.faults
@pytest.mark.filterwarnings("always")
def test_killed_workers_change_nothing() -> None:
    with pytest.warns(RecoveryWarning), trained(executor="processes", workers=3, restarts=9) as model:
        assert all_of(model.learn(24 * 4 * 9, callback=Killing({2, 5}))) == alone(0)


def test_the_pool_has_snapshots_and_games() -> None:
    found = alone(0)["pool"]
    assert sorted(found["rounds"]) == [4, 6, 8] and found["counts"] == [9, 5]
    games = np.array(found["games"])
    assert games[:, 0].sum() > 20 and (games[:, 1] <= games[:, 0]).all()
    payoffs = np.array(found["payoffs"])
    assert payoffs[..., 0].sum() > 0 and (payoffs.diagonal() == 0).all()  # one match after the other, beside the training
    assert np.array_equal(payoffs[..., 0], payoffs[..., 0].T)
    assert np.array_equal(payoffs[..., 1] + payoffs[..., 1].T, payoffs[..., 0])
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
            ended, rewards = rollouts.steps("dones"), rollouts.steps("agent_rewards")
            assert np.array_equal(rollouts.steps("rewards"), rewards[..., 0])  # an opponent's are not counted
            seen.append((scores, (1 + np.sign(rewards[ended][:, 0])) / 2, rollouts.steps("acting")[:, :, 0].mean()))
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


def test_games_against_a_snapshot_that_has_gone_are_not_counted() -> None:
    """With ``pipeline=1`` a round is learned from when another snapshot may be in that one's place."""
    policy = torch.nn.Linear(2, 2)
    pool = Pool(policy, League(every=100, size=2, opponents=2, rule="uniform"))
    for _ in range(3):
        pool.add(policy)  # by now 2 and 3 are there
    pool.drawn[1] = torch.tensor([1, 3])
    pool.round_over(0, policy, np.array([0, 1, 1]), np.array([1.0, 1.0, 0.0]), 1)
    assert pool.games.tolist() == [[0, 0], [2, 1]]
    with pytest.raises(ValueError, match="without the running statistics of batch normalisation"):
        Pool(torch.nn.Sequential(torch.nn.BatchNorm1d(2)), League())


@pytest.mark.slow
def test_rules() -> None:
    games, payoffs = np.array([[6.0, 6.0], [6.0, 0.0], [0.0, 0.0]]), np.zeros((3, 3, 2))
    payoffs[2, :2], payoffs[:2, 2] = (4, 4), (4, 0)  # the newest has won against both
    drawn = {}
    for rule in ("latest", "uniform", "pfsp", "nash"):
        league = League(opponents=3, rule=rule)  # type: ignore[arg-type]
        count = 20 if rule == "nash" else 400  # an equilibrium takes its time
        rounds = [league.draw(0, number, 2, games, payoffs) for number in range(count)]
        assert rounds == [league.draw(0, number, 2, games, payoffs) for number in range(count)]
        assert all(one[0] == 2 for one in rounds)
        drawn[rule] = np.bincount([place for one in rounds for place in one[1:]], minlength=3) / (2 * count)
    assert drawn["latest"].tolist() == [0, 0, 1]
    assert np.allclose(drawn["uniform"], 1 / 3, atol=0.06)
    weights = np.array([1 / 12, 7 / 12, 1 / 2]) ** 2
    assert np.allclose(drawn["pfsp"], weights / weights.sum(), atol=0.06)
    assert drawn["nash"].tolist() == [0, 0, 1]


def test_matches_are_of_those_who_have_played_the_least() -> None:
    played = np.array([[0.0, 8, 4, 6], [8, 0, 4, 6], [4, 4, 0, 8], [6, 6, 8, 0]])
    pairs = [League().pair(0, round, played) for round in range(40)]
    assert set(pairs) == {(0, 2), (1, 2)} and pairs == [League().pair(0, round, played) for round in range(40)]
    assert League(games=4).pair(0, 0, played) is None and League().pair(0, 0, np.zeros((1, 1))) is None


def test_a_report_has_payoffs_and_ratings() -> None:
    with trained() as model:
        model.learn(24 * 4 * 4)
        report = model.league_report(episodes=4, workers=1, executor="inline")
    assert report.tournament.names == ("round 0", "round 2", "round 4", "now")
    assert report.tournament.payoffs.shape == (2, 4, 4)
    assert abs(sum(report.elo.values())) < 1e-6 and "Elo: round 0" in str(report)
    assert "Elo: round 0" in report._repr_html_() and "<table" in report._repr_html_()


class Told(Late):
    """It says what its state is."""

    def state(self) -> Any:
        return np.array([self.t, sum(self.moves)], np.float32)


@pytest.mark.slow
def test_snapshots_of_centralised_policies_act_alone() -> None:
    """By what their agents see, as tournaments ask of them."""
    with trained(Told, centralised_critic=True, learning_rate=0.1) as model:
        model.learn(24 * 4 * 4)
        snapshots, report = model.snapshots(), model.league_report(episodes=4, workers=1, executor="inline")
        pool, seen = model.policy.pool, torch.randn(32, 4)
        scores = {name: snapshot(seen).logits for name, snapshot in snapshots.items()}
        assert len({tuple(one.flatten().tolist()) for one in scores.values()}) == 3
        for place, round in enumerate(pool.rounds.tolist()):
            pool.put(place, model.policy.agents["main"])
            assert torch.equal(scores[f"round {round}"], model.policies["main"](seen).logits)
    assert report.tournament.names == (*snapshots, "now") and np.isfinite(report.tournament.payoffs).all()


class Counted(BaseFeaturesExtractor):
    """Says how often it has been learned from, in a buffer; and keeps what it says in another one, of whole numbers."""

    def __init__(self, space: Any) -> None:
        super().__init__(space, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("times", torch.zeros((), dtype=torch.int64))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.add_(0.5)
            self.times.add_(1)
        return seen.flatten(1)[:, :2] - self.mean


class Chances(BaseCallback):
    """The policy's probabilities at the beginning of each round."""

    def _init_callback(self) -> None:
        self.found: list[Any] = []

    def _on_rollout_start(self) -> None:
        self.found.append(chances(self.model.policy.agents["main"]))  # type: ignore[union-attr, index]

    def _on_step(self) -> bool:
        return True


def chances(policy: Any) -> Any:
    with torch.no_grad():
        return policy.get_distribution(torch.ones(1, *policy.observation_space.shape)).distribution.probs.tolist()


@pytest.mark.slow
def test_snapshots_and_opponents_have_buffers_of_their_own(tmp_path: Path) -> None:
    arguments = {"features_extractor_class": Counted, "net_arch": [8]}
    with trained(Late, policy_kwargs=arguments, league=League(every=2, size=3, opponents=2, games=0)) as model:
        kept = Chances()
        model.learn(24 * 4 * 4, callback=kept)
        found = {name: chances(one) for name, one in model.snapshots().items()}
        assert found == {f"round {round}": kept.found[round] for round in (0, 2)} | {"round 4": chances(model.policies["main"])}
        agents: Any = model.policy.agents
        assert all(chances(agents[f"opponent_{number}"]) in found.values() for number in range(2))
        times = [int(agents[name].features_extractor.times) for name in ("main", "opponent_0")]
        model.save(tmp_path / "model.zip")
    assert times[0] == times[1] > 0
    assert {name: chances(one) for name, one in SyncIPPO.load(tmp_path / "model.zip").snapshots().items()} == found


class Stateful(Counted):
    """It has more to it."""

    def get_extra_state(self) -> Any:
        return {"more": 1}

    def set_extra_state(self, state: Any) -> None:
        pass


def test_what_no_snapshot_has_is_refused() -> None:
    with pytest.raises(ValueError, match="Stateful 'features_extractor' has an extra state besides"):
        trained(Late, policy_kwargs={"features_extractor_class": Stateful})


def always(action: int) -> Any:
    """A policy that never does anything else."""
    return lambda seen: np.full(len(seen), action)


class Paid(Matrix):
    """What both sides do is paid in another way: the agents of each side by the side's action and the other's."""

    def __init__(self, pays: Any, sizes: tuple[int, int] = (1, 1)) -> None:
        super().__init__(sizes)
        self.pays = pays

    def step(self, actions: Any) -> Any:
        seen, _, *rest = super().step(actions)
        did = [actions[side[0]] for side in self.sides]
        paid = {agent: self.pays(did[at], did[1 - at]) for at, side in enumerate(self.sides) for agent in side}
        return seen, paid, *rest


GAMES: dict[str, tuple[Any, tuple[int, int]]] = {
    "won or lost": (lambda own, other: float(np.sign(own - other)), (1, 1)),
    "points": (lambda own, other: 60 + own, (1, 1)),
    "losses": (lambda own, other: -100 + 0.1 * (own - other), (1, 1)),
    "small": (lambda own, other: 1e-6 * own, (1, 1)),
    "general sum": (lambda own, other: 3.0 * own + other, (1, 1)),
    "teams": (lambda own, other: 60 + own, (2, 2)),
    "uneven teams": (lambda own, other: 60 + own, (3, 1)),
}


@pytest.mark.parametrize("game", GAMES)
def test_who_has_got_more_has_won(game: str) -> None:
    """Whatever is paid: 4 beats 2 and 0, 2 beats 0, and the two that do the same draw."""
    pays, sizes = GAMES[game]
    population = {"worst": always(0), "good": always(2), "even": always(2), "best": always(4)}
    env_fn = partial(Paid, pays, sizes)
    sides: Any = {agent: at for at, side in enumerate(env_fn().sides) for agent in side}
    found = tournament(env_fn, population, episodes=2, side_of=sides.get, executor="inline", workers=1)
    table = Payoffs.of(found)
    expected = [[np.nan, 0, 0, 0], [1, np.nan, 0.5, 0], [1, 0.5, np.nan, 0], [1, 1, 1, np.nan]]
    assert np.array_equal(table.shares, expected, equal_nan=True) and np.array_equal(table.games, 4 * (1 - np.eye(4)))
    ratings = table.elo
    assert ratings["worst"] < ratings["good"] == pytest.approx(ratings["even"]) and ratings["good"] < ratings["best"]
    assert max(table.nash().items(), key=lambda one: one[1])[0] == "best"
    if game == "won or lost":  # payoffs alone tell it, too
        told = Payoffs.of(replace(found, won=None))
        assert np.array_equal(told.won, table.won) and told.elo == ratings


class Blank(Matrix):
    """One agent is paid nothing that is a number."""

    def __init__(self, agent: str) -> None:
        super().__init__()
        self.agent = agent

    def step(self, actions: Any) -> Any:
        seen, rewards, *rest = super().step(actions)
        return seen, {**rewards, self.agent: np.nan}, *rest


@pytest.mark.parametrize("agent", ["a0", "b0"])
def test_rewards_that_are_not_numbers_are_refused(agent: str) -> None:
    """On one of four environments at least the agent is an opponent, of whose reward nobody learns."""
    with (
        make(partial(Blank, agent), league=LEAGUE, n_actors=1, envs_per_actor=4, n_steps=8) as model,
        pytest.raises(ValueError, match=f"the reward of agent '{agent}' is NaN"),
    ):
        model.learn(64)


def test_ratings() -> None:
    payoffs = np.array([[0.0, 0.8, 1.0], [-0.8, 0.0, 0.8], [-1.0, -0.8, 0.0]])
    both = np.stack([payoffs, -payoffs])
    table = Payoffs.of(Tournament(("a", "b", "c"), both, both, both, 100, 0, 0.0, ""))
    found = table.elo
    assert found["a"] > found["b"] > found["c"]
    assert found["a"] - found["b"] == pytest.approx(400 * np.log10(9), abs=60)
    assert table.shares[0, 1:].tolist() == [0.9, 1.0] and np.isnan(table.shares.diagonal()).all()
    assert table.nash() == {"a": 1.0, "b": 0.0, "c": 0.0}
    assert [line.split() for line in str(table).splitlines()][1] == ["a", "-", "90", "100"]
    assert repr(table) == "Payoffs(3 policies, 600 games)"


def test_mixtures_that_nobody_beats() -> None:
    """Stone, paper and scissors, of which there are two; then one that loses to all."""
    gains = np.array([[0, -1, 1, 1], [1, 0, -1, -1], [-1, 1, 0, 0], [-1, 1, 0, 0]])
    games = 1000.0 * (1 - np.eye(4))
    assert nash_of(games, (gains + 1) / 2 * games) == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], abs=1e-3)
    worst = np.pad(gains, (0, 1), constant_values=1)
    worst[4], worst[4, 4] = -1, 0
    games = 1000.0 * (1 - np.eye(5))
    assert nash_of(games, (worst + 1) / 2 * games) == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6, 0], abs=1e-3)
    assert nash_of(np.zeros((4, 4)), np.zeros((4, 4))).tolist() == [0.25] * 4  # nothing is known
    assert nash_of(np.zeros((1, 1)), np.zeros((1, 1))).tolist() == [1]


class Higher(AECEnv):
    """Who names the higher number gets 1, the other one nothing."""

    metadata = {"name": "higher"}
    possible_agents = ["one", "other"]

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self.agent_selection, self.named = self.possible_agents[:], "one", []
        self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0.0), dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self._skip_agent_selection: Any = None

    def observe(self, agent: str) -> Any:
        return np.array([agent == "one", 1], np.float32)

    def step(self, action: Any) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        self.named.append(int(action))
        self.agent_selection = "other"
        if len(self.named) == 2:
            one, other = self.named
            self.rewards = {"one": float(one > other), "other": float(other > one)}
            self.terminations = dict.fromkeys(self.agents, True)


@pytest.mark.parametrize("pipeline", [0, 1])
def test_payoffs_are_those_of_the_snapshots(pipeline: int) -> None:
    """Snapshots that name the higher number beat the one that does not, on both sides, though nobody gets less than nothing."""
    league = League(every=9, size=3, opponents=1, games=12)
    with make(Higher, league=league, learning_rate=0.0, n_actors=1, pipeline=pipeline) as model:
        pool, main = model.policy.pool, model.policy.agents["main"]
        with torch.no_grad():
            main.action_net.bias.copy_(torch.tensor([30.0, 0.0]))
            pool.weights[0] = torch.cat([one.flatten() for one in main.parameters()])
            main.action_net.bias.copy_(torch.tensor([0.0, 30.0]))
        assert model.payoffs().names == ("round 0",) and model.payoffs().games.sum() == 0
        model.learn(16 * 2 * (18 + pipeline))
        found = model.payoffs()
        assert found.names == ("round 0", "round 9", "round 18")
        assert found.games[0, 1] >= 12 and found.won[0, 1] == 0 and found.won[1, 0] == found.games[0, 1]
        assert found.games[1, 2] == 0 and pool.match.tolist() != [-1, -1]


def test_a_match_of_a_snapshot_that_has_gone_is_not_counted() -> None:
    policy = torch.nn.Linear(2, 2)
    pool = Pool(policy, League(every=1, size=2, opponents=1))
    pool.add(policy)
    pool.match_over(0, 1, np.array([1.0, 0.5]))
    assert pool.payoffs[0, 1].tolist() == [2, 1.5] and pool.payoffs[1, 0].tolist() == [2, 0.5]
    pool.add(policy)
    pool.match_over(0, 1, np.array([1.0, 1.0]))
    assert not pool.payoffs.any()
    pool.match_over(2, 1, np.array([1.0]))  # of the one that is in its place
    assert pool.payoffs[0, 1].tolist() == [1, 1]
    assert pool.begin_match(0) == (0, 1) and pool.match.tolist() == [2, 1]


def test_without_matches() -> None:
    with trained(league=League(every=2, size=3, games=0)) as model:
        model.learn(24 * 4 * 3)
        assert "first" not in model.policy.agents and not model.policy.pool.payoffs.any()
        assert [one.name for one in model.program().topology().reactors if one.name == "referee"] == []


def test_scipy_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ModuleNotFoundError, match=r"League\(rule='nash'\) needs scipy: pip install scipy"):
        League(rule="nash")
    with pytest.raises(ModuleNotFoundError, match="Nash averaging needs scipy: pip install scipy"):
        Payoffs(("a",), np.zeros((1, 1)), np.zeros((1, 1))).nash()
    League()


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="a league is of two agents with equal spaces, and"):
        make(Herd, league=LEAGUE)
    with pytest.raises(ValueError, match="rule='best': there are 'latest', 'uniform', 'pfsp', 'nash'"):
        League(rule="best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rule='nash' draws by the games of snapshots"):
        League(rule="nash", games=0)
    for wrong in ({"policies": ["other"]}, {"policies": {"main": {}, "other": {}}}, {"policy_of": str}):
        with pytest.raises(ValueError, match="in a league one policy learns, 'main'"):
            make(GAME, league=LEAGUE, **wrong)
    with pytest.raises(ValueError, match="every"):
        League(every=0)
    with make(partial(Late, 4)) as model, pytest.raises(ValueError, match="there are no snapshots without a league"):
        model.snapshots()
