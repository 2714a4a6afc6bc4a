"""``evaluate``: one report for any number of environments and workers, after deaths and interruptions; and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from evaluated import Endless, Failing, Keyed, Mortal, Remembering, Walk, careless, drawing, in_words, neighbourly, rightwards
from every_other import in_turn

from reactor_gymnasium import EvaluationReport, evaluate
from reactor_gymnasium.evaluation import program
from reactor_rl import RecoveryWarning, WorkerDiedError, WorkerHungError

CASES: dict[str, tuple[Any, Callable[..., Any]]] = {
    "function": (rightwards, Walk),
    "drawing": (drawing, Walk),
    "careless": (careless, Walk),
    "neighbourly": (neighbourly, Walk),
    "remembering": (Remembering(), Walk),
    "objects": (in_words, Keyed),
}


def by_hand(policy: Callable[[Any], Any], env: gymnasium.Env[Any, Any], seeds: list[int]) -> tuple[list[float], list[int]]:
    """Returns and lengths of episodes, one after the other."""
    returns, lengths = [], []
    for seed in seeds:
        observation, _ = env.reset(seed=seed)
        total, length, over = 0.0, 0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy(observation[None])[0])
            total, length, over = total + float(reward), length + 1, terminated or truncated
        returns.append(total)
        lengths.append(length)
    return returns, lengths


def seeds_of(seed: int, episodes: int) -> list[int]:
    return [int(np.random.SeedSequence(seed, spawn_key=(0, k)).generate_state(1)[0]) >> 1 for k in range(episodes)]


def test_it_is_what_a_loop_gives() -> None:
    report = evaluate(rightwards, Walk, episodes=30, seed=5, num_envs=4, executor="inline")
    returns, lengths = by_hand(rightwards, Walk(), seeds_of(5, 30))
    assert report.returns.tolist() == returns and report.lengths.tolist() == lengths
    assert report.terminated.all() and report.env == "Walk"
    assert set(report.infos) == {"is_success", "at"}  # a name is no number
    assert report.infos["is_success"].dtype == np.bool_
    assert np.array_equal(report.infos["is_success"], report.infos["at"] > 0)


def test_fewer_episodes_are_the_first_of_more() -> None:
    some, more = (evaluate(rightwards, Walk, episodes=n, seed=1, executor="inline") for n in (5, 12))
    assert np.array_equal(some.returns, more.returns[:5]) and some.digests == more.digests[:5]
    assert evaluate(rightwards, Walk, episodes=5, seed=2, executor="inline").fingerprint() != some.fingerprint()


@pytest.mark.slow
@in_turn("name", CASES, kept=2)
def test_one_report_on_workers(name: str) -> None:
    policy, env = CASES[name]
    ways = [(1, 1, "inline"), (7, 1, "inline"), (5, 2, "processes"), (4, 2, "threads")]
    if name == "careless":  # generators of the process are no matter for threads
        ways.pop()
    found = {
        evaluate(policy, env, episodes=12, seed=3, num_envs=n, workers=w, executor=how).fingerprint()  # type: ignore[arg-type]
        for n, w, how in ways
    }
    assert len(found) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
def test_one_report_on_anything(name: str) -> None:
    policy, env = CASES[name]
    ways = [(1, 1, "inline"), (1, 1, "processes"), (3, 3, "processes"), (32, 2, "processes"), (32, 3, "processes")]
    found = set()
    for num_envs, workers, executor in ways:
        report = evaluate(policy, env, episodes=40, seed=3, num_envs=num_envs, workers=workers, executor=executor)  # type: ignore[arg-type]
        found.add(report.fingerprint())
    assert len(found) == 1


def test_a_spec_that_is_folded_counts_its_limit() -> None:
    report = evaluate(lambda seen: np.zeros((len(seen), 1), np.float32), "Pendulum-v1", episodes=5, num_envs=2, executor="inline")
    assert report.lengths.tolist() == [200] * 5 and not report.terminated.any()
    assert report.env == "Pendulum-v1"


# ---------------------------------------------------------------------- how a policy is asked


def test_it_says_how_a_policy_is_asked() -> None:
    asked = {name: evaluate(policy, env, episodes=2, executor="inline").policy for name, (policy, env) in CASES.items()}
    assert "in batches of 32 rows" in asked["function"] and "in batches" in asked["drawing"]
    assert "draws from the process's generators" in asked["careless"]
    assert asked["neighbourly"].startswith("row by row: in batches of 32 its answers depend")
    assert "remembers" in asked["remembering"]


@pytest.mark.slow
def test_batches_in_which_rows_matter_are_owned_up_to() -> None:
    report = evaluate(neighbourly, Walk, episodes=8, num_envs=4, batch_size=4, executor="inline")
    assert not report.row_independent and "with another num_envs they differ" in str(report)
    other = evaluate(neighbourly, Walk, episodes=8, num_envs=2, batch_size=4, executor="inline")
    assert other.fingerprint() != report.fingerprint()
    for num_envs in (2, 4):
        assert evaluate(neighbourly, Walk, episodes=8, num_envs=num_envs, batch_size=1, executor="inline").row_independent


def test_a_batch_always_has_as_many_rows() -> None:
    seen = []

    def watching(observations: Any) -> Any:
        seen.append(len(observations))
        return rightwards(observations)

    evaluate(watching, Walk, episodes=9, num_envs=3, batch_size=8, executor="inline")
    assert set(seen) == {1, 8}  # it was tried with one


# ---------------------------------------------------------------------- deaths, and going on


@pytest.mark.slow
@in_turn("hang", [False, True], ids=["killed", "hung"], kept=1)
def test_a_worker_that_dies_changes_nothing(tmp_path: Path, hang: bool) -> None:
    env = partial(Mortal, str(tmp_path / "marker"), hang)
    expected = evaluate(rightwards, Walk, episodes=40, executor="inline").fingerprint()
    timeout = 2.0 if hang else None
    with pytest.warns(RecoveryWarning, match="started anew"):
        report = evaluate(
            rightwards, env, episodes=40, num_envs=4, workers=2, executor="processes", restarts=1, timeout=timeout,
            log=tmp_path / "log",
        )  # fmt: skip
    assert report.fingerprint() == expected and (tmp_path / "marker").exists()
    numbers = [json.loads(line)["episode"] for line in (tmp_path / "log").read_text().splitlines()[1:]]
    assert sorted(numbers) == list(range(40))


@pytest.mark.slow
def test_a_death_is_told_where_nothing_is_replaced(tmp_path: Path) -> None:
    with pytest.raises(WorkerDiedError):
        evaluate(rightwards, partial(Mortal, str(tmp_path / "one")), episodes=40, num_envs=4, workers=2, executor="processes")
    with pytest.raises(WorkerHungError):
        evaluate(
            rightwards, partial(Mortal, str(tmp_path / "two"), True), episodes=40, num_envs=4, workers=2, executor="processes",
            timeout=1.0,
        )  # fmt: skip


def test_an_evaluation_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "eval.jsonl"
    whole = evaluate(rightwards, Walk, episodes=20, seed=4, executor="inline", log=path, resume=True)
    lines = path.read_text().splitlines(keepends=True)
    # The writer died within a line, which was longer than all that will be written there.
    path.write_text("".join(lines[:8]) + lines[8][:13] + " " * 10_000)
    again = evaluate(rightwards, Walk, episodes=20, seed=4, num_envs=3, executor="inline", log=path, resume=True)
    assert again.fingerprint() == whole.fingerprint()
    assert path.read_text().splitlines(keepends=True)[:8] == lines[:8]
    assert sorted(path.read_text().splitlines()) == sorted("".join(lines).splitlines())
    more = evaluate(rightwards, Walk, episodes=25, seed=4, executor="inline", log=path, resume=True)
    assert more.digests[:20] == whole.digests and len(more) == 25


SCRIPT = """
import sys, time
from evaluated import Walk, rightwards
from reactor_gymnasium import evaluate

class Slow(Walk):
    def step(self, action):
        time.sleep(0.001)
        return super().step(action)

Slow.__name__ = "Walk"
report = evaluate(rightwards, Slow, episodes=40, seed=4, num_envs=4, workers=2, executor="processes", log=sys.argv[1], resume=True)
print(report.fingerprint())
"""


@pytest.mark.slow
def test_an_evaluation_that_was_killed_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "eval.jsonl"
    expected = evaluate(rightwards, Walk, episodes=40, seed=4, executor="inline").fingerprint()
    command = [sys.executable, "-c", SCRIPT, str(path)]
    folder = str(Path(__file__).parent.parent)
    first = subprocess.Popen(command, cwd=folder)
    until = time.monotonic() + 60
    while not path.exists() or path.read_text().count("\n") < 5:
        assert time.monotonic() < until and first.poll() is None
        time.sleep(0.01)
    first.kill()
    first.wait()
    known = path.read_text().count("\n") - 1
    assert 0 < known < 40
    again = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    assert again.stdout.strip() == expected


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.slow
def test_an_error_says_which_episode_it_was(tmp_path: Path) -> None:
    for workers, executor in ((1, "inline"), (2, "processes")):
        with pytest.raises(ArithmeticError, match="too far") as caught:
            evaluate(
                rightwards, Failing, episodes=60, num_envs=4, workers=workers, executor=executor,  # type: ignore[arg-type]
                log=tmp_path / "log",
            )  # fmt: skip
        assert any("raised in episode" in note for note in caught.value.__notes__)
    assert len((tmp_path / "log").read_text().splitlines()) > 2  # the others are not lost


def test_an_endless_episode_is_cut_off() -> None:
    report = evaluate(rightwards, Endless, episodes=3, max_steps=37, executor="inline")
    assert report.lengths.tolist() == [37] * 3 and not report.terminated.any()


class Stuck(Endless):
    """Ends after all, but late."""

    def step(self, action: np.int64) -> Any:
        self.steps = getattr(self, "steps", 0) + 1
        return (*super().step(action)[:2], self.steps % 150 == 0, False, {})


def test_an_episode_that_does_not_end_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a warning, because it may be as long as that."""
    monkeypatch.setattr(program, "LONG", 100)
    with pytest.warns(UserWarning, match="no episode has ended in 100 steps of each environment: pass max_steps="):
        report = evaluate(rightwards, Stuck, episodes=2, num_envs=1, executor="inline")
    assert report.lengths.tolist() == [150] * 2
    evaluate(rightwards, Stuck, episodes=2, num_envs=1, max_steps=120, executor="inline")


@pytest.mark.parametrize(
    ("policy", "error", "message"),
    [
        (lambda seen: np.zeros((len(seen), 2), np.int64), ValueError, r"returned actions of shape \(1, 2\) for 1 observations"),
        (lambda seen: np.zeros(len(seen)), ValueError, "dtype float64; Discrete"),
        (lambda seen: np.full(len(seen), 7), ValueError, r"not in Discrete\(2\)"),
        (Remembering, TypeError, "is the class Remembering; pass an object"),
        (3, TypeError, "policy must be a function"),
    ],
)
def test_what_is_no_policy_is_refused_before_anything_is_played(
    policy: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        evaluate(policy, Walk, episodes=3, log=tmp_path / "log")
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"episodes": 0}, ValueError, "`episodes` must be positive"),
        ({"seed": -1}, ValueError, "`seed` must be at least 0"),
        ({"num_envs": 0}, ValueError, "`num_envs` must be positive"),
        ({"batch_size": 1.5}, ValueError, "`batch_size` must be an integer"),
        ({"max_steps": 0}, ValueError, "`max_steps` must be positive"),
        ({"restarts": -1}, ValueError, "`restarts` must be at least 0"),
        ({"executor": "ray"}, ValueError, "executor must be 'auto', 'inline', 'threads' or 'processes'"),
        ({"record": [3]}, ValueError, "there is no episode 3, but 3 of them"),
        ({"log": None, "resume": True}, ValueError, "resume=True needs log="),
        ({"env": Walk()}, TypeError, "env must be an id, a spec, or a function"),
        ({"env": lambda: 3}, TypeError, "the function returned 3, which is not an environment"),
        ({"env": "Nothing-v0"}, gymnasium.error.Error, "Nothing"),
        ({"timeout": 0}, ValueError, "timeout"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        evaluate(**{"policy": rightwards, "env": Walk, "episodes": 3, **arguments})


def test_a_log_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "eval.jsonl"
    evaluate(rightwards, Walk, episodes=3, seed=4, executor="inline", log=path, resume=True)
    before = path.read_text()
    with pytest.raises(ValueError, match="its seed is 4, here it is 5"):
        evaluate(rightwards, Walk, episodes=3, seed=5, executor="inline", log=path, resume=True)
    assert path.read_text() == before
    path.write_text("hello\n")
    with pytest.raises(ValueError, match="is not a log of an evaluation"):
        evaluate(rightwards, Walk, episodes=3, seed=4, executor="inline", log=path, resume=True)
    assert path.read_text() == "hello\n"


# ---------------------------------------------------------------------- videos


def test_chosen_episodes_are_filmed(tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    report = evaluate(rightwards, partial(Walk, "rgb_array"), episodes=5, record=[1, 4], videos=tmp_path / "v", executor="inline")
    assert set(report.videos) == {1, 4}
    for number, path in report.videos.items():
        with av.open(path) as film:
            assert sum(1 for _ in film.decode(video=0)) == report.lengths[number] + 1
    assert report.fingerprint() == evaluate(rightwards, Walk, episodes=5, executor="inline").fingerprint()


def test_what_renders_nothing_is_not_filmed(tmp_path: Path) -> None:
    pytest.importorskip("av")
    with pytest.raises(ValueError, match='with render_mode="rgb_array"'):
        evaluate(rightwards, partial(Walk, None), episodes=5, record=[1], videos=tmp_path / "v", executor="inline")
    assert not (tmp_path / "v").exists()


def test_the_caller_keeps_its_random_numbers() -> None:
    np.random.seed(3)
    expected = np.random.random(3)
    np.random.seed(3)
    report = evaluate(careless, Walk, episodes=3, executor="inline")
    assert isinstance(report, EvaluationReport)
    assert np.array_equal(np.random.random(3), expected)


def clipped(observations: Any) -> Any:
    """Whole numbers where it is clipped, as ``max`` and ``min`` give them."""
    return [[max(-2, min(2, -5 * speed))] for _, _, speed in observations.tolist()]


def test_numbers_that_are_whole_now_and_then() -> None:
    reports = [evaluate(clipped, "Pendulum-v1", episodes=3, seed=0, num_envs=n, executor="inline") for n in (1, 3)]
    assert reports[0].fingerprint() == reports[1].fingerprint()


class Starting:
    """Without a state: it asks only whether an episode begins."""

    def predict(self, observations: Any, episode_start: Any = None, deterministic: bool = True) -> Any:
        self.asked.append(np.array(episode_start))
        return np.where(episode_start, 1, 0), None

    def __init__(self) -> None:
        self.asked: list[Any] = []


def test_a_policy_is_told_where_episodes_begin() -> None:
    policy = Starting()
    report = evaluate(policy, Walk, episodes=6, seed=0, num_envs=2, batch_size=2, executor="inline")
    starts = np.concatenate(policy.asked[-int(report.lengths.sum()) :])
    assert 0 < starts.sum() < len(starts) / 2


class Telling(Walk):
    """Its last info has names that reports have, too."""

    def step(self, action: Any) -> Any:
        *others, info = super().step(action)
        return (*others, {**info, "episode": 17, "length": 5} if info else info)


def test_infos_called_like_columns() -> None:
    pytest.importorskip("pandas")
    table = evaluate(rightwards, Telling, episodes=4, executor="inline").to_dataframe()
    assert table["info.length"].tolist() == [5] * 4 and table["info.episode"].tolist() == [17] * 4
    assert table["episode"].tolist() == [0, 1, 2, 3]


class Unlucky(Walk):
    """Cannot begin one of its episodes."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if seed == seeds_of(0, 8)[5]:
            raise RuntimeError("no such level")
        return super().reset(seed=seed, options=options)


def test_a_reset_that_fails_names_its_episode() -> None:
    with pytest.raises(RuntimeError, match="no such level") as error:
        evaluate(rightwards, Unlucky, episodes=8, seed=0, num_envs=2, executor="inline")
    assert "raised by the reset of episode 5" in error.value.__notes__[0]
