"""``resume=True``: which files are gone on with, which are refused and left alone, and what tells evaluations from each other."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from evaluated import Walk, rightwards
from every_other import in_turn

from reactor_gymnasium import evaluate


def play(path: Path, episodes: int = 3, policy: Any = rightwards, env: Any = Walk, **more: Any) -> Any:
    return evaluate(policy, env, episodes, **{"seed": 4, "executor": "inline", "log": path, "resume": True, **more})


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("log") / "log"
    play(path, 5)
    return path.read_bytes()


def edited(name: str, value: bytes) -> Callable[[bytes], bytes]:
    """A log whose second episode has another value."""

    def edit(log: bytes) -> bytes:
        lines = log.splitlines(keepends=True)
        one = json.loads(lines[2])
        lines[2] = lines[2].replace(f'"{name}": {json.dumps(one[name])}'.encode(), f'"{name}": '.encode() + value)
        return b"".join(lines)

    return edit


FOREIGN: dict[str, Callable[[bytes], bytes]] = {
    "json": lambda log: b'{"lr": 0.0003, "seeds": [1, 2]}',
    "json lines": lambda log: b'{"a": 1}\n{"b": 2}\n',
    "notes": lambda log: b"remember the milk",
    "pickle": lambda log: pickle.dumps([1, 2, 3]),
    "binary": lambda log: bytes(range(256)),
    "zeros": lambda log: bytes(100),
    "null": lambda log: b"null\n",
    "a brace": lambda log: b"{",
    "half a first line of another": lambda log: b'{"evaluation": {"env": "Other',
    "a newline": lambda log: b"\n",
    "a string": lambda log: b'{"evaluation": "abc"}\n',
    "none": lambda log: b'{"evaluation": null}\n',
    "nothing in it": lambda log: b'{"evaluation": {}}\n',
    "deep": lambda log: b'{"evaluation": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}\n",
    "long": lambda log: b"x" * 3_000_000,
    "marked": lambda log: b"\xef\xbb\xbf" + log,
    "two bytes each": lambda log: log.decode().encode("utf-16"),
    "without a first line": lambda log: log[log.index(b"\n") + 1 :],
    "two first lines": lambda log: log[: log.index(b"\n") + 1] + log,
    "a note at its end": lambda log: log + b"the last one was good",
    "an empty line": lambda log: log + b"\n",
    "cut in its middle": lambda log: log[:-40] + b"\n" + log,
    "something deep": lambda log: log + b"[" * 100_000 + b"\n",
    "an episode twice": lambda log: log + edited("return", b"7.0")(log)[log.index(b"\n") + 1 :],
    "return null": edited("return", b"null"),
    "return of text": edited("return", b'"6"'),
    "return too large": edited("return", b"1" + b"0" * 400),
    "length too large": edited("length", b"9" * 30),
    "length of many digits": edited("length", b"9" * 5000),
    "length of a fraction": edited("length", b"2.5"),
    "episode below zero": edited("episode", b"-1"),
    "infos of a list": edited("digest", b'"", "infos": []'),
    "truth of a number": edited("terminated", b"1"),
    "something more": edited("digest", b'"", "more": 1'),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_that_is_no_log_is_refused_and_left_alone(tmp_path: Path, log: bytes, name: str) -> None:
    path = tmp_path / "file"
    data = FOREIGN[name](log)
    path.write_bytes(data)
    with pytest.raises(ValueError, match=str(path)):
        play(path)
    assert path.read_bytes() == data


OURS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda log: b"",
    "half a first line": lambda log: log[:40],
    "a first line without its end": lambda log: log[: log.index(b"\n")],
    "half a line": lambda log: log[:-40],
    "a few bytes of a line": lambda log: log[: log.rindex(b"\n", 0, -1) + 5],
    "without its end": lambda log: log[:-1],
    "whole": lambda log: log,
    "an episode twice, alike": lambda log: log + log[log.rindex(b"\n", 0, -1) + 1 :],
}


@pytest.mark.parametrize("name", OURS)
def test_a_log_is_gone_on_with(tmp_path: Path, log: bytes, name: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(OURS[name](log))
    report = play(path, 7)
    assert report.fingerprint() == evaluate(rightwards, Walk, 7, seed=4, executor="inline").fingerprint()
    first, *rest = map(json.loads, path.read_text().splitlines())
    assert set(first) == {"evaluation"} and {one["episode"] for one in rest} == set(range(7))


def test_a_log_of_an_older_version_is_gone_on_with(tmp_path: Path, log: bytes) -> None:
    path = tmp_path / "file"
    first, *rest = log.splitlines(keepends=True)
    about = json.loads(first)["evaluation"]
    known = {name: about[name] for name in ("env", "seed", "deterministic", "max_steps", "batch_size", "policy")}
    path.write_bytes(json.dumps({"evaluation": known}).encode() + b"\n" + b"".join(rest))
    assert len(play(path, 6)) == 6


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_no_path_of_a_file(tmp_path: Path, resume: bool) -> None:
    asked: list[int] = []

    def policy(observations: Any) -> Any:
        asked.append(len(observations))
        return rightwards(observations)

    for path, error, message in (
        (tmp_path, ValueError, "must be the path of a file, got the folder"),
        (tmp_path / "no" / "where", FileNotFoundError, "the folder of .* does not exist"),
        (3, TypeError, "must be a path, got 3"),
        (b"log", TypeError, "must be a path, got b'log'"),
    ):
        with pytest.raises(error, match=f"log:? {message}"):
            evaluate(policy, Walk, 2, executor="inline", log=path, resume=resume)  # type: ignore[arg-type]
    assert not asked


def test_numbers_of_numpy(tmp_path: Path) -> None:
    path = tmp_path / "log"
    numbers = {"seed": np.int64(3), "max_steps": np.uint16(4), "batch_size": np.int8(4), "num_envs": np.int32(2)}
    more: dict[str, Any] = {**numbers, "deterministic": np.bool_(True), "restarts": np.int64(0), "timeout": np.float32(9)}
    report = evaluate(rightwards, Walk, np.int64(3), executor="inline", log=path, **more)
    plain = evaluate(rightwards, Walk, 3, seed=3, max_steps=4, batch_size=4, executor="inline", log=path, resume=True)
    assert report.fingerprint() == plain.fingerprint() and len(path.read_text().splitlines()) == 4


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full disk")
def test_a_full_disk_costs_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, ended = tmp_path / "log", os.fsync

    def full(file: int) -> None:
        ended(file)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="gets no further episodes: .*No space left"):
        report = evaluate(rightwards, Walk, 30, seed=4, num_envs=2, executor="inline", log=path)
    monkeypatch.undo()
    assert report.fingerprint() == evaluate(rightwards, Walk, 30, seed=4, executor="inline").fingerprint()
    assert play(path, 30).fingerprint() == report.fingerprint()


# ---------------------------------------------------------------------- what is another evaluation


def lake(**more: Any) -> Any:
    return partial(gymnasium.make, "FrozenLake-v1", **more)


def other_spec() -> Any:
    spec = copy.deepcopy(gymnasium.spec("FrozenLake-v1"))
    spec.kwargs["is_slippery"] = False
    return spec


ENVS: dict[str, Any] = {
    "no ice": lake(is_slippery=False),
    "ice": lake(is_slippery=True),
    "another map": lake(is_slippery=False, map_name="8x8"),
    "a limit": lake(is_slippery=False, max_episode_steps=7),
    "an id": "FrozenLake-v1",
    "a spec": other_spec(),
    "a function": lambda: gymnasium.make("FrozenLake-v1", is_slippery=False),
    "a function with ice": lambda: gymnasium.make("FrozenLake-v1", is_slippery=True),
    "wrapped": lambda: gymnasium.wrappers.TimeLimit(gymnasium.make("FrozenLake-v1", is_slippery=False), 5),
    "wrapped otherwise": lambda: gymnasium.wrappers.TimeLimit(gymnasium.make("FrozenLake-v1", is_slippery=False), 6),
}


def to_the_right(observations: Any) -> Any:
    return np.full(len(observations), 2)


@in_turn("name", ENVS, kept=2)
def test_another_environment_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    play(path, 2, to_the_right, ENVS[name])
    before = path.read_bytes()
    for other, env in ENVS.items():
        if name != other:
            with pytest.raises(ValueError, match="is the log of another evaluation: its environment differs"):
                play(path, 3, to_the_right, env)
    assert path.read_bytes() == before
    assert len(play(path, 3, to_the_right, ENVS[name])) == 3


def threshold(limit: float) -> Any:
    return lambda observations: (observations[:, 0] < limit).astype(np.int64)


class Weighing:
    def __init__(self, weight: float) -> None:
        self.weights = np.full(3, weight)

    def predict(self, observations: Any, deterministic: bool = True) -> Any:
        return (observations @ self.weights < 1).astype(np.int64), None


POLICIES: dict[str, Any] = {
    "a function": rightwards,
    "a closure": threshold(0.5),
    "another closure": threshold(0.4),
    "a lambda": lambda observations: (observations[:, 0] < 0.5).astype(np.int64),
    "another lambda": lambda observations: (observations[:, 1] < 0.5).astype(np.int64),
    "a partial": partial(lambda observations, limit: (observations[:, 0] < limit).astype(np.int64), limit=0.5),
    "another partial": partial(lambda observations, limit: (observations[:, 0] < limit).astype(np.int64), limit=0.3),
    "an object": Weighing(1.0),
    "another object": Weighing(2.0),
}


@in_turn("name", POLICIES, kept=2)
def test_another_policy_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "log"
    play(path, 2, POLICIES[name])
    for other, policy in POLICIES.items():
        if name != other:
            with pytest.raises(ValueError, match="is the log of another evaluation: its policy"):
                play(path, 3, policy)
    assert len(play(path, 3, POLICIES[name])) == 3


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"max_steps": 5}, "max_steps is None"),
        ({"deterministic": False}, "deterministic is True"),
        ({"batch_size": 1}, "batch_size is 32"),
    ],
)
def test_other_arguments_are_refused(tmp_path: Path, log: bytes, more: dict[str, Any], what: str) -> None:
    path = tmp_path / "log"
    path.write_bytes(log)
    with pytest.raises(ValueError, match=f"is the log of another evaluation: its {what}"):
        play(path, **more)
    assert path.read_bytes() == log


SCRIPT = """
import sys, time
import numpy as np
from evaluated import Walk
from reactor_gymnasium import evaluate

NAMES, seen, known, made = {"a", "b", "c"}, [], {}, []
limit = float(sys.argv[3])

class Mine(Walk):
    def __init__(self):
        super().__init__()
        self.began = time.time()

def make():
    made.append(1)
    return Mine()

def policy(observations):
    seen.append(time.time())
    assert "a" in NAMES and "x" not in {"l", "m", "n"}
    key = observations.tobytes()
    if key not in known:
        known[key] = (observations[:, 0] < limit).astype(np.int64)
    return known[key]

for more in (0, 1):  # in one process, too
    print(len(evaluate(policy, make, int(sys.argv[2]) + more, executor="inline", log=sys.argv[1], resume=True)))
"""


@pytest.mark.slow
def test_a_script_goes_on_when_it_is_run_again(tmp_path: Path) -> None:
    def run(episodes: int, limit: float, hashes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / "log"), str(episodes), str(limit)]
        settings = {**os.environ, "PYTHONHASHSEED": hashes}
        folder = Path(__file__).parent.parent
        return subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True, timeout=60, check=False)

    assert run(2, 0.5, "1").stdout.split() == ["2", "3"]
    assert run(4, 0.5, "2").stdout.split() == ["4", "5"]
    other = run(6, 0.4, "1")
    assert not other.stdout and "its policy's code differs in `limit`" in other.stderr
