"""Every policy of a population against every other one: who plays on which side, with which seeds, and what is made of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v3 as imageio
import numpy as np
import pytest
from gymnasium import spaces
from mpe2 import simple_push_v3
from pettingzoo.classic.connect_four import connect_four
from runner_envs import Matrix, mlp

from reactor_pettingzoo import RandomPolicy, Tournament, tournament
from reactor_pettingzoo.learning import SyncIPPO
from reactor_pettingzoo.runner.shards import RunSeeds


def always(action: int, observations: Any) -> Any:
    return np.full(len(observations), action)


POPULATION: dict[str, Any] = {name: partial(always, action) for name, action in (("nought", 0), ("two", 2), ("four", 4))}
TWO: dict[str, Any] = {"episodes": 4, "num_envs": 2, "seed": 5, "progress_bar": False}


def check(found: Tournament) -> None:
    done = np.array([0, 2, 4])
    assert found.names == ("nought", "two", "four")
    assert np.array_equal(found.payoffs[0], 10 * done[:, None] + done)
    assert np.array_equal(found.payoffs[1], done[:, None] - done)
    assert np.array_equal(found.low, found.payoffs) and np.array_equal(found.high, found.payoffs)  # all episodes are the same


@pytest.mark.parametrize("executor", ["inline", "threads", "processes"])
def test_rows_are_the_first_side(executor: Any) -> None:
    check(tournament(Matrix, POPULATION, executor=executor, workers=3, **TWO))


def test_sides_of_many() -> None:
    """Agents of a side play by one policy, and its payoff is their mean."""
    check(tournament(partial(Matrix, (2, 3)), POPULATION, side_of=lambda agent: "ab".index(agent[0]), executor="inline", **TWO))
    swapped = tournament(partial(Matrix, (2, 3)), POPULATION, side_of=lambda agent: "ba".index(agent[0]), executor="inline", **TWO)
    done = np.array([0, 2, 4])
    assert np.array_equal(swapped.payoffs[1], 10 * done + done[:, None])


class Lottery(Matrix):
    """What an episode pays was drawn as it began, and how much else is drawn depends on what is done."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None or not hasattr(self, "random"):
            self.random = np.random.default_rng(seed)
        self.seed = int(self.random.integers(1 << 30))
        return super().reset()

    def step(self, actions: dict[str, int]) -> Any:
        self.random.random(sum(actions.values()))
        return super().step(actions)


@pytest.mark.parametrize("num_envs", [1, 2, 4])
def test_every_pairing_plays_the_same_episodes(num_envs: int) -> None:
    """However much a pairing draws in its episodes."""
    found = tournament(partial(Lottery, seeds=True), POPULATION, executor="inline", **TWO | {"num_envs": num_envs})
    for field in (found.payoffs, found.low, found.high):
        assert (field[0] == field[0, 0, 0]).all()
    assert (found.low < found.high).all() and found.repeated == 0  # and every episode is another one


def test_every_episode_has_a_seed_of_its_own() -> None:
    population = {"one": POPULATION["two"]}
    means = [
        tournament(partial(Matrix, seeds=True), population, executor=executor, workers=2, **TWO | {"seed": seed}).payoffs[0, 0, 0]  # type: ignore[arg-type]
        for seed, executor in ((5, "threads"), (5, "inline"), (6, "inline"))
    ]
    assert means[0] == means[1] != means[2]
    resets = RunSeeds([0, 1, 0, 1], each=True)
    seeds = [[resets.seed(5, copy, episode) for episode in range(3)] for copy in range(4)]
    assert seeds[:2] == seeds[2:] and len({*seeds[0], *seeds[1]}) == 6
    assert means[0] == np.mean([seeds[copy][episode] for copy in range(2) for episode in range(2)])


def test_one_game_again_and_again_is_said_to_be() -> None:
    found = tournament(Matrix, POPULATION, executor="inline", **TWO)
    assert found.repeated == 9
    assert "in 9 of 9 pairings all episodes paid the same" in str(found).splitlines()[-1]
    once = tournament(Matrix, POPULATION, executor="inline", **TWO | {"episodes": 1, "num_envs": 1})
    assert once.repeated == 0 and "again and again" not in str(once)
    assert repr(found) == "Tournament(3 policies, 9 pairings of 4 episodes, seed=5, best='four')"


def test_a_notebook_shows_the_same_table_shaded_by_what_is_paid() -> None:
    found = tournament(Matrix, POPULATION, executor="inline", **TWO)
    shown = ET.fromstring(found._repr_html_())
    lines = str(found).splitlines()
    assert (shown[0].text or "").splitlines() == [lines[0], *lines[-3:]]
    rows = [[cell.text or "" for cell in row] for row in shown.iter("tr")]
    assert rows[0] == ["", *found.names] and rows[1] == ["nought", "0 ±0", "2 ±0", "4 ±0"]
    shades = [float((cell.get("style") or "").rpartition(",")[2].rstrip(")")) for cell in shown.iter("td")]
    assert shades[0] == 0 and shades[-1] == 0.6 and shades == sorted(shades)
    alone = tournament(Matrix, {"two": POPULATION["two"]}, executor="inline", **TWO)
    assert "0.00)" in alone._repr_html_()


def test_scores() -> None:
    found = tournament(Matrix, POPULATION, executor="inline", **TWO)
    # Mean over opponents and sides: (10 i + 2 + 2 - i) / 2.
    assert list(found.scores.items()) == [("four", 20.0), ("two", 11.0), ("nought", 2.0)]


@pytest.mark.slow
def test_the_same_everywhere() -> None:
    """With policies that draw, and networks, alone and stacked; a board game in which agents take turns."""
    population = {"random": RandomPolicy(), "net": mlp(0, 84, 7), "other": mlp(1, 84, 7), "wide": mlp(2, 84, 7, 9)}
    results = [
        tournament(connect_four.env, population, deterministic=False, executor=executor, workers=workers, **TWO)  # type: ignore[arg-type]
        for executor, workers in (("inline", 1), ("threads", 2), ("processes", 1), ("processes", 2), ("processes", 4))
    ]
    assert len({found.fingerprint for found in results}) == 1
    assert all(np.array_equal(found.payoffs, results[0].payoffs) for found in results)
    assert np.array_equal(results[0].payoffs[0], -results[0].payoffs[1])
    again = tournament(connect_four.env, population, deterministic=False, executor="inline", **{**TWO, "seed": 6})
    assert again.fingerprint != results[0].fingerprint


def test_table_and_heat_map(tmp_path: Path) -> None:
    found = tournament(Matrix, POPULATION, executor="inline", **TWO)
    title, head, *rows, scores, intervals, _ = str(found).splitlines()
    assert title.startswith("4 episodes a pairing") and f"seed 5, fingerprint {found.fingerprint}" in title
    assert head.split() == ["nought", "two", "four"]
    assert [row.split()[0] for row in rows] == ["nought", "two", "four"] and "42 ±0" in rows[1].replace("24 ±0", "42 ±0")
    assert (scores, intervals) == ("scores: four 20, two 11, nought 2", "95 % intervals are Student's")
    found.plot(tmp_path / "payoffs.png")
    assert imageio.imread(tmp_path / "payoffs.png").ndim == 3


class Uneven(Matrix):
    """The second side observes something else than the first."""

    def observation_space(self, agent: str) -> Any:
        return self.seen if agent[0] == "a" else spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seen, infos = super().reset(seed, options)
        return {agent: one if agent[0] == "a" else 1 for agent, one in seen.items()}, infos

    def step(self, actions: dict[str, int]) -> Any:
        seen, *others = super().step(actions)
        return {agent: one if agent[0] == "a" else 0 for agent, one in seen.items()}, *others


def team(first: int, second: int) -> dict[str, Any]:
    return {"a": partial(always, first), "b": partial(always, second)}


TEAMS = {"x": team(0, 1), "y": team(2, 3), "z": team(4, 0)}


@pytest.mark.parametrize("executor", ["inline", "threads", "processes"])
def test_teams_have_a_policy_for_each_kind_of_agent(executor: Any) -> None:
    first, second = np.array([0, 2, 4]), np.array([1, 3, 0])
    given = {"side_of": lambda agent: agent[0], "policy_of": lambda agent: agent[0], "executor": executor, "workers": 2, **TWO}
    found = tournament(partial(Uneven, (2, 3)), TEAMS, **given)
    assert found.names == ("x", "y", "z") and found.sides == ("a", "b")
    assert np.array_equal(found.payoffs[0], 10 * first[:, None] + second)
    assert np.array_equal(found.payoffs[1], first[:, None] - second)


def test_teams_by_agent_beside_single_policies() -> None:
    members = {"x": {"a0": partial(always, 0), "b0": partial(always, 1)}, "four": POPULATION["four"]}
    found = tournament(Matrix, members, executor="inline", **TWO)
    assert found.payoffs[0].tolist() == [[1, 4], [41, 44]] and found.sides == (0, 1)


@pytest.mark.slow
def test_sides_have_names_in_the_order_of_agents(tmp_path: Path) -> None:
    sides = {"a0": "one", "a1": "one", "b0": "two", "b1": "two", "b2": "two"}
    found = tournament(partial(Matrix, (2, 3)), POPULATION, side_of=sides, executor="inline", **TWO)
    check(found)
    assert found.sides == ("one", "two")
    found.plot(tmp_path / "payoffs.svg")
    labels = (tmp_path / "payoffs.svg").read_text()
    assert "<!-- one -->" in labels and "<!-- two -->" in labels and "<!-- first side -->" not in labels


def test_a_member_that_fits_only_some_agents_is_told_of_teams() -> None:
    with pytest.raises(ValueError, match=r"the policy 'nought' is to act for 'a0'.* and for 'b0'") as raised:
        tournament(Uneven, POPULATION, executor="inline", **TWO)
    assert "may be a team: a dict of policies by agent, or by name with policy_of=" in raised.value.__notes__[0]
    with pytest.raises(ValueError, match="agent 'b0' has no policy among") as raised:
        tournament(Uneven, {"x": TEAMS["x"] | {"a0": partial(always, 1)}}, executor="inline", **TWO)
    assert raised.value.__notes__ == ["in the team 'x' of the population"]


@pytest.mark.slow
def test_what_sync_ippo_has_trained_is_a_team() -> None:
    make = simple_push_v3.parallel_env
    with SyncIPPO("MlpPolicy", make, n_actors=2, n_steps=32, batch_size=64, seed=0, executor="inline") as model:
        model.learn(64)
        trained = model.policies
    agents = ("adversary_0", "agent_0")
    members = {"trained": trained, "random": {agent: RandomPolicy() for agent in agents}}
    results = [
        tournament(make, members, executor=executor, workers=workers, **TWO)  # type: ignore[arg-type]
        for executor, workers in (("inline", 1), ("threads", 2), ("processes", 3))
    ]
    assert len({found.fingerprint for found in results}) == 1
    assert results[0].payoffs.shape == (2, 2, 2) and np.isfinite(results[0].payoffs).all()


def test_a_seed_is_told() -> None:
    found = tournament(Matrix, POPULATION, executor="inline", progress_bar=False, episodes=1)
    again = tournament(Matrix, POPULATION, executor="inline", progress_bar=False, episodes=1, seed=found.seed)
    assert again.fingerprint == found.fingerprint
    assert np.isnan(found.low).all()  # of one episode


@pytest.mark.parametrize(
    ("arguments", "kind", "sentence"),
    [
        ({"episodes": 3, "num_envs": 2}, ValueError, "num_envs=2 does not divide episodes=3"),
        ({"population": {}}, ValueError, "there are no policies"),
        ({"population": {"x": 3}}, TypeError, "the policy 'x' is 3"),
        ({"episodes": 0}, ValueError, "episodes"),
        ({"env_fn": partial(Matrix, (2, 1))}, ValueError, "3 agents; say with side_of="),
        ({"side_of": lambda agent: 0}, ValueError, "side_of gives"),
        ({"side_of": lambda agent: 1 + "ab".index(agent[0])}, ValueError, "side_of gives"),
        ({"side_of": lambda agent: "same"}, ValueError, "for two sides that have names"),
        ({"policy_of": lambda agent: "nought"}, ValueError, "policy_of= is for teams, and no member"),
        ({"workers": 0}, ValueError, "workers"),
        ({"executor": "thread"}, ValueError, "executor"),
    ],
)
def test_mistakes(arguments: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    given = {"env_fn": Matrix, "population": POPULATION, "executor": "inline", "progress_bar": False, **arguments}
    with pytest.raises(kind, match=sentence):
        tournament(**given)
