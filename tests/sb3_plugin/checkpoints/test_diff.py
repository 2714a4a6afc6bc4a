"""``python -m reactor_rl diff``: what two checkpoints do not have in common, entry by entry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from trainers import new

from reactor_rl.plugin import UsageError
from reactor_sb3 import ReactorVecEnv, SaveRun
from reactor_sb3.cli.diff import differences, main


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints of one run: twice after the same steps, once later, once with a weight that is another."""
    folder = tmp_path_factory.mktemp("checkpoints")
    paths = {name: folder / f"{name}.zip" for name in ("one", "again", "later", "touched", "other")}
    with new("dqn", "CartPole-v1", learning_starts=32) as model:
        model.learn(64, log_interval=None)
        model.save_checkpoint(paths["one"])
        model.save_checkpoint(paths["again"])
        with torch.no_grad():
            next(model.q_net.parameters())[3, 1] += 1
        model.save_checkpoint(paths["touched"])
    with new("dqn", "CartPole-v1", learning_starts=32) as model:
        model.learn(96, log_interval=None)
        model.save_checkpoint(paths["later"])
    with new("ppo", "CartPole-v1") as model:
        model.save_checkpoint(paths["other"])
    return paths


def told(a: Path, b: Path, *options: str, capsys: Any) -> tuple[int, list[str]]:
    status = main([str(a), str(b), *options])
    return status, capsys.readouterr().out.splitlines()


def test_the_same(saved: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert told(saved["one"], saved["again"], capsys=capsys) == (0, ["the same"])


def test_a_weight_that_is_another(saved: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = told(saved["one"], saved["touched"], "--all", capsys=capsys)
    assert status == 1
    entries = [line.partition(":")[0] for line in lines]
    assert entries[0] == "state.policy.q_net.q_net.0.weight", lines
    assert "1 of 128 elements differ, first [3, 1]: " in lines[0]
    assert all(entry.startswith(("state.policy", "state.run", "state.sent")) for entry in entries), entries


def test_the_first_entry_and_how_many_more(saved: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    status, lines = told(saved["one"], saved["later"], capsys=capsys)
    every = told(saved["one"], saved["later"], "--all", capsys=capsys)[1]
    assert status == 1
    assert lines == [every[0], f"and {len(every) - 1} more entries, which --all lists"]
    assert every[0].startswith("timesteps: 64 and 96")
    named = {line.partition(":")[0] for line in every}
    assert {"state.counters.num_timesteps", "state.streams.replay.state.state"} <= named


def test_other_structures(saved: dict[str, Path]) -> None:
    found = {one.entry: one.said for one in differences(str(saved["one"]), str(saved["other"]))}
    assert found["algorithm"] == "'SyncDQN' and 'SyncPPO'"
    assert found["state.arguments.n_epochs"] == "only in the second"
    assert found["state.arguments.buffer_size"] == "only in the first"
    backwards = {one.entry: one.said for one in differences(str(saved["other"]), str(saved["one"]))}
    assert backwards.keys() == found.keys()


def test_what_is_no_checkpoint(saved: dict[str, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.zip"
    broken.write_bytes(saved["one"].read_bytes()[:500])
    with pytest.raises(UsageError, match="is damaged or no checkpoint"):
        main([str(saved["one"]), str(broken)])
    with pytest.raises(UsageError, match="No such file"):
        main([str(tmp_path / "none.zip"), str(broken)])


def test_runs_of_sb3s_algorithms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        env = make_vec_env("CartPole-v1", 2, seed=seed, vec_env_cls=ReactorVecEnv)
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=seed, device="cpu")
        model.learn(64, callback=SaveRun(tmp_path / f"{name}.zip", every=32))
        env.close()
    assert told(tmp_path / "one.zip", tmp_path / "other.zip", capsys=capsys)[0] == 1
    assert told(tmp_path / "one.zip", tmp_path / "one.zip", capsys=capsys) == (0, ["the same"])


def test_the_file_that_is_not_there_is_named(saved: dict[str, Path], tmp_path: Path) -> None:
    for pair in ((saved["one"], tmp_path / "gone"), (tmp_path / "gone", saved["one"])):
        with pytest.raises(UsageError, match="gone") as error:
            main(list(map(str, pair)))
        assert "one.zip" not in str(error.value)
