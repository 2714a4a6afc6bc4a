"""A viewer shows the policy as it was, in films that are whole, and changes no bit of the training."""

from __future__ import annotations

import os
import signal
import threading
from copy import deepcopy
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trainers import INLINE, PLACES, PROCESSES, SPACES, Toy, new

from reactor_gymnasium.film import Film, new_file
from reactor_rl import WorkerDiedError
from reactor_sb3 import SyncDQN
from reactor_sb3.acting.viewer import Pace, Show
from reactor_sb3.streams import Purpose, seed_of

SIZE = 32, 48, 3
LENGTH = 7


def _choice(action: Any) -> int:
    """One of three, also of an action that is a number between -2 and 1."""
    return min(int(action[0] + 2), 2) if np.shape(action) else int(action)


class Painted(Toy):
    """Episodes of seven steps; its pictures tell the step by their brightness, and the last action by a stripe."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 25}

    def __init__(self, render_mode: str | None = None, space: gymnasium.Space[Any] = SPACES["box"][1]) -> None:
        super().__init__(space, length=LENGTH, rate=0.0)
        self.render_mode = render_mode

    def reset(self, **kwargs: Any) -> Any:
        self.action = 0
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        self.action = _choice(action)
        return super().step(action)

    def render(self) -> Any:
        picture = np.full(SIZE, 16 * self.t, np.uint8)
        picture[:8] = 80 * self.action
        return picture


class Steered(Painted):
    """Its actions are numbers."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.action_space = spaces.Box(-2, 1, (1,), np.float32)


FITTING = {"dqn": Painted, "pqn": Painted, "ppo": Painted, "sac": Steered, "td3": Steered}


def pictures(path: Path) -> list[Any]:
    """The pictures of a film, by somebody else's reader."""
    if path.suffix == ".gif":
        with Image.open(path) as film:
            return [np.asarray(film.convert("RGB")) for number in range(film.n_frames) if film.seek(number) is None]
    reader = cv2.VideoCapture(str(path))
    found = []
    while True:
        ok, picture = reader.read()
        if not ok:
            return found
        found.append(picture)


def steps_of(path: Path) -> list[int]:
    """The step of an episode that each picture of a film shows."""
    found = pictures(path)
    assert {picture.shape for picture in found} == {SIZE}
    return [round(float(picture[12:].mean()) / 16) for picture in found]


EPISODE = list(range(LENGTH + 1))
WATCHED: dict[str, Any] = {"watch_every": 4, "watch_episodes": 2, "watch_steps": 5}


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# ---------------------------------------------------------------------- films


@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_a_film_of_each_showing(suffix: str, tmp_path: Path) -> None:
    with new("dqn", Painted, watch=tmp_path / f"run{suffix}", **WATCHED) as model:
        model.learn(10 * 32)
        assert [f"run-{steps}{suffix}" in names(tmp_path) for steps in (0, 128, 256, 320)] == [True, True, False, True]
        assert len(names(tmp_path)) == 4  # what is in the making has no name yet
    assert names(tmp_path) == [f"run-{steps}{suffix}" for steps in (0, 128, 256, 320)]
    for steps in (0, 128, 320):
        assert steps_of(tmp_path / f"run-{steps}{suffix}") == 2 * EPISODE
    assert steps_of(tmp_path / f"run-256{suffix}") == EPISODE + EPISODE[:3]  # of which there were two rounds before the end


class Policies(BaseCallback):
    """The policy as it was, by the number of steps that it has learned from, and what normalised its observations."""

    def _on_training_start(self) -> None:
        self.found: dict[int, Any] = {}
        self._on_rollout_end()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        model: Any = self.model
        self.found[model.learned_timesteps] = deepcopy(model.policy), deepcopy(model.get_vec_normalize_env())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "image", "stacked", "normalised", "sac", "td3"])
def test_it_acts_as_the_policy_did(kind: str, tmp_path: Path) -> None:
    """Action by action, on what the policy sees: transposed images, stacked frames, statistics of that time."""
    policy, space = SPACES["image" if kind == "image" else "box"]
    algorithm = kind if kind in FITTING else "dqn"
    env: Any = Steered if algorithm == kind else partial(Painted, space=space)
    if kind in ("stacked", "normalised"):
        env = DummyVecEnv([partial(Painted, "rgb_array")] * 4)
        env = VecFrameStack(env, 3) if kind == "stacked" else VecNormalize(env)
    watching = {**WATCHED, "watch_episodes": 1, "watch_env": Steered if algorithm == kind else None}
    with new(algorithm, env, policy, watch=tmp_path / "run.gif", pipeline=1, **watching) as model:
        model.learn(20 * 32, callback=(policies := Policies()))
    acted: set[tuple[int, ...]] = set()
    alone = DummyVecEnv([Steered if algorithm == kind else partial(Painted, space=space)])
    alike: Any = VecFrameStack(alone, 3) if kind == "stacked" else alone
    for number, steps in enumerate((0, 96, 224, 352, 480)):
        stripes = [round(float(picture[:4].mean()) / 80) for picture in pictures(tmp_path / f"run-{steps}.gif")]
        alone.seed(seed_of(0, Purpose.WATCHING, 0, number))
        observation, expected = alike.reset(), [0]
        learned, normalising = policies.found[steps]
        while len(expected) <= LENGTH:
            seen = observation if normalising is None else normalising.normalize_obs(observation)
            action, _ = learned.predict(seen.transpose(0, 3, 1, 2) if kind == "image" else seen, deterministic=True)
            expected.append(_choice(action[0]))
            observation, *_ = alike.step(action)
        assert stripes == expected
        acted.add(tuple(stripes))
    assert len(acted) > 1  # it has learned something meanwhile


@pytest.mark.parametrize("pipeline", [0, 1])
def test_the_last_showing_is_of_the_trained_agent(pipeline: int, tmp_path: Path) -> None:
    """It is whole when ``learn()`` ends, and comes of each ``learn()``; its folder is made."""
    films = tmp_path / "a" / "b"
    watching = {"watch": films / "run.gif", **WATCHED, "watch_every": 1000, "watch_episodes": 1}
    with new("dqn", Painted, pipeline=pipeline, **watching) as model:
        for number in (1, 2):
            model.learn(number * 320, reset_num_timesteps=False)
            learned = model.learned_timesteps
            alone = DummyVecEnv([Painted])
            alone.seed(seed_of(0, Purpose.WATCHING, 0, 0))
            observation, expected = alone.reset(), [0]
            while len(expected) <= LENGTH:
                action, _ = model.predict(observation, deterministic=True)
                expected.append(int(action[0]))
                observation, *_ = alone.step(action)
            shown = pictures(films / f"run-{learned}.gif")
            assert [round(float(picture[:4].mean()) / 80) for picture in shown] == expected
    assert len(names(films)) == 3


class Endless(Painted):
    """No episode of it ends."""

    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info

    def render(self) -> Any:
        return np.zeros((2, 2, 3), np.uint8)


def test_nobody_waits_for_an_episode_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reactor_sb3.acting.viewer.LONGEST", 30)
    with new("dqn", Endless, watch=tmp_path / "run.gif", watch_steps=1) as model:
        model.learn(64)
        assert len(pictures(tmp_path / "run-64.gif")) == 30


def test_the_usual_slice_is_a_small_one(tmp_path: Path) -> None:
    with new("ppo", "CartPole-v1", n_steps=32, watch=tmp_path / "run.gif") as model:
        viewing: Any = model.program_config().viewing
        assert (viewing.play.steps, viewing.play.every, viewing.play.episodes) == (2, 100, 1)
    assert not names(tmp_path)


@pytest.mark.parametrize(("suffix", "fps", "shape"), [(".gif", 60, (31, 47)), (".mp4", 29.97, (32, 48))])
def test_pictures_of_any_size_and_speed(suffix: str, fps: float, shape: tuple[int, int], tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    film = Film(new_file(path), suffix, fps)
    for brightness in range(0, 250, 50):
        film.add(np.full((31, 47, 3), brightness, np.uint8))
    film.close()
    found = pictures(path)
    assert [picture.shape[:2] for picture in found] == [shape] * 5  # H.264 has even numbers only
    assert [abs(float(picture.mean()) - 50 * number) < 4 for number, picture in enumerate(found)] == [True] * 5
    if suffix == ".gif":
        with Image.open(path) as image:
            assert image.info["duration"] == 20  # ms: what is faster is shown slower
    else:
        assert cv2.VideoCapture(str(path)).get(cv2.CAP_PROP_FPS) == pytest.approx(fps, 1e-3)


@pytest.mark.parametrize(
    ("picture", "error", "message"),
    [
        (None, TypeError, "render.. gave NoneType, and a film consists of"),
        (np.zeros((4, 4), np.uint8), TypeError, r"shape \(4, 4\) and dtype uint8"),
        (np.zeros((4, 4, 3)), TypeError, "dtype float64"),
        (np.zeros((4, 6, 3), np.uint8), ValueError, r"shape \(4, 6, 3\) after others of \(4, 4, 3\)"),
    ],
)
def test_what_is_no_picture(picture: Any, error: Any, message: str, tmp_path: Path) -> None:
    film = Film(new_file(tmp_path / "a.gif"), ".gif", 10)
    film.add(np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(error, match=message):
        film.add(picture)
    assert not names(tmp_path)
    film.close()  # of which there is nothing left
    assert not names(tmp_path)


# ---------------------------------------------------------------------- it changes nothing

HOW: list[dict[str, Any]] = [{"pipeline": 0}, {"pipeline": 1}, {"pipeline": 0, "n_learners": 2}, {"n_learners": 2, "split": True}]


@cache
def unwatched(algorithm: str, how: int) -> str:
    with new(algorithm, FITTING[algorithm], evaluate_every=3, evaluate_episodes=2, **HOW[how]) as model:
        return str(model.learn(320).fingerprint())


@cache
def filmed(algorithm: str, how: int) -> dict[str, bytes]:
    return {}


CASES = [
    *(("dqn", how, place) for how in range(3) for place in PLACES[how % 2 :: 2]),
    *((algorithm, how, place) for algorithm, how in (("pqn", 1), ("ppo", 2), ("sac", 3), ("td3", 1)) for place in PLACES),
]


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "how", "place"), CASES)
def test_no_bit_is_changed(algorithm: str, how: int, place: dict[str, Any], tmp_path: Path) -> None:
    env = FITTING[algorithm]
    watching = {"evaluate_every": 3, "evaluate_episodes": 2, "watch": tmp_path / "run.gif", "watch_env": env, **WATCHED}
    with new(algorithm, env, **{**watching, **HOW[how], **place}) as model:
        assert model.learn(320).fingerprint() == unwatched(algorithm, how)
    films = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    assert len(films) > 1
    first = filmed(algorithm, how)
    assert films == (first or films)  # nor one of the films, by where they are made
    first.update(films)


def test_logs_of_episodes_are_those_of_the_training(tmp_path: Path) -> None:
    """Of evaluations and showings there is none in a Monitor's file, though their environments are copies of one that has it."""
    venv = make_vec_env(Painted, n_envs=4, monitor_dir=str(tmp_path), env_kwargs={"render_mode": "rgb_array"})
    with new(
        "dqn", venv, n_actors=None, watch=tmp_path / "run.gif", evaluate_every=1, evaluate_episodes=1, evaluate_steps=7, **WATCHED
    ) as model:
        model.learn(8 * 32)
        assert len(model.evaluations) == 8
    venv.close()
    for number in range(4):
        assert len((tmp_path / f"{number}.monitor.csv").read_text().splitlines()) == 2 + 64 // LENGTH


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", [0, 1])
def test_checkpoints_know_nothing_of_it(pipeline: int, tmp_path: Path) -> None:
    """A run is resumed with a viewer or without one, whether there was one or not."""
    films, ends = tmp_path / "films", []
    films.mkdir()
    watching = {"watch": films / "run.gif", **WATCHED}
    for before, after in (({}, {}), (watching, {}), ({}, watching), (watching, watching)):
        with new("dqn", Painted, pipeline=pipeline, evaluate_every=3, evaluate_episodes=2, **before) as model:
            model.learn(6 * 32).save_checkpoint(tmp_path / "run.zip")
        with SyncDQN.resume(tmp_path / "run.zip", Painted, **after) as model:
            assert (model.watch is None) == (not after)
            ends.append(model.learn(6 * 32, reset_num_timesteps=False).fingerprint())
    assert len(set(ends)) == 1
    assert "run-192.gif" in names(films) or "run-160.gif" in names(films)


def test_a_saved_model_is_watched_again_when_it_is_told_to(tmp_path: Path) -> None:
    with new("dqn", Painted, watch=tmp_path / "a.gif", **WATCHED) as model:
        model.learn(64).save(tmp_path / "model")
    with SyncDQN.load(tmp_path / "model", Painted) as model:
        assert model.watch is None
        model.watch, model.watch_steps = tmp_path / "b.gif", 100
        model.learn(64)
    assert names(tmp_path) == ["a-0.gif", "a-64.gif", "b-0.gif", "b-64.gif", "model.zip"]


# ---------------------------------------------------------------------- TensorBoard and windows


@pytest.mark.slow
@pytest.mark.parametrize("place", [INLINE, {"executor": "processes", "workers": 2}])
def test_tensorboard_gets_the_film(place: dict[str, Any], tmp_path: Path) -> None:
    with new("ppo", Painted, watch="tensorboard", tensorboard_log=str(tmp_path), **WATCHED, **place) as model:
        model.learn(10 * 64)
        model.logger.close()
    (folder,) = tmp_path.iterdir()
    events = EventAccumulator(str(folder))
    events.Reload()
    shown = events.Images("watch/film")
    assert [one.step for one in shown] == [0, 256, 640]
    assert [(one.height, one.width) for one in shown] == [SIZE[:2]] * 3
    (tmp_path / "film.gif").write_bytes(shown[1].encoded_image_string)
    assert steps_of(tmp_path / "film.gif") == 2 * EPISODE


@pytest.mark.parametrize("env", ["CartPole-v1", Painted, partial(make_vec_env, "CartPole-v1", n_envs=4)])
def test_a_window(env: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the environment's own, or of Gymnasium's where it only has pictures."""
    import pygame

    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    flips: list[bool] = []
    for name in ("flip", "update"):
        do = getattr(pygame.display, name)
        monkeypatch.setattr(pygame.display, name, lambda *args, do=do: (flips.append(pygame.display.get_init()), do(*args)))
    slices: list[int] = []
    steps = Pace.steps
    monkeypatch.setattr(Pace, "steps", lambda *args: slices.append(steps(*args)) or slices[-1])
    if isinstance(env, partial):
        env = env()
    with new("dqn", env, n_actors=None, envs_per_actor=1, watch="human", watch_steps=3) as model:
        model.learn(60 * model.n_envs * 8)
    assert len(flips) >= sum(slices) >= LENGTH and all(flips)
    assert not pygame.display.get_init()  # the window is closed


def test_a_window_takes_no_more_than_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    window = Pace(25)
    assert window.steps(10) == 10
    now += 0.4  # it is shown until then
    shown = 0
    for _ in range(100):  # a second of short rounds
        now += 0.01
        shown += window.steps(10)
    assert shown in (24, 25)
    now += 1.0  # a long round
    assert window.steps(10) in (6, 7)  # a quarter of it


# ---------------------------------------------------------------------- mistakes


class Blind(Toy):
    """Cannot be seen."""


class Mute(Painted):
    """Cannot be told its render mode."""

    def __init__(self) -> None:
        super().__init__()


class Hasty(Painted):
    metadata = {"render_modes": ["rgb_array"], "render_fps": "fast"}


MISTAKES = [
    ({"watch": "run.avi"}, ValueError, r"choose .human., .tensorboard., or a path that ends with .gif or .mp4"),
    ({"watch": 3}, TypeError, "watch=3 is neither a string nor a path"),
    ({"watch": f"{__file__}/run.gif"}, NotADirectoryError, "test_viewer.py is not a folder"),
    ({"watch": "run.gif", "watch_every": 0}, ValueError, "watch_every"),
    ({"watch": "run.gif", "watch_episodes": 1.5}, ValueError, "watch_episodes"),
    ({"watch": "run.gif", "watch_steps": 0}, ValueError, "watch_steps"),
    ({"watch": "run.gif", "env": Blind}, ValueError, 'render mode "rgb_array", and Blind has none'),
    ({"watch": "run.gif", "env": Mute}, ValueError, "Mute with render_mode='rgb_array'.* pass watch_env=lambda: gymnasium.make"),
    ({"watch": "run.gif", "watch_env": "CartPole-v1"}, ValueError, "watch_env has the observation space"),
    ({"watch": "run.gif", "env": Hasty}, ValueError, r"watch='run.gif': metadata..render_fps.. of Hasty must be .* got 'fast'"),
    ({"watch": "human"}, ValueError, 'watch="human" needs a display'),
]


@pytest.mark.parametrize(("arguments", "error", "message"), MISTAKES)
def test_mistakes_are_named_at_once(
    arguments: dict[str, Any], error: Any, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    with pytest.raises(error, match=message):
        new("dqn", **{"env": Painted, **arguments})
    assert not names(tmp_path)


def test_windows_of_macos_are_of_the_main_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ValueError, match='use executor="processes"'):
        new("dqn", Painted, watch="human", executor="threads", workers=2)


def test_tensorboard_without_a_log() -> None:
    with new("dqn", Painted, watch="tensorboard") as model, pytest.raises(ValueError, match='pass tensorboard_log="runs"'):
        model.learn(64)


def test_another_environment_to_watch(tmp_path: Path) -> None:
    seen = {"watch": tmp_path / "run.gif", "watch_env": lambda: Painted("rgb_array")}
    with new("dqn", Mute, **seen, **WATCHED) as model:
        model.learn(4 * 32)
    assert steps_of(tmp_path / "run-0.gif") == 2 * EPISODE


# ---------------------------------------------------------------------- faults


class Fragile(Painted):
    """Its ninth picture cannot be had."""

    def render(self) -> Any:
        self.looks = getattr(self, "looks", 0) + 1
        if self.looks > 8:
            raise ZeroDivisionError("nine")
        return super().render()


@pytest.mark.parametrize("place", PLACES)
def test_what_was_filmed_before_an_error_is_a_whole_film(place: dict[str, Any], tmp_path: Path) -> None:
    with new("dqn", Fragile, watch=tmp_path / "run.gif", **{**WATCHED, **place}) as model:
        with pytest.raises(ZeroDivisionError, match="nine") as caught:
            model.learn(320)
        assert any("viewer" in note for note in caught.value.__notes__)
        assert steps_of(tmp_path / "run-0.gif") == EPISODE
        assert len(names(tmp_path)) == 1


def test_a_film_that_cannot_be_made_at_the_end_is_no_loss(tmp_path: Path) -> None:
    """Of a run whose rounds were over before anything was wrong."""
    with new("dqn", Fragile, watch=tmp_path / "run.gif", **{**WATCHED, "watch_steps": 1}) as model:
        with pytest.warns(UserWarning, match=r"no film of the trained agent, ZeroDivisionError: nine"):
            model.learn(64)
        assert model.num_timesteps == 64
        assert steps_of(tmp_path / "run-64.gif") == EPISODE


class Interrupt(BaseCallback):
    """As Ctrl-C does."""

    def _on_step(self) -> bool:
        if self.n_calls > 8:
            raise KeyboardInterrupt
        return True


@pytest.mark.parametrize("place", [INLINE, PROCESSES])
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_what_was_filmed_before_an_interrupt_too(suffix: str, place: dict[str, Any], tmp_path: Path) -> None:
    with new("dqn", Painted, watch=tmp_path / f"run{suffix}", **{**WATCHED, **place}) as model:
        with pytest.raises(KeyboardInterrupt):
            model.learn(320, callback=Interrupt())
        assert names(tmp_path) == [f"run-0{suffix}"]
        assert steps_of(tmp_path / f"run-0{suffix}") == EPISODE + EPISODE[:3]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals")
@pytest.mark.parametrize("suffix", [".gif", ".mp4"])
def test_no_interrupt_is_lost_in_the_library(suffix: str, tmp_path: Path) -> None:
    """Wherever it comes: a call from FFmpeg back to Python would drop it, and so would an error of PyAV's."""
    film, picture = Film(new_file(tmp_path / "a"), suffix, 25), np.zeros((64, 64, 3), np.uint8)
    film.add(picture)
    struck: list[int] = []

    def strike(*_: Any) -> None:
        struck.append(len(struck))
        raise KeyboardInterrupt

    def film_until_struck(after: float) -> None:
        number, timer = len(struck), threading.Timer(after, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR1))
        timer.start()
        try:
            while len(struck) == number:
                film.add(picture)
        finally:
            timer.join()
            film.count += 1  # it may be written, and not counted

    before = signal.signal(signal.SIGUSR1, strike)
    try:
        for number in range(150):
            with pytest.raises(KeyboardInterrupt):
                film_until_struck(1e-3 + 1e-5 * (number % 100))
    finally:
        signal.signal(signal.SIGUSR1, before)
    film.close()


class Dying(Painted):
    """Ends its process at the ninth picture."""

    def render(self) -> Any:
        self.looks = getattr(self, "looks", 0) + 1
        if self.looks > 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().render()


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_films(tmp_path: Path) -> None:
    """Nothing half-written has a film's name, and what is left is removed by the next viewer."""
    with new("dqn", Dying, watch=tmp_path / "run.gif", **{**WATCHED, "executor": "processes", "workers": 2}) as model:
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            model.learn(320)
    (left,) = names(tmp_path)
    assert left.startswith(".run-0.gif.") and left.endswith(".tmp")
    os.rename(tmp_path / left, tmp_path / left.replace("run-0", "run-96"))  # as of a later showing, that there is no more
    with new("dqn", Painted, watch=tmp_path / "run.gif", **{**WATCHED, "watch_every": 1000}) as model:
        model.learn(320)
    assert names(tmp_path) == ["run-0.gif", "run-320.gif"]


@pytest.mark.parametrize(("algorithm", "env"), [("dqn", "CartPole-v1"), ("ppo", "FrozenLake-v1"), ("td3", "Pendulum-v1")])
def test_an_environment_that_kernels_step_is_shown_as_it_is(
    algorithm: str, env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[int, str]] = []

    def take(self: Any, env: Any) -> None:
        inner = env.unwrapped
        shown.append((env.get_wrapper_attr("_elapsed_steps"), str(getattr(inner, "state", getattr(inner, "s", None)))))

    monkeypatch.setattr(Show, "take", take)
    maker = partial(gymnasium.make, env, render_mode="rgb_array")
    with new(algorithm, env=maker, watch=tmp_path / "run.gif", **INLINE) as model:
        model.learn(64)
    pairs = [*pairwise(shown)]
    assert len(pairs) > 6
    assert all(after[0] in (0, before[0] + 1) for before, after in pairs)
    if env != "FrozenLake-v1":  # who may stay where it is
        assert all(after[1] != before[1] for before, after in pairs if after[0])
    assert len({state for _, state in shown}) > 2
