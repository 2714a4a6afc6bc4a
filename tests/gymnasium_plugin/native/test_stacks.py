"""Wrappers whose work is done for all rows: every bit and all of their state is what ``SyncVectorEnv`` has."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium import wrappers as gym_wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from places import PROCESSES, THREADS

from reactor_gymnasium import ReactorVectorEnv, evaluate
from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.native import functions, guards, wrappers
from reactor_gymnasium.native.compiled import missing
from reactor_gymnasium.native.functions import clip_bounds
from reactor_gymnasium.native.takeover import Takeover
from reactor_rl.plugin import encode
from tests.gymnasium_plugin.native import stacks
from tests.gymnasium_plugin.native.cases import MODES, same
from tests.gymnasium_plugin.native.stacks import Env, Kept, Robot, Shaped, made, stack, state

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

INLINE: dict[str, Any] = {"workers": 1}
PLACES = [THREADS, *(PROCESSES | {"workers": workers, "caller_works": workers > 1} for workers in (1, 2, 3, 4))]


class Counts:
    """How many steps kernels took, and how many forms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernels = self.forms = 0
        original = Takeover.step

        def step(takeover: Takeover, actions: Any, out: Any) -> bool:
            took = original(takeover, actions, out)
            self.kernels += took
            self.forms += takeover.around is not None
            return took

        monkeypatch.setattr(Takeover, "step", step)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    return Counts(monkeypatch)


def without_times(infos: dict[str, Any]) -> dict[str, Any]:
    for of_ended in (infos, infos.get("final_info", {})):
        of_ended.get("episode", {}).pop("t", None)
    return infos


def drawn(space: Any, draws: np.random.Generator) -> Any:
    if isinstance(space, spaces.MultiDiscrete):
        return draws.integers(0, space.nvec)
    return (draws.normal(size=space.shape) * 2).astype(space.dtype)


def walk(
    make: Callable[[], Env], mode: AutoresetMode, rows: int = 3, steps: int = 90, seed: int = 0, place: Any = INLINE
) -> ReactorVectorEnv:
    """Step ours and Gymnasium's; compare all that they return, and all state at random moments. Returns ours, closed."""
    ours, theirs = ReactorVectorEnv([make] * rows, autoreset_mode=mode, **place), SyncVectorEnv([make] * rows, autoreset_mode=mode)
    draws, look = np.random.default_rng(seed), 20
    try:
        same(ours.reset(seed=seed), theirs.reset(seed=seed), "reset")
        for step in range(steps):
            actions = drawn(theirs.action_space, draws)
            *expected, told = theirs.step(actions)
            *given, infos = ours.step(actions)
            same(given, expected, f"step {step}")
            same(without_times(infos), without_times(told), f"infos of step {step}")
            over = expected[2] | expected[3]
            if mode is AutoresetMode.DISABLED and over.any():
                again = int(draws.integers(1 << 30)) if draws.random() < 0.3 else None
                options = [{"reset_mask": over.copy()} for _ in range(2)]
                same(*[envs.reset(seed=again, options=one) for envs, one in zip((ours, theirs), options, strict=True)])
            if step == look:
                look += int(draws.integers(1, 50))
                states = ours.call_units(state, dict.fromkeys(range(rows), ()))
                for row in range(rows):
                    same(states[row], state(theirs.envs[row]), f"state of row {row} after step {step}")
    finally:
        ours.close()
        theirs.close()
    return ours


def cases(seeds: range) -> list[tuple[str, AutoresetMode, int]]:
    return [(name, MODES[(seed + at) % 3], seed) for seed in seeds for at, name in enumerate(stacks.ENVS)]


def random_stack(name: str, mode: AutoresetMode, seed: int) -> Callable[[], Env]:
    if name == "InvertedPendulum":
        pytest.importorskip("mujoco")
    return partial(stack, name, seed, mode is not AutoresetMode.SAME_STEP)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize(("name", "mode", "seed"), cases(range(3)))
def test_random_stacks(name: str, mode: AutoresetMode, seed: int) -> None:
    walk(random_stack(name, mode, seed), mode, seed=seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("seed", range(3, 23))
@pytest.mark.parametrize("name", stacks.ENVS)
def test_many_random_stacks(name: str, seed: int, mode: AutoresetMode) -> None:
    walk(random_stack(name, mode, seed), mode, seed=seed, steps=150)


def cleanrl(env: Env) -> Env:
    """CleanRL's wrappers of continuous actions."""
    env = gym_wrappers.FlattenObservation(env)
    env = gym_wrappers.RecordEpisodeStatistics(env)
    env = gym_wrappers.ClipAction(env)
    env = gym_wrappers.NormalizeObservation(env)
    env = gym_wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
    env = gym_wrappers.NormalizeReward(env, gamma=0.99)
    return gym_wrappers.TransformReward(env, lambda reward: np.clip(reward, -10, 10))


def pendulum() -> Env:
    return cleanrl(gymnasium.make("Pendulum-v1", max_episode_steps=23))


def robot() -> Env:
    return cleanrl(made(Robot(), 17))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", MODES)
def test_cleanrls_wrappers(mode: AutoresetMode, counts: Counts) -> None:
    """They keep the kernel, and are done without around Python, too."""
    walk(pendulum, mode)
    assert counts.kernels == counts.forms > 80
    walk(robot, mode)
    assert counts.forms > 160 and counts.kernels < 95


def test_functions_that_travel_by_value_are_done_at_once(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a script do: each environment has a copy of its own."""

    def script() -> Env:
        env = gym_wrappers.ClipAction(gymnasium.make("Pendulum-v1", max_episode_steps=23))
        env = gym_wrappers.TransformObservation(env, lambda obs: np.clip(obs, -1, 1), env.observation_space)
        return gym_wrappers.TransformReward(env, lambda reward: np.clip(reward, -2, 0))

    called: list[str] = []
    for form in (functions.EachObservation, functions.EachReward, functions.EachAction):
        name = "inward" if form is functions.EachAction else "outward"
        monkeypatch.setattr(form, name, lambda *args, name=name: called.append(name))
    walk(script, AutoresetMode.NEXT_STEP, steps=40)
    assert counts.kernels > 35 and called == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("make", "place"), [((pendulum, robot)[at % 2], place) for at, place in enumerate(PLACES)])
def test_wherever_rows_are(make: Callable[[], Env], place: dict[str, Any]) -> None:
    walk(make, AutoresetMode.SAME_STEP, rows=5, steps=50, place=place)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", [pendulum, robot])
def test_evaluations_are_the_same(make: Callable[[], Env], counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Episodes that begin by seeds, in rows some of which have no more to do."""
    found = []
    for setting in ("1", "0"):
        monkeypatch.setenv("REACTOR_RL_KERNELS", setting)
        report = evaluate(swing, make, episodes=20, num_envs=6, seed=3, workers=1)
        found.append((report.returns.tolist(), report.lengths.tolist()))
    assert found[0] == found[1]
    assert len(found[0][0]) == 20 and counts.forms > 20


def swing(shown: Any) -> Any:
    shown = np.asarray(shown)
    return np.sign(shown[:, 2:] if shown.shape[1] == 3 else shown[:, :2]).astype(np.float32)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", MODES)
def test_frames_of_another_dtype_are_stacked_in_python(mode: AutoresetMode, counts: Counts) -> None:
    """Of float64 observations a stack is float32, as the space says."""

    def make() -> Env:
        return gym_wrappers.NormalizeReward(gym_wrappers.FrameStackObservation(made(Robot(), 17), 3))

    walk(make, mode, steps=50)
    assert counts.forms > 40


# ---------------------------------------------------------------------- what is left to Python


def inside(wrap: Callable[[Env], Env]) -> Callable[[], Env]:
    return lambda: wrap(gymnasium.make("Pendulum-v1"))


class Mine(gym_wrappers.NormalizeObservation):
    pass


class Looks(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return observation + self.unwrapped.max_speed  # type: ignore[attr-defined]


class Noisy(gymnasium.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> Any:
        return reward + np.random.normal()


class Resets(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return observation

    def reset(self, **kwargs: Any) -> Any:
        return super().reset(**kwargs)


class Shares(gymnasium.ObservationWrapper[Any, Any, Any]):
    table = np.ones(3)

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.scale = self.table

    def observation(self, observation: Any) -> Any:
        return observation * self.scale


COUNTED: list[int] = []


def counting(observation: Any) -> Any:
    COUNTED.append(1)
    return observation


def frozen(env: Env, kind: Any = gym_wrappers.NormalizeObservation) -> Env:
    wrapper: Any = kind(env)
    wrapper.update_running_mean = False
    return wrapper  # type: ignore[no-any-return]


def patched(env: Env) -> Env:
    wrapper: Any = gym_wrappers.ClipAction(env)
    wrapper.action = lambda action: action * 0
    return wrapper  # type: ignore[no-any-return]


def refunctioned(env: Env) -> Env:
    wrapper: Any = gym_wrappers.FlattenObservation(env)
    wrapper.func = counting
    return wrapper  # type: ignore[no-any-return]


def closure(env: Env) -> Env:
    low = env.observation_space.low  # type: ignore[attr-defined]
    return gym_wrappers.TransformObservation(env, lambda obs: np.maximum(obs, low), env.observation_space)


KEEPING: list[Any] = []


def kept_outside(env: Env) -> Env:
    wrapper: Any = gym_wrappers.NormalizeObservation(env)
    KEEPING.append(wrapper.obs_rms)
    return wrapper  # type: ignore[no-any-return]


REASONS: dict[str, tuple[Callable[[Env], Env], str]] = {
    "a wrapper that nobody knows": (Kept, "no row form of Kept: the Pendulum kernel inside of it is not used"),
    "a subclass": (Mine, "no row form of Mine, for its obs_rms is a RunningMeanStd"),
    "frozen statistics": (frozen, "its statistics are frozen"),
    "frozen returns": (partial(frozen, kind=gym_wrappers.NormalizeReward), "its statistics are frozen"),
    "a patched instance": (patched, "its ClipAction has a action of its own"),
    "another function": (refunctioned, "somebody has changed its FlattenObservation"),
    "a closure": (closure, "closure.<locals>.<lambda> is a closure"),
    "a global": (lambda env: gym_wrappers.TransformObservation(env, counting, None), "counting reads the global COUNTED"),
    "a random number": (Noisy, "Noisy.reward mentions random"),
    "the environment": (Looks, "its observation() looks at unwrapped"),
    "another method": (Resets, "it overrides reset"),
    "a shared table": (Shares, "somebody else refers to its scale"),
    "statistics that somebody keeps": (kept_outside, "somebody else refers to its obs_rms"),
    "two limits": (lambda env: gym_wrappers.TimeLimit(env, 50), "it has two time limits"),
    "a recorder in a limit": (
        lambda env: gym_wrappers.TimeLimit(gym_wrappers.RecordEpisodeStatistics(env.env), 50),  # type: ignore[attr-defined]
        "its RecordEpisodeStatistics is inside of a time limit",
    ),
}


@pytest.mark.parametrize("case", REASONS)
def test_python_steps_and_says_why(case: str, counts: Counts) -> None:
    wrap, why = REASONS[case]
    makers = [inside(wrap)] * 2
    try:
        with ReactorVectorEnv(makers, workers=1) as ours:
            theirs = SyncVectorEnv(makers)
            same(ours.reset(seed=0), theirs.reset(seed=0))
            for step in range(12):
                actions = drawn(theirs.action_space, np.random.default_rng(step))
                if case == "a random number":
                    np.random.seed(step)
                expected = theirs.step(actions)
                if case == "a random number":
                    np.random.seed(step)
                same(ours.step(actions), expected, f"step {step}")
            theirs.close()
            assert why.partition(":")[0] in repr(ours)
    finally:
        KEEPING.clear()
    assert counts.kernels == 0


def test_before_the_first_step_the_same_is_said() -> None:
    with ReactorVectorEnv([inside(Kept)] * 2, workers=1) as envs:
        assert REASONS["a wrapper that nobody knows"][1] in repr(envs)


def halved(reward: Any) -> Any:
    return reward / 2


@pytest.mark.parametrize("differing", ["constants", "wrappers"])
def test_rows_that_differ_share_what_they_have(differing: str, counts: Counts) -> None:
    def make(row: int) -> Env:
        env: Env = gym_wrappers.RescaleAction(gymnasium.make("Pendulum-v1"), np.float32(-1), np.float32(1))
        if differing == "wrappers" and row:
            env = gym_wrappers.TransformReward(env, halved)
        env = gym_wrappers.NormalizeReward(env, gamma=0.9 + 0.01 * row if differing == "constants" else 0.9)
        return gym_wrappers.NormalizeObservation(env)

    makers = [partial(make, row) for row in range(3)]
    with ReactorVectorEnv(makers, workers=1) as ours:
        theirs = SyncVectorEnv(makers)
        same(ours.reset(seed=0), theirs.reset(seed=0))
        for step in range(20):
            actions = drawn(theirs.action_space, np.random.default_rng(step))
            same(ours.step(actions), theirs.step(actions), f"step {step}")
        theirs.close()
        says = {"constants": "the constants of their NormalizeReward differ", "wrappers": "their wrappers differ"}
        assert says[differing] in repr(ours)
    assert counts.forms > 10 and counts.kernels == 0


def test_whoever_changes_a_wrapper_class_gets_what_python_makes_of_it(counts: Counts, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = ReactorVectorEnv([pendulum] * 2, workers=1), SyncVectorEnv([pendulum] * 2)
    original = gym_wrappers.NormalizeObservation.observation
    same(ours.reset(seed=0), theirs.reset(seed=0))
    for step in range(30):
        if step == 10:
            taken = counts.kernels
            monkeypatch.setattr(gym_wrappers.NormalizeObservation, "observation", lambda self, obs: original(self, obs) * 2)
        actions = drawn(theirs.action_space, np.random.default_rng(step))
        *given, infos = ours.step(actions)
        *expected, told = theirs.step(actions)
        same((*given, without_times(infos)), (*expected, without_times(told)), f"step {step}")
    assert counts.kernels == taken > 5
    ours.close()
    theirs.close()


def test_under_errors_of_numpy_python_steps(counts: Counts) -> None:
    with ReactorVectorEnv([pendulum] * 2, workers=1) as ours, np.errstate(all="raise"):
        ours.reset(seed=0)
        for _ in range(5):
            ours.step(ours.action_space.sample())
        assert "floating point errors" in repr(ours)
    assert counts.kernels == counts.forms == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("make", [partial(gymnasium.make, "Pendulum-v1", max_episode_steps=23), robot])
@pytest.mark.parametrize("mode", MODES)
def test_time_limits_hold_where_nothing_may_stand_in(
    make: Callable[[], Env], mode: AutoresetMode, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is looked for again and again, and nothing of what was counted is lost."""
    monkeypatch.setenv("REACTOR_RL_KERNELS", "0")
    walk(make, mode)
    assert counts.kernels == counts.forms == 0


def test_another_release_means_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_known", set())
    monkeypatch.setattr(wrappers.NormalizeReward, "written_from", ("0" * 12,))
    guards._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match="NormalizeReward of gymnasium .* is not the one that a faster"):
        envs = ReactorVectorEnv([pendulum] * 2, workers=1)
    with envs:
        assert "no kernel: it was not written from this NormalizeReward" in repr(envs)


@pytest.mark.parametrize("form", wrappers.FORMS.values(), ids=lambda form: form.__name__)
def test_it_was_written_from_this_release(form: Any) -> None:
    """If this fails, there is a new release: compare the class with native/wrappers.py, run the tests, and add the fingerprint."""
    assert form.comes_to().fingerprint in form.written_from


class Wrong:
    """The compiled functions, which are off in the last digit."""

    def __getattr__(self, name: str) -> Any:
        def off(*args: Any) -> Any:
            found = getattr(original, name)(*args)
            out = next(one for one in reversed(args) if isinstance(one, np.ndarray))
            out[...] = np.nextafter(out, out.dtype.type(9))
            return found

        return off


original: Any = wrappers._kernels


@pytest.mark.parametrize("form", [wrappers.NormalizeObservation, wrappers.NormalizeReward])
def test_arithmetic_of_another_machine_is_noticed(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrappers._differs(form) is None
    monkeypatch.setattr(wrappers, "_kernels", Wrong())
    wrappers._differs.cache_clear()
    try:
        assert wrappers._differs(form) is not None
    finally:
        wrappers._differs.cache_clear()


# ---------------------------------------------------------------------- odd values and errors


class Extreme(gymnasium.Env[Any, Any]):
    """Shows what is not finite now and then."""

    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float32)
    steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.normal(size=3), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        shown = self.np_random.normal(size=3)
        if self.steps % 11 == 0:
            shown[1] = (np.inf, np.nan, 1e200)[self.steps // 11 % 3]
        reward = float(self.np_random.normal())
        return shown, (1e300, np.inf, -np.nan)[self.steps // 13 % 3] if self.steps % 13 == 0 else reward, False, False, {}


def extreme(limit: int) -> Env:
    return gym_wrappers.NormalizeReward(gym_wrappers.NormalizeObservation(made(Extreme(), limit)))


@pytest.mark.parametrize("mode", MODES)
def test_numbers_that_are_not_finite_warn_as_in_python(mode: AutoresetMode) -> None:
    said: list[list[str]] = []
    traces: list[Any] = []
    for constructor in (SyncVectorEnv, partial(ReactorVectorEnv, workers=1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            limit = 99 if mode is AutoresetMode.DISABLED else 29
            envs: Any = constructor([partial(extreme, limit)] * 2, autoreset_mode=mode)
            traces.append([envs.reset(seed=0)])
            for step in range(40):
                traces[-1].append(envs.step(drawn(envs.action_space, np.random.default_rng(step))))
            envs.close()
        said.append(sorted(str(one.message) for one in caught if one.category is RuntimeWarning))
    same(traces[1], traces[0])
    assert said[0] == said[1] and len(said[0]) > 5


class Bursts(gymnasium.ObservationWrapper[Any, Any, Any]):
    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.calls = 0

    def observation(self, observation: Any) -> Any:
        self.calls += 1
        if self.calls == 12:
            raise ValueError("enough")
        return observation


class Clashes(Robot):
    def step(self, action: Any) -> Any:
        *others, info = super().step(action)
        return *others, info | {"episode": 3}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: gym_wrappers.NormalizeReward(Bursts(gymnasium.make("Pendulum-v1"))), "enough"),
        (lambda: gym_wrappers.NormalizeObservation(gym_wrappers.RecordEpisodeStatistics(made(Clashes(), 8))), ""),
    ],
    ids=["a function", "a key that an info has"],
)
def test_errors_of_wrappers_are_raised(make: Callable[[], Env], error: str) -> None:
    ours, theirs = ReactorVectorEnv([make] * 2, workers=1), SyncVectorEnv([make] * 2)
    same(ours.reset(seed=0), theirs.reset(seed=0))
    raised: list[tuple[int, BaseException]] = []
    for envs in (ours, theirs):
        for step in range(20):
            try:
                envs.step(np.zeros_like(envs.action_space.sample()))
            except (ValueError, AssertionError) as one:
                raised.append((step, one))
                break
    assert raised[0][0] == raised[1][0] and type(raised[0][1]) is type(raised[1][1]) and str(raised[0][1]) == error
    ours.close()
    theirs.close()


class Fails(Robot):
    """Raises now and then, and takes its next steps all the same."""

    def step(self, action: Any) -> Any:
        if action[0] > 2:
            raise ValueError("too much")
        return super().step(action)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_row_that_fails_leaves_its_wrappers_alone(mode: AutoresetMode) -> None:
    """The others take their step, are reset in it, or end their episode."""
    found: list[list[Any]] = []
    for kernels in (True, False):
        rows = GymRows(0, mode, kernels=kernels)
        rows.build([encode(partial(recorded_fails, 4 + row)) for row in range(4)])
        rows.reset({row: {"seed": row} for row in range(4)}, None)
        trace: list[Any] = []
        failed = 0
        for step in range(80):
            rows.step((np.random.default_rng(step).normal(size=(4, 2)) * 1.1).astype(np.float32), None)
            told = {row: without_times(info) for row, info in rows.infos.items()}
            finals = {row: (last, without_times(info)) for row, (last, info) in rows.finals.items()}
            failures = [(row, str(error)) for row, error in rows.failures]
            failed += bool(failures)
            seen = [rows.observation(row).copy() for row in range(4) if row not in dict(failures)]
            trace.append((seen, [float(reward) for reward in rows.rewards], rows.ended, finals, told, failures))
        trace.append(rows.call(state, dict.fromkeys(range(4), ())))
        rows.close()
        assert failed > 4 and (rows._takeover.at < 2**62) is kernels
        found.append(trace)
    same(found[0], found[1])


def recorded_fails(limit: int) -> Env:
    env: Env = gym_wrappers.RecordEpisodeStatistics(made(Fails(), limit))
    return gym_wrappers.NormalizeReward(gym_wrappers.NormalizeObservation(gym_wrappers.FlattenObservation(env)))


class Flips(gymnasium.ActionWrapper[Any, Any, Any]):
    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.calls = 0

    def action(self, action: Any) -> Any:
        self.calls += 1
        return action.astype(np.float64) if self.calls % 5 == 0 else action


def test_an_action_is_changed_once_where_a_kernel_refuses_it(counts: Counts) -> None:
    """MountainCarContinuous' kernel takes float32 alone."""

    def make() -> Env:
        return Flips(gymnasium.make("MountainCarContinuous-v0"))

    walk(make, AutoresetMode.NEXT_STEP, steps=60)
    assert 0 < counts.kernels < counts.forms


def test_functions_that_were_read_are_not_kept() -> None:
    def made() -> Any:
        env = gymnasium.make("Pendulum-v1")
        return weakref.ref(env), gym_wrappers.TransformObservation(env, lambda obs: obs + env.unwrapped.g, None)  # type: ignore[attr-defined]

    ref, wrapper = made()
    assert "closure" in str(functions.entangled(wrapper.func))
    wrapper.close()
    del wrapper
    gc.collect()
    assert ref() is None


@pytest.mark.parametrize("bounds", [(-10, 10), (-0.5, 3), (0, 1.0)])
def test_np_clip_is_known_by_its_code(bounds: tuple[float, float]) -> None:
    low, high = bounds
    assert clip_bounds(eval(f"lambda x: np.clip(x, {low}, {high})", {"np": np})) is None or low < 0
    assert clip_bounds(lambda obs: np.clip(obs, -10, 10)) == (-10, 10)
    assert clip_bounds(lambda obs: np.clip(obs, -10, 10) + 1) is None
    assert clip_bounds(lambda obs: np.clip(obs, low, high)) is None
    assert clip_bounds(Shaped) is None
