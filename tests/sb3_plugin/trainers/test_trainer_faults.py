"""Arguments that are refused, environments that fail, workers that die, and trainings that are interrupted."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
import weakref
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise, VectorizedActionNoise
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer
from trainers import ALGORITHMS, CONTINUOUS, INLINE, PLACES, PROCESSES, ROWS, Toy, discrete, each, new

from reactor_rl import WorkerDiedError

pytestmark = pytest.mark.faults

# ---------------------------------------------------------------------- errors


class Other(Toy):
    """What the tests below make it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        vars(self).update(attributes)


class Unknown(DummyVecEnv):
    """A vector environment of which nobody knows how it steps."""


def continuous() -> Any:
    return Other(action_space=spaces.Box(-1, 1, (2,)))


def with_a_lock() -> Any:
    return Other(lock=threading.Lock())


def foreign() -> Any:
    return Other(observation_space=spaces.Box(-1, 1, (3,), np.dtype(np.float32).newbyteorder()))


UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,))
EPISODIC: dict[str, Any] = {"train_freq": (1, "episode")}
NOISE = NormalActionNoise(np.zeros(1), np.ones(1))
REFUSED: dict[str, tuple[str, Any, dict[str, Any], type[BaseException], str]] = {
    "live": ("discrete", lambda: Unknown([Toy] * 4), {}, TypeError, "a live Unknown cannot be taken apart"),
    "shares": ("each", lambda: DummyVecEnv([Toy] * 5), {}, ValueError, "n_actors=4 cannot share out the 5 environments"),
    "byte order": ("each", lambda: foreign, {}, TypeError, r"observations of Box\(.* have the byte order of another machine"),
    "vector": ("each", lambda: SyncVectorEnv([Toy]), {}, TypeError, "a vector environment of Gymnasium's cannot be given"),
    "lock": ("each", with_a_lock, {}, TypeError, "cannot be made again: .*Pass a function that makes one environment"),
    "no env": (
        "each",
        lambda: 7,
        {},
        TypeError,
        "env must be an id, a function .* or an environment, got 7",
    ),
    "continuous": ("both", lambda: continuous, {}, AssertionError, "Discrete"),
    "start": ("discrete", lambda: partial(Other, action_space=spaces.Discrete(3, start=1)), {}, ValueError, "counts from 1"),
    "actors": ("each", lambda: Toy, {"n_actors": 0}, ValueError, "`n_actors` must be positive"),
    "envs": ("each", lambda: Toy, {"envs_per_actor": 1.5}, ValueError, "`envs_per_actor` must be an integer"),
    "pipeline": ("each", lambda: Toy, {"pipeline": 2}, ValueError, "pipeline=2"),
    "spread": ("both", lambda: Toy, {"epsilon_spread": -1.0}, ValueError, r"epsilon_spread must be a number from 0 on, got -1\.0"),
    "threads": ("each", lambda: Toy, {"executor": "threads", "learner_threads": 2}, ValueError, "needs learner_threads=1"),
    "evaluations": ("each", lambda: Toy, {"evaluate_every": 0}, ValueError, "`evaluate_every` must be positive"),
    "steps": (
        "both",
        lambda: Toy,
        {"rollout_steps": 0},
        ValueError,
        "(n_steps|train_freq) must be a whole number .*, got 0",
    ),
    "batch": ("dqn", lambda: Toy, {"buffer_size": 10}, ValueError, "buffer_size=10 is smaller than a batch of 16"),
    "round": ("dqn", lambda: Toy, {"buffer_size": 100, "rollout_steps": 26}, ValueError, "smaller than one round of 26 steps"),
    "her": ("dqn", lambda: Toy, {"replay_buffer_class": HerReplayBuffer}, ValueError, "HerReplayBuffer needs"),
    "episodes": ("dqn", lambda: Toy, EPISODIC, ValueError, "train_freq in episodes"),
    "loss": ("dqn", lambda: Toy, {"loss": "l1"}, ValueError, 'choose "huber" or "mse"'),
    "discrete": ("continuous", lambda: partial(Other, action_space=spaces.MultiBinary(2)), {}, AssertionError, "Box"),
    "unbounded": ("continuous", lambda: partial(Other, action_space=UNBOUNDED), {}, AssertionError, "finite lower and upper bound"),
    "starts": ("continuous", lambda: Toy, {"learning_starts": 1001}, ValueError, "beyond what buffer_size=1000 can hold"),
    "hindsight": ("continuous", lambda: Toy, {"replay_buffer_class": HerReplayBuffer}, ValueError, "HerReplayBuffer needs"),
    "episode": ("continuous", lambda: Toy, EPISODIC, ValueError, "train_freq in episodes"),
    "noise": ("continuous", lambda: Toy, {"action_noise": 0.1}, TypeError, "action_noise=0.1 must be an ActionNoise"),
    "noises": ("continuous", lambda: Toy, {"action_noise": VectorizedActionNoise(NOISE, 3)}, ValueError, "is for 3 environments"),
    "device": ("each", lambda: Toy, {"device": "cuda:17"}, ValueError, 'device="cuda:17": torch sees'),
    "minibatches": ("pqn", lambda: Toy, {"n_minibatches": 7}, ValueError, "n_minibatches=7 does not divide a round of 64"),
    "lambda": ("pqn", lambda: Toy, {"q_lambda": 1.5}, ValueError, r"q_lambda must be a number from 0 to 1, got 1\.5"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    which, env, arguments, error, match = REFUSED[name]
    groups = {
        "each": sorted(ALGORITHMS), "both": [name for name in ALGORITHMS if ROWS[name].actions == ("Discrete",)],
        "discrete": sorted(set(ALGORITHMS) - set(CONTINUOUS)), "continuous": ["sac", "td3"],
    }  # fmt: skip
    for algorithm in groups.get(which, [which]):
        given = env()
        with pytest.raises(error, match=match):
            new(algorithm, given, **arguments)
        if isinstance(given, DummyVecEnv | SyncVectorEnv):
            given.close()


class Third(Toy):
    """One of four, the only one that fails: in its second step, or in its second reset."""

    def __init__(self, index: int, how: str) -> None:
        super().__init__(length=4)
        self.how, self.steps, self.resets = how if index == 2 else "", 0, 0

    def reset(self, **kwargs: Any) -> Any:
        self.resets += 1
        if self.resets == 2 and self.how == "reset":
            raise ArithmeticError("reset")
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self.steps += 1
        if self.steps != 2:
            return observation, reward, terminated, truncated, info
        match self.how:
            case "step":
                raise ArithmeticError("step")
            case "shape":
                observation = np.zeros(4, np.float32)
            case "lock":
                info = {"lock": threading.Lock()}
            case "reference":  # which can be copied, and not be pickled
                info = {"env": weakref.ref(self)}
        return observation, reward, terminated, truncated, info


@pytest.mark.parametrize("place", [INLINE, PROCESSES], ids=["inline", "processes"])
@pytest.mark.parametrize("how", ["step", "reset", "shape", "lock", "reference"])
def test_an_error_names_the_environment_of_an_actor_that_has_several(how: str, place: dict[str, Any]) -> None:
    envs = DummyVecEnv([partial(Third, index, how) for index in range(4)])
    with new("dqn", envs, n_actors=2, envs_per_actor=2, **place) as model:
        with pytest.raises((ArithmeticError, ValueError, TypeError)) as raised:
            model.learn(128, callback=lambda *_: True)
    first, second = raised.value.__notes__
    assert re.match(r"raised (in|by an info of) environment 2\b", first) and "in reaction actor[1].sample" in second
    envs.close()


def test_names_for_one_number() -> None:
    assert new("dqn", train_freq=(6, "step")).rollout_steps == new("dqn", train_freq=6).rollout_steps == 6


class Faulty(Toy):
    """Does something unpleasant at a step."""

    def __init__(self, what: str) -> None:
        super().__init__(length=100)
        self.what = what

    def step(self, action: Any) -> Any:
        observation, _, _, _, info = super().step(action)
        reward = 1.0
        if self.t == 13:
            if self.what == "raises":
                raise ZeroDivisionError("thirteen")
            if self.what == "NaN reward":
                reward = np.nan
            else:
                observation[:2] = [np.nan, 0.0] if self.what == "NaN observation" else [np.inf, -np.inf]
        return observation, reward, False, False, info


def told(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", [])])


@pytest.mark.parametrize("place", PLACES, ids=["inline", "threads", "processes"])
@pytest.mark.parametrize(
    ("what", "error", "message"),
    [
        ("NaN reward", ValueError, "the reward nan at step 4 of this round"),
        ("NaN observation", ValueError, "an observation with a NaN in it at step 4 of this round"),
        ("raises", ZeroDivisionError, "thirteen"),
    ],
    ids=["reward", "observation", "raises"],
)
@each
def test_a_faulty_environment(algorithm: str, what: str, error: Any, message: str, place: dict[str, Any]) -> None:
    with new(algorithm, partial(Faulty, what), rollout_steps=8, **place) as model:
        with pytest.raises(error) as caught:
            model.learn(640)
        assert message in told(caught.value)
        assert "actor[0]" in told(caught.value) and "tag" in told(caught.value)
        assert not model.running


def test_infinity_passes() -> None:
    with new("dqn", partial(Faulty, "inf observation"), gradient_steps=0) as model:
        model.learn(160)
        assert np.isinf(model.replay_buffer.next_observations[:40]).sum() == 8


class Killer(BaseCallback):
    """Kills a worker after some steps, once."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at, self.when = at, 0.0

    def _on_step(self) -> bool:
        if self.n_calls == self.at:
            helpers = {info["pid"] for info in self.locals["infos"]} - {os.getpid()}
            os.kill(helpers.pop(), signal.SIGKILL)
            self.when = time.monotonic()
        return True


@pytest.mark.parametrize("pipeline", [0, 1])
@each
def test_a_killed_worker(algorithm: str, pipeline: int) -> None:
    with new(algorithm, Toy, pipeline=pipeline, executor="processes", workers=2) as model:
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            model.learn(100_000, callback=(killer := Killer(40)))
        assert time.monotonic() - killer.when < 20
        assert not model.running
        model.learn(256)
        assert model.num_timesteps == 256


class Changing(Toy):
    """The second and later ones can do more."""

    count = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).count += 1
        if self.count > 1:
            self.action_space = spaces.Discrete(4)


@discrete
def test_another_action_space(algorithm: str) -> None:
    Changing.count = 0
    with new(algorithm, Changing) as model, pytest.raises(ValueError, match=r"environment 0 has the action space Discrete\(4\)"):
        model.learn(64)


@pytest.mark.parametrize("place", PLACES, ids=["inline", "threads", "processes"])
def test_interrupted(place: dict[str, Any]) -> None:
    def interrupt(found: Any, _: Any) -> bool:
        if found["self"].num_timesteps > 100:
            raise KeyboardInterrupt
        return True

    model = new("dqn", **place)
    with pytest.raises(KeyboardInterrupt):
        model.learn(640, callback=interrupt)
    assert not model.running


@pytest.mark.parametrize("changed", [{}, {"n_learners": 2}], ids=["", "slices"])
@each
def test_an_interrupt_is_not_dropped_by_numpy(algorithm: str, changed: dict[str, Any]) -> None:
    """For ``__array_interface__`` numpy describes a record in Python, and drops what is raised there: a Ctrl-C too."""
    described = []

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == "_array_descr":
            described.append(frame.f_back)

    with new(algorithm, **(changed if algorithm == "ppo" else {})) as model:
        model.start()
        sys.setprofile(profile)
        try:
            model.learn(256)
        finally:
            sys.setprofile(None)
    assert not described


def test_a_model_that_is_forgotten_leaves_nothing() -> None:
    new("dqn", **PROCESSES).learn(128)
