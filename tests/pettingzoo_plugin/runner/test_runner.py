"""``MultiAgentRunner`` gives what a plain loop over the environments gives, wherever it runs."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time
from collections.abc import Callable, Mapping
from copy import copy as copied
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_other import every_other, in_turn
from gymnasium import spaces
from mpe2 import simple_spread_v3, simple_tag_v3
from pettingzoo import AECEnv
from pettingzoo.butterfly.knights_archers_zombies import knights_archers_zombies
from pettingzoo.classic.connect_four import connect_four
from pettingzoo.classic.tictactoe import tictactoe
from places import PLACES
from runner_envs import FIVE, Alone, Herd, Junction, Residual, Table, by_sum, first_legal, message, mlp, ran
from torch import nn

from reactor_pettingzoo import MultiAgentRunner, RandomPolicy
from reactor_pettingzoo.runner.report import Report
from reactor_rl import RunError, WorkerDiedError
from reactor_torch import kernels

failing = pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")
spread = partial(simple_spread_v3.parallel_env, N=3, max_cycles=25)
tag = partial(simple_tag_v3.parallel_env, num_good=1, num_adversaries=3, num_obstacles=2, max_cycles=25)
zombies = partial(knights_archers_zombies.parallel_env, max_cycles=60, spawn_delay=4)


# ---------------------------------------------------------------------- the oracle


RunLog = tuple[list[tuple[int, dict[str, float], dict[str, int]]], list[list[dict[str, tuple[Any, Any]]]]]
"""Episodes as (copy, returns, lengths) in the order of their ends; of each tick and copy, what each agent saw and did."""


def choice_of(policy: Any, seen: Any, info: Mapping[str, Any]) -> int:
    """One agent's action: a call of its network with a batch of one."""
    mask = seen["action_mask"] if isinstance(seen, dict) else info.get("action_mask")
    facts = np.asarray(seen["observation"] if isinstance(seen, dict) else seen)[None]
    if not isinstance(policy, nn.Module):
        return int(policy(facts)[0] if mask is None else policy(facts, mask[None])[0])
    with torch.inference_mode():
        scores = policy(torch.as_tensor(facts, dtype=torch.float32))[0].numpy()
    return int((scores if mask is None else np.where(mask, scores, -np.inf)).argmax())


def together(env: Any, policy_of: Callable[[str], Any], copy: int, seed: int, ticks: int) -> Any:
    observations, infos = env.reset(seed=seed + copy)
    returns: dict[str, float] = {}
    lengths: dict[str, int] = {}
    for tick in range(ticks):
        actions = {agent: choice_of(policy_of(agent), observations[agent], infos[agent]) for agent in env.agents}
        done = {agent: (facts(observations[agent]), action) for agent, action in actions.items()}
        observations, rewards, _, _, infos = env.step(actions)
        for agent, reward in rewards.items():
            returns[agent] = returns.get(agent, 0.0) + reward
        for agent in actions:
            lengths[agent] = lengths.get(agent, 0) + 1
        if env.agents:
            yield tick, done, None
        else:
            yield tick, done, (copy, returns, lengths)
            returns, lengths = {}, {}
            observations, infos = env.reset()
    env.close()


def taking_turns(env: Any, policy_of: Callable[[str], Any], copy: int, seed: int, ticks: int) -> Any:
    """PettingZoo's own loop for agents that take turns."""
    tick = 0
    env.reset(seed=seed + copy)
    while True:
        returns: dict[str, float] = {}
        lengths: dict[str, int] = {}
        pending: Any = None
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, info = env.last()
            returns[agent] = returns.get(agent, 0.0) + reward
            if terminated or truncated:
                env.step(None)
                continue
            if pending is not None:
                yield tick, pending, None
                tick += 1
                if tick == ticks:
                    env.close()
                    return
            action = choice_of(policy_of(agent), seen, info)
            pending = {agent: (facts(seen), action)}
            lengths[agent] = lengths.get(agent, 0) + 1
            env.step(action)
        yield tick, pending, (copy, returns, {agent: lengths.get(agent, 0) for agent in returns})
        tick += 1
        if tick == ticks:
            env.close()
            return
        env.reset()


def facts(seen: Any) -> Any:
    return np.array(seen["observation"] if isinstance(seen, dict) else seen)


def played(env_fn: Any, policy_of: Callable[[str], Any], copies: int, ticks: int, seed: int) -> RunLog:
    """A loop over the copies, one after the other."""
    log: list[list[dict[str, tuple[Any, Any]]]] = [[] for _ in range(ticks)]
    ended = []
    for copy in range(copies):
        env = env_fn()
        way = taking_turns if isinstance(env, AECEnv) else together
        for tick, done, episode in way(env, policy_of, copy, seed, ticks):
            log[tick].append(done)
            if episode:
                ended.append((tick, episode))
    ended.sort(key=lambda one: (one[0], one[1][0]))
    return [episode for _, episode in ended], log


def check(report: Report, oracle: RunLog) -> None:
    """The same episodes, and at each tick and in each copy the same agents, observations and actions."""
    episodes, log = oracle
    assert len(report.episodes) == len(episodes)
    for ours, (copy, returns, lengths) in zip(report.episodes, episodes, strict=True):
        assert (ours.copy, ours.lengths) == (copy, lengths)
        assert ours.returns == pytest.approx(returns, rel=1e-12, abs=1e-12)
    agents, found = list(report.policy_of), report.trajectories
    assert found["acted"].shape == (len(log), len(log[0]), len(agents)) == found["rewards"].shape
    block = {name: number for number in range(len(agents)) for name in found.get(f"agents.{number}", ())}
    for tick, of_copies in enumerate(log):
        for copy, done in enumerate(of_copies):
            assert [agent for agent, acts in zip(agents, found["acted"][tick, copy], strict=True) if acts] == [
                agent for agent in agents if agent in done
            ]
            for agent, (seen, action) in done.items():
                number = block[agent]
                row = 0 if "acting" in found else found[f"agents.{number}"].tolist().index(agent)
                assert np.array_equal(found[f"observations.{number}"][tick, copy, row], seen), (tick, copy, agent)
                assert found[f"actions.{number}"][tick, copy, row] == action, (tick, copy, agent)
            if "acting" in found:
                assert agents[found["acting"][tick, copy]] in done


def against(env_fn: Any, policies: dict[str, Any], copies: int, ticks: int, seed: int = 5, **settings: Any) -> Report:
    """Run it, and compare it to the loop. Seeds are such that no two scores differ only by rounding, which depends on the batch."""
    report = ran(env_fn, policies, copies, seed, steps=copies * ticks, **settings)
    assert report.steps == copies * ticks
    check(report, played(env_fn, lambda agent: policies[report.policy_of[agent]], copies, ticks, seed))
    return report


# ---------------------------------------------------------------------- the same as a loop


@pytest.mark.parametrize("place", [PLACES[0], PLACES[-1]], ids=str)
def test_a_network_for_each_agent(place: dict[str, Any]) -> None:
    report = against(spread, {f"agent_{i}": mlp(i, 18, 5) for i in range(3)}, 4, 60, **place)
    assert len(report.episodes) == 8
    assert all(one.lengths == dict.fromkeys(report.policy_of, 25) for one in report.episodes)


@pytest.mark.parametrize("policy", [mlp(3, 18, 5, activation=nn.Tanh), Residual(4, 18, 5), by_sum], ids=lambda p: type(p).__name__)
def test_a_shared_policy(policy: Any) -> None:
    against(spread, {"all": policy}, 3, 30)


def test_agents_of_different_spaces() -> None:
    policies = {"hunter": mlp(1, 16, 5), "second": mlp(2, 16, 5), "prey": Residual(3, 14, 5)}
    names = {"adversary_0": "hunter", "adversary_1": "second", "adversary_2": "hunter", "agent_0": "prey"}
    report = against(tag, policies, 3, 55, policy_of=names.__getitem__)
    assert report.policy_of == names


@every_other(masks=["", "observation", "info"], kind=["stacked", "module", "function"])
def test_agents_that_die_and_join(masks: str, kind: str) -> None:
    names = Herd.possible_agents
    policies: dict[str, Any] = {
        "stacked": {name: mlp(i, 4, 5) for i, name in enumerate(names)},
        "module": {name: Residual(i, 4, 5) for i, name in enumerate(names)},
        "function": {"all": first_legal if masks else by_sum},
    }[kind]
    report = against(partial(Herd, masks), policies, 3, 70)
    assert len({tuple(one.lengths.items()) for one in report.episodes}) > 5


@pytest.mark.parametrize("kind", ["stacked", "module", "function"])
def test_agents_that_take_turns_and_lose_some(kind: str) -> None:
    names = Table.possible_agents
    policies: dict[str, Any] = {
        "stacked": {name: mlp(i, 4, 5) for i, name in enumerate(names)},
        "module": {name: Residual(i, 4, 5) for i, name in enumerate(names)},
        "function": {"all": first_legal},
    }[kind]
    report = against(Table, policies, 4, 120)
    assert len({tuple(one.lengths.items()) for one in report.episodes}) > 5


def test_agents_that_die_before_their_first_turn() -> None:
    """They were there: their returns count, as in PettingZoo's loop, and they acted in no step."""
    report = against(partial(Table, early=True), {"all": first_legal}, 4, 120)
    assert any(0 in one.lengths.values() for one in report.episodes)


@pytest.mark.parametrize("module", [tictactoe, connect_four], ids=["tictactoe", "connect_four"])
@pytest.mark.parametrize("kind", [mlp, Residual], ids=["stacked", "module"])
def test_board_games(module: Any, kind: Any) -> None:
    inputs, actions = (18, 9) if module is tictactoe else (84, 7)
    names = ["player_1", "player_2"] if module is tictactoe else ["player_0", "player_1"]
    report = against(module.env, {name: kind(i, inputs, actions) for i, name in enumerate(names)}, 3, 70)
    assert all(set(one.returns.values()) in ({1, -1}, {0}) for one in report.episodes)


def test_a_random_player_plays_legally() -> None:
    report = ran(tictactoe.env, {"player_1": mlp(0, 18, 9), "player_2": RandomPolicy()}, steps=210)
    found = report.trajectories
    assert np.take_along_axis(found["masks.0"], found["actions.0"][..., None], -1).all()
    assert {sum(one.lengths.values()) for one in report.episodes} <= set(range(5, 10))
    assert len({tuple(one.returns.values()) for one in report.episodes}) > 1


@pytest.mark.parametrize("env_fn", [Herd, Table])
def test_rewards_at_each_step_add_up(env_fn: Any) -> None:
    report = ran(env_fn, {"all": RandomPolicy()}, 1, episodes=6)
    agents = list(report.policy_of)
    total = report.trajectories["rewards"].sum((0, 1))
    returns = [sum(one.returns.get(agent, 0.0) for one in report.episodes) for agent in agents]
    assert np.allclose(total, returns)


# ---------------------------------------------------------------------- wherever it runs


def reports_are_equal(one: Report, other: Report) -> None:
    assert one.fingerprint == other.fingerprint
    assert (one.seed, one.steps, one.episodes) == (other.seed, other.steps, other.episodes)
    assert one.trajectories.keys() == other.trajectories.keys()
    for name, array in one.trajectories.items():
        assert array.dtype == other.trajectories[name].dtype, name
        assert np.array_equal(array, other.trajectories[name]), name


TAG_POLICIES = {"hunters": mlp(1, 16, 5), "prey": Residual(2, 14, 5)}
ZOMBIE_POLICIES = {"archers": Residual(1, 135, 6), "knights": mlp(2, 135, 6)}


def tag_policy(agent: str) -> str:
    return "prey" if agent == "agent_0" else "hunters"


def zombie_policy(agent: str) -> str:
    return "archers" if agent.startswith("archer") else "knights"


WORLDS: dict[str, Any] = {
    "spread": (spread, {f"agent_{i}": mlp(i, 18, 5) for i in range(3)}, {}, 40),
    "tag": (tag, TAG_POLICIES, {"policy_of": tag_policy}, 40),
    "zombies": (zombies, ZOMBIE_POLICIES, {"policy_of": zombie_policy}, 20),
    "tictactoe": (tictactoe.env, {"player_1": mlp(0, 18, 9), "player_2": RandomPolicy()}, {}, 60),
    "herd": (partial(Herd, "observation"), {"all": RandomPolicy()}, {}, 60),
    "table": (Table, {"north": mlp(0, 4, 5), "east": first_legal, "south": mlp(1, 4, 5)}, {}, 60),
}


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
@in_turn("deterministic", [True, False], ids=["greedy", "sampled"], kept=1)
def test_the_same_everywhere(world: str, deterministic: bool) -> None:
    env_fn, policies, settings, ticks = WORLDS[world]
    reports = [ran(env_fn, policies, 4, 3, steps=4 * ticks, deterministic=deterministic, **settings, **place) for place in PLACES]
    assert reports[0].trajectories["acted"].any(2).all()
    for report in reports[1:]:
        reports_are_equal(reports[0], report)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("world", ["spread", "tictactoe", "herd", "table"])
def test_again_with_the_same_seed(world: str, place: dict[str, Any]) -> None:
    env_fn, policies, settings, _ = WORLDS[world]
    with MultiAgentRunner(env_fn, policies, num_envs=4, deterministic=False, **settings, **place) as runner:
        runs = [
            runner.run(**how, seed=seed, record=True, progress_bar=False)  # type: ignore[arg-type]
            for how, seed in [
                ({"episodes": 3}, 7),
                ({"steps": 77}, 7),
                ({"steps": 77}, 8),
                ({"episodes": 3}, 7),
                ({"steps": 77}, 7),
            ]
        ]
    reports_are_equal(runs[0], runs[3])
    reports_are_equal(runs[1], runs[4])
    assert len({one.fingerprint for one in runs}) == 3
    assert not np.array_equal(runs[1].trajectories["actions.0"], runs[2].trajectories["actions.0"])


@pytest.mark.parametrize("place", [PLACES[0], PLACES[-1]], ids=str)
def test_a_shorter_run_is_the_beginning_of_a_longer_one(place: dict[str, Any]) -> None:
    env_fn, policies, settings, _ = WORLDS["herd"]
    longer = ran(env_fn, policies, steps=600, **settings, **place)
    shorter = ran(env_fn, policies, steps=100, **settings, **place)
    assert longer.steps == 600 and shorter.steps == 102  # every copy takes the same number
    for name, array in shorter.trajectories.items():
        whole = longer.trajectories[name]
        assert np.array_equal(array, whole if name.startswith("agents") else whole[: len(array)]), name
    assert shorter.episodes == longer.episodes[: len(shorter.episodes)]


def test_the_seed_that_was_drawn_is_told() -> None:
    report = ran(Herd, {"all": by_sum}, seed=None, steps=60)  # type: ignore[arg-type]
    reports_are_equal(report, ran(Herd, {"all": by_sum}, seed=report.seed, steps=60))


@pytest.mark.parametrize("env_fn", [Herd, Table])
def test_a_copy_is_what_it_is_alone(env_fn: Any) -> None:
    policy = by_sum if env_fn is Herd else first_legal
    found = ran(env_fn, {"all": policy}, 4, 10, steps=4 * 50)
    for copy in range(4):
        alone = ran(env_fn, {"all": policy}, 1, 10 + copy, steps=50)
        of_copy = [(one.returns, one.lengths) for one in found.episodes if one.copy == copy]
        assert of_copy == [(one.returns, one.lengths) for one in alone.episodes]
        for name, array in alone.trajectories.items():
            if not name.startswith("agents"):
                assert np.array_equal(array[:, 0], found.trajectories[name][:, copy]), name


@pytest.mark.parametrize("place", [PLACES[0], PLACES[-1]], ids=str)
def test_every_copy_plays_its_share_of_episodes(place: dict[str, Any]) -> None:
    report = ran(Herd, {"all": by_sum}, 4, episodes=6, **place)
    assert sorted(one.copy for one in report.episodes) == [0, 0, 1, 1, 2, 3]
    longer = ran(Herd, {"all": by_sum}, 4, episodes=24)
    for copy in range(4):
        ours = [one for one in report.episodes if one.copy == copy]
        assert ours == [one for one in longer.episodes if one.copy == copy][: len(ours)]
    acted = report.trajectories["acted"]
    assert report.steps == acted.any(2).sum() < acted.shape[0] * acted.shape[1]
    assert not report.trajectories["observations.0"][~acted].any()  # who is not there sees zeros and does nothing
    assert not report.trajectories["actions.0"][~acted].any()


@pytest.mark.parametrize("policy", [mlp(0, 4, 5), by_sum], ids=["stacked", "function"])
def test_trajectories_end_with_the_last_episode(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many steps were asked for at once, which is a matter of time."""
    reports = []
    for stretch in (0.0, 1e9):
        monkeypatch.setattr("reactor_pettingzoo.runner.multi_agent_program.STRETCH", stretch)
        reports.append(ran(Herd, policy, 4, episodes=9))
    reports_are_equal(*reports)
    assert reports[0].trajectories["ends"][-1].any()


def test_more_copies_than_episodes() -> None:
    report = ran(Table, {"all": first_legal}, 5, episodes=2, executor="threads", workers=3)
    assert sorted(one.copy for one in report.episodes) == [0, 1]


def test_environments_are_given_plain_numbers_or_arrays() -> None:
    class Watched(Herd):
        def step(self, actions: dict[str, Any]) -> Any:
            discrete = self.actions["ant"] == FIVE
            for action in actions.values():
                assert type(action) is int if discrete else (action.shape, action.dtype) == ((2,), np.float32)
            return super().step(actions)

    ran(Watched, {"all": by_sum}, steps=30)
    ran(partial(Watched, actions=spaces.Box(-1, 1, (2,), np.float32)), {"all": RandomPolicy()}, steps=30)


class Late(Herd):
    """Raises in a step of its own, which its seed tells: in the later copies earlier."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self.doom, self.steps = {1: 41, 3: 38, 4: 38}.get(seed, 10**6), 0
        return super().reset(seed, options)

    def step(self, actions: dict[str, int]) -> Any:
        self.steps += 1
        if self.steps == self.doom:
            raise ZeroDivisionError(f"step {self.steps}")
        return super().step(actions)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [mlp(0, 4, 5), RandomPolicy(), by_sum], ids=["stacked", "random", "function"])
def test_the_first_exception_is_raised_wherever_it_runs(policy: Any) -> None:
    """The first by steps, and then by copies; however many steps a worker takes by itself."""
    for place in PLACES:
        with MultiAgentRunner(Late, policy, num_envs=5, **place) as runner:
            with pytest.raises(ZeroDivisionError, match="step 38") as caught:
                runner.run(steps=5 * 300, seed=0, progress_bar=False)
            assert "environment 3" in message(caught.value) and "environments[" in message(caught.value)
            with pytest.raises(RunError):
                runner.run(steps=5, progress_bar=False)


@pytest.mark.skipif(kernels.compiled is None, reason="no extension: then networks are asked together")
def test_who_asks_the_policies() -> None:
    """Each worker for its own copies, if an answer depends on nothing but its row; else one reactor for all of them."""
    settings: dict[str, Any] = {"num_envs": 4, "executor": "threads", "workers": 2}
    for policy, alone in ((mlp(0, 4, 5), True), (RandomPolicy(), True), (Residual(0, 4, 5), False), (by_sum, False)):
        with MultiAgentRunner(Herd, policy, **settings) as runner:
            drawn = runner.draw(format="dot")
        assert ("environments[0:2] policies[all]" in drawn and "environments[2:4] policies[all]" in drawn) is alone
        assert drawn.count("policies[all]") >= 1


class Odd(Junction):
    """What it shows is unusual."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def shown(self, observation: Any) -> Any:
        match self.kind:
            case "double":
                return observation.astype(np.float64) + 1e-9
            case "list":
                return observation.tolist()
        return observation


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "double", "list"])
@pytest.mark.parametrize("policies", ["each", "one"])
def test_unusual_observations(kind: str, policies: str) -> None:
    """Where every agent is there, whether it is recorded or not."""
    given: Any = {f"car_{i}": mlp(i, 6, 5) for i in range(3)} if policies == "each" else mlp(3, 6, 5)
    recorded, *others = (
        ran(partial(Odd, kind), given, 5, steps=5 * 60, record=record, **place)
        for record, place in ((True, PLACES[0]), (False, PLACES[0]), (False, PLACES[1]), (False, PLACES[-1]))
    )
    for report in others:
        assert (report.fingerprint, report.episodes) == (recorded.fingerprint, recorded.episodes)
    if kind == "plain":
        check(recorded, played(Junction, lambda agent: given[agent] if policies == "each" else given, 5, 60, 0))


def test_rows_of_wrong_lengths_are_refused() -> None:
    """Also where the lengths add up."""

    class Shifted(Junction):
        def shown(self, observation: Any) -> Any:
            self.turn = (getattr(self, "turn", -1) + 1) % 3
            return np.resize(observation, (5, 7, 6)[self.turn]) if self.t else observation

    with pytest.raises(ValueError, match=r"has shape \(5,\), its space says \(6,\)") as caught:
        ran(Shifted, mlp(0, 6, 5), 2, steps=20, record=False)
    assert "environment 0" in message(caught.value)


# ---------------------------------------------------------------------- what it is


def test_what_it_says_of_itself(tmp_path: Path) -> None:
    with MultiAgentRunner(spread, {"all": mlp(0, 18, 5)}, num_envs=4, executor="threads", workers=2) as runner:
        assert repr(runner) == "MultiAgentRunner(simple_spread_v3, 3 agents, num_envs=4, executor='threads', workers=2)"
        assert (runner.workers, runner.executor, runner.num_envs) == (2, "threads", 4)
        assert runner.policy_of == dict.fromkeys(["agent_0", "agent_1", "agent_2"], "all")
        assert "environments[0:2]" in runner.draw(format="dot") and "policies[all]" in runner.draw()
        runner.draw(str(tmp_path / "runner.svg"))
        with runner.trace(str(tmp_path / "trace.json")):
            runner.run(steps=8, seed=0, progress_bar=False)
        assert "environments[2:4]" in (tmp_path / "trace.json").read_text()
        assert (tmp_path / "runner.svg").read_text().startswith("<svg")
    assert "closed" in repr(runner)
    runner.close()
    for use in (lambda: runner.run(steps=1, progress_bar=False), runner.draw, lambda: runner.trace("x"), lambda: runner.workers):
        with pytest.raises(RuntimeError, match="has been closed"):
            use()


def test_it_chooses_by_itself() -> None:
    with MultiAgentRunner(Table, {"all": first_legal}, num_envs=2, workers=2) as runner:
        assert runner.executor in ("inline", "threads", "processes")
        report = runner.run(steps=20, seed=0, record=True, progress_bar=False)
    reports_are_equal(report, ran(Table, {"all": first_legal}, 2, steps=20))


def test_no_more_workers_than_copies() -> None:
    with MultiAgentRunner(Table, {"all": first_legal}, num_envs=2, workers=4, executor="threads") as runner:
        assert runner.workers == 2


@pytest.mark.parametrize("executor", ["inline", "auto"])
def test_global_random_states_are_left_alone(executor: Any) -> None:
    def state() -> Any:
        legacy: Any = np.random.get_state()
        return random.getstate(), legacy[1].tobytes(), legacy[2:], torch.get_rng_state().numpy().tobytes()

    before = state()
    with MultiAgentRunner(Herd, {"all": mlp(0, 4, 5)}, num_envs=2, executor=executor, deterministic=False) as runner:
        between = state()
        runner.run(steps=40, progress_bar=False)
    mlp(0, 4, 5)  # what the test itself has seeded
    after = state()
    assert between[:3] == after[:3] == before[:3] and between[3] == after[3]


def test_policies_are_copied_when_it_is_made() -> None:
    network = mlp(0, 4, 5)
    expected = ran(Herd, {"all": network}, steps=60)
    with MultiAgentRunner(Herd, {"all": network}, num_envs=3, executor="inline") as runner:
        with torch.no_grad():
            network[-1].bias.fill_(0).add_(torch.tensor([9.0, 0, 0, 0, 0]))
        reports_are_equal(runner.run(steps=60, seed=0, record=True, progress_bar=False), expected)
    assert network.training and network[1].weight.requires_grad


# ---------------------------------------------------------------------- mistakes


def test_an_environment_in_place_of_a_function() -> None:
    for env in (Herd(), Table()):
        with pytest.raises(TypeError, match="pass a function that makes one, for every copy needs its own"):
            made(env, {"x": by_sum})
    with pytest.raises(TypeError, match="pass a function that makes a new environment"):
        made("herd", {"x": by_sum})


def test_a_single_policy_is_for_all() -> None:
    for policy in (mlp(0, 4, 5), by_sum, RandomPolicy()):
        one, other = (ran(Herd, given, steps=60) for given in (policy, {"all": policy}))
        reports_are_equal(one, other)
    for wrong in ([by_sum], "random", None):
        with pytest.raises(TypeError, match="pass a dict of policies by name"):
            made(Herd, wrong)


def test_it_cannot_be_copied() -> None:
    with MultiAgentRunner(Herd, by_sum, executor="inline") as runner:
        for way in (copied, deepcopy):
            with pytest.raises(TypeError, match="holds running workers and cannot be copied or pickled"):
                way(runner)
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            pickle.dumps(runner)
        assert runner.run(steps=3, progress_bar=False).steps == 3


def test_neither_or_both_of_steps_and_episodes() -> None:
    with MultiAgentRunner(Herd, {"all": by_sum}, executor="inline") as runner:
        for how in ({}, {"steps": 3, "episodes": 3}):
            with pytest.raises(ValueError, match="either steps= or episodes="):
                runner.run(**how)  # type: ignore[arg-type]
        for wrong in ({"steps": 0}, {"episodes": -1}):
            with pytest.raises(ValueError, match="must be positive"):
                runner.run(**wrong)  # type: ignore[arg-type]
        assert runner.run(steps=3, progress_bar=False).steps == 3


def made(*arguments: Any, **settings: Any) -> None:
    MultiAgentRunner(*arguments, executor="inline", **settings).close()


def test_arguments_that_are_wrong() -> None:
    with pytest.raises(ValueError, match="agent 'ant' has no policy among"):
        made(Herd, {"x": by_sum, "y": by_sum})
    with pytest.raises(ValueError, match="agent 'bee' has no policy among"):
        made(Herd, {"ant": by_sum, "y": by_sum})
    with pytest.raises(ValueError, match="there are no policies"):
        made(Herd, {})
    with pytest.raises(ValueError, match=r"policy_of\('ant'\) is 'z', which is not among"):
        made(Herd, {"x": by_sum}, policy_of=lambda agent: "z")
    with pytest.raises(TypeError, match="the policy 'x' is 3"):
        made(Herd, {"x": 3})
    with pytest.raises(TypeError, match="is the class Residual; pass an object of it"):
        made(Herd, {"x": Residual})
    with pytest.raises(ValueError, match="give agents with different spaces policies of their own"):
        made(tag, {"x": RandomPolicy()})
    with pytest.raises(TypeError, match="neither a pettingzoo ParallelEnv nor an AECEnv"):
        made(Alone, {"x": by_sum})
    with pytest.raises(ValueError, match="num_envs"):
        made(Herd, {"x": by_sum}, num_envs=0)
    with pytest.raises(ValueError, match="workers"):
        made(Herd, {"x": by_sum}, workers=0)
    with pytest.raises(ValueError, match="executor"):
        MultiAgentRunner(Herd, {"x": by_sum}, executor="gpu")  # type: ignore[arg-type]


WHERE = [pytest.param(place, id=place["executor"]) for place in PLACES]


def failed(env_fn: Any, policies: Any, **settings: Any) -> Exception:
    """What a run raises, in which the copies are reset with seeds 0, 1 and 2."""
    with MultiAgentRunner(env_fn, policies, num_envs=3, **{"executor": "inline"} | settings) as runner:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            runner.run(steps=60, seed=0, progress_bar=False)
        with pytest.raises(RunError):
            runner.run(steps=60, seed=0, progress_bar=False)
    return caught.value


@failing
@pytest.mark.parametrize("place", WHERE)
@pytest.mark.parametrize(
    ("breaks", "kind", "text"),
    [
        ("observation", ValueError, "no observation was returned for agent"),
        ("reward", ValueError, "returned no reward for agent"),
        ("stranger", ValueError, "agent 'eel' joined, which is not among the environment's possible_agents"),
        ("raises", ZeroDivisionError, "the second step"),
    ],
)
def test_an_environment_that_breaks(breaks: str, kind: Any, text: str, place: dict[str, Any]) -> None:
    error = failed(partial(Herd, breaks=breaks), {"all": by_sum}, **place)
    assert isinstance(error, kind)
    assert text in message(error) and "environment 1" in message(error)
    assert "environments[" in message(error) and "tag" in message(error)


def test_masks_that_are_missing_name_their_agent() -> None:
    policies = dict.fromkeys(Herd.possible_agents, first_legal) | {"late": by_sum}
    error = failed(partial(Herd, "info", breaks="mask"), policies)
    assert isinstance(error, ValueError) and "no 'action_mask'" in message(error)
    assert "environment 1" in message(error)
    env = Herd("info", breaks="mask")  # whose first live agent has none
    _, infos = env.reset(seed=1)
    for _ in range(2):
        *_, infos = env.step({agent: first_legal(np.zeros((1, 4)), infos[agent]["action_mask"][None])[0] for agent in env.agents})
    assert repr(env.agents[0]) in message(error)


def test_a_mask_that_is_missing_in_a_turn() -> None:
    error = failed(partial(Table, breaks="mask"), {"all": first_legal})
    assert isinstance(error, ValueError) and "no 'action_mask'" in message(error) and "environment 1" in message(error)


class Sleepy(Herd):
    """Tells its process in a file, and sleeps."""

    def __init__(self, file: str) -> None:
        super().__init__(slow=0.05)
        self.file = file

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed == 1:
            Path(self.file).write_text(str(os.getpid()))
        return super().reset(seed, options)


@failing
def test_a_killed_worker_is_named(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    with MultiAgentRunner(partial(Sleepy, str(file)), {"all": by_sum}, num_envs=2, executor="processes", workers=2) as runner:
        runner.run(steps=2, seed=0, progress_bar=False)
        victim = int(file.read_text())
        assert victim != os.getpid()
        os.kill(victim, signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(WorkerDiedError, match=r"worker 1 was killed by SIGKILL; it held .*environments\[1:2\]"):
            runner.run(steps=600, seed=0, progress_bar=False)
        assert time.monotonic() - begin < 2
        with pytest.raises(RunError):
            runner.run(steps=2, progress_bar=False)


@failing
def test_a_worker_that_exits_is_named() -> None:
    settings = {"executor": "processes", "workers": 2}
    error = failed(partial(Herd, breaks="exits"), {"all": by_sum}, **settings)
    assert isinstance(error, WorkerDiedError) and "environments[1:3]" in str(error)


def test_spaces_of_other_kinds_are_refused() -> None:
    words = {agent: spaces.Text(5) if agent == "bee" else FIVE for agent in Herd.possible_agents}

    class Wordy(Herd):
        def observation_space(self, agent: str) -> Any:
            return words[agent]

    with pytest.raises(TypeError, match=r"agent 'bee' observes .* not an array of a fixed shape"):
        made(Wordy, {"x": by_sum})
