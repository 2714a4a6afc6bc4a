"""Callbacks, SB3's and ours, see every step and change nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CheckpointCallback,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnRewardThreshold,
)
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.monitor import Monitor
from trainers import ALGORITHMS, EVALUATED, INLINE, PROCESSES, SPACES, Again, Seen, Toy, alone, both, each, new, outcome, suited

from reactor_rl import RunError
from reactor_sb3 import StopOnEvaluation


@in_turn("env", [Toy, Again], kept=1)
@pytest.mark.parametrize("place", [INLINE, PROCESSES], ids=["inline", "processes"])
def test_callbacks_see_every_step(place: dict[str, Any], env: Any) -> None:
    with new("dqn", env, n_actors=2, envs_per_actor=2, **place) as model:
        model.learn(320, callback=(seen := Seen()))
        buffer = model.replay_buffer
    assert seen.events == ["start", *["rollout", "end"] * 10, "stop"]
    t, total = np.zeros(4, int), np.zeros(4)
    for step, (timesteps, calls, new_obs, actions, rewards, dones, infos) in enumerate(seen.rows):
        assert (timesteps, calls) == (4 * (step + 1), step + 1)
        assert new_obs.shape == (4, 3) and actions.shape == rewards.shape == dones.shape == (4,) and len(infos) == 4
        assert np.array_equal(actions, buffer.actions[step, :, 0]) and np.array_equal(rewards, buffer.rewards[step])
        assert np.array_equal(dones, buffer.dones[step])
        t, total = t + 1, total + rewards
        for number, info in enumerate(infos):
            assert info["t"] == t[number]
            assert info["TimeLimit.truncated"] == buffer.timeouts[step, number]
            assert ("terminal_observation" in info) == ("episode" in info) == dones[number]
            if dones[number]:
                assert np.array_equal(info["terminal_observation"], buffer.next_observations[step, number])
                assert info["episode"]["r"] == pytest.approx(total[number], abs=1e-4)
                assert info["episode"]["l"] == t[number] and info["episode"]["t"] > 0
                t[number], total[number] = 0, 0.0
            if step + 1 < len(seen.rows):  # of the next episode where one has ended, also at the end of a round
                assert np.array_equal(new_obs[number], buffer.observations[step + 1, number])
    assert len(seen.rows) == 80
    assert any(row[5].any() for row in seen.rows[7:-1:8])


@pytest.mark.parametrize("name", ["image", "dict", "discrete"])
def test_new_observations_of_every_kind(name: str) -> None:
    """As a vector environment of SB3 gives them: also after a round's last step, the first of a new episode where one has ended."""
    policy, space = SPACES[name]
    with new("dqn", partial(Toy, space, rate=0.4), policy, learning_starts=10**6) as model:
        model.learn(320, callback=(seen := Seen()))
        buffer = model.replay_buffer
    for step, row in enumerate(seen.rows[:-1]):
        for key in space if isinstance(space, spaces.Dict) else [None]:
            found, stored = (row[2], buffer.observations) if key is None else (row[2][key], buffer.observations[key])
            assert np.array_equal(found, stored[step + 1].reshape(found.shape)), (step, key)
    assert sum(row[5].sum() for row in seen.rows[7:-1:8]) > 3


@each
def test_callbacks_change_nothing(algorithm: str) -> None:
    with new(algorithm, **EVALUATED) as model:
        assert outcome(model.learn(640, callback=Seen())) == alone(algorithm, 0)


class Threads(BaseCallback):
    """Changes torch's threads between rounds, and notes with how many the learner works."""

    def _on_training_start(self) -> None:
        self.found: set[int] = set()
        logger: Any = self.logger
        record = logger.record

        def noting(name: str, value: Any, exclude: Any = None) -> None:
            if name == "train/loss":
                self.found.add(torch.get_num_threads())
            record(name, value, exclude)

        logger.record = noting

    def _on_step(self) -> bool:
        torch.set_num_threads(3)
        return True

    def _on_rollout_end(self) -> None:
        torch.set_num_threads(4)


@pytest.mark.parametrize("learner_threads", [1, 2])
@both
def test_the_learner_has_its_threads_whatever_callbacks_do(algorithm: str, learner_threads: int) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with new(algorithm, learner_threads=learner_threads) as model:
            model.learn(320, callback=(threads := Threads()))
    finally:
        torch.set_num_threads(before)
    assert threads.found == {learner_threads}


@each
def test_a_callback_stops_with_its_round(algorithm: str) -> None:
    with new(algorithm, rollout_steps=16) as model:
        model.learn(640, callback=(seen := Seen(stop_at=20)))
        assert model.num_timesteps == 128 and len(seen.rows) == 20
        assert seen.events == ["start", "rollout", "end", "rollout", "stop"]
        model.learn(640, callback=lambda found, _: True)
        assert model.num_timesteps == 640
    with new(algorithm, rollout_steps=16) as model:
        model.learn(1280, callback=StopTrainingOnMaxEpisodes(max_episodes=2))
        assert model.n_episodes >= 8 and model.num_timesteps < 1280


@each
def test_callbacks_of_sb3(algorithm: str, tmp_path: Path) -> None:
    check = CheckpointCallback(save_freq=40, save_path=str(tmp_path), name_prefix="net")
    env = suited(algorithm, gymnasium.make("CartPole-v1"))
    over = EvalCallback(
        Monitor(env), eval_freq=50, n_eval_episodes=2, log_path=str(tmp_path), verbose=0,
        callback_on_new_best=StopTrainingOnRewardThreshold(reward_threshold=1e9),
    )  # fmt: skip
    with new(algorithm) as model:
        model.learn(640, callback=[check, over])
        assert model.num_timesteps == 640
    saved = sorted(path.name for path in tmp_path.glob("net*"))
    assert saved == [f"net_{steps}_steps.zip" for steps in (160, 320, 480, 640)]
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [200, 400, 600]
    # Its weights are those after the round, which the first of SB3's would be before.
    loaded = ALGORITHMS[algorithm][0].load(tmp_path / "net_640_steps.zip")
    assert loaded.fingerprint() == model.fingerprint()


@both
def test_stopped_by_an_evaluation(algorithm: str) -> None:
    with new(algorithm, evaluate_every=2, evaluate_episodes=1) as model:
        model.learn(6400, callback=StopOnEvaluation(1.0))
        assert 1 <= len(model.evaluations) <= 2 and model.num_timesteps < 640
        model.learn(640, callback=StopOnEvaluation(1e9))
        model.evaluations.append(replace(model.evaluations[-1], returns=(1e9,)))
        before = model.num_timesteps
        model.learn(192, callback=StopOnEvaluation(1e6), reset_num_timesteps=False)  # what was reached before does not end it
        assert model.num_timesteps == before + 192


@pytest.mark.filterwarnings("ignore")  # of tqdm, that its bar is an experiment
def test_a_progress_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setattr(pytest.importorskip("tqdm").tqdm, "monitor_interval", 0)  # else it keeps a thread
    with new("dqn") as model:
        model.learn(320, progress_bar=True)
    assert "320/320" in capsys.readouterr().out


class Kept(KVWriter):
    """What is logged."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        self.rows.append(key_values)


class Passing(BaseCallback):
    """Lets two seconds pass in each round."""

    now = 0

    def _on_rollout_start(self) -> None:
        self.now += 2 * 10**9

    def _on_step(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("algorithm", "steps", "rows"), [("dqn", 32, [0, 0, 32, 32]), ("pqn", 64, [128] * 4), ("ppo", 64, [128] * 4)]
)
def test_the_rates_are_those_since_the_last_log(algorithm: str, steps: int, rows: list[int], monkeypatch: Any) -> None:
    """``rows`` are learned from in each round."""
    clock = Passing()
    monkeypatch.setattr("reactor_sb3.trainers.report.time", SimpleNamespace(time_ns=lambda: clock.now))
    with new(algorithm, partial(Toy, length=3)) as model:
        model.set_logger(Logger(None, [kept := Kept()]))
        model.learn(4 * steps, callback=clock, log_interval=1)
    assert [row["time/sampling_hz"] for row in kept.rows] == [steps // 2] * 4
    assert [row["time/update_frames_hz"] for row in kept.rows] == [learned // 2 for learned in rows]


class Ends(BaseCallback):
    """Closes the model, or gives it another environment, in the middle of a round or after it."""

    def __init__(self, how: str, when: str, go_on: bool = True) -> None:
        super().__init__()
        self.how, self.when, self.go_on = how, when, go_on

    def _end(self, when: str) -> None:
        if when == self.when:
            model: Any = self.model
            if self.how == "close":
                model.close()
            else:
                model.set_env(suited("dqn", Toy))

    def _on_step(self) -> bool:
        if self.n_calls < 11:
            return True
        self._end("step")
        return self.go_on

    def _on_rollout_end(self) -> None:
        self._end("round")


@pytest.mark.parametrize("place", [INLINE, PROCESSES], ids=["inline", "processes"])
@pytest.mark.parametrize("when", ["step", "round"])
@pytest.mark.parametrize("how", ["close", "set_env"])
def test_a_callback_that_ends_the_run_is_told_so(how: str, when: str, place: dict[str, Any]) -> None:
    with new("dqn", Toy, **place) as model:
        with pytest.raises(RunError, match=r"by close\(\) or set_env\(\) in a callback. Let the callback return False"):
            model.learn(10 * 32, callback=Ends(how, when))
        model.learn(2 * 32)  # which goes on as after any error
        model.learn(10 * 32, callback=Ends(how, "step", go_on=False))  # the last thing that it does
        assert model.num_timesteps == 64
