"""Atari games whose screens are not fetched: nothing that a user can see tells so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation, OrderEnforcing, RecordEpisodeStatistics, TimeLimit
from places import INLINE, PROCESSES, THREADS
from stable_baselines3.common import atari_wrappers
from stable_baselines3.common.atari_wrappers import AtariWrapper, FireResetEnv, MaxAndSkipEnv, StickyActionEnv, WarpFrame
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.atari import unseen
from reactor_gymnasium.cli import doctor
from reactor_gymnasium.environments.bypass import WrapperBypass
from reactor_gymnasium.native import guards
from reactor_sb3 import ReactorVecEnv, SyncPPO

ale_py = pytest.importorskip("ale_py", reason="ale-py is not installed")
pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
pytestmark = pytest.mark.skipif(unseen.kernel_missing() is not None, reason="the extension is not compiled here")

Env = gymnasium.Env[Any, Any]


@pytest.fixture(autouse=True)
def registered() -> None:
    gymnasium.register_envs(ale_py)


def of_sb3(game: str = "Pong", **kwargs: Any) -> Env:
    return AtariWrapper(Monitor(gymnasium.make(f"{game}NoFrameskip-v4")), **kwargs)


def of_gymnasium(game: str = "Pong", **kwargs: Any) -> Env:
    return FrameStackObservation(AtariPreprocessing(gymnasium.make(f"ALE/{game}-v5", frameskip=1), **kwargs), 2)


def short(limit: int, terminal: bool = True) -> Env:
    """A game whose episodes end in the middle of what is skipped."""
    return AtariWrapper(TimeLimit(gymnasium.make("BreakoutNoFrameskip-v4").unwrapped, limit), 1, terminal_on_life_loss=terminal)


def short_preprocessed(limit: int) -> Env:
    return AtariPreprocessing(TimeLimit(gymnasium.make("ALE/Breakout-v5", frameskip=1).unwrapped, limit), noop_max=1)


def warped_alone(limit: int) -> Env:
    """Without ``FireResetEnv`` an episode begins with the screen itself."""
    return WarpFrame(MaxAndSkipEnv(TimeLimit(gymnasium.make("PongNoFrameskip-v4"), limit), 4))


def levels(env: Any) -> Iterator[Any]:
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def buffers(env: Env) -> list[Any]:
    """What wrappers keep of screens, and everything else that is kept plainly."""
    kept: list[Any] = []
    for level in levels(env):
        own = vars(level)
        kept.append(sorted(name for name in own if name != "_cached_spec"))
        kept += [np.array(own[name]) for name in ("_obs_buffer", "obs_buffer") if name in own]
        kept += [own[name] for name in ("lives", "game_over", "was_real_done", "_elapsed_steps") if name in own]
    return kept


def plain(results: Any) -> Any:
    """Without the seconds that a ``Monitor`` takes."""
    info = {key: value for key, value in results[-1].items() if key != "episode"}
    if "episode" in results[-1]:
        info["episode"] = {key: value for key, value in results[-1]["episode"].items() if key != "t"}
    return [*results[:-1], info]


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


CASES: dict[str, Callable[[], Env]] = {
    **{game: partial(of_sb3, game) for game in ("Pong", "Breakout", "Seaquest")},
    "lives": partial(of_sb3, "Breakout", terminal_on_life_loss=False, clip_reward=False, noop_max=0),
    "two frames": partial(of_sb3, frame_skip=2),
    "three frames": partial(of_sb3, frame_skip=3, action_repeat_probability=0.3),
    "short": partial(short, 47),
    "shorter": partial(short, 18, terminal=False),
    "shortest": partial(short, 9),
    "warped": partial(warped_alone, 30),
    "warped, short": partial(warped_alone, 3),
    "Gymnasium": of_gymnasium,
    "Gymnasium, lives": partial(of_gymnasium, "Breakout", terminal_on_life_loss=True),
    "Gymnasium, scaled": partial(of_gymnasium, "Breakout", scale_obs=True, grayscale_newaxis=True),
    "Gymnasium, two frames": partial(of_gymnasium, frame_skip=2, noop_max=0),
    "Gymnasium, short": partial(short_preprocessed, 27),
    "Gymnasium, shortest": partial(short_preprocessed, 3),
}


KEPT = ("Pong", "three frames", "shorter", "Gymnasium, lives", "Gymnasium, short")
"""In the default set: a game as it comes, skipping of another number of frames, episodes that end on the way, of both libraries."""


@pytest.mark.parametrize("make", [
    pytest.param(make, marks=[pytest.mark.slow] * (name not in KEPT), id=name) for name, make in CASES.items()
])  # fmt: skip
def test_the_same_with_and_without(make: Callable[[], Env]) -> None:
    theirs, held = make(), WrapperBypass(make())
    random, looks = np.random.default_rng(0), np.random.default_rng(1)
    same(theirs.reset(seed=3), held.env.reset(seed=3))
    ends_early = getattr(make, "func", None) in (short, short_preprocessed, warped_alone)
    begun = ended = 0
    for step in range(100):
        if step and looks.random() < 0.3:  # somebody looks, and may not look any more
            held.write_back(0)
            same(buffers(theirs), buffers(held.env))
            if looks.random() < 0.8:
                held.engage()
                begun += held.screens is not None
        action = int(random.integers(theirs.action_space.n))  # type: ignore[attr-defined]
        one, other = theirs.step(action), held.env.step(action)
        same(plain(one), plain(other))
        if one[2] or one[3]:
            ended += 1
            same(theirs.reset(), held.env.reset())
    held.write_back(0)
    same(buffers(theirs), buffers(held.env))
    assert begun > 10
    assert ended > 2 or not ends_early
    theirs.close()
    held.env.close()


# ---------------------------------------------------------------------- where they do not fit


class Looking(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        self.seen = observation
        return observation


class Skipping(MaxAndSkipEnv):
    """A wrapper of the user's own."""


def inside() -> Env:
    return AtariWrapper(Looking(gymnasium.make("PongNoFrameskip-v4")))


def around() -> Env:
    return Looking(of_sb3())


def subclassed() -> Env:
    return WarpFrame(Skipping(gymnasium.make("PongNoFrameskip-v4")))


def patched() -> Env:
    env = of_sb3()
    fetch = env.unwrapped._get_obs  # type: ignore[attr-defined]
    env.unwrapped._get_obs = lambda: 255 - fetch()  # type: ignore[attr-defined]
    return env


def patched_warp() -> Env:
    env = WarpFrame(MaxAndSkipEnv(gymnasium.make("PongNoFrameskip-v4")))
    env.observation = lambda frame: frame[:84, :84, :1]  # type: ignore[method-assign]
    return env


def patched_preprocessing() -> Env:
    env = AtariPreprocessing(gymnasium.make("ALE/Pong-v5", frameskip=1))
    env._get_obs = lambda: np.zeros((84, 84), np.uint8)  # type: ignore[method-assign]
    return env


class Proxy(gymnasium.Env[Any, Any]):
    """Wraps a game, and is not a ``Wrapper``."""

    def __init__(self, env: Env) -> None:
        self.env, self.observation_space, self.action_space = env, env.observation_space, env.action_space

    @property
    def unwrapped(self) -> Any:
        return self.env.unwrapped

    def reset(self, **kwargs: Any) -> Any:
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        frame, *others = self.env.step(action)
        return 255 - frame, *others


def proxied() -> Env:
    return AtariWrapper(Proxy(gymnasium.make("PongNoFrameskip-v4")))


def fire_inside() -> Env:
    """Whose first observation may be from before a reset."""
    return WarpFrame(MaxAndSkipEnv(FireResetEnv(gymnasium.make("BreakoutNoFrameskip-v4"))))


def swapped() -> Env:
    """A picture is made small before what is larger of two is taken."""
    return MaxAndSkipEnv(WarpFrame(gymnasium.make("PongNoFrameskip-v4")))


OTHERS: dict[str, Callable[[], Env]] = {
    "inside": inside, "around": around, "subclassed": subclassed, "patched": patched, "patched warp": patched_warp,
    "patched preprocessing": patched_preprocessing, "proxied": proxied, "fire inside": fire_inside,
    "swapped": swapped, "larger": partial(of_sb3, screen_size=96), "taller screens": partial(of_sb3, "Carnival"),
    "no skipping": partial(of_sb3, frame_skip=1), "grey screens": partial(gymnasium.make, "ALE/Pong-v5", obs_type="grayscale"),
    "Gymnasium, colours": partial(of_gymnasium, grayscale_obs=False), "Gymnasium, one frame": partial(of_gymnasium, frame_skip=1),
}  # fmt: skip


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_others_fetch_their_screens(make: Callable[[], Env]) -> None:
    held = WrapperBypass(make())
    held.env.reset(seed=0)
    for action in (0, 1, 2):
        held.env.step(action)
    held.engage()
    assert held.screens is None and held.final
    held.env.close()


@pytest.mark.parametrize("make", [of_sb3, of_gymnasium])
def test_a_game_that_somebody_else_refers_to_fetches_its_screens(make: Callable[[], Env]) -> None:
    held = WrapperBypass(make())
    held.env.reset(seed=0)
    for level in list(levels(held.env)):
        held.engage()
        assert held.screens is None
        del level
    held.engage()
    assert held.screens is not None
    held.env.close()


def test_kernels_that_are_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    held = WrapperBypass(of_sb3(), kernels=False)
    held.env.reset(seed=0)
    held.engage()
    assert held.screens is None
    held = WrapperBypass(held.env)
    monkeypatch.setenv("REACTOR_RL_KERNELS", "0")
    held.engage()
    assert held.screens is None
    monkeypatch.delenv("REACTOR_RL_KERNELS")
    held.engage()
    assert held.screens is not None
    held.env.close()


@pytest.mark.parametrize("kernels", [True, False])
def test_a_vector_environment_without_kernels_fetches_them(kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(unseen.SkippedScreens, "release", lambda self: None)
    monkeypatch.setattr(unseen.SkippedScreens, "frames", None, raising=False)
    monkeypatch.setattr(unseen.SkippedScreens, "__init__", lambda self, *args: made.append(args))
    envs = ReactorVectorEnv([of_sb3], executor="inline", kernels=kernels)
    envs.reset(seed=0)
    envs.step(np.zeros(1, np.int64))
    assert bool(made) is kernels
    envs.close()


def test_the_first_steps_are_checked() -> None:
    held = WrapperBypass(warped_alone(100))
    held.engage()
    assert held.screens is None and not held.final
    held.env.reset(seed=0)
    held.env.step(0)
    held.engage()
    assert held.screens is not None and held.final
    held.env.close()


@pytest.mark.parametrize("kind", [unseen.SkippedScreens, unseen.PreprocessedScreens])
def test_frames_that_opencv_makes_otherwise_are_not_made(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unseen._untrue.cache_clear()
    assert unseen._untrue(kind) is None
    draw = unseen._Pictures.draw

    def after_looking(self: Any, random: Any) -> None:
        draw(self, random)
        self.colours, self.greys = self.colours[::-1], self.greys[::-1]  # another palette than the one that was learnt

    monkeypatch.setattr(unseen._Pictures, "draw", after_looking)
    unseen._untrue.cache_clear()
    assert "OpenCV makes other frames" in str(unseen._untrue(kind))
    unseen._untrue.cache_clear()


def test_frames_that_cannot_be_compared_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(ale: Any, random: Any) -> bool:
        raise AttributeError("no OpenCV")

    monkeypatch.setattr(unseen.SkippedScreens, "differs", failing)
    unseen._untrue.cache_clear()
    assert unseen._untrue(unseen.SkippedScreens) == "they could not be compared: AttributeError('no OpenCV')"
    unseen._untrue.cache_clear()


def own_method(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self.env.step(0)


CHANGED = [
    (unseen.SkippedScreens, MaxAndSkipEnv, "step"),
    (unseen.SkippedScreens, MaxAndSkipEnv, "reset"),
    (unseen.SkippedScreens, StickyActionEnv, "step"),
    (unseen.SkippedScreens, FireResetEnv, "step"),
    (unseen.SkippedScreens, WarpFrame, "step"),
    (unseen.SkippedScreens, RecordEpisodeStatistics, "step"),
    (unseen.PreprocessedScreens, AtariPreprocessing, "_get_obs"),
    (unseen.PreprocessedScreens, OrderEnforcing, "reset"),
    (unseen.PreprocessedScreens, RecordEpisodeStatistics, "step"),
]


@pytest.mark.parametrize(("kind", "cls", "name"), CHANGED)
@pytest.mark.parametrize("before", [True, False])
def test_classes_that_somebody_has_changed(kind: Any, cls: Any, name: str, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anybody asked, or later."""
    if before:
        monkeypatch.setattr(guards, "_known", set())
    else:
        assert not kind.changed()
    unseen._untrue.cache_clear()
    monkeypatch.setattr(cls, name, own_method, raising=False)
    if before:
        assert "somebody has" in str(unseen._untrue(kind))
    else:
        assert name in str(kind.changed())
    monkeypatch.undo()
    unseen._untrue.cache_clear()
    assert unseen._untrue(kind) is None


@pytest.mark.slow
def test_the_doctor_says_so() -> None:
    assert "fetches no screen" in doctor._bypass(of_sb3)
    assert "all of which" in doctor._bypass(partial(of_sb3, screen_size=96))


# ---------------------------------------------------------------------- in a vector environment


PLACES = [INLINE, THREADS, PROCESSES | {"workers": 3}]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_a_user_sees_of_a_vector_environment(place: dict[str, Any]) -> None:
    fns = [partial(of_sb3, "Breakout", noop_max=number + 2) for number in range(3)]
    ours, theirs = ReactorVecEnv(fns, **place), DummyVecEnv(fns)  # type: ignore[arg-type]
    ours.seed(5), theirs.seed(5)
    same(ours.reset(), theirs.reset())
    random = np.random.default_rng(0)
    for step in range(60):
        actions = random.integers(0, 4, 3)
        one, other = ours.step(actions), theirs.step(actions)
        same(list(one[:3]), [np.array(part) for part in other[:3]])
        for info, expected in zip(one[3], other[3], strict=True):
            same(plain([info]), plain([expected]))
        if step % 20 == 13:
            same(ours.get_attr("_obs_buffer"), theirs.get_attr("_obs_buffer"))
            same(ours.env_method("_get_obs"), theirs.env_method("_get_obs"))
    ours.close()
    theirs.close()


@pytest.mark.parametrize("place", [INLINE, pytest.param(PROCESSES, marks=pytest.mark.slow)], ids=str)
def test_a_training_learns_the_same(place: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []
    made = 0
    small = {"net_arch": [8], "features_extractor_kwargs": {"features_dim": 16}}
    for switch in ("0", "1"):
        monkeypatch.setenv("REACTOR_RL_KERNELS", switch)
        init = unseen.SkippedScreens.__init__

        def counted(self: Any, *args: Any) -> None:
            nonlocal made
            made += 1
            init(self, *args)  # noqa: B023

        monkeypatch.setattr(unseen.SkippedScreens, "__init__", counted)
        env = VecFrameStack(make_atari_env("BreakoutNoFrameskip-v4", n_envs=2, seed=1), 4)
        with SyncPPO("CnnPolicy", env, n_steps=32, batch_size=32, n_epochs=1, seed=0, policy_kwargs=small, **place) as model:
            model.learn(128)
            weights.append({name: value.numpy().copy() for name, value in model.policy.state_dict().items()})
        if switch == "0":
            assert not made
        monkeypatch.undo()
    same(*weights)
    assert made or place["executor"] == "processes"


def test_a_class_that_is_changed_later_is_minded(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = ReactorVecEnv([of_sb3, of_sb3], executor="inline")
    envs.reset()
    for _ in range(3):
        assert envs.step([0, 0])[0].any()
    monkeypatch.setattr(atari_wrappers.WarpFrame, "observation", lambda self, frame: np.zeros((84, 84, 1), np.uint8))
    assert not envs.step([0, 0])[0].any()
    monkeypatch.undo()
    assert envs.step([0, 0])[0].any()
    envs.close()
