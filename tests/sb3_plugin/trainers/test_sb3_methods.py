"""What SB3 promises of an algorithm besides learning: saving, environments, parameters, logs, schedules."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from saved_runs import saved_data
from stable_baselines3.common import base_class
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv
from trainers import (
    ALGORITHMS,
    BOX,
    BUFFERS,
    EVALUATED,
    INLINE,
    PROCESSES,
    AfterRounds,
    Seen,
    Toy,
    both,
    each,
    new,
    outcome,
    suited,
)

from reactor_sb3 import SaveCheckpoint
from reactor_sb3.trainers.costs import actor_cost


@pytest.mark.slow
@both
def test_save_load_and_predict(algorithm: str, tmp_path: Path) -> None:
    cls = ALGORITHMS[algorithm][0]
    observations = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    with new(algorithm, gamma=0.9, evaluate_every=2) as model:
        assert not model.running
        model.learn(256)
        assert model.running
        model.save(tmp_path / "model")
        greedy = model.predict(observations, deterministic=True)[0]
        values = model.q_net(torch.from_numpy(observations)).argmax(1).numpy()
        assert np.array_equal(greedy, values)
        model.exploration_rate = 1.0
        assert not np.array_equal(model.predict(np.repeat(observations, 3, 0))[0], np.repeat(greedy, 3))

    with cls.load(tmp_path / "model") as loaded:
        assert (loaded.gamma, loaded.num_timesteps, loaded.n_envs) == (0.9, 256, 4)
        assert loaded.fingerprint() == model.fingerprint()
        assert np.array_equal(loaded.predict(observations, deterministic=True)[0], greedy)
        with pytest.raises(ValueError, match=r"no environment: pass env= to load\(\), or call set_env\(\)"):
            loaded.learn(64, reset_num_timesteps=False)
        loaded.set_env("CartPole-v1")
        loaded.learn(128, reset_num_timesteps=False)
        assert loaded.num_timesteps == 384 and loaded.fingerprint() != model.fingerprint()
    with cls.load(tmp_path / "model", env=partial(gymnasium.make, "CartPole-v1"), executor="processes", workers=2) as loaded:
        loaded.learn(128)
        assert loaded.num_timesteps == 128 and "processes" in repr(loaded)


@each
def test_what_lives_only_as_long_as_the_model_is_not_saved(algorithm: str) -> None:
    with new(algorithm, pipeline=1, **EVALUATED) as model:
        data = saved_data(model.learn(320))
    kinds = {name: type(value) for name, value in data.items()}
    assert {name for name, kind in kinds.items() if kind.__module__.startswith(("reactor_rl", "reactor_sb3", "reactor_torch"))} <= {
        "learning_rate", "action_noise",
    }  # fmt: skip
    assert not {"session", "evaluations", "env", "replay_buffer", "watch"} & data.keys()
    assert data["num_timesteps"] == 320 and data["arguments"]["n_actors"] == 4


OPEN: list[Any] = []
MADE: list[Any] = []


class Counted(Toy):
    """Tells how many there are."""

    def __init__(self) -> None:
        super().__init__()
        OPEN.append(self)
        MADE.append(self)

    def close(self) -> None:
        OPEN.remove(self)


@each
def test_environments_are_made_when_they_are_used(algorithm: str) -> None:
    OPEN.clear()
    MADE.clear()
    model = new(algorithm, Counted)
    assert len(MADE) == 1 and not OPEN  # to look at its spaces
    model.learn(256)
    assert len(OPEN) == 4
    env = model.get_env()
    assert env.num_envs == 4 and env.observation_space == BOX
    assert len(OPEN) == 4
    env.reset()
    assert len(OPEN) == 8
    env.step(np.zeros((4, *env.action_space.shape), env.action_space.dtype))
    assert isinstance(evaluate_policy(model, env, n_eval_episodes=4)[0], float)
    env.close()
    assert len(OPEN) == 4
    model.close()
    assert not OPEN
    model.close()
    model.learn(64, reset_num_timesteps=False)  # makes new ones
    model.close()
    assert not OPEN and model.num_timesteps == 320


@each
def test_set_env(algorithm: str) -> None:
    with new(algorithm) as model:
        model.learn(128)
        model.set_env(suited(algorithm, "CartPole-v1"))
        model.set_env(suited(algorithm, gymnasium.make("CartPole-v1", max_episode_steps=5)))
        model.learn(128, callback=(seen := Seen()))
        lengths = [info["episode"]["l"] for row in seen.rows for info in row[-1] if "episode" in info]
        assert len(lengths) > 20 and max(lengths) == 5
        with pytest.raises(ValueError, match="Observation spaces do not match"):
            model.set_env(suited(algorithm, "MountainCar-v0"))
        with pytest.raises(AssertionError, match="has 1 environments and the model 4"):
            model.set_env(DummyVecEnv([suited(algorithm, partial(gymnasium.make, "CartPole-v1"))]))
        model.set_env(model.get_env())
        model.learn(128)


@pytest.mark.parametrize("place", [INLINE, PROCESSES], ids=["inline", "processes"])
@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_set_parameters_is_seen_by_the_actors(algorithm: str, pipeline: int, place: dict[str, Any]) -> None:
    arguments = {"learning_starts": 0, "gradient_steps": 0} if algorithm == "dqn" else {"learning_rate": 0.0}
    with new(
        algorithm, Toy, exploration_initial_eps=0.0, exploration_final_eps=0.0, pipeline=pipeline, **arguments, **place
    ) as model:  # fmt: skip
        for action in (2, 0, 1):
            parameters = model.get_parameters()
            bias = [name for name in parameters["policy"] if name.startswith("q_net.") and name.endswith("bias")][-1]
            parameters["policy"][bias] = torch.eye(3)[action] * 100
            model.set_parameters(parameters)
            model.learn(128, callback=(seen := Seen()), reset_num_timesteps=action != 0)
            assert all((row[3] == action).all() for row in seen.rows), action


class Turning(BaseCallback):
    """After each round, lets the policy take the next action."""

    rounds = 0

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.rounds += 1
        model: Any = self.model
        bias = torch.eye(3)[self.rounds % 3] * 100
        if self.in_place:  # torch counts no version
            model.policy.q_net.q_net[2].bias.data.copy_(bias)
            return
        parameters = model.get_parameters()
        parameters["policy"]["q_net.q_net.2.bias"] = bias
        model.set_parameters(parameters)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("pipeline", [0, 1])
def test_parameters_that_a_callback_sets(pipeline: int, in_place: bool, tmp_path: Path) -> None:
    """The next round is sampled with them, also in a run that is resumed."""
    arguments: dict[str, Any] = {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0, "gradient_steps": 0}
    with new("dqn", Toy, pipeline=pipeline, learning_starts=0, **arguments) as model:
        callbacks = [seen := Seen(), Turning(in_place), SaveCheckpoint(tmp_path / "run.zip", every=4)]
        model.learn(5 * 32, callback=callbacks)  # type: ignore[arg-type]
    for number, row in enumerate(seen.rows):
        assert number < 8 or (row[3] == number // 8 % 3).all(), number
    with ALGORITHMS["dqn"][0].resume(tmp_path / "run.zip", **INLINE) as resumed:
        resumed.learn(32, callback=(again := Seen()), reset_num_timesteps=False)
    assert [row[3].tolist() for row in again.rows] == [row[3].tolist() for row in seen.rows[-8:]]


def test_load_puts_a_model_where_the_constructor_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new("dqn").save(tmp_path / "model")
    asked: list[Any] = []
    monkeypatch.setattr(base_class, "get_device", lambda device="auto": (asked.append(device), torch.device("cpu"))[1])
    ALGORITHMS["dqn"][0].load(tmp_path / "model")
    ALGORITHMS["dqn"][0].load(tmp_path / "model", None, "auto")
    assert asked == ["cpu", "auto"]


@pytest.mark.parametrize("pipeline", [0, 1])
@both
def test_logs(algorithm: str, pipeline: int, tmp_path: Path) -> None:
    with new(algorithm, pipeline=pipeline, evaluate_every=2, evaluate_episodes=2) as model:
        model.set_logger(configure(str(tmp_path), ["csv"]))
        model.learn(1280, callback=(after := AfterRounds(lambda model: model.n_episodes)), log_interval=2)
        model.logger.close()
        rows = list(csv.DictReader((tmp_path / "progress.csv").read_text().splitlines()))
        episodes = [int(row["time/episodes"]) for row in rows]
        rounds = list(zip([0, *after.found], after.found, strict=False))
        assert episodes == [now for before, now in rounds if now // 2 > before // 2] and len(rows) > 8
        assert episodes[-1] == model.n_episodes  # of the last round, after which there is none that it could be written beside
        last = rows[-1]
        for name in ("train/loss", "train/learning_rate", "rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/exploration_rate"):
            assert np.isfinite(float(last[name])), name
        assert float(last["rollout/ep_rew_mean"]) == float(last["rollout/ep_len_mean"])  # CartPole
        assert int(last["time/total_timesteps"]) <= 1280
        updates = [int(row["train/n_updates"]) for row in rows if row["train/n_updates"]]
        assert updates == sorted(updates) and 0 < updates[-1] <= model.n_updates
        logged = {float(row["eval/mean_reward"]) for row in rows if row["eval/mean_reward"]}
        assert logged and logged <= {one.mean for one in model.evaluations}


@pytest.mark.slow
@each
def test_a_printed_table(algorithm: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with new(algorithm, verbose=1) as model:
        model.learn(640, log_interval=4)
        printed = capsys.readouterr().out
        assert "ep_rew_mean" in printed and "total_timesteps" in printed and "| rollout/" in printed
        model.learn(640, log_interval=None)
        assert "total_timesteps" not in capsys.readouterr().out


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    for algorithm, name in (("dqn", "DQN"), ("pqn", "PQN")):
        with new(algorithm, tensorboard_log=str(tmp_path)) as model:
            model.learn(320)
            model.logger.close()
            model.learn(320, tb_log_name="mine")
            model.logger.close()
        assert list(tmp_path.glob(f"{name}_1/events*"))
        assert list(tmp_path.glob("mine_*/events*"))


@both
def test_schedules_and_policy_kwargs(algorithm: str) -> None:
    rates: list[float] = []

    def look(model: Any) -> None:
        rates.append(model.policy.optimizer.param_groups[0]["lr"])

    with new(
        algorithm, learning_rate=lambda left: 1e-3 * (1 + left), rollout_steps=16, policy_kwargs={"net_arch": [8, 6]}
    ) as model:  # fmt: skip
        model.learn(640, callback=AfterRounds(look))
        late = 1 if algorithm == "pqn" else 0  # SB3's DQN counts the round that it learns from, CleanRL's PQN does not
        assert rates[1:] == pytest.approx([1e-3 * (1 + 1 - 64 * (n - late) / 640) for n in range(2, 11)])
        assert [tuple(p.shape) for p in model.q_net.parameters() if p.ndim == 2] == [(8, 4), (6, 8), (2, 6)]


def test_the_last_step_is_marked_where_next_observations_are_not_kept() -> None:
    arguments = BUFFERS["one array"][1]
    with new("dqn", **arguments) as model:
        model.learn(256)
        model.learn(256, reset_num_timesteps=False)  # the same episodes go on
        at = model.replay_buffer.pos - 1
        with pytest.warns(UserWarning, match="will be truncated"):
            model.learn(32)
        assert model.replay_buffer.dones[at].all()


@pytest.mark.parametrize("gradient_steps", [0, 3, -1])
def test_gradient_steps(gradient_steps: int) -> None:
    with new("dqn", gradient_steps=gradient_steps, learning_starts=64) as model:
        model.learn(160)
        assert model.n_updates == (32 if gradient_steps == -1 else gradient_steps) * 3  # in rounds 3 to 5


class Lucky(Toy):
    """Says whether an episode has gone well."""

    def info(self) -> dict[str, Any]:
        return {"is_success": self.t >= self.length}


def test_successes() -> None:
    with new("dqn", Lucky) as model:
        model.learn(640, callback=(seen := Seen()))
        ended = [float(info["is_success"]) for row in seen.rows for info in row[-1] if "episode" in info]
        assert list(model.ep_success_buffer) == ended[-100:] and 0 < np.mean(ended) < 1


def test_a_replay_buffer_is_saved_and_loaded(tmp_path: Path) -> None:
    with new("dqn") as model, new("dqn") as other:
        model.learn(256)
        model.save_replay_buffer(tmp_path / "buffer")
        other.load_replay_buffer(tmp_path / "buffer")
        assert np.array_equal(other.replay_buffer.observations, model.replay_buffer.observations)
        other.learn(128)
        assert other.replay_buffer.pos == (256 + 128) // 4 and other._n_updates > 0


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
@pytest.mark.parametrize("executor", ["auto", "processes"])
@each
def test_started_before_it_learns(algorithm: str, executor: str, pipeline: int, tmp_path: Path) -> None:
    arguments = {"learning_starts": 0} if algorithm == "dqn" else {}
    with new(algorithm, executor=executor, workers=2, pipeline=pipeline, **EVALUATED, **arguments) as model:
        with model.trace(str(tmp_path / "trace.json")):
            found = outcome(model.learn(320))
    with new(algorithm, pipeline=pipeline, **EVALUATED, **arguments) as model:
        assert outcome(model.learn(320)) == found


CALLS: list[int] = []


class Counting:
    """A network that counts its calls."""

    draws = False

    def __init__(self, network: Any) -> None:
        self.network = network

    def bind(self, *arguments: Any) -> Any:
        bound = self.network.bind(*arguments)
        argmax = bound.argmax

        def counted(step: int) -> Any:
            CALLS.append(step)
            return argmax(step)

        bound.argmax = counted
        return bound


def test_what_is_measured_includes_the_network() -> None:
    """The first rounds may be all random; it is the later ones that an executor is chosen for."""
    CALLS.clear()
    model = new("dqn", learning_starts=10**6)
    given = model.program_config()
    behaviour: Any = given.actors.policy
    counting = replace(behaviour, policy=replace(behaviour.policy, network=Counting(behaviour.policy.network)))
    assert actor_cost(replace(given, actors=replace(given.actors, policy=counting))) > 0
    assert len(CALLS) >= model.rollout_steps


def test_drawing_and_repr(tmp_path: Path) -> None:
    with new("dqn", evaluate_every=1) as model:
        assert (
            repr(model)
            == "SyncDQN(n_actors=4, envs_per_actor=1, train_freq=8, pipeline=0, gradients='compiled', update_to_data=0.0625)"
        )
        drawn = model.draw()
        assert "actor" in drawn and "learner" in drawn and "evaluator" in drawn
        assert "executor='inline', workers=1" in repr(model)
