"""What makes no sense is found before anything is played; what goes wrong once all has been played costs no report."""

from __future__ import annotations

import enum
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from evaluated import Keyed, Walk, rightwards

from reactor_gymnasium import ReactorVectorEnv, evaluate, make_vec


class Asked:
    """A policy that counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, observations: Any) -> Any:
        self.times += 1
        return rightwards(observations)


# ---------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": None}, "env must be an id, a spec, or a function"),
        ({"episodes": "3"}, "`episodes` must be an integer, got '3'"),
        ({"seed": 1.5}, "`seed` must be an integer, got 1.5"),
        ({"num_envs": "2"}, "`num_envs` must be an integer, got '2'"),
        ({"batch_size": True}, "`batch_size` must be an integer, got True"),
        ({"deterministic": "yes"}, "deterministic must be True or False, got 'yes'"),
        ({"max_steps": "9"}, "`max_steps` must be an integer, got '9'"),
        ({"log": 3}, "log must be a path, got 3"),
        ({"resume": "a"}, "resume must be True or False, got 'a'; the file is log="),
        ({"record": 0}, "record must be a sequence of numbers of episodes, such as \\[0\\], got 0"),
        ({"record": "01"}, "record must be a sequence of numbers"),
        ({"record": np.array(0)}, "record must be a sequence of numbers"),
        ({"record": [1.5]}, "`record` must be an integer, got 1.5"),
        ({"record": [-1]}, "`record` must be at least 0, got -1"),
        ({"videos": None}, "videos must be the path of a folder, got None"),
        ({"progress_bar": "no"}, "progress_bar must be True or False, got 'no'"),
    ],
)
def test_a_wrong_argument_is_named_before_the_policy_is_asked(arguments: dict[str, Any], message: str) -> None:
    policy = Asked()
    with pytest.raises((TypeError, ValueError, RuntimeError), match=message):
        evaluate(**{"policy": policy, "env": Walk, "episodes": 3, **arguments})
    assert not policy.times


def made(**more: Any) -> Any:
    return make_vec(**{"id": "CartPole-v1", "num_envs": 2, "executor": "inline", **more})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            ({"id": one}, "id must be the id of an environment or an EnvSpec, got")
            for one in (None, 3, b"CartPole-v1", Walk, ["a"])
        ),
        *(({"num_envs": one}, "`num_envs` must be an integer, got") for one in (None, 2.0, "2", [2], True)),
        *(({"num_envs": one}, "`num_envs` must be positive: .*at least one environment, got") for one in (0, -1, np.int64(0))),
        ({"wrappers": 3}, "wrappers must be a sequence of functions of an environment, got 3"),
        ({"wrappers": [3]}, "wrappers must be a sequence of functions of an environment, got \\[3\\]"),
        ({"wrappers": gymnasium.wrappers.TimeAwareObservation}, "wrappers must be a sequence of functions of an environment"),
        ({"vector_kwargs": 3}, "vector_kwargs must be a dict of keywords, got 3"),
        ({"preprocess": "yes"}, "preprocess must be True or False, got 'yes'"),
        ({"num_envs": 0, "shards": 1}, "`num_envs` must be positive: "),
        *(({one: "x"}, f"{one} must be True or False, got 'x'") for one in ("kernels", "copy", "shared_memory", "daemon")),
    ],
)
def test_a_wrong_argument_of_make_vec_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        made(**arguments)


def test_flags_and_numbers_of_numpy() -> None:
    with made(num_envs=np.int64(3), kernels=np.bool_(False), copy=1) as envs:
        assert envs.num_envs == 3


# ---------------------------------------------------------------------- observations


class Nothing(Walk):
    """Shows nothing in its third step."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        seen, *others = super().step(action)
        return (None if self.steps == 3 else seen, *others)


class NothingAtFirst(Walk):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return None, super().reset(seed=seed, options=options)[1]


class NothingKeyed(Keyed):
    def step(self, action: Any) -> Any:
        return (None, *super().step(action)[1:])


class NothingInPart(Keyed):
    def _seen(self) -> Any:
        return {**super()._seen(), "b": None}


def anything(observations: Any) -> Any:
    return [(1, np.zeros(1, np.float32))] * len(observations["a"])


@pytest.mark.parametrize("env", [Nothing, NothingAtFirst, NothingKeyed, NothingInPart])
def test_an_observation_of_none_is_called_that(env: Any) -> None:
    with pytest.raises(TypeError, match=r"None as the observation|the observation.* is None"):
        evaluate(anything if issubclass(env, Keyed) else rightwards, env, 4, num_envs=2, executor="inline")


def test_an_observation_of_none_in_a_vector_environment() -> None:
    with ReactorVectorEnv([Nothing, Nothing], executor="inline") as envs:
        envs.reset(seed=0)
        for _ in range(2):
            envs.step(np.ones(2, np.int64))
        with pytest.warns(UserWarning, match="None"), pytest.raises(TypeError, match="None as the observation"):
            envs.step(np.ones(2, np.int64))


# ---------------------------------------------------------------------- infos


class Colour(enum.Enum):
    RED = 1


class Whole(enum.IntEnum):
    ONE = 1


class Infos(Walk):
    """Its last info has names and values of all kinds."""

    infos: Any = {
        0: 1.5, "a": 2, None: True, (1, "b"): 3.0, Colour.RED: 4, 2.5: 5, b"c": 6, np.int64(7): 7, np.str_("d"): 8, "0": 9,
        object(): 10, frozenset({1}): 11, "huge": 10**400, "long": 2**70, "text": "x", "none": None, "complex": 1j,
        "array": np.ones(2), "whole": Whole.ONE, "nan": np.float32("nan"), "episode": {"r": [1, 2], "l": "x"},
        "masked": np.ma.masked,
    }  # fmt: skip

    def step(self, action: Any) -> Any:
        *others, over, cut, _ = super().step(action)
        return *others, over, cut, self.infos if over else {}


@pytest.mark.slow
def test_infos_of_any_name_and_value_cost_no_report(tmp_path: Path) -> None:
    path = tmp_path / "log"
    report = evaluate(rightwards, Infos, 4, executor="inline", log=path, resume=True)
    assert report.returns.tolist() == evaluate(rightwards, Walk, 4, executor="inline").returns.tolist()
    assert set(report.infos) == {"0", "a", "None", "(1, 'b')", "Colour.RED", "2.5", "b'c'", "7", "d", "long", "whole", "nan"}
    assert report.infos["0"].tolist() == [9] * 4 and report.infos["None"].dtype == np.bool_
    assert "Colour.RED" in str(report) and "Colour.RED" in report._repr_html_()
    assert evaluate(rightwards, Infos, 4, executor="inline", log=path, resume=True).fingerprint() == report.fingerprint()
    assert all(json.loads(line) for line in path.read_text().splitlines())
    assert evaluate(rightwards, Infos, 4, num_envs=2, workers=2, executor="processes").fingerprint() == report.fingerprint()


# ---------------------------------------------------------------------- videos


class Filmed(Walk):
    metadata: Any = {"render_modes": ["rgb_array"], "render_fps": 20}

    def __init__(self) -> None:
        super().__init__("rgb_array")


class NoPicture(Filmed):
    def render(self) -> Any:
        return None


class Grey(Filmed):
    def render(self) -> Any:
        return np.zeros((8, 8), np.uint8)


class Empty(Filmed):
    def render(self) -> Any:
        return np.zeros((0, 8, 3), np.uint8)


class Raising(Filmed):
    def render(self) -> Any:
        raise ArithmeticError("no display")


def of_fps(fps: Any) -> Any:
    class OfFps(Filmed):
        metadata: Any = {"render_modes": ["rgb_array"], "render_fps": fps}

    return OfFps


BEFORE: dict[str, tuple[Any, str]] = {
    "nothing": (NoPicture, "record: of NoPicture no video can be made: render\\(\\) gave NoneType"),
    "grey": (Grey, "record: of Grey no video can be made: render\\(\\) gave an array of shape \\(8, 8\\)"),
    "empty": (Empty, "record: of Empty no video can be made"),
    "raising": (Raising, "no display"),
    "no mode": (partial(Walk, None), 'with render_mode="rgb_array"'),
    **{
        f"{fps} pictures": (of_fps(fps), 'record: metadata\\["render_fps"\\] of OfFps must be')
        for fps in (-3, "x", np.nan, 1e9, [3])
    },
}


@pytest.mark.parametrize("name", BEFORE)
def test_what_cannot_be_filmed_is_found_before_the_policy_is_asked(tmp_path: Path, name: str) -> None:
    pytest.importorskip("av")
    env, message = BEFORE[name]
    policy = Asked()
    with pytest.raises((ValueError, ArithmeticError), match=message):
        evaluate(policy, env, 3, executor="inline", record=[0], videos=tmp_path / "videos")
    assert not policy.times


def test_a_folder_that_cannot_take_videos_is_found_before_the_policy_is_asked(tmp_path: Path) -> None:
    pytest.importorskip("av")
    policy = Asked()
    (tmp_path / "file").write_text("x")
    (tmp_path / "full" / "episode-1.mp4").mkdir(parents=True)
    for folder in (tmp_path / "file", tmp_path / "file" / "within", tmp_path / "full"):
        with pytest.raises(OSError, match=f"videos: {folder} cannot take videos"):
            evaluate(policy, Filmed, 3, executor="inline", record=[1], videos=folder)
    assert not policy.times
    assert len(evaluate(policy, Filmed, 3, executor="inline", videos=tmp_path / "file")) == 3  # nothing is recorded


@pytest.mark.parametrize("fps", [None, 0, 0.0, 29.97, np.float32(12.5)])
def test_a_film_of_any_speed(tmp_path: Path, fps: Any) -> None:
    pytest.importorskip("av")
    report = evaluate(rightwards, of_fps(fps), 2, executor="inline", record=[1], videos=tmp_path)
    assert set(report.videos) == {1}


class Later(Filmed):
    """Renders no picture of another size, or of none at all, before an episode of a certain start is played."""

    picture: Any = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self.steps += 1
        return super().step(action)

    def render(self) -> Any:
        return super().render() if self.steps < 2 else self.picture


class Larger(Later):
    picture = np.zeros((40, 32, 3), np.uint8)


class Full(Later):
    def render(self) -> Any:
        if self.steps > 1:
            raise OSError(28, "No space left on device")
        return super().render()


class Otherwise(Filmed):
    """Pays otherwise where it is rendered."""

    rendered = False

    def render(self) -> Any:
        self.rendered = True
        return super().render()

    def step(self, action: Any) -> Any:
        seen, reward, *others = super().step(action)
        return seen, reward + self.rendered, *others


@pytest.mark.parametrize("env", [Later, Larger, Full, Otherwise])
def test_a_film_that_cannot_be_made_costs_no_report(tmp_path: Path, env: Any) -> None:
    pytest.importorskip("av")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        report = evaluate(rightwards, env, 5, executor="inline", record=[1, 4], videos=tmp_path)
    assert [str(one.message)[:21] for one in told] == ["no video of episode 1", "no video of episode 4"]
    assert report.fingerprint() == evaluate(rightwards, Walk, 5, executor="inline").fingerprint()
    assert not report.videos and not list(tmp_path.iterdir())


def test_one_film_that_cannot_be_made_does_not_keep_others(tmp_path: Path) -> None:
    pytest.importorskip("av")
    lengths = evaluate(rightwards, Walk, 30, executor="inline").lengths
    short, long = int(lengths.argmin()), int(lengths.argmax())

    class TooLong(Later):
        def render(self) -> Any:
            return Filmed.render(self) if self.steps <= lengths[short] else None

    with pytest.warns(RuntimeWarning, match=f"no video of episode {long}"):
        report = evaluate(rightwards, TooLong, 30, executor="inline", record=[short, long], videos=tmp_path)
    assert set(report.videos) == {short}


@pytest.mark.parametrize("env", [partial(gymnasium.make, "CartPole-v1"), Walk])
def test_a_maker_with_another_mode_is_asked_for_pictures(tmp_path: Path, env: Any) -> None:
    pytest.importorskip("av")
    report = evaluate(lambda seen: np.zeros(len(seen), np.int64), env, 1, executor="inline", record=[0], videos=tmp_path)
    assert set(report.videos) == {0}
