"""``doctor ENV_ID``: what it finds in environments with an ailment, and that it finds none in those without."""

from __future__ import annotations

import random
import re
from pathlib import Path

import ailing  # noqa: F401  (registers the environments)
import numpy as np
import pytest
from every_other import in_turn

from reactor_gymnasium.cli.doctor import environment
from reactor_gymnasium.cli.step_profile import StepProfile
from reactor_rl.__main__ import main
from reactor_rl.plugin import UsageError


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_gymnasium.cli.step_profile.SECONDS", 0.05)
    monkeypatch.setattr("reactor_gymnasium.cli.doctor.STEPS", 30)
    for module in ("cli.doctor", "placement"):
        monkeypatch.setattr(f"reactor_gymnasium.{module}.tick_cost", lambda *_, **__: 20e-6)


def examined(name: str) -> tuple[dict[str, str], str]:
    """What is said by label, and the warnings."""
    lines = list(environment(name))
    return {label.strip(): value for label, value, _ in lines}, "\n".join(warning for *_, warning in lines if warning)


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "reactor/CartPole-v1", "ailing:Ailing/nothing-v0"])
def test_nothing_is_found_where_there_is_nothing(name: str) -> None:
    found, warnings = examined(name)
    assert warnings == ""
    assert found["global generators"] == "none is drawn from"
    assert found["two copies"].startswith("the same for 30 steps")
    assert found["going on"].startswith("by its state")
    assert "without" in found["wrappers"]
    assert "one in" in found["resets"]
    assert (found["infos"] == "none") is not name.startswith("FrozenLake")
    assert found["1 environment"] == "auto takes inline (one worker)"
    assert {"8 environments", "64 environments", "256 environments"} <= found.keys()


def test_a_global_generator_is_named_and_left_as_it_is() -> None:
    random.seed(0)
    before = random.getstate()
    found, warnings = examined("ailing:Ailing/global-v0")
    assert found["global generators"] == "drawn from (or seeded) when stepped: random"
    assert found["two copies"] == "differ first in the observation of step 1"
    assert "draws from (or seeds) random, which belongs to the process" in warnings
    assert "going on" not in found
    assert random.getstate() == before


def test_copies_that_differ_are_found() -> None:
    found, warnings = examined("Ailing/notwins-v0")
    assert found["global generators"] == "none is drawn from"
    assert "differ in the observation of step 1" in warnings


def test_a_state_that_lacks_something_is_found() -> None:
    found, warnings = examined("Ailing/forgets-v0")
    assert found["going on"].startswith("by repeating the actions of its episode, for its state cannot be saved: another one")
    assert warnings == ""


def test_heavy_resets_are_warned_of() -> None:
    found, warnings = examined("Ailing/heavyresets-v0")
    assert int(found["resets"].partition("%")[0]) > 50
    assert "while one environment resets, the others of the same step wait" in warnings


def test_infos_cost_something() -> None:
    assert int(examined("Ailing/infos-v0")[0]["infos"].partition("%")[0]) > 0


@in_turn("name, way", [("HalfCheetah-v5", "by its state"), ("ALE/Pong-v5", "by repeating the actions")], kept=1)
def test_environments_of_others(name: str, way: str) -> None:
    pytest.importorskip("mujoco" if name.startswith("Half") else "ale_py")
    found, warnings = examined(name)
    assert found["two copies"].startswith("the same for")
    assert found["going on"].startswith(way)
    assert warnings == ""
    assert name.startswith("ALE") == ("mj_step" not in found)
    if "mj_step" in found:
        share, most = re.findall(r"^(\d+)% .* than ([\d.]+) times", found["mj_step"])[0]
        assert 30 < int(share) <= 100 and abs(float(most) - 100 / int(share)) < 0.1


def test_a_robot_s_simulation_is_found_where_it_is_called() -> None:
    mujoco = pytest.importorskip("mujoco")
    robots = pytest.importorskip("tests.gymnasium_plugin.native.robots")
    before = mujoco.mj_step, mujoco.mj_step1
    found, _ = examined(f"{robots.__name__}:Untold-v0")
    assert "of it: on one core nothing makes steps more than" in found["mj_step"]
    assert found["kernel"] == "no kernel: none steps Untold"
    assert (mujoco.mj_step, mujoco.mj_step1) == before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("CartPoll-v1", "there is no environment 'CartPoll-v1'"),
        ("CartPole-v77", "there is no environment 'CartPole-v77'"),
        ("no_such_module:Thing-v0", "my_module:MyEnv-v0"),
        ("Ailing/fails-v0", "cannot be examined: ValueError: not today"),
    ],
)
def test_what_cannot_be_examined_is_said_in_one_line(name: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", name]) == 2
    said = capsys.readouterr()
    assert says in said.err
    assert said.err.count("\n") == 1
    assert "cores" not in said.out
    with pytest.raises(UsageError):
        list(environment(name))


def test_a_module_of_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_lake.py").write_text(
        "import gymnasium\ngymnasium.register('MyLake-v0', 'gymnasium.envs.toy_text:FrozenLakeEnv', max_episode_steps=5)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["doctor", "my_lake:MyLake-v0"]) == 0
    said = capsys.readouterr().out
    assert "FrozenLakeEnv in PassiveEnvChecker, OrderEnforcing, TimeLimit" in said
    assert "cores " in said


def test_the_speed_up_is_that_of_steps_and_resets_put_together() -> None:
    steps, none = np.full(100, 1e-3), np.array([])
    even = StepProfile(steps, none, np.array([1e-3]), 0, 0.0)
    assert even.speed_up(8, 2, 0.0) == pytest.approx(2.0, rel=0.01)
    assert even.speed_up(8, 4, 0.0) == pytest.approx(4.0, rel=0.01)
    assert even.speed_up(7, 4, 0.0) == pytest.approx(3.5, rel=0.01)
    assert even.speed_up(8, 2, 4e-3) == pytest.approx(1.0, rel=0.01)
    assert even.speed_up(8, 1, 4e-3) == 1.0
    heavy = StepProfile(steps, none, np.full(10, 50e-3), 10, 0.0)
    assert 1.1 < heavy.speed_up(8, 4, 0.0) < 2.5  # a reset keeps the other workers waiting
