"""Whatever somebody changes, and whenever, a step gives the same with kernels as without."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import acrobot, cartpole, continuous_mountain_car, mountain_car, pendulum, utils
from gymnasium.envs.toy_text import blackjack, frozen_lake, taxi
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.native.compiled import missing
from reactor_gymnasium.native.kernels import choose_kernel
from tests.every_other import in_turn
from tests.gymnasium_plugin.native import cases
from tests.gymnasium_plugin.native.cases import Counted, of_another_release, same

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
    pytest.mark.filterwarnings("ignore"),
]

Change = Callable[[pytest.MonkeyPatch], None]
CLASSES = {
    "CartPole-v1": cartpole.CartPoleEnv, "Pendulum-v1": pendulum.PendulumEnv, "MountainCar-v0": mountain_car.MountainCarEnv,
    "MountainCarContinuous-v0": continuous_mountain_car.Continuous_MountainCarEnv, "Acrobot-v1": acrobot.AcrobotEnv,
    "FrozenLake-v1": frozen_lake.FrozenLakeEnv, "Taxi-v4": taxi.TaxiEnv, "Blackjack-v1": blackjack.BlackjackEnv,
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def known() -> None:
    """Kernels are compared with Python before anything is changed."""
    for env, kind in CLASSES.items():
        assert isinstance(choose_kernel(kind), type) is not of_another_release(env)


def played(env: Any, change: Callable[[ReactorVectorEnv], None], kernels: bool, steps: int = 6) -> tuple[list[Any], str]:
    """What steps bring before and after a change, up to the first error; and who is said to take them."""
    maker = partial(gymnasium.make, env, max_episode_steps=5) if isinstance(env, str) else env
    envs = ReactorVectorEnv([maker] * 2, executor="inline", kernels=kernels)
    space: Any = envs.single_action_space
    random, found = np.random.default_rng(0), [envs.reset(seed=3)]
    try:
        for step in range(8 + steps):
            if step == 8:
                change(envs)
            if isinstance(space, gymnasium.spaces.Discrete):
                found.append(envs.step(random.integers(0, space.n, 2)))
            else:
                found.append(envs.step(random.uniform(space.low, space.high, (2, *space.shape)).astype(np.float32)))
    except Exception as error:
        found.append((type(error), str(error)))
    said = repr(envs)
    envs.close()
    return found, said


# ---------------------------------------------------------------------- code and constants


def code(function: Any, other: Any) -> Change:
    """What ``%autoreload`` does."""
    return lambda patch: patch.setattr(function, "__code__", other.__code__)


def put(home: Any, name: str, value: Any) -> Change:
    return lambda patch: patch.setattr(home, name, value, raising=False)


def stepped(self: Any, action: Any) -> Any:
    return self.reset()[0], 77.0, False, False, {}


class Reloaded(cartpole.CartPoleEnv):
    step = stepped


def wrapped(self: Any, action: Any) -> Any:
    observation, _, *others = self.env.step(action)
    return observation, 5.0, *others


def began(self: Any, *, seed: Any = None, options: Any = None) -> None:
    self._np_random = np.random.default_rng(7)


def looked_up(self: Any, name: str) -> Any:
    return 0.5 if name == "tau" else object.__getattribute__(self, name)


def reset_to_ones(self: Any, *, seed: Any = None, options: Any = None) -> Any:
    return np.ones(4, np.float32), {}


def unset(self: Any, value: Any) -> None:
    pass


class Element:
    """One of a list, as an attribute."""

    def __init__(self, owner: list[Any], index: int) -> None:
        self.owner, self.index = owner, index

    @property
    def value(self) -> Any:
        return self.owner[self.index]

    @value.setter
    def value(self, value: Any) -> None:
        self.owner[self.index] = value


plain_clip, plain_cos = np.clip, np.cos

CHANGES: dict[str, tuple[str, Change]] = {
    "code of step": ("CartPole-v1", code(cartpole.CartPoleEnv.step, stepped)),
    "step": ("CartPole-v1", put(cartpole.CartPoleEnv, "step", stepped)),
    "code of Env.reset": ("CartPole-v1", code(gymnasium.Env.reset, began)),
    "Env.reset": ("Taxi-v4", put(gymnasium.Env, "reset", began)),
    "a property of the class": ("CartPole-v1", put(cartpole.CartPoleEnv, "gravity", property(lambda self: 3.0, unset))),
    "a property of Env": ("CartPole-v1", put(gymnasium.Env, "length", property(lambda self: 3.0, unset))),
    "attributes of the class": (
        "CartPole-v1",
        put(cartpole.CartPoleEnv, "__getattribute__", looked_up),
    ),
    "a function of numpy": ("Pendulum-v1", put(np, "clip", lambda x, low, high: plain_clip(x, low, high) * 0.5)),
    "a ufunc": ("CartPole-v1", put(np, "cos", lambda x: plain_cos(x) * 0.5)),
    "numpy of the module": ("Pendulum-v1", put(pendulum, "np", type("np", (), {**vars(np), "sin": lambda x: x}))),
    "a builtin hidden": ("CartPole-v1", put(cartpole, "bool", lambda x: True)),
    "bounds of resets": ("CartPole-v1", code(utils.maybe_parse_reset_bounds, lambda options, low, high: (0.0, 0.01))),
    "a constant of the module": ("Pendulum-v1", put(pendulum, "DEFAULT_X", 0.1)),
    "code of a helper": ("Pendulum-v1", code(pendulum.angle_normalize, lambda x: x * 2)),
    "code of another method": ("Pendulum-v1", code(pendulum.PendulumEnv._get_obs, lambda self: np.zeros(3, np.float32))),
    "a constant of the class": ("Acrobot-v1", put(acrobot.AcrobotEnv, "LINK_LENGTH_1", 2.0)),
    "another equation": ("Acrobot-v1", put(acrobot.AcrobotEnv, "book_or_nips", "nips")),
    "an element of a list of the class": ("Acrobot-v1", put(Element(acrobot.AcrobotEnv.AVAIL_TORQUE, 0), "value", -3.0)),
    "a helper": ("Acrobot-v1", put(acrobot, "bound", lambda *args: 0.0)),
    "an element of a list of the module": ("Blackjack-v1", put(Element(blackjack.deck, 9), "value", 1)),
    "code of a helper's helper": ("Blackjack-v1", code(blackjack.is_bust, lambda hand: True)),
    "code of what draws": ("FrozenLake-v1", code(frozen_lake.categorical_sample, lambda prob_n, np_random: 0)),
    "what draws": ("Taxi-v4", put(taxi, "categorical_sample", lambda prob_n, np_random: 0)),
    "masks": ("Taxi-v4", code(taxi.TaxiEnv.action_mask, lambda self, state: None)),
    "math of the module": ("MountainCar-v0", put(mountain_car, "math", type("math", (), {"cos": lambda x: 1.0}))),
    "code of a wrapper's step": ("CartPole-v1", code(TimeLimit.step, wrapped)),
    "a wrapper's step": ("MountainCar-v0", put(OrderEnforcing, "step", wrapped)),
    "a wrapper's reset": ("CartPole-v1", put(TimeLimit, "reset", reset_to_ones)),
    "a wrapper's base": ("CartPole-v1", put(gymnasium.Wrapper, "reset", reset_to_ones)),
}
CHANGES = {name: case for name, case in CHANGES.items() if not of_another_release(case[0])}


@in_turn("case", CHANGES, kept=10)
@pytest.mark.parametrize("early", [False, True], ids=["later", "before construction"])
def test_code_and_constants(case: str, early: bool) -> None:
    env, change = CHANGES[case]
    plain, _ = played(env, lambda envs: None, kernels=False)
    results = []
    for kernels in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if early:
                change(patch)
            results.append(played(env, lambda envs: None if early else change(patch), kernels)[0])
    same(*results)
    with pytest.raises(AssertionError):
        same(results[0], plain)


def test_another_class() -> None:
    """What ``%autoreload`` does with the objects of a class."""
    results = []
    for kernels in (True, False):

        def change(_: ReactorVectorEnv) -> None:
            for one in gc.get_referrers(cartpole.CartPoleEnv):
                if type(one) is cartpole.CartPoleEnv:
                    one.__class__ = Reloaded

        results.append(played("CartPole-v1", change, kernels)[0])
    same(*results)
    assert results[0][-1][1].tolist() == [77.0, 77.0]


@pytest.mark.slow
def test_what_is_as_it_was_again_is_stepped_by_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for env, change in CHANGES.values():
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
        counted = Counted(monkeypatch)
        _, said = played(env, lambda envs: None, kernels=True)
        assert counted.taken and "stepped by" in said


# ---------------------------------------------------------------------- constants and states of rows

NAN, INF = float("nan"), float("inf")
ATTRIBUTES: list[tuple[str, dict[str, Any]]] = [
    ("CartPole-v1", {"gravity": NAN}),
    ("CartPole-v1", {"gravity": [9.8, 4.0]}),
    ("CartPole-v1", {"total_mass": 0.0}),
    ("CartPole-v1", {"force_mag": 1e300}),
    ("CartPole-v1", {"force_mag": 10**400}),
    ("CartPole-v1", {"length": "long"}),
    ("CartPole-v1", {"kinematics_integrator": "semi-implicit"}),
    ("CartPole-v1", {"x_threshold": INF}),
    ("CartPole-v1", {"state": np.array([0.0, NAN, 0.0, 1e200])}),
    ("CartPole-v1", {"masspole": -1.0}),
    ("CartPole-v1", {"tau": True}),
    ("CartPole-v1", {"_max_episode_steps": 10**20}),
    ("CartPole-v1", {"_max_episode_steps": INF}),
    ("CartPole-v1", {"_max_episode_steps": 7.5}),
    ("CartPole-v1", {"_max_episode_steps": -3}),
    ("CartPole-v1", {"_max_episode_steps": 0}),
    ("CartPole-v1", {"_max_episode_steps": np.int32(9)}),
    ("CartPole-v1", {"_max_episode_steps": np.float64(9)}),
    ("CartPole-v1", {"_max_episode_steps": NAN}),
    ("CartPole-v1", {"_max_episode_steps": None}),
    ("CartPole-v1", {"_max_episode_steps": "9"}),
    ("CartPole-v1", {"_elapsed_steps": 10**20}),
    ("CartPole-v1", {"_elapsed_steps": -(2**63)}),
    ("CartPole-v1", {"_elapsed_steps": 3.0}),
    ("CartPole-v1", {"_elapsed_steps": np.int64(1)}),
    ("CartPole-v1", {"_elapsed_steps": -5}),
    ("CartPole-v1", {"_elapsed_steps": 2**62}),
    ("MountainCar-v0", {"min_position": 0.7}),
    ("MountainCar-v0", {"max_speed": -0.07}),
    ("MountainCar-v0", {"max_position": NAN}),
    ("MountainCar-v0", {"goal_position": -INF}),
    ("MountainCar-v0", {"min_position": [0.7, -1.2]}),
    ("MountainCarContinuous-v0", {"min_position": 0.7}),
    ("MountainCarContinuous-v0", {"max_speed": -1.0}),
    ("MountainCarContinuous-v0", {"power": NAN}),
    ("MountainCarContinuous-v0", {"min_action": 0.5}),
    ("Pendulum-v1", {"max_speed": -1.0}),
    ("Pendulum-v1", {"max_torque": NAN}),
    ("Pendulum-v1", {"m": 0.0}),
    ("Pendulum-v1", {"l": 1e-200}),
    ("Pendulum-v1", {"g": np.float32(10)}),
    ("Pendulum-v1", {"dt": INF}),
    ("Pendulum-v1", {"state": np.array([1e300, 0.0])}),
    ("Acrobot-v1", {"LINK_MOI": 0.0}),
    ("Acrobot-v1", {"MAX_VEL_1": NAN}),
    ("Acrobot-v1", {"torque_noise_max": 1.0}),
    ("Acrobot-v1", {"AVAIL_TORQUE": [-1.0, 0.0, 2.0]}),
    ("Acrobot-v1", {"LINK_MASS_2": -4.0}),
    ("FrozenLake-v1", {"s": 99}),
    ("FrozenLake-v1", {"initial_state_distrib": np.full(16, NAN)}),
    ("Taxi-v4", {"fickle_probability": NAN}),
    ("Taxi-v4", {"locs": [(0, 0), (0, 4), (4, 0), (4, 4)]}),
    ("Blackjack-v1", {"natural": True}),
    ("Blackjack-v1", {"player": [10.5, 3]}),
]


@in_turn("env, given", ATTRIBUTES, kept=12, ids=lambda value: str(value).replace(" ", ""))
def test_attributes_of_rows(env: str, given: dict[str, Any]) -> None:
    def change(envs: ReactorVectorEnv) -> None:
        for name, value in given.items():
            envs.set_attr(name, value if type(value) is list and name != "AVAIL_TORQUE" and len(value) == 2 else [value] * 2)

    ours, theirs = (played(env, change, kernels)[0] for kernels in (True, False))
    assert_alike(ours, theirs)


def assert_alike(ours: list[Any], theirs: list[Any]) -> None:
    """The same results; an error of the same type and words, but for the names of what raised it."""
    if type(theirs[-1][0]) is type:
        assert ours[-1] == theirs[-1]
    same([found for found in ours if type(found[0]) is not type], [found for found in theirs if type(found[0]) is not type])


@pytest.mark.parametrize("limit", [10**20, 2**62, 2**63, 4])
def test_limits_by_make(limit: Any) -> None:
    maker = partial(gymnasium.make, "Pendulum-v1", max_episode_steps=limit)
    assert_alike(*(played(maker, lambda envs: None, kernels)[0] for kernels in (True, False)))


# ---------------------------------------------------------------------- numpy's error state


def _tell(told: list[Any], *what: Any) -> None:
    told.append(what)


@pytest.mark.parametrize("how", [{"all": "raise"}, {"under": "warn"}, {"all": "ignore"}, {"all": "call"}, {"over": "raise"}])
@pytest.mark.parametrize("around", ["every step", "some steps", "all"])
def test_the_error_state_of_numpy(how: dict[str, Any], around: str) -> None:
    told: list[list[Any]] = [[], []]
    results = []
    for kernels in (True, False):
        envs = ReactorVectorEnv([partial(gymnasium.make, "Pendulum-v1")] * 2, executor="inline", kernels=kernels)
        found: list[Any] = [envs.reset(seed=0)]
        with np.errstate(**(how if around == "all" else {}), call=partial(_tell, told[kernels])):
            try:
                for step in range(14):
                    with np.errstate(**(how if around == "every step" or (around == "some steps" and step > 7) else {})):
                        found.append(envs.step(np.full((2, 1), 1e-30 if step in (3, 10) else 0, np.float32)))
            except FloatingPointError as error:
                found.append((FloatingPointError, str(error)))
        envs.close()
        results.append(found)
    assert told[0] == told[1]
    assert_alike(*results)


# ---------------------------------------------------------------------- actions

ACTIONS: list[tuple[str, Any]] = [
    *[
        (env, actions)
        for env in ("CartPole-v1", "FrozenLake-v1", "Acrobot-v1", "Blackjack-v1")
        for actions in (
            [0, 1],
            (0, 1),
            [True, False],
            [0.0, 1.0],
            ["0", "1"],
            [None, 1],
            [np.array(1), np.array(0)],
            [np.array([1]), np.array([0])],
            [np.int32(1), np.uint8(0)],
            np.array([0, 1], np.int32),
            np.array([0, 1], np.uint8),
            np.array([0.0, 1.0]),
            np.array([True, False]),
            np.array([0, 1], object),
            np.array([0, 99]),
            np.array([-1, 0]),
            np.ma.masked_array([0, 1], [True, False]),
            np.array([0, 1], ">i8"),
            np.array([[0, 1]]),
            np.array([0, 1, 0]),
            np.array([[0, 1]]).view(np.matrix),
            1,
            None,
            np.zeros(4, np.int64)[::2],
        )
    ],
    *[
        (env, actions)
        for env in ("Pendulum-v1", "MountainCarContinuous-v0")
        for actions in (
            [[0.5], [1.0]],
            [0.5, 1.0],
            [np.array([0.5], np.float32)] * 2,
            [np.array(0.5, np.float32)] * 2,
            np.array([0.5, 1.0], np.float32),
            np.array([[0.5], [np.nan]], np.float32),
            np.array([[np.inf], [-np.inf]], np.float32),
            np.array([[1], [0]]),
            np.array([[0.5], [1.0]]),
            np.array([[0.5], [1.0]], np.float16),
            np.array([[0.5], [1.0]], np.float32).view(np.matrix),
            np.ma.masked_array(np.ones((2, 1), np.float32), True),
            np.array([["0.5"], ["1"]]),
            np.array([[0.5], [1.0]], object),
            np.array([[[0.5]], [[1.0]]], np.float32),
            np.ones((2, 2), np.float32),
            np.array([[0.5], [1.0]], ">f4"),
        )
    ],
]


@in_turn("env, actions", ACTIONS, kept=20, ids=lambda value: repr(value)[:40].replace("\n", ""))
def test_odd_actions(env: str, actions: Any) -> None:
    """In the first step, by Python, and in the ninth, by a kernel, the answer is one."""
    for step in (0, 9):
        results = []
        for kernels in (True, False):
            envs = ReactorVectorEnv([partial(gymnasium.make, env)] * 2, executor="inline", kernels=kernels)
            envs.reset(seed=0)
            usual: Any = np.zeros_like(envs.action_space.sample())
            for _ in range(step):
                envs.step(usual)
            try:
                results.append([envs.step(actions)])
            except Exception as error:
                results.append([(type(error), str(error))])
            envs.close()
        assert_alike(*results)


# ---------------------------------------------------------------------- parts that somebody holds


def holding(env_id: str, part: Callable[[Any], Any]) -> Any:
    def make() -> Any:
        env = gymnasium.make(env_id)
        cases.HELD.append(part(env))
        return env

    return make


def change_outcome(outcomes: Any) -> None:
    outcomes[0] = (1.0, np.int64(5), -7, False)


def clear_and_put(row: Any) -> None:
    row.update({action: [(1.0, 5, 1.0, True)] for action in row})


PARTS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a row of P": ("FrozenLake-v1", lambda env: env.unwrapped.P[0], clear_and_put),
    "a list of P": (
        "CliffWalking-v1",
        lambda env: env.unwrapped.P[36][0],
        change_outcome,
    ),
    "first states": ("FrozenLake-v1", lambda env: env.unwrapped.initial_state_distrib, lambda held: np.copyto(held, np.eye(16)[7])),
    "a view of first states": ("Taxi-v4", lambda env: env.unwrapped.initial_state_distrib[:9], lambda held: held.fill(0.1)),
    "a map": ("Taxi-v4", lambda env: env.unwrapped.desc, lambda held: held.fill(b"|")),
    "places": ("Taxi-v4", lambda env: env.unwrapped.locs, lambda held: held.__setitem__(0, (2, 2))),
    "vars": ("CartPole-v1", lambda env: vars(env.unwrapped), lambda held: held.__setitem__("gravity", 1.0)),
    "vars of a wrapper": ("CartPole-v1", lambda env: vars(env), lambda held: held.__setitem__("_max_episode_steps", 9)),
    "a weak reference": ("CartPole-v1", lambda env: weakref.ref(env.unwrapped), lambda held: setattr(held(), "gravity", 1.0)),
    "a weak reference to a wrapper": ("CartPole-v1", weakref.ref, lambda held: setattr(held(), "_max_episode_steps", 9)),
    "a bound method": ("CartPole-v1", lambda env: env.unwrapped.step, lambda held: setattr(held.__self__, "gravity", 1.0)),
    "the action space": ("CartPole-v1", lambda env: env.unwrapped.action_space, lambda held: setattr(held, "n", np.int64(1))),
}
PARTS = {name: case for name, case in PARTS.items() if not of_another_release(case[0])}


@pytest.mark.parametrize("case", PARTS)
def test_parts_that_somebody_holds(case: str) -> None:
    env_id, part, change = PARTS[case]
    results = []
    for kernels in (True, False):
        cases.HELD.clear()

        def change_all(_: ReactorVectorEnv) -> None:
            assert len(cases.HELD) > 2
            for held in cases.HELD[-2:]:
                change(held)

        results.append(played(holding(env_id, part), change_all, kernels)[0])
    cases.HELD.clear()
    assert_alike(*results)


@pytest.mark.parametrize("case", PARTS)
def test_what_somebody_looks_at_is_as_it_is(case: str) -> None:
    """Between steps the holder of a part sees what it is without kernels."""
    env_id, part, _ = PARTS[case]
    seen: list[list[str]] = []
    for kernels in (True, False):
        cases.HELD.clear()
        shown: list[str] = []
        envs = ReactorVectorEnv([holding(env_id, part)] * 2, executor="inline", kernels=kernels)
        envs.reset(seed=0)
        for _ in range(12):
            envs.step(np.zeros(2, np.int64))
            shown += [str(_looked(held)) for held in cases.HELD[-2:]]
        envs.close()
        seen.append(shown)
    cases.HELD.clear()
    assert seen[0] == seen[1]


def _looked(held: Any) -> Any:
    if isinstance(held, weakref.ref):
        held = held()
    held = getattr(held, "__self__", held)
    found = held if isinstance(held, dict) else getattr(held, "__dict__", held)
    return {name: found[name] for name in ("state", "_elapsed_steps") if name in found} if isinstance(found, dict) else found
