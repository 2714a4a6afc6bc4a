"""``doctor MODEL.zip`` says who evaluates a saved model's policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stable_baselines3 import PPO
from torch import nn

from reactor_rl.cli.doctor import doctor_command
from reactor_rl.plugin import UsageError
from reactor_sb3.cli.doctor import model


def lines(folder: Path, **how: Any) -> dict[str, str]:
    PPO("MlpPolicy", "CartPole-v1", device="cpu", policy_kwargs=how).save(folder / "model.zip")
    return {label: value for label, value, _ in model(str(folder / "model.zip"))}


def test_the_extension_evaluates_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = lines(tmp_path)
    assert found["acts by"].startswith("the extension") and found["policy"] == "ActorCriticPolicy"
    assert doctor_command([str(tmp_path / "model.zip")]) == 0
    assert found["acts by"] in capsys.readouterr().out


def test_torch_does_and_why(tmp_path: Path) -> None:
    assert lines(tmp_path, activation_fn=nn.ELU)["acts by"].startswith("torch: its mlp_extractor.policy_net.1 is a ELU")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.zip").write_text("nothing")
    with pytest.raises(UsageError, match=r"other\.zip"):
        list(model(str(tmp_path / "other.zip")))
