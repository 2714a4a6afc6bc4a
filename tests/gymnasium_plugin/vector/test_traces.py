"""What is made to be looked at, timed or tried leaves nothing behind: no files, no draws, no functions that have changed."""

from __future__ import annotations

import builtins
import itertools
import logging
import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from envs import Facts
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import RecordVideo
from logging_envs import WRITERS, Drawn, make
from places import INLINE, THREADS, WAITING

from reactor_gymnasium import ReactorVectorEnv, evaluate

PLACES = [INLINE, {"workers": 2}, THREADS | WAITING]


def _played(kind: Callable[..., Any], makers: list[Any], **how: Any) -> None:
    envs = kind(makers, **how)
    envs.reset(seed=0)
    for _ in range(9):
        envs.step(np.zeros(len(makers), np.int64))
    envs.close()


def _files(folder: Path) -> dict[str, Any]:
    """What is in a folder; temporary names count by their number."""
    found: dict[str, Any] = {}
    for number, path in enumerate(sorted(folder.rglob("*"), key=lambda path: (path.is_dir(), str(path)))):
        name = str(path.relative_to(folder))
        found[f"tmp {number}" if name.startswith("tmp") else name] = path.read_text() if path.is_file() else None
    return found


# ---------------------------------------------------------------------- files


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("before", [False, True], ids=["new", "there"])
def test_files_are_those_of_sync(kind: type[Any], place: dict[str, Any], before: bool, tmp_path: Path) -> None:
    found = []
    for name, vector, how in (("sync", SyncVectorEnv, {}), ("ours", ReactorVectorEnv, place)):
        folder = tmp_path / name
        folder.mkdir()
        if before:
            (folder / "log.txt").write_text("mine\n")
            (folder / "best.txt").write_text("mine")
        number = 1 if place.get("executor") == "threads" else 2  # two threads would write one file at the same time
        _played(vector, [partial(make, kind, str(folder))] * number, **how)
        found.append(_files(folder))
    assert found[1] == found[0]


@pytest.mark.parametrize("kind", WRITERS)
def test_evaluate_leaves_what_a_loop_leaves(kind: type[Any], tmp_path: Path) -> None:
    def first(observations: Any) -> Any:
        return np.zeros(len(observations), np.int64)

    (tmp_path / "loop").mkdir()
    (tmp_path / "ours").mkdir()
    env = make(kind, str(tmp_path / "loop"))
    for _ in range(4):
        env.reset(seed=0)
        while not any(env.step(0)[2:4]):
            pass
    env.close()
    evaluate(first, partial(make, kind, str(tmp_path / "ours")), episodes=4, seed=0, num_envs=1, executor="inline")
    assert _files(tmp_path / "ours") == _files(tmp_path / "loop")


def test_what_others_append_meanwhile_is_not_lost(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"

    class Beside(Facts):
        """In whose constructor another process appends to the same file."""

        def __init__(self) -> None:
            super().__init__(0)
            with open(log, "a") as mine:
                mine.write("made\n")
            other = os.spawnlp(os.P_WAIT, "sh", "sh", "-c", f"echo other >> {log}")
            assert other == 0

    _played(ReactorVectorEnv, [Beside, Beside], executor="inline")
    assert log.read_text().splitlines().count("other") == 3
    assert log.read_text().splitlines().count("made") == 2


_SHARED: dict[str, Any] = {}


class _SharesALog(Facts):
    """Whose module keeps one log for all of them, as logging.basicConfig() does."""

    def __init__(self, path: str) -> None:
        super().__init__(0, 3)
        if path not in _SHARED:
            _SHARED[path] = open(path, "a", buffering=1)  # noqa: SIM115
            _SHARED[path].write("begin\n")

    def step(self, action: Any) -> Any:
        _SHARED[_path].write("step\n")
        return super().step(action)


_path = ""


def test_a_log_that_a_module_keeps_open_goes_on(tmp_path: Path) -> None:
    global _path
    _path = str(tmp_path / "log.txt")
    _played(ReactorVectorEnv, [partial(_SharesALog, _path)] * 2, executor="inline")
    _SHARED.pop(_path).close()
    assert Path(_path).read_text() == "begin\n" + "step\n" * 14  # of nine steps two are resets


def test_what_is_logged_is_of_environments_that_are_stepped(caplog: pytest.LogCaptureFixture) -> None:
    class Tells(Facts):
        def __init__(self) -> None:
            super().__init__(0)
            logging.getLogger("mine").warning("made")

    _played(ReactorVectorEnv, [Tells] * 2, executor="inline")
    assert [record.message for record in caplog.records if record.name == "mine"] == ["made", "made"]
    assert logging.Logger.handle.__module__ == "logging"


def test_films_are_of_episodes_that_were_played(tmp_path: Path) -> None:
    def filmed() -> Any:
        env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
        return RecordVideo(env, str(tmp_path), episode_trigger=lambda _: True, disable_logger=True)

    pytest.importorskip("moviepy")
    ReactorVectorEnv([filmed] * 2, workers=2).close()
    assert list(tmp_path.iterdir()) == []


def test_the_system_is_as_it_was(tmp_path: Path) -> None:
    before = builtins.open, os.open, os.mkdir, os.rename, os.replace, logging.Logger.handle
    _played(ReactorVectorEnv, [partial(make, WRITERS[0], str(tmp_path))] * 2, workers=2)

    def fails() -> Any:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ReactorVectorEnv([fails])
    assert (builtins.open, os.open, os.mkdir, os.rename, os.replace, logging.Logger.handle) == before


# ---------------------------------------------------------------------- generators


def _maps(kind: Callable[..., Any], makers: list[Any], **how: Any) -> list[Any]:
    np.random.seed(0)
    random.seed(0)
    envs = kind(makers, **how)
    seen = [envs.reset(seed=0)[0], np.random.randint(1000), random.random()]
    envs.close()
    return seen


@pytest.mark.parametrize("mode", ["same", "different"])
@pytest.mark.parametrize("place", [{"executor": "inline"}, {"workers": 1}], ids=str)
def test_maps_and_the_callers_stream_are_those_of_sync(place: dict[str, Any], mode: str) -> None:
    class Seen(Drawn):
        metadata: Any = {"render_modes": []}  # SyncVectorEnv asks for it once more

    assert_same(
        _maps(ReactorVectorEnv, [Seen] * 3, observation_mode=mode, **place),
        _maps(SyncVectorEnv, [Seen] * 3, observation_mode=mode),
        "maps",
    )


@pytest.mark.parametrize("how", [{"executor": "processes", "workers": 2, "caller_works": False}, {"workers": 2}], ids=str)
def test_the_callers_stream_is_put_back(how: dict[str, Any]) -> None:
    random.seed(0)
    np.random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[union-attr]
    ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 2, **how).close()
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # type: ignore[union-attr]


def test_shards_of_many_rows_are_looked_at_without_draws() -> None:
    def two() -> Any:
        np.random.rand()
        return SyncVectorEnv([Drawn] * 2)

    np.random.seed(0)
    with ReactorVectorEnv.of([two, partial(two)], executor="inline"):
        ours = np.random.randint(1000)
    np.random.seed(0)
    kept = [two(), two()]
    assert ours == np.random.randint(1000)
    for one in kept:
        one.close()


# ---------------------------------------------------------------------- makers


class _Counts:
    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> Any:
        self.made += 1
        return Facts(self.made)


def _pops() -> Any:
    waiting = [2, 1, 0]
    return lambda: Facts(waiting.pop())


def _counted() -> Any:
    numbers = itertools.count()
    return lambda: Facts(next(numbers))


def _draws() -> Any:
    generator = np.random.default_rng(0)
    return lambda: Facts(int(generator.integers(10)))


def _once() -> Any:
    special = [True]

    def function() -> Any:
        was, special[0] = special[0], False
        return Facts(int(was))

    return function


def _grows() -> Any:
    made: dict[int, int] = {}

    def function() -> Any:
        made[len(made)] = 1
        return Facts(len(made))

    return function


def _caches() -> Any:
    cache: dict[str, int] = {}

    def function() -> Any:
        if "level" not in cache:
            cache["level"] = 3
        return Facts(cache["level"])

    return function


def _finds() -> Any:
    level: int | None = None

    def function() -> Any:
        nonlocal level
        if level is None:
            level = 3
        return Facts(level)

    return function


def _notes() -> Any:
    made: list[float] = []

    def function() -> Any:
        made.append(0.5)
        return Facts(1)

    return function


@pytest.mark.parametrize("new", [_Counts, _pops, _counted, _draws, _once, _grows])
@pytest.mark.parametrize("apart", [False, True], ids=["one", "each"])
def test_functions_that_a_call_changes_are_warned_of(new: Callable[[], Any], apart: bool) -> None:
    function = new()
    makers = [partial(function) for _ in range(3)] if apart else [function] * 3
    before = getattr(function, "made", 0)
    with pytest.warns(RuntimeWarning, match=r"calling env_fns\[0\] changes what makes the next environment") as told:
        ReactorVectorEnv(makers, executor="inline").close()
    assert told[0].filename == __file__
    assert getattr(function, "made", 0) == before  # the caller's own is not called


@pytest.mark.parametrize("makers", [
    lambda: [_Counts()], lambda: [_Counts(), _Counts()], lambda: [partial(Facts, 1)] * 2,
    lambda: [_caches()] * 2, lambda: [_finds()] * 2, lambda: [_notes()] * 2,
])  # fmt: skip
def test_functions_that_change_nothing_of_others_are_not(makers: Callable[[], list[Any]]) -> None:
    ReactorVectorEnv(makers(), executor="inline").close()  # warnings are errors here
