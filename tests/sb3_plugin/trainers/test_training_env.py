"""``training_env`` and ``get_env()`` of a trainer reach the environments that its actors step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contrib_trainers import CONTRIB
from contrib_trainers import make as make_contrib
from every_other import in_turn
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize
from trainers import ALGORITHMS, BOX, CHOICE, CONTINUOUS, INLINE, PROCESSES, STEPWISE, THREADS, Toy

from reactor_sb3 import ReactorVecEnv, SyncPPO


class Level(Toy):
    """Pays by its level, and tells it."""

    level = 0

    def set_level(self, level: int) -> int:
        self.level = level
        return 10 * level

    def fails(self) -> None:
        raise KeyError("fails, as it should")

    def info(self) -> dict[str, Any]:
        return {"level": self.level}

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        return seen, reward + self.level, terminated, truncated, info

    def action_masks(self) -> Any:
        return np.ones(3, np.bool_)


class LevelOf:
    """Makes one that suits an algorithm; can be pickled."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm

    def __call__(self) -> Level:
        return Level(BOX, BOX if self.algorithm in CONTINUOUS else CHOICE)


class Unsaved(Level):
    """Neither its state nor its actions say how it goes on."""

    def step(self, action: Any) -> Any:
        return super().step(action)[0], float(np.random.random()), False, False, {}


def made(algorithm: str, **changed: Any) -> Any:
    if algorithm in CONTRIB:
        return make_contrib(algorithm, LevelOf(algorithm), **{"n_actors": 2, **changed})
    cls, arguments = ALGORITHMS[algorithm]
    arguments = {name: value for name, value in arguments.items() if name != "action_noise"}
    return cls("MlpPolicy", LevelOf(algorithm), **{"n_actors": 2, "seed": 0, **INLINE, **arguments, **changed})


class Harder(BaseCallback):
    """Each round has a level of its own."""

    def __init__(self, attribute: bool = False, first: int = 1) -> None:
        super().__init__()
        self.attribute, self.level, self.levels, self.answers = attribute, first, [], []  # type: ignore[var-annotated]

    def _on_rollout_start(self) -> None:
        env = self.training_env
        if self.attribute:
            env.set_attr("level", self.level, indices=[1])
            self.answers.append(env.get_attr("level"))
        else:
            self.answers.append(env.env_method("set_level", self.level))
        self.level += 1

    def _on_step(self) -> bool:
        self.levels.append([info["level"] for info in self.locals["infos"]])
        return True


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
@in_turn("algorithm", STEPWISE, kept=2)
def test_calls_reach_the_actors(algorithm: str, pipeline: int) -> None:
    found = []
    for place in (INLINE, THREADS, PROCESSES):
        with made(algorithm, pipeline=pipeline, evaluate_every=1, evaluate_episodes=1, **place) as model:
            rounds, harder = 4, Harder()
            model.learn(rounds * model.rollout_steps * model.n_envs, callback=harder)
            assert harder.levels[:: model.rollout_steps] == [[1, 1], [2, 2], [3, 3], [4, 4]]
            assert harder.answers == [[10, 10], [20, 20], [30, 30], [40, 40]]
            found.append((model.fingerprint(), model.evaluations))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("pipeline", [0, 1])
@in_turn("algorithm", STEPWISE, kept=1)
def test_looking_changes_nothing(algorithm: str, pipeline: int) -> None:
    class Looks(BaseCallback):
        looks = True

        def _on_step(self) -> bool:
            if self.looks and self.n_calls % 5 == 0:
                self.training_env.get_attr("level")
            return True

        def _on_rollout_start(self) -> None:
            if self.looks:
                self.training_env.get_attr("level")

    found = []
    for looks in (True, False):
        callback = Looks()
        callback.looks = looks
        with made(algorithm, pipeline=pipeline, evaluate_every=1, evaluate_episodes=1) as model:
            found.append((model.learn(256, callback=callback).fingerprint(), model.evaluations))
    assert found[0] == found[1]


def test_a_kernel_gives_back_what_it_steps() -> None:
    class Looks(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            states: Any = self.training_env.get_attr("state")
            assert np.allclose(np.array(states), self.model._last_obs)

    prints = []
    for callback in (Looks(), None):
        with SyncPPO("MlpPolicy", "CartPole-v1", n_actors=2, envs_per_actor=4, n_steps=80, n_epochs=1, seed=0, **INLINE) as model:
            prints.append(model.learn(1920, callback=callback).fingerprint())
    assert prints[0] == prints[1]


@pytest.mark.parametrize(
    "kind", [DummyVecEnv, *(pytest.param(kind, marks=pytest.mark.slow) for kind in (SubprocVecEnv, ReactorVecEnv))]
)
@pytest.mark.parametrize("normalized", [False, True])
def test_live_environments(kind: Any, normalized: bool) -> None:
    """What the caller holds is changed as the actors' environments are."""
    venv = make_vec_env(LevelOf("ppo"), 2, vec_env_cls=kind)
    venv = VecNormalize(venv) if normalized else venv
    harder = Harder()
    with SyncPPO("MlpPolicy", venv, n_steps=16, batch_size=16, n_epochs=1, seed=0, **INLINE) as model:
        model.learn(64, callback=harder)
        assert harder.levels[::16] == [[1, 1], [2, 2]]
        assert venv.get_attr("level") == [2, 2]
    venv.close()


def test_before_and_between_trainings_and_of_some() -> None:
    with made("ppo") as model:
        env = model.get_env()
        env.set_attr("level", 4)
        assert env.get_attr("level") == [4, 4]
        env.env_method("set_level", 5, indices=0)
        harder = Harder(attribute=True, first=6)
        model.learn(64, callback=harder)
        assert harder.levels[::16] == [[5, 6], [5, 7]] == harder.answers
        assert env.get_attr("level") == [5, 7] and env.has_attr("level") and not env.has_attr("nothing")
        with pytest.raises(KeyError, match="as it should") as caught:
            env.env_method("fails")
        assert caught.value.__notes__ == ["raised in environment 0"]
        env.reset()
        assert env.env_method("action_masks")[0].all()
        model.learn(32, reset_num_timesteps=False)
        model.close()
        with pytest.warns(UserWarning, match=r"what env_method\(.*\) of get_env\(\) or training_env has changed .* is gone"):
            model.learn(32)


@pytest.mark.parametrize("pipeline", [0, 1])
def test_checkpoints_have_what_was_changed(pipeline: int, tmp_path: Path) -> None:
    class Saves(Harder):
        def _on_rollout_start(self) -> None:
            super()._on_rollout_start()
            if self.level == 4:
                self.model.save_checkpoint(tmp_path / "run.zip")  # type: ignore[attr-defined]

    with made("ppo", pipeline=pipeline) as model:
        whole = model.learn(192, callback=Saves()).fingerprint()
    harder = Harder(first=3)
    with SyncPPO.resume(tmp_path / "run.zip") as again:
        assert again.get_env().get_attr("level") == [3, 3]
        assert again.learn(again.remaining_timesteps, harder, reset_num_timesteps=False).fingerprint() == whole


def test_what_cannot_be_saved_is_refused(tmp_path: Path) -> None:
    with SyncPPO("MlpPolicy", Unsaved, n_actors=1, n_steps=16, batch_size=16, n_epochs=1, seed=0, **INLINE) as model:
        model.learn(16)
        model.get_env().env_method("set_level", 1)
        with pytest.raises(RuntimeError, match=r"environment 0 was changed by env_method\('set_level'\)"):
            model.save_checkpoint(tmp_path / "run.zip")


def test_attributes_of_other_environments_are_refused() -> None:
    with SyncPPO("MlpPolicy", LevelOf("ppo"), n_actors=2, n_steps=16, batch_size=16, seed=0, **INLINE) as model:
        env: Any = model.get_env()
        with pytest.raises(AttributeError, match=r"'level' here.*Call set_attr\('level', \.\.\.\)"):
            env.envs[0].unwrapped.level = 4
        with pytest.raises(AttributeError, match=r"'level' here.*Call get_attr\('level'\)"):
            env.envs[0].unwrapped.level  # noqa: B018
