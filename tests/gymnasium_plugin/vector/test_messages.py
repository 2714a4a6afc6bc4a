"""Mistakes are told in the words of whoever makes them: indices of environments, names of their classes, what to do about it."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import vector as wrappers

from reactor_gymnasium import AtariVectorEnv, ReactorVectorEnv
from reactor_gymnasium.cli import demo
from reactor_gymnasium.cli.targets import rollout, without_banner
from reactor_rl import ProgramError
from reactor_sb3 import ReactorVecEnv

cartpole = partial(gymnasium.make, "CartPole-v1")
LOCK = threading.Lock()


def holding(lock: Any) -> Any:
    return lambda: cartpole() if lock else None


CLASSES = {"ReactorVectorEnv": (ReactorVectorEnv, "context"), "ReactorVecEnv": (ReactorVecEnv, "start_method")}


@pytest.mark.parametrize("executor", ["inline", "threads", "processes"])
@pytest.mark.parametrize("name", CLASSES)
def test_what_cannot_be_pickled_is_named_as_the_user_knows_it(name: str, executor: str) -> None:
    cls, option = CLASSES[name]
    with pytest.raises(ProgramError) as raised:
        cls([cartpole, holding(LOCK), cartpole], executor=executor, workers=2)
    said = str(raised.value)
    assert said.startswith(f"env_fns[1] of {name} cannot be pickled (TypeError: cannot pickle '_thread.lock' object)")
    assert f'{option}="fork"' in said and 'executor="processes"' in said
    for word in ("reactor ", "startup", "reaction", "environments["):
        assert word not in said


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="processes cannot be forked here")
@pytest.mark.parametrize("name", CLASSES)
def test_the_advice_works(name: str) -> None:
    cls, option = CLASSES[name]
    envs = cls([holding(LOCK)] * 2, executor="processes", workers=2, **{option: "fork"})
    envs.reset()
    envs.close()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"env_fns": []}, "ReactorVecEnv needs at least one environment"),
        (
            {"env_fns": [cartpole, partial(gymnasium.make, "Pendulum-v1")], "executor": "inline"},
            r"ReactorVecEnv\(\.\.\., observation_mode='same'\)",
        ),
    ],
)
def test_errors_of_reactor_vec_env_name_it(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=text):
        ReactorVecEnv(**arguments)


class Broken(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Fails at its first step."""

    def step(self, action: Any) -> Any:
        raise ArithmeticError("broken")


@pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")
def test_what_an_environment_raises_names_reactor_vec_env() -> None:
    env = ReactorVecEnv([lambda: Broken(cartpole())] * 2, executor="inline")
    env.reset()
    with pytest.raises(ArithmeticError) as raised:
        env.step([0, 0])  # type: ignore[arg-type]
    assert any("environment 1 of ReactorVecEnv(" in note for note in raised.value.__notes__)
    with pytest.raises(RuntimeError, match="cannot go on with ReactorVecEnv"):
        env.step([0, 0])  # type: ignore[arg-type]
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", [wrappers.RecordEpisodeStatistics, wrappers.NormalizeReward, wrappers.DictInfoToList])
@pytest.mark.parametrize("make", [
    lambda: ReactorVectorEnv([cartpole] * 4, batch_size=2, executor="inline"),
    lambda: AtariVectorEnv("pong", 4, batch_size=2, executor="inline"),
], ids=["ReactorVectorEnv", "AtariVectorEnv"])  # fmt: skip
def test_wrappers_and_batch_size_do_not_go_together(make: Any, wrapper: Any) -> None:
    with make() as envs:
        with pytest.raises(ValueError, match=rf"{wrapper.__name__} takes every step .* leave out batch_size"):
            wrapper(envs).reset()
        envs.reset()


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "soon"])
def test_the_demo_refuses_times_that_make_no_sense(seconds: str, capsys: pytest.CaptureFixture[str], tmp_path: Any) -> None:
    with pytest.raises(SystemExit):
        demo.main(["--seconds", seconds, "--out", str(tmp_path / "out")])
    assert "is not a number of seconds greater than 0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_demo_prints_spreads_and_what_was_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    speeds = {"SyncVectorEnv": [100.0, 50.0, 200.0], "ReactorVectorEnv": [300.0, 100.0, 200.0]}
    demo.print_table(rollout("CartPole-v1", 8), demo.Timed(speeds, "one core: too little to share"))
    head, theirs, ours, chosen = capsys.readouterr().out.strip().splitlines()
    assert head.split() == ["8", "x", "CartPole-v1", "steps/s", "lowest", "to", "highest", "ReactorVectorEnv", "is"]
    assert theirs.split() == ["SyncVectorEnv", "100", "50", "to", "200", "2.00", "x", "as", "fast"]
    assert ours.split() == ["ReactorVectorEnv", "200", "100", "to", "300"]
    assert chosen.strip() == "ReactorVectorEnv has chosen one core: too little to share"


def test_the_demo_says_what_its_vector_environment_runs_on() -> None:
    with contextlib.closing(ReactorVectorEnv([cartpole], workers=1, kernels=False)) as envs:
        assert demo._choice(envs) == "one core: one worker, no kernel: kernels=False"


def test_the_demo_says_where_it_is_every_five_seconds_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr(demo.tqdm, "monitor_interval", 0)  # else a thread of its stays
    monkeypatch.setattr(demo, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with demo.Progress(3) as bar:
        for run, seconds in enumerate((1.0, 4.5, 4.5)):
            bar.begin(f"run {run}")
            now[0] += seconds
            bar.update()
    assert capsys.readouterr().out.splitlines() == ["2 of 3 runs: run 1"]


def test_the_demo_says_when_the_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (3.0, 0.0, 0.0), raising=False)
    assert demo._busy(2) == 3.0
    monkeypatch.setattr("os.getloadavg", lambda: (0.5, 9.0, 9.0), raising=False)
    assert demo._busy(2) is None


@pytest.mark.slow
def test_emulators_do_not_introduce_themselves(capfd: pytest.CaptureFixture[str]) -> None:
    with ReactorVectorEnv([partial(without_banner, "ALE/Pong-v5")] * 2, executor="processes", workers=2) as envs:
        envs.reset(seed=0)
    assert capfd.readouterr() == ("", "")
