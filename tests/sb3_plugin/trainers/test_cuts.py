"""No n-step return goes from one episode on into another, whatever has ended the first one."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from reactor_sb3 import SyncDQN

GAMMA, STEPS = 0.5, 3


class Counting(gymnasium.Env[Any, Any]):
    """Observes how many steps have been taken, which is the reward too; never ends."""

    observation_space = spaces.Box(0, 1e9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = self.first()
        return np.array([self.t], np.float32), {}

    def first(self) -> int:
        return 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.array([self.t], np.float32), float(self.t), False, False, {}


class Ending(Counting):
    """Some of its episodes end, too, in both ways."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, bool(self.np_random.random() < 0.05), bool(self.np_random.random() < 0.05), info


_begun = itertools.count()


class Unsaved(Counting):
    """Can neither be pickled nor replayed: each episode begins where none has begun before."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def first(self) -> int:
        return 1000 * next(_begun)


def new(env: Any, pipeline: int, **changed: Any) -> SyncDQN:
    arguments: dict[str, Any] = {
        "n_actors": 2, "train_freq": 8, "n_steps": STEPS, "gamma": GAMMA, "learning_starts": 10**6, "buffer_size": 200,
        "batch_size": 2, "policy_kwargs": {"net_arch": [4]}, "seed": 0, "executor": "inline", "pipeline": pipeline, **changed,
    }  # fmt: skip
    return SyncDQN("MlpPolicy", env, **arguments)


def lengths(model: SyncDQN) -> list[int]:
    """How many steps the return from each stored transition has, after a check that they are of one episode."""
    buffer: Any = model.replay_buffer
    found = []
    for _ in range(8):  # SB3 draws which environment it takes
        samples = buffer._get_samples(np.arange(buffer.pos))
        starts = samples.observations.flatten().tolist()
        ends = samples.next_observations.flatten().tolist()
        for start, end, reward in zip(starts, ends, samples.rewards.flatten().tolist(), strict=True):
            count = int(end - start)
            assert 1 <= count <= STEPS, (start, end)
            assert reward == pytest.approx(sum(GAMMA**step * (start + 1 + step) for step in range(count))), (start, end)
            found.append(count)
        terminated = buffer.dones[: buffer.pos] * (1 - buffer.timeouts[: buffer.pos])
        if not terminated.any():
            assert not samples.dones.any()  # a cut is no end: the value of what follows counts
    return found


def closed(model: SyncDQN, env: Any) -> None:
    model.close()


def closed_and_started(model: SyncDQN, env: Any) -> None:
    model.close()
    model.start()


def other_environments(model: SyncDQN, env: Any) -> None:
    model.set_env(env)


def new_episodes(model: SyncDQN, env: Any) -> None:
    model.set_env(model.get_env(), force_reset=True)


CUTS: dict[str, Callable[[SyncDQN, Any], None]] = {
    "close": closed, "close and start": closed_and_started, "set_env": other_environments, "force_reset": new_episodes,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("env", [Counting, Ending])
@pytest.mark.parametrize("pipeline", [0, 1])
@pytest.mark.parametrize("cut", CUTS)
def test_no_return_crosses_a_cut(cut: str, pipeline: int, env: Any) -> None:
    with new(env, pipeline) as model:
        model.learn(48)
        for _ in range(3):
            CUTS[cut](model, env)
            model.learn(48, reset_num_timesteps=False)
        assert max(lengths(model)) == STEPS
        model.learn(48)  # begins anew, too
        lengths(model)


@pytest.mark.parametrize("pipeline", [0, 1])
def test_what_goes_on_is_not_cut(pipeline: int) -> None:
    with new(Counting, pipeline) as model:
        model.start()
        model.learn(48)
        for _ in range(3):
            model.learn(48, reset_num_timesteps=False)
        buffer: Any = model.replay_buffer
        assert not buffer.dones.any() and not buffer.timeouts.any()
        assert buffer.pos == 96 - 8 * pipeline


@pytest.mark.parametrize("pipeline", [0, 1])
def test_a_checkpoint_cuts_what_cannot_be_saved_and_nothing_else(pipeline: int, tmp_path: Path) -> None:
    for env, cuts in ((Counting, 0), (Unsaved, 2)):
        with new(env, pipeline) as model:
            model.learn(64)
            if cuts:
                with pytest.warns(UserWarning, match="can neither be saved"):
                    model.save_checkpoint(tmp_path / "run.zip")
            else:
                model.save_checkpoint(tmp_path / "run.zip")
        with SyncDQN.resume(tmp_path / "run.zip") as resumed:
            resumed.learn(64, reset_num_timesteps=False)
            lengths(resumed)
            buffer: Any = resumed.replay_buffer
            assert np.array_equal(np.nonzero(buffer.timeouts), ([31, 31], [0, 1]) if cuts else ([], []))
