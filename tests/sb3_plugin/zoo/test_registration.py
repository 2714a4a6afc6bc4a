"""What ``reactor_sb3.zoo`` tells RL Zoo, seen with a stand-in that has the same tables; the real one is in ``test_rl_zoo3.py``."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from reactor_sb3 import ALGORITHMS, ReactorVecEnv

FILES: dict[str, dict[str, Any]] = {
    "ppo": {"default": {"n_timesteps": 1000, "n_steps": 512}},
    "dqn": {"default": {"n_timesteps": 1000}, "CartPole-v1": {"train_freq": 256, "gradient_steps": 128}},
    "sac": {"default": {"n_timesteps": 1000}},
    "td3": {"default": {"train_freq": [1, "episode"], "gradient_steps": -1}},
}
FILES |= {row.tuned: {"default": {"n_timesteps": 1000}} for row in ALGORITHMS.values() if row.tuned and row.tuned not in FILES}


def module(name: str, **contents: Any) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(contents)
    return made


class Manager:
    """As much of ``rl_zoo3.exp_manager.ExperimentManager`` as is used."""

    default_vec_env_cls = None

    def __init__(self, algo: str, config: str) -> None:
        self.algo, self.config, self.vec_env_class = algo, config, self.default_vec_env_cls or SubprocVecEnv

    def read_hyperparameters(self) -> dict[str, Any]:
        found: dict[str, Any] = importlib.import_module(self.config).hyperparams
        return found


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    folder = tmp_path / "rl_zoo3" / "hyperparams"
    folder.mkdir(parents=True)
    for name, by_env in FILES.items():
        (folder / f"{name}.yml").write_text(json.dumps(by_env))  # which is YAML too
    algos: dict[str, Any] = {"ppo": "SB3's"}
    tables: dict[str, dict[str, Any]] = {
        f"HYPERPARAMS_{table}": {name: f"{table} of {name}" for name in FILES if name != "crossq"}
        for table in ("SAMPLER", "CONVERTER")
    }
    (tmp_path / "rl_zoo3" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "rl_zoo3" or name.startswith("reactor_sb3.zoo")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "yaml", module("yaml", safe_load=json.loads))
    manager = type("ExperimentManager", (Manager,), {"read_hyperparameters": Manager.read_hyperparameters})
    importlib.import_module("rl_zoo3").ALGOS = algos  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "rl_zoo3.exp_manager", module("rl_zoo3.exp_manager", ExperimentManager=manager))
    monkeypatch.setitem(sys.modules, "rl_zoo3.hyperparams_opt", module("rl_zoo3.hyperparams_opt", **tables))
    importlib.import_module("reactor_sb3.zoo")
    yield SimpleNamespace(algos=algos, manager=manager, folder=folder, **tables)
    for name in [name for name in sys.modules if name.split(".")[0] == "rl_zoo3" or name.startswith("reactor_sb3.zoo")]:
        del sys.modules[name]


def test_trainers_are_algorithms_and_environments_are_ours(zoo: SimpleNamespace) -> None:
    assert zoo.algos == {"ppo": "SB3's"} | {row.key: row.cls for row in ALGORITHMS.values()}
    assert {"pqn", "sync_td3", "sync_ppo_mask", "sync_ppo_lstm"} <= zoo.algos.keys()
    assert zoo.manager.default_vec_env_cls is ReactorVecEnv
    assert zoo.HYPERPARAMS_SAMPLER["sync_sac"] == "SAMPLER of sac" and zoo.HYPERPARAMS_CONVERTER["sync_dqn"] == "CONVERTER of dqn"
    assert set(zoo.algos) - {"ppo"} <= set(zoo.HYPERPARAMS_SAMPLER) & set(zoo.HYPERPARAMS_CONVERTER)


def test_searches_of_what_the_zoo_does_not_know(zoo: SimpleNamespace) -> None:
    assert zoo.HYPERPARAMS_SAMPLER["sync_ppo_mask"] == "SAMPLER of ppo"
    without_targets = zoo.HYPERPARAMS_SAMPLER["sync_crossq"]
    assert without_targets.args == ("SAMPLER of sac",)
    assert without_targets.func(lambda *given: {"tau": 0.1, "gamma": 0.9}, "a trial", 1, 2, {}) == {"gamma": 0.9}


def test_registering_again_changes_nothing(zoo: SimpleNamespace) -> None:
    before = zoo.manager.read_hyperparameters
    importlib.import_module("reactor_sb3.zoo").register()
    assert zoo.manager.read_hyperparameters is before


def test_hyperparameters_are_those_of_rl_zoo3_shared_out(zoo: SimpleNamespace) -> None:
    def read(algo: str) -> dict[str, Any]:
        manager = zoo.manager(algo, str(zoo.folder / f"{algo}.yml"))
        found: dict[str, Any] = manager.read_hyperparameters()
        assert manager.vec_env_class is DummyVecEnv  # actors have copies: nobody steps these
        return found

    assert read("sync_ppo") == {"default": {"n_timesteps": 1000, "n_steps": 512}}
    assert read("sync_dqn") == {
        "default": {"n_timesteps": 1000, "n_envs": 8, "train_freq": 1, "gradient_steps": 2},
        "CartPole-v1": {"n_envs": 8, "train_freq": 32, "gradient_steps": 128},
    }
    assert read("sync_sac")["default"] == {"n_timesteps": 1000, "n_envs": 8, "train_freq": 1, "gradient_steps": 8}
    assert read("sync_td3")["default"] == {"train_freq": [1, "episode"], "gradient_steps": -1}  # refused by the trainer
    assert read("sync_qrdqn") == {"default": {"n_timesteps": 1000, "n_envs": 8, "train_freq": 1, "gradient_steps": 2}}
    assert set(read("pqn")) == {"default", "atari"}


def test_files_of_users_and_other_algorithms_are_left_alone(zoo: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "my_settings", module("my_settings", hyperparams={"default": {}}))
    ours = zoo.manager("sync_ppo", "my_settings")
    assert ours.read_hyperparameters() == {"default": {}} and ours.config == "my_settings"
    theirs = zoo.manager("ppo", "my_settings")
    assert theirs.read_hyperparameters() == {"default": {}} and theirs.vec_env_class is ReactorVecEnv


def test_pqn_takes_what_is_searched(zoo: SimpleNamespace) -> None:
    class Trial:
        def suggest_float(self, name: str, low: float, high: float, log: bool = False) -> float:
            return low + (high - low) / 2

        def suggest_int(self, name: str, low: int, high: int) -> int:
            return high

        def suggest_categorical(self, name: str, choices: list[str]) -> str:
            return choices[-1]

    found = zoo.HYPERPARAMS_SAMPLER["pqn"](Trial(), 0, 8, {})
    with ALGORITHMS["PQN"].cls("MlpPolicy", "CartPole-v1", n_actors=1, executor="inline", **found) as model:
        assert (model.rollout_steps, model.n_minibatches, model.q_net.net_arch) == (256, 16, [256, 256])


def test_nothing_of_ours_runs_when_python_starts() -> None:
    """A line in a ``.pth`` file would cost every start of Python some 50 us, and read every program's arguments."""
    root = Path(__file__).parents[3]
    assert not [*root.glob("plugins/**/*.pth"), *root.glob("reactor_rl/**/*.pth")]
    assert ".pth" not in (root / "pyproject.toml").read_text() + (root / "hatch_build.py").read_text()


def test_a_policy_that_the_host_does_not_have_is_its_usual_one(zoo: SimpleNamespace) -> None:
    (zoo.folder / "ppo_lstm.yml").write_text(json.dumps({"default": {"policy": "MlpPolicy"}, "atari": {"policy": "CnnLstmPolicy"}}))
    found = importlib.import_module("reactor_sb3.zoo.hyperparams.sync_ppo_lstm").hyperparams
    assert {env: of_env["policy"] for env, of_env in found.items()} == {"default": "MlpLstmPolicy", "atari": "CnnLstmPolicy"}
