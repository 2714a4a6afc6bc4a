"""Environments in SB3's ``Monitor`` are stepped by kernels, and the Monitors are what they are in a ``DummyVecEnv``."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from places import PROCESSES, THREADS
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.native import recorders
from reactor_gymnasium.native.compiled import missing
from reactor_sb3 import ReactorVecEnv
from tests.gymnasium_plugin.native.cases import Counted
from tests.sb3_plugin.environments.test_vec_env import same

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

INLINE: dict[str, Any] = {"workers": 1}
PLACES = [INLINE, THREADS, *(PROCESSES | {"workers": workers, "caller_works": workers > 1} for workers in (1, 2, 3, 4))]
ROWS = 5
LIMITS = {"CartPole-v1": 60, "FrozenLake-v1": 9, "Blackjack-v1": None, "Pendulum-v1": 20, "HalfCheetah-v5": 23}
KEPT = ("rewards", "total_steps", "episode_returns", "episode_lengths", "needs_reset", "current_reset_info")


def monitored(env_id: str, **kwargs: Any) -> Monitor[Any, Any]:
    return Monitor(gymnasium.make(env_id, max_episode_steps=LIMITS[env_id]), **kwargs)


def pair(env_id: str, place: dict[str, Any] = INLINE, rows: int = ROWS, **kwargs: Any) -> tuple[ReactorVecEnv, DummyVecEnv]:
    makers = [partial(monitored, env_id, **kwargs)] * rows
    return ReactorVecEnv(makers, **place), DummyVecEnv(makers)


def without_times(infos: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for info in infos:
        if "episode" in info:
            seconds = info["episode"].pop("t")
            assert type(seconds) is float and 0 <= seconds < 600 and seconds == round(seconds, 6)
    return infos


def same_steps(ours: VecEnv, theirs: VecEnv, draws: np.random.Generator, steps: int) -> int:
    """Step both and compare all that they return. Returns how many episodes have ended."""
    space: Any = theirs.action_space
    ended = 0
    for step in range(steps):
        if isinstance(space, gymnasium.spaces.Discrete):
            actions = draws.integers(0, space.n, theirs.num_envs)
        else:
            actions = draws.uniform(space.low, space.high, (theirs.num_envs, *space.shape)).astype(np.float32)
        one, other = ours.step(actions), theirs.step(actions)
        same(one[:3], other[:3], f"step {step}")
        ended += sum("episode" in info for info in other[3])
        for a, b in zip(one[3], other[3], strict=True):
            assert list(a) == list(b)
            assert [*a.get("episode", ())] == [*b.get("episode", ())]
        same(without_times(one[3]), without_times(other[3]), f"infos of step {step}")
        same(ours.reset_infos, theirs.reset_infos, f"infos of resets in step {step}")
    return ended


def same_monitors(ours: VecEnv, theirs: VecEnv, where: str = "") -> None:
    for name in KEPT:
        same(ours.get_attr(name), theirs.get_attr(name), f"{where}: {name}")
    for name in ("_elapsed_steps", "np_random_seed"):
        if theirs.has_attr(name):
            same(ours.get_attr(name), theirs.get_attr(name), f"{where}: {name}")
    times: list[list[list[float]]] = [env.env_method("get_episode_times") for env in (ours, theirs)]
    assert [list(map(type, of_row)) for of_row in times[0]] == [list(map(type, of_row)) for of_row in times[1]]
    assert all(of_row == sorted(of_row) for of_row in times[0])


def program(ours: VecEnv, theirs: VecEnv, seed: int, length: int) -> None:
    """A random program of calls, of both."""
    draws, choices = np.random.default_rng(seed), random.Random(seed)
    try:
        for env in (ours, theirs):
            env.seed(seed)
        same(ours.reset(), theirs.reset())
        for number in range(length):
            where = f"seed {seed}, call {number}"
            same_steps(ours, theirs, draws, int(draws.integers(1, 40)))
            row = int(draws.integers(theirs.num_envs))
            match choices.choice(["reset", "seed", "get", "method", "set", "wrapped", "alone"]):
                case "reset":
                    same(ours.reset(), theirs.reset(), where)
                case "seed":
                    for env in (ours, theirs):
                        env.seed(number)
                    same(ours.reset(), theirs.reset(), where)
                    same(ours.reset_infos, theirs.reset_infos, where)
                case "get":
                    same_monitors(ours, theirs, where)
                case "method":
                    for name in ("get_total_steps", "get_episode_rewards", "get_episode_lengths"):
                        same(ours.env_method(name, indices=[row, 0]), theirs.env_method(name, indices=[row, 0]), where)
                case "set":
                    for env in (ours, theirs):
                        env.set_attr("total_steps", number, indices=[row])
                        env.set_attr("rewards", [0.25], indices=[row])
                case "wrapped":
                    assert ours.env_is_wrapped(Monitor) == theirs.env_is_wrapped(Monitor) == [True] * theirs.num_envs
                case "alone":
                    same(ours.env_method("reset", seed=number, indices=row), theirs.env_method("reset", seed=number, indices=row))
        same_monitors(ours, theirs, "at the end")
    finally:
        ours.close()
        theirs.close()


@pytest.mark.parametrize("env_id", LIMITS)
def test_a_random_program(env_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if env_id == "HalfCheetah-v5":
        pytest.importorskip("mujoco")
    counted = Counted(monkeypatch)
    monkeypatch.setattr(recorders, "LENGTH", 16)
    program(*pair(env_id), seed=1, length=15)
    assert counted.taken > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "place"), [(("CartPole-v1", "FrozenLake-v1")[at % 2], one) for at, one in enumerate(PLACES[1:])]
)
def test_a_random_program_anywhere(env_id: str, place: dict[str, Any]) -> None:
    program(*pair(env_id, place), seed=2, length=6)


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "place", "seed"), [
    (env_id, place, 3 + (at + turn) % 2) for at, env_id in enumerate(LIMITS) for turn, place in enumerate(PLACES)
], ids=str)  # fmt: skip
def test_random_programs(env_id: str, place: dict[str, Any], seed: int) -> None:
    if env_id == "HalfCheetah-v5":
        pytest.importorskip("mujoco")
    program(*pair(env_id, place), seed=seed, length=25)


@pytest.mark.parametrize("place", [INLINE, PLACES[1], PLACES[3]], ids=str)
def test_the_same_logs(place: dict[str, Any], tmp_path: Path) -> None:
    """Logs, and keywords that come from infos."""
    logs: dict[str, list[list[str]]] = {}
    for name, cls, kwargs in (("ours", ReactorVecEnv, place), ("theirs", DummyVecEnv, {})):
        env = make_vec_env(
            "FrozenLake-v1", n_envs=3, seed=0, vec_env_cls=cls, vec_env_kwargs=kwargs, monitor_dir=str(tmp_path / name),
            monitor_kwargs={"info_keywords": ("prob",)},
        )  # fmt: skip
        env.reset()
        draws = np.random.default_rng(0)
        for _ in range(150):
            env.step(draws.integers(0, 4, 3))
        # A log is whole at any moment, not only at the end.
        texts = [path.read_text().splitlines()[1:] for path in sorted((tmp_path / name).glob("*.csv"))]
        env.close()
        logs[name] = [[",".join(line.split(",")[:2] + line.split(",")[3:]) for line in text] for text in texts]
    assert logs["ours"] == logs["theirs"]
    assert len(logs["ours"]) == 3 and all(len(text) > 5 for text in logs["ours"])


def to_an_end(env: VecEnv) -> None:
    dones = np.zeros(2, np.bool_)
    while not dones.any():
        dones = env.step(np.zeros(2, np.int64))[2]


@pytest.mark.filterwarnings("ignore:.*raised KeyError:UserWarning")
def test_keywords_that_no_info_has_are_an_error() -> None:
    ours, theirs = pair("CartPole-v1", rows=2, info_keywords=("nothing",))
    for env in (ours, theirs):
        env.reset()
        with pytest.raises(KeyError, match="nothing"):
            to_an_end(env)
        env.close()


def test_times_go_on() -> None:
    with ReactorVecEnv([partial(monitored, "CartPole-v1")] * 2, workers=1) as env:
        env.reset()
        starts = env.get_attr("t_start")
        ended = 0
        while ended < 20:
            before = time.time()
            infos = env.step(np.zeros(2, np.int64))[3]
            after = time.time()
            for start, info in zip(starts, infos, strict=True):
                if "episode" in info:
                    ended += 1
                    assert before - start - 1e-5 <= info["episode"]["t"] <= after - start + 1e-5


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_in_a_vector_environment_of_gymnasium(mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch) -> None:
    counted, draws = Counted(monkeypatch), np.random.default_rng(0)
    makers = [partial(monitored, "CartPole-v1")] * ROWS
    ours, theirs = ReactorVectorEnv(makers, autoreset_mode=mode, workers=1), SyncVectorEnv(makers, autoreset_mode=mode)
    vectors: tuple[Any, ...] = ours, theirs
    try:
        same(*[envs.reset(seed=0) for envs in vectors])
        for step in range(300):
            actions = draws.integers(0, 2, ROWS)
            one, other = [envs.step(actions) for envs in vectors]
            for infos in (one[4], other[4]):
                infos.get("episode", {}).pop("t", None)
            same(one, other, f"step {step}")
            over = other[2] | other[3]
            if mode is AutoresetMode.DISABLED and over.any():
                same(*[envs.reset(options={"reset_mask": over.copy()}) for envs in vectors])
            if step % 75 == 74:
                for name in KEPT:
                    same(*[list(envs.get_attr(name)) for envs in vectors], f"{name} after step {step}")
        assert counted.taken > 200
    finally:
        ours.close()
        theirs.close()


@pytest.mark.filterwarnings("ignore:.*raised RuntimeError:UserWarning")
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_an_episode_that_is_over_needs_a_reset(env_id: str) -> None:
    makers = [partial(monitored, env_id)] * 2
    with ReactorVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED, workers=1) as envs:
        envs.reset(seed=3)
        actions = np.zeros_like(envs.action_space.sample())
        over = np.zeros(2, np.bool_)
        while not over.any():
            _, _, terminated, truncated, _ = envs.step(actions)
            over = terminated | truncated
        with pytest.raises(RuntimeError, match="needs reset"):
            envs.step(actions)


class Told(Monitor[Any, Any]):
    pass


def told(**kwargs: Any) -> Told:
    return Told(gymnasium.make("CartPole-v1"), **kwargs)


HELD: list[Any] = []


def held() -> Monitor[Any, Any]:
    HELD.append(monitored("CartPole-v1"))
    env: Monitor[Any, Any] = HELD[-1]
    return env


@pytest.mark.parametrize(
    ("maker", "why"),
    [
        (partial(monitored, "CartPole-v1", allow_early_resets=False), "no kernel: its Monitor refuses early resets"),
        (partial(monitored, "CartPole-v1", reset_keywords=("options",)), "no kernel: its Monitor has reset_keywords"),
        (told, "no kernel: no row form of Told"),
        (held, ""),
    ],
    ids=["early", "keywords", "another class", "held"],
)
def test_others_are_stepped_in_python(maker: Any, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    try:
        with ReactorVecEnv([maker] * 2, workers=1) as env:
            assert why in repr(env)
            env.set_options({"a": 1})
            env.reset()
            for _ in range(6):  # no episode ends so early
                env.step(np.zeros(2, np.int64))
    finally:
        HELD.clear()
    assert counted.taken == 0


def test_repr_says_who_steps() -> None:
    with make_vec_env("CartPole-v1", n_envs=2, vec_env_cls=ReactorVecEnv) as env:  # type: ignore[attr-defined]
        assert "stepped by the CartPole kernel" in repr(env)


def test_a_method_that_somebody_changes_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    with ReactorVecEnv([partial(monitored, "CartPole-v1")] * 2, workers=1) as env:
        env.reset()
        for _ in range(20):
            env.step(np.array([0, 1]))
        taken = counted.taken
        assert taken > 10
        original = Monitor.step

        def step(self: Any, action: Any) -> Any:
            observation, _, *others = original(self, action)
            return observation, 7.0, *others

        monkeypatch.setattr(Monitor, "step", step)
        assert env.step(np.array([0, 1]))[1].tolist() == [7.0, 7.0]
        assert counted.taken == taken
        assert env.get_attr("total_steps") == [21, 21]


def test_saved_and_put_back() -> None:
    makers = [partial(monitored, "CartPole-v1")] * 3
    with ReactorVecEnv(makers, workers=1) as env, ReactorVecEnv(makers, workers=1) as other:
        for one in (env, other):
            one.seed(0)
            one.reset()
        same_steps(env, other, np.random.default_rng(0), 40)
        saved = env.saved_envs()
        same_steps(env, other, np.random.default_rng(1), 40)
        env.put_back(saved)
        other.put_back(saved)
        same_steps(env, other, np.random.default_rng(2), 40)
        same_monitors(env, other)
        assert env.get_attr("total_steps") == [80, 80, 80]


def test_infos_are_yours_to_change() -> None:
    with ReactorVecEnv([partial(monitored, "CartPole-v1")] * 3, workers=1) as env:
        env.reset()
        kept: list[dict[str, Any]] = []
        for step in range(60):
            infos = env.step(np.zeros(3, np.int64))[3]
            for row, info in enumerate(infos):
                assert "mine" not in info
                info["mine"] = step, row
                if "episode" in info:
                    info["episode"]["r"] = info["terminal_observation"][...] = -1.0
            kept += infos
        assert [info["mine"] for info in kept] == [(step, row) for step in range(60) for row in range(3)]
        assert set(map(type, kept)) == {dict} and len(set(map(id, kept))) == len(kept)
        assert -1.0 not in [one for of_row in env.env_method("get_episode_rewards") for one in of_row]


def test_a_class_that_sees_both_halves_of_a_step() -> None:
    class Halves(ReactorVecEnv):
        def step_wait(self) -> Any:
            observations, rewards, dones, infos = super().step_wait()
            return observations, 2 * rewards, dones, infos

    with Halves([partial(monitored, "CartPole-v1")] * 2, workers=1) as env:
        env.reset()
        assert env.step(np.zeros(2, np.int64))[1].tolist() == [2.0, 2.0]


@pytest.mark.filterwarnings("ignore:torch has .* threads:UserWarning")
def test_policies_are_evaluated_alike() -> None:
    found = []
    for cls, kwargs in ((ReactorVecEnv, INLINE), (ReactorVecEnv, PLACES[3]), (DummyVecEnv, {})):
        env = make_vec_env("CartPole-v1", n_envs=3, seed=0, vec_env_cls=cls, vec_env_kwargs=kwargs)
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, seed=0, device="cpu")
        found.append(evaluate_policy(model, env, n_eval_episodes=12, deterministic=False, return_episode_rewards=True))
        env.close()
    assert found[0] == found[1] == found[2]
    assert len(found[0][0]) == 12  # type: ignore[arg-type]
