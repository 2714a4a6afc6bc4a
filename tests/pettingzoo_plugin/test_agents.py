"""``evaluate`` of many agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from every_other import in_turn
from mpe2 import simple_adversary_v3, simple_spread_v3
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.tictactoe import tictactoe
from torch import nn

from reactor_pettingzoo import RandomPolicy, evaluate


def central(observations: Any, masks: Any) -> Any:
    """The legal column that is nearest to the middle."""
    return np.where(masks, -abs(np.arange(7) - 3), -9).argmax(1)


def spread() -> Any:
    return simple_spread_v3.parallel_env(max_cycles=8)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(18, 16), nn.Tanh(), nn.Linear(16, 5))


def careless(observations: Any) -> Any:
    return torch.randint(0, 5, (len(observations),))


CASES: dict[str, tuple[Any, Any]] = {
    "network": (network(), spread),
    "random": (RandomPolicy(), spread),
    "careless": (careless, spread),
    "turns": ({"player_0": central, "player_1": RandomPolicy()}, connect_four.env),
}


@pytest.mark.parametrize("deterministic", [True, False])
@in_turn("name", CASES, kept=1)
def test_one_report_on_workers(name: str, deterministic: bool) -> None:
    policies, env = CASES[name]
    ways = [(1, 1, "inline"), (3, 1, "inline"), (4, 2, "processes" if name in ("network", "turns") else "inline")]
    found = [
        evaluate(policies, env, episodes=6, seed=2, num_envs=n, workers=w, executor=how, deterministic=deterministic)  # type: ignore[arg-type]
        for n, w, how in ways
    ]
    assert len({report.fingerprint() for report in found}) == 1 and found[0].row_independent


def at_random(observations: Any, masks: Any) -> Any:
    return np.array([np.random.choice(np.flatnonzero(mask)) for mask in masks])


def test_players_who_come_later_may_draw_too() -> None:
    policies = {"player_0": central, "player_1": at_random}
    reports = [evaluate(policies, connect_four.env, episodes=8, seed=0, num_envs=n, executor="inline") for n in (1, 4)]
    assert len({report.fingerprint() for report in reports}) == 1 and "draws from the process's generators" in reports[0].policy


def test_modules_beside_functions_go_on_learning() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(84, 7))
    evaluate({"player_0": module, "player_1": central}, connect_four.env, episodes=1, executor="inline")
    assert module.training and all(one.requires_grad for one in module.parameters())


def test_it_is_what_a_loop_gives() -> None:
    module = network()
    report = evaluate(module, spread, episodes=3, seed=2, executor="inline")
    env = spread()
    for number in range(3):
        seed = int(np.random.SeedSequence(2, spawn_key=(0, number)).generate_state(1)[0]) >> 1
        observations, _ = env.reset(seed=seed)
        totals = dict.fromkeys(env.agents, 0.0)
        while env.agents:
            with torch.no_grad():
                actions = {agent: int(module(torch.as_tensor(seen)).argmax()) for agent, seen in observations.items()}
            observations, rewards, _, _, _ = env.step(actions)
            for agent, reward in rewards.items():
                totals[agent] += reward
        for agent, total in totals.items():
            assert report.infos[f"return.{agent}"][number] == pytest.approx(total)
    assert report.lengths.tolist() == [8, 8, 8] and not report.terminated.any()


def test_taking_turns_is_won_by_somebody() -> None:
    report = evaluate({"player_1": RandomPolicy(), "player_2": RandomPolicy()}, tictactoe.env, episodes=30, executor="inline")
    first, second = report.infos["return.player_1"], report.infos["return.player_2"]
    assert (first + second == 0).all() and set(first.tolist()) <= {-1.0, 0.0, 1.0} and first.mean() > 0
    assert report.terminated.all() and report.lengths.min() >= 5 and report.lengths.max() <= 9


def test_policies_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="has no policy among"):
        evaluate({"a": RandomPolicy(), "b": RandomPolicy()}, simple_adversary_v3.parallel_env, episodes=1)
    with pytest.raises(ValueError, match="give agents with different spaces policies of their own"):
        evaluate(RandomPolicy(), simple_adversary_v3.parallel_env, episodes=1)
    with pytest.raises(ValueError, match=r"chose the action 0, which is not in Discrete.* with the action mask"):
        evaluate(lambda seen, masks: masks.argmin(1) * 0, connect_four.env, episodes=20, executor="inline")
    with pytest.raises(TypeError, match="pass a function that makes"):
        evaluate(RandomPolicy(), tictactoe.env(), episodes=1)


def in_turns() -> Any:
    queue: list[int] = []

    def policy(observations: Any) -> Any:
        if not queue:
            queue.extend([0, 1, 2, 3])  # and there are three agents
        return np.full(len(observations), queue.pop(0))

    return policy


class Counting(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, observations: Any) -> Any:
        self.calls += 1
        return (torch.arange(5) == self.calls % 5).float().expand(len(observations), 5)


def late() -> Any:
    count = [0]

    def policy(observations: Any) -> Any:
        count[0] += 1
        return np.full(len(observations), int(count[0] > 10_000))

    return policy


@pytest.mark.parametrize("num_envs", [1, 2])
def test_policies_that_remember_are_refused(num_envs: int) -> None:
    for make, what in ((in_turns, "`queue`"), (Counting, "`calls`")):
        with pytest.raises(ValueError, match=f"the policy 'all' answers otherwise .*{what} changes.* seeded for each step"):
            evaluate(make(), spread, episodes=2, num_envs=num_envs, executor="inline")
    with pytest.warns(UserWarning, match="the policy 'all' changes `count` when it is asked"):
        assert not evaluate(late(), spread, episodes=2, num_envs=num_envs, executor="inline").row_independent


def test_generators_of_a_policy_are_seeded_for_each_step() -> None:
    rng = np.random.default_rng(0)
    reports = [
        evaluate(lambda observations: rng.integers(0, 5, len(observations)), spread, episodes=4, num_envs=n, executor="inline")
        for n in (1, 3)
    ]
    assert reports[0].fingerprint() == reports[1].fingerprint() and reports[0].row_independent


def test_another_game_is_not_gone_on_with(tmp_path: Any) -> None:
    evaluate(RandomPolicy(), spread, episodes=2, executor="inline", log=tmp_path / "log", resume=True)
    assert len(evaluate(RandomPolicy(), spread, episodes=3, executor="inline", log=tmp_path / "log", resume=True)) == 3
    with pytest.raises(ValueError, match="its environment differs"):
        evaluate(
            RandomPolicy(),
            lambda: simple_spread_v3.parallel_env(max_cycles=9),
            episodes=3,
            executor="inline",
            log=tmp_path / "log",
            resume=True,
        )
