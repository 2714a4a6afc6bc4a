"""``ParallelVectorEnv`` gives, row for row, what a plain loop over the environments gives."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import warnings
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import places
import pytest
from agent_envs import AGENTS, Broken, Crowd, Steered, Turns, Unlike, Unlisted
from compare import assert_same
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from pettingzoo.utils.conversions import parallel_to_aec
from places import INLINE, THREADS, WAITING
from row_bench import plays_as_a_loop
from row_cases import padded

from reactor_pettingzoo import ParallelVectorEnv
from reactor_rl import RunError

MODES = list(AutoresetMode)
PLACES = [INLINE, THREADS, THREADS | WAITING]
PROCESSES = [places.PROCESSES, places.PROCESSES | WAITING]
failing = pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")


# ---------------------------------------------------------------------- as a loop


def test_views() -> None:
    for mode in MODES:
        plays_as_a_loop(padded(Crowd), mode, copy=False, executor="inline")
    with ParallelVectorEnv(Crowd, 2, copy=False, executor="inline") as envs:
        first = envs.reset(seed=0)[0]
        assert np.shares_memory(first, envs.step(np.zeros(8, int))[0]) and first.flags.writeable
    with ParallelVectorEnv(Crowd, 2, executor="inline") as envs:
        first = envs.reset(seed=0)[0]
        assert not np.shares_memory(first, envs.step(np.zeros(8, int))[0])


def test_chosen() -> None:
    plays_as_a_loop(padded(Crowd), AutoresetMode.SAME_STEP)


@pytest.mark.slow
def test_global_random_generators() -> None:
    """Whatever the throw-away environment draws from them, they are put back."""

    def state() -> Any:
        return random.getstate(), np.random.get_state()[1].tolist()

    before = state()
    for place in ({"executor": "auto"}, {"executor": "processes", "workers": 2}):
        with ParallelVectorEnv(Draws, 4, caller_works=False, **place) as envs:  # type: ignore[arg-type]
            assert envs.executor == "processes" and state() == before


class Draws(Crowd):
    def __init__(self) -> None:
        super().__init__()
        random.random()
        np.random.random()

    def step(self, actions: dict[str, Any]) -> Any:
        random.random()
        np.random.random()
        return super().step(actions)


# ---------------------------------------------------------------------- what is promised of it


def test_attributes() -> None:
    with ParallelVectorEnv(Crowd, 3, executor="threads", workers=2) as envs:
        assert envs.agents == tuple(AGENTS) and envs.num_copies == 3 and envs.num_envs == 12
        assert envs.copies.tolist() == [0] * 4 + [1] * 4 + [2] * 4
        assert envs.rows_of(1) == slice(4, 8) and envs.rows_of(-1) == slice(8, 12)
        with pytest.raises(IndexError):
            envs.rows_of(3)
        assert envs.single_action_space == spaces.Discrete(5) and envs.action_space == spaces.MultiDiscrete([5] * 12)
        assert envs.observation_space.shape == (12, 6) and envs.single_observation_space.shape == (6,)
        assert envs.metadata == {**Crowd.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}
        assert "autoreset_mode" not in Crowd.metadata and envs.render_mode == "rgb_array"
        assert repr(envs) == "ParallelVectorEnv(crowd, 3 x 4 agents, num_envs=12, executor='threads', workers=2)"
        assert "environments[0:1]" in envs.draw()
        assert envs.reset()[0] in envs.observation_space


@pytest.mark.parametrize("place", [PLACES[0], PROCESSES[0]], ids=str)
def test_seeds_and_options(place: dict[str, Any]) -> None:
    with ParallelVectorEnv(Crowd, 4, **place) as envs:
        observations, _ = envs.reset(seed=7)
        assert observations[:, 0].tolist() == [7.0] * 4 + [8.0] * 4 + [9.0] * 4 + [10.0] * 4
        assert len(set(observations[:, 5].tolist())) == 16
        envs.reset(seed=[5, None, 1, 8], options={"level": 2})
        assert envs.get_attr("seeds") == ([7, 5], [8, None], [9, 1], [10, 8])
        assert envs.get_attr("options") == ({"level": 2},) * 4
        with pytest.raises(ValueError, match="16 seeds were given for 4 copies"):
            envs.reset(seed=[0] * 16)


def test_closes_in_its_workers(tmp_path: Path) -> None:
    envs = ParallelVectorEnv(partial(Crowd, "deaths", str(tmp_path)), 4, **PROCESSES[0])
    envs.reset(seed=0)
    envs.close()
    envs.close()
    closed = {path.name: int(path.read_text()) for path in tmp_path.iterdir()}
    assert sorted(closed) == ["0", "1", "2", "3"]
    assert closed["0"] == closed["1"] == os.getpid() != closed["2"] == closed["3"]


def test_calls() -> None:
    with ParallelVectorEnv(partial(wrapped, "deaths"), 3, **PROCESSES[0]) as envs:
        envs.reset(seed=4)
        assert envs.call("add", 2, b=3) == (6, 6, 6)
        assert np.array_equal(envs.call("state"), [[4, 0], [5, 0], [6, 0]])
        assert [frame.tolist() for frame in envs.render()] == [[[[1] * 3] * 2] * 2] * 3
        envs.set_attr("t", 5)
        assert envs.get_attr("t") == (5, 5, 5)
        envs.set_attr("t", [1, 2, 3])
        assert envs.get_attr("t") == (1, 2, 3)
        with pytest.raises(ValueError, match="Got `4` values for 3 environments"):
            envs.set_attr("t", [0] * 4)
        with pytest.raises(AttributeError, match="nothing"):
            envs.call("nothing")
        envs.step(np.zeros(12, int))  # they live on


def wrapped(kind: str) -> Any:
    from pettingzoo.utils.wrappers import BaseParallelWrapper

    return BaseParallelWrapper(Crowd(kind))


def test_async() -> None:
    for place in (PLACES[0], PROCESSES[1]):
        with ParallelVectorEnv(Crowd, 2, **place) as envs, ParallelVectorEnv(Crowd, 2, **place) as others:
            envs.reset_async(seed=0)
            assert_same(envs.reset_wait(), others.reset(seed=0))
            envs.step_async(np.ones(8, int))
            assert_same(envs.step_wait(), others.step(np.ones(8, int)))


@pytest.mark.parametrize("actions", [np.zeros(7, int), np.zeros((2, 4), int), np.zeros(8), [0] * 7, tuple([0] * 9)], ids=repr)
def test_wrong_actions(actions: Any) -> None:
    with ParallelVectorEnv(Crowd, 2, executor="inline") as envs:
        with pytest.raises(ResetNeeded, match="call reset"):
            envs.step(np.zeros(8, int))
        first = envs.reset(seed=0)
        with pytest.raises(ValueError, match="actions"):
            envs.step(actions)
        assert_same(envs.reset(seed=0)[0][:, 2:5], first[0][:, 2:5])
        envs.step([0] * 8)


def test_kinds_of_actions() -> None:
    """Lists and arrays of other dtypes are what an array of the space's dtype is; environments may keep what they are given."""
    actions = np.arange(24).reshape(12, 2).astype(np.float32)
    kept = []
    for given in (actions, actions.astype(np.float64), list(actions)):
        with ParallelVectorEnv(Steered, 3, **PLACES[1]) as envs:
            envs.reset(seed=0)
            envs.step(given)
            first = deepcopy(envs.get_attr("kept"))
            envs.step(actions + 50)
            kept.append(
                [np.array(of_copy)[: len(before)].tolist() for of_copy, before in zip(envs.get_attr("kept"), first, strict=True)]
            )
            assert kept[-1] == [np.array(before).tolist() for before in first]
    assert kept[0] == kept[1] == kept[2] == [actions[lo : lo + 4][::-1].tolist() for lo in (0, 4, 8)]


def test_masks_of_rows() -> None:
    with ParallelVectorEnv(Crowd, 2, executor="inline", autoreset_mode="Disabled") as envs:
        with pytest.raises(ResetNeeded, match="first reset must be of all"):
            envs.reset(options={"reset_mask": np.array([True, False])})
        envs.reset(seed=0)
        with pytest.raises(ValueError, match="some rows of copy 1 and not others"):
            envs.reset(options={"reset_mask": np.arange(8) < 6})
        with pytest.raises(TypeError, match="numpy array"):
            envs.reset(options={"reset_mask": [True, False]})
        for _ in range(20):
            done = np.logical_or(*envs.step(np.zeros(8, int))[2:4]).reshape(2, -1).all(1)
            if done.any():
                break
        with pytest.raises(ResetNeeded, match=rf"copies \[{int(done.argmax())}\] are over"):
            envs.step(np.zeros(8, int))
        envs.reset(options={"reset_mask": done})
        envs.step(np.zeros(8, int))
        envs.reset(seed=[5, 5])  # they end together
        while not np.logical_or(*envs.step(np.zeros(8, int))[2:4]).all():
            pass
        envs.reset(options={"reset_mask": np.array([True, False])})
        with pytest.raises(ResetNeeded, match=r"copies \[1\] are over"):
            envs.step(np.zeros(8, int))


def test_record_episode_statistics() -> None:
    """Gymnasium's wrappers see an episode for each agent, and padding as one without reward."""
    with ParallelVectorEnv(Crowd, 2, executor="inline") as envs:
        recorded = RecordEpisodeStatistics(envs)
        recorded.reset(seed=0)
        returns, sums = [], np.zeros(8)
        for _ in range(30):
            _, rewards, terminations, truncations, infos = recorded.step(np.ones(8, int))
            sums += rewards
            for row in np.flatnonzero(terminations | truncations):
                assert infos["episode"]["r"][row] == pytest.approx(sums[row])
                assert infos["_final_obs"][row] and infos["_final_info"][row]
                if infos["final_info"].get("_padded", np.zeros(8, bool))[row]:
                    assert sums[row] == 0 and terminations[row] and not infos["final_obs"][row].any()
                returns.append(sums[row])
                sums[row] = 0
        assert len(returns) > 16


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("what", ["observations", "actions"])
def test_spaces_must_be_equal(what: str) -> None:
    with pytest.raises(
        ValueError, match=rf"(?s)'ant' has the {what[:-1]} space.*'cat' has .*supersuit.pad_{what[:6]}.*MultiAgentRunner"
    ):
        ParallelVectorEnv(partial(Unlike, what), 2)


def test_simple_tag_is_refused() -> None:
    simple_tag_v3 = pytest.importorskip("mpe2.simple_tag_v3")
    with pytest.raises(ValueError, match=r"(?s)'adversary_0' .*\(16,\).*'agent_0' .*\(14,\)"):
        ParallelVectorEnv(simple_tag_v3.parallel_env)


def test_other_environments() -> None:
    with pytest.raises(TypeError, match="turn_based_aec_to_parallel"):
        ParallelVectorEnv(Turns)
    with pytest.raises(TypeError, match="the function returned 3, which is not an environment"):
        ParallelVectorEnv(lambda: 3)  # type: ignore[arg-type, return-value]
    with pytest.raises(TypeError, match="is not callable"):
        ParallelVectorEnv(Crowd())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`num_envs` must be positive"):
        ParallelVectorEnv(Crowd, num_envs=0)


def test_aec_and_unlisted_agents() -> None:
    together = padded(partial(Crowd, "together"))
    plays_as_a_loop(replace(together, env=lambda: parallel_to_aec(Crowd("together")), twin=together.env), MODES[1], **PLACES[1])
    with ParallelVectorEnv(Unlisted, 2, **PROCESSES[0]) as envs:
        assert sorted(envs.agents) == sorted(AGENTS)
        assert envs.reset(seed=0)[0][:, 3].tolist() == [AGENTS.index(agent) for agent in envs.agents] * 2


BREACHES = {  # others are in test_reading.py
    "stranger": "environment 1: agent 'eel' joined, which is not among the environment's possible_agents ['ant', 'bee',",
    "raises": "the third step",
    "shape at reset": "the observation['observation'] has shape (1,), its space says (6,)",
}


def step_parallel(envs: ParallelVectorEnv, steps: int) -> None:
    envs.reset(seed=0)
    for _ in range(steps):
        envs.step(np.zeros(envs.num_envs, int))


@failing
@pytest.mark.parametrize("how", BREACHES)
def test_breaches(how: str) -> None:
    for place in (PLACES[0], PLACES[1]):
        with ParallelVectorEnv(partial(Broken, how), 3, **place) as envs:
            with pytest.raises((RuntimeError, ValueError, ZeroDivisionError)) as caught:
                step_parallel(envs, 5)
            assert BREACHES[how] in str(caught.value)
            assert any("raised in environment 1 of" in note for note in caught.value.__notes__)
            with pytest.raises(RunError, match="cannot go on"):
                envs.reset()


# ---------------------------------------------------------------------- from a script


@pytest.mark.slow
def test_lambdas_in_a_script(tmp_path: Path) -> None:
    """What is defined in ``__main__``, without a guard, works in other processes."""
    script = tmp_path / "script.py"
    script.write_text(
        dedent("""
        from agent_envs import Crowd
        from reactor_pettingzoo import ParallelVectorEnv

        class Mine(Crowd):
            def step(self, actions):
                observations, rewards, *rest = super().step(actions)
                return observations, {agent: 1000.0 + reward for agent, reward in rewards.items()}, *rest

        kind = "together"
        envs = ParallelVectorEnv(lambda: Mine(kind), 2, executor="processes", workers=2)
        envs.reset(seed=0)
        print((envs.step(envs.action_space.sample())[1] > 1000).all())
        envs.close()
        """)
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, env=environment, check=False)
    assert found.stdout == "True\n", found.stderr


def test_importing_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ParallelVectorEnv(Crowd, 1, executor="inline").close()
