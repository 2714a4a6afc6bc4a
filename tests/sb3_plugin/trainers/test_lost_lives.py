"""A lost life ends an episode for the learner, and none that is reported: ``EpisodicLifeEnv`` around a ``Monitor``, as in SB3."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from games import GAME, Game
from gymnasium.wrappers import TimeLimit
from places import INLINE, PROCESSES
from stable_baselines3 import PPO
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.monitor import Monitor

from reactor_gymnasium.environments.rows import StepBuffers
from reactor_rl.pickling import encode
from reactor_sb3 import SyncDQN, SyncPPO
from reactor_sb3.acting.records import Observations
from reactor_sb3.environments import seeded_envs
from reactor_sb3.environments.seeded_envs import SeededEnvs
from reactor_sb3.streams import Purpose


class Drawn(Game):
    """Lives of 2 to 6 steps."""

    seeds = 0
    """How many resets had one."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.seeds += seed is not None
        return super().reset(seed=seed, options=options)

    def drawn(self) -> list[int]:
        return self.np_random.integers(2, 7, 3).tolist()  # type: ignore[no-any-return]

    def seen(self) -> Any:
        return np.array([sum(self.left) / 18], np.float32)


class Unpicklable(Drawn):
    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("cannot be pickled")


def life_by_life() -> gymnasium.Env[Any, Any]:
    return EpisodicLifeEnv(Monitor(Game()))


class Counting(BaseCallback):
    """Asks for every step, and counts ends."""

    def __init__(self) -> None:
        super().__init__()
        self.dones = 0

    def _on_step(self) -> bool:
        self.dones += int(np.sum(self.locals["dones"]))
        return True


TRAINERS: dict[str, Callable[..., Any]] = {
    "ppo": partial(SyncPPO, "MlpPolicy", n_steps=64, batch_size=32, n_epochs=1),
    "dqn": partial(SyncDQN, "MlpPolicy", train_freq=16, gradient_steps=1, learning_starts=0),
}
PLACES = [INLINE, PROCESSES]


def reported(model: Any) -> set[tuple[float, int]]:
    return {(info["r"], info["l"]) for info in model.ep_info_buffer}


def test_what_sb3_reports() -> None:
    env = make_vec_env(Game, 2, wrapper_class=EpisodicLifeEnv)  # around the Monitor that it adds
    assert reported(PPO("MlpPolicy", env, n_steps=64, seed=0).learn(256)) == {(GAME, GAME)}


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("algorithm", TRAINERS)
def test_whole_games_are_reported(algorithm: str, watched: bool, place: dict[str, Any]) -> None:
    counting = Counting() if watched else None
    with TRAINERS[algorithm](env=life_by_life, n_actors=2, seed=0, evaluate_every=128, evaluate_episodes=3, **place) as model:
        model.learn(256, callback=counting)
        assert reported(model) == {(GAME, GAME)}
        assert 64 <= model._episode_num <= 96  # as SB3 counts them: ends of lives
        assert model.evaluations
        for evaluation in model.evaluations:
            assert (set(evaluation.returns), set(evaluation.lengths)) == ({float(GAME)}, {GAME})
    if counting is not None:
        assert counting.dones == model._episode_num


def test_a_limit_around_a_monitor_ends_episodes() -> None:
    """SB3 reports none of them, for its Monitor is reset before it has seen an end."""
    with SyncPPO("MlpPolicy", partial(limited, 7), n_steps=64, batch_size=32, seed=0, executor="inline") as model:
        assert reported(model.learn(128)) == {(7.0, 7)}


def limited(steps: int) -> gymnasium.Env[Any, Any]:
    return TimeLimit(Monitor(Game()), steps)


@pytest.mark.parametrize("logged", [1, 20, 2048])
@pytest.mark.parametrize("afresh", [False, True])
@pytest.mark.parametrize(
    ("env_fn", "way"),
    [
        (lambda: EpisodicLifeEnv(Monitor(Unpicklable())), "replay"),
        (lambda: EpisodicLifeEnv(Unpicklable()), "replay"),
        (lambda: TimeLimit(EpisodicLifeEnv(Unpicklable()), 5), "replay"),  # which may cut a life, and no game
        (lambda: EpisodicLifeEnv(Monitor(Drawn())), "state"),
    ],
    ids=["monitored", "alone", "limited", "saved"],
)
def test_put_back(
    env_fn: Callable[[], gymnasium.Env[Any, Any]], way: str, afresh: bool, logged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reset after a lost life begins nothing, seeded or not: a log of actions that began there would lead elsewhere."""
    monkeypatch.setattr(seeded_envs, "LOGGED", logged)
    envs = built(env_fn)
    replayed = 0
    for turn in range(40):
        played(envs, afresh and turn % 5 == 4)
        saved = envs.saved()
        assert saved[0]["way"] == way
        replayed = max(replayed, len(saved[0].get("actions", ())))
        other = built(env_fn)
        other.put_back(saved)
        for _ in range(10):
            assert played(other) == played(envs)
    assert (replayed > 3) == (way == "replay")


@pytest.mark.parametrize(("logged", "seeds"), [(1, 105), (100, 12), (2048, 1)])
def test_how_often_a_game_is_seeded(logged: int, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1,200 steps are 105 games, each of which begins in a round of its own."""
    monkeypatch.setattr(seeded_envs, "LOGGED", logged)
    envs = built(lambda: EpisodicLifeEnv(Drawn()))
    for _ in range(400):
        played(envs)
    with envs.rows.opened() as (env,):
        assert env.get_wrapper_attr("seeds") == seeds


@pytest.mark.parametrize("game", [Drawn, Unpicklable])
def test_a_resumed_training_seeds_the_same_games(game: type[Drawn], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeded_envs, "LOGGED", 150)  # more than the 128 steps before the checkpoint
    with TRAINERS["ppo"](env=lambda: EpisodicLifeEnv(game()), n_actors=2, seed=0, executor="inline") as model:
        model.learn(256)
        model.save_checkpoint(tmp_path / "run.zip")
        model.learn(512, reset_num_timesteps=False)
        expected = model.fingerprint()
    with SyncPPO.resume(tmp_path / "run.zip", executor="inline") as resumed:
        resumed.learn(512, reset_num_timesteps=False)
        assert resumed.fingerprint() == expected


def test_new_episodes_begin_new_games() -> None:
    """Not with the next step of the old ones."""
    envs = built(lambda: EpisodicLifeEnv(Drawn()))
    for turn in range(10):
        played(envs, afresh=True)
        with envs.rows.opened() as (env,):
            assert env.get_wrapper_attr("seeds") == turn + 1


def built(env_fn: Callable[[], gymnasium.Env[Any, Any]]) -> SeededEnvs:
    envs = SeededEnvs((encode(env_fn),), 0, Purpose.EPISODES, 0)
    envs.build()
    return envs


def played(envs: SeededEnvs, afresh: bool = False) -> list[Any]:
    """A round of three steps."""
    space, found = Game.observation_space, []
    row = np.zeros((1, 1), np.float32)
    out = StepBuffers(Observations(space, space), {"": row})
    envs.begin_round(afresh)
    for _ in range(3):
        ended = envs.player.step(np.zeros(1, np.int64), out)
        found.append((float(row[0, 0]), [(end.terminated, end.total, end.length, envs.reported(end)) for end in ended]))
    envs.end_round(np.zeros((3, 1), np.int64))
    return found
