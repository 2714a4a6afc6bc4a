"""One step of ``ReactorVectorEnv`` executes few files, and docs/concepts/internals.md names them all: a reader can follow it."""

from __future__ import annotations

import gc
import re
import sys
import warnings
from contextlib import closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit

import reactor_gymnasium
import reactor_rl
from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.native.compiled import missing
from reactor_rl.runtime import numeric_threads

ENGINE, PLUGIN = (Path(str(package.__file__)).parent for package in (reactor_rl, reactor_gymnasium))
PAGE = (Path(__file__).parents[3] / "docs" / "concepts" / "internals.md").read_text()
MOST = 14
WARM_UP, STEPS = 40, 20
"""A kernel takes over within the warm-up; a step in which the caller had to look after a slow helper does not count."""

WORKERS: dict[str, dict[str, Any]] = {"inline": {"executor": "inline"}, "processes": {"executor": "processes", "workers": 2}}
BETWEEN_WORKERS = {"runtime/helpers.py", "runtime/channel.py"}
OF_KERNELS = {"native/takeover.py", "native/kernel.py", "native/compiled.py"}
OF_PYTHON = {"environments/rows.py", "environments/storage.py"}
OF_KEEPING = {"environments/owning.py"}
OF_INFOS = {"environments/infos.py", "runtime/worker/values.py", "pickling.py"}
ASIDE = OF_PYTHON | OF_KEEPING | OF_INFOS
"""Files that the text below the picture is about."""


@pytest.fixture(autouse=True)
def in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if reactions had never run in another thread of this process: with others, ``runtime/guards.py`` takes part."""
    monkeypatch.setattr(numeric_threads, "_several", False)
    monkeypatch.setattr(numeric_threads, "_thread", None)


class Keeping(gym.Wrapper):  # type: ignore[type-arg]
    """Returns the same array at every step."""

    def step(self, action: Any) -> Any:
        self.kept, *others = super().step(action)
        return self.kept, *others


class Informing(Keeping):
    """Gives an info at every step."""

    def step(self, action: Any) -> Any:
        *others, _ = super().step(action)
        return *others, {"angle": float(self.kept[2])}


def cartpole(wrapper: Any) -> Any:
    return TimeLimit(wrapper(CartPoleEnv()), 500) if wrapper else gym.make("CartPole-v1")


def executed(wrapper: Any = None, **how: Any) -> set[str]:
    """Which files of ours steps execute on the caller's side, those included that end episodes or reset."""
    found: set[str] = set()
    slow = False

    def called(frame: FrameType, event: str, _: Any) -> None:
        nonlocal slow
        path = Path(frame.f_code.co_filename)
        if event == "call" and (base := next((base for base in (ENGINE, PLUGIN) if path.is_relative_to(base)), None)):
            found.add(path.relative_to(base).as_posix())
            slow |= frame.f_code.co_name == "_look"

    walked: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two workers may be more than there are cores
        envs = ReactorVectorEnv([partial(cartpole, wrapper)] * 4, **how)
    with closing(envs):
        envs.reset(seed=0)
        actions = np.array([0, 1, 0, 1])
        for step in range(WARM_UP + STEPS):
            if step < WARM_UP:
                envs.step(actions)
                continue
            found, slow = set(), False
            gc.disable()  # finalisers are of other tests
            sys.setprofile(called)
            try:
                envs.step(actions)
            finally:
                sys.setprofile(None)
                gc.enable()
            if not slow:
                walked |= found
    return walked


def named() -> set[str]:
    """The files in the caller's column of the page's picture, with their folders."""
    picture = re.search(r"^## Where did my step go$.*?^```$(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert picture
    callers = [line[:51] for line in picture[1].splitlines()]
    files = {file for line in callers for file in re.findall(r"\[(.*?)\]", line)}
    return {file if (PLUGIN / file).is_file() else f"runtime/{file}" for file in files}


def test_the_page_names_files_that_there_are() -> None:
    assert all((PLUGIN / file).is_file() or (ENGINE / file).is_file() for file in named() | ASIDE)
    for file in ASIDE:
        assert f"`{file.removeprefix('runtime/')}`" in PAGE
    assert f"These are {len(named())} files on the caller's side" in PAGE and len(named()) == MOST


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("how", WORKERS)
def test_a_step_by_a_kernel_executes_the_files_on_the_page(how: str) -> None:
    expected = named() - (BETWEEN_WORKERS if how == "inline" else set())
    assert executed(**WORKERS[how]) == expected and len(expected) <= MOST


@pytest.mark.parametrize("how", WORKERS)
def test_a_step_by_python_executes_as_many(how: str) -> None:
    expected = named() - OF_KERNELS | OF_PYTHON
    if how == "inline":
        expected -= BETWEEN_WORKERS
    assert executed(kernels=False, **WORKERS[how]) == expected
    assert executed(Keeping, **WORKERS[how]) == expected | OF_KEEPING and len(expected | OF_KEEPING) <= MOST


@pytest.mark.parametrize("how", WORKERS)
def test_infos_add_what_carries_them(how: str) -> None:
    expected = named() - OF_KERNELS | ASIDE
    if how == "inline":
        expected -= BETWEEN_WORKERS
    assert executed(Informing, **WORKERS[how]) == expected
