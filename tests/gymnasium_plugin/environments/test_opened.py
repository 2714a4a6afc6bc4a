"""Nobody gets at an environment but through ``opened()``, and whoever does sees it as it is, whoever steps it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from every_other import every_other
from gymnasium.envs.toy_text.taxi import TaxiEnv
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics

import reactor_gymnasium
from reactor_gymnasium import ReactorVectorEnv, evaluate
from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.rows import StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.evaluation.episodes import NumberedPlayer
from reactor_gymnasium.film import Film
from reactor_gymnasium.native.compiled import missing
from reactor_rl.plugin import encode
from tests.gymnasium_plugin.native.cases import Counted, same

PLUGINS = Path(reactor_gymnasium.__file__).parents[1]
compiled = pytest.mark.skipif(missing() is not None, reason=str(missing()))

LOOKS: dict[str, tuple[str, ...]] = {
    "CartPole-v1": ("state", "steps_beyond_terminated", "_elapsed_steps", "np_random", "np_random_seed", "render"),
    "Pendulum-v1": ("state", "last_u", "_elapsed_steps"),
    "MountainCar-v0": ("state", "_elapsed_steps"),
    "Acrobot-v1": ("state", "np_random"),
    "FrozenLake-v1": ("s", "lastaction", "_elapsed_steps"),
    "CliffWalking-v1": ("s", "lastaction"),
    "Taxi-v4": ("s", "lastaction", "taxi_orientation", "fickle_step"),
    "Blackjack-v1": ("player", "dealer", "dealer_top_card_suit", "np_random"),
    "HalfCheetah-v5": ("state_vector", "_elapsed_steps", "np_random"),
}
COUNTS = ("episode_returns", "episode_lengths", "episode_count", "return_queue", "length_queue")


def recorded(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    return RecordEpisodeStatistics(gymnasium.make(env_id, max_episode_steps=7, **kwargs))


def made(env_id: str, **kwargs: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(env_id, max_episode_steps=7, **kwargs)


@every_other(env_id=LOOKS, maker=[made, recorded])
def test_whoever_looks_sees_what_is_played(env_id: str, maker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if env_id.startswith("Half"):
        pytest.importorskip("mujoco")
    elif missing() is not None:
        pytest.skip(str(missing()))
    pygame = env_id == "CartPole-v1"
    make = partial(maker, env_id, **({"render_mode": "rgb_array"} if pygame else {}))
    counted = Counted(monkeypatch)
    names = LOOKS[env_id] + (COUNTS if maker is recorded else ())
    seen: list[list[Any]] = []
    for kernels in (True, False):
        envs = ReactorVectorEnv([make] * 2, executor="inline", kernels=kernels, autoreset_mode=AutoresetMode.SAME_STEP)
        envs.reset(seed=1)
        envs.action_space.seed(0)
        shown: list[Any] = []
        for step in range(40):
            envs.step(envs.action_space.sample())
            if step % 6 == 5:
                shown += [[_number(value) for value in envs.call(name)] for name in names]
        envs.close()
        seen.append(shown)
    same(*seen)
    assert counted.taken > 4


def _number(value: Any) -> Any:
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    return [float(one) for one in value] if type(value).__name__ == "deque" else value


# ---------------------------------------------------------------------- nothing else hands out an environment


def reached(thing: Any, path: str, known: set[int]) -> Iterator[str]:
    """Environments that one gets at by public names."""
    if id(thing) in known or isinstance(thing, (type, str, bytes, np.ndarray, np.generic)):
        return
    known.add(id(thing))
    if isinstance(thing, gymnasium.Env):
        yield path
    elif isinstance(thing, dict):
        for key, value in thing.items():
            yield from reached(value, f"{path}[{key!r}]", known)
    elif isinstance(thing, (list, tuple, set)):
        for number, value in enumerate(thing):
            yield from reached(value, f"{path}[{number}]", known)
    elif type(thing).__module__.startswith("reactor_"):
        names = [name for name in dir(thing) if not name.startswith("_") and name != "opened"]
        for name in names:
            value = getattr(thing, name, None)
            if not callable(value) or isinstance(value, gymnasium.Env):
                yield from reached(value, f"{path}.{name}", known)


def block() -> Any:
    found = GymRows(0, AutoresetMode.SAME_STEP)
    found.build([encode(partial(gymnasium.make, "CartPole-v1"))] * 2)
    found.reset({row: {"seed": row} for row in range(2)}, None)
    out = StepBuffers(ObservationLayout(gymnasium.make("CartPole-v1").observation_space, "unsafe"), np.zeros((2, 4), np.float32))
    for _ in range(6):
        found.step(np.zeros(2, np.int64), out)
    return found


def player() -> Any:
    env = gymnasium.make("CartPole-v1")
    maker = encode(partial(gymnasium.make, "CartPole-v1"))
    layout = ObservationLayout(env.observation_space, "unsafe")
    found = NumberedPlayer(GymRows(0, AutoresetMode.SAME_STEP), (maker,), layout, env.action_space, None)
    found.queue.append(0)
    found.begin(None)
    for _ in range(6):
        found.step(np.zeros(1, np.int64), None)
    return found


@compiled
@pytest.mark.parametrize("make", [block, player])
def test_no_public_name_hands_out_an_environment(make: Any) -> None:
    thing = make()
    held = thing if isinstance(thing, GymRows) else thing.rows
    assert held.stepper.startswith("stepped by")
    assert [*reached(thing, make.__name__, set())] == []
    held.close()


@pytest.mark.slow
def test_nobody_reaches_for_what_rows_hold() -> None:
    """What holds environments is named in the files alone that step them."""
    found, private = [], ("._takeover", "._envs.held", "._envs.targets")
    last = {name.rpartition(".")[2] for name in private}
    for file in PLUGINS.glob("reactor_*/**/*.py"):
        if file.name in ("bypass.py", "gym_rows.py", "takeover.py"):
            continue
        nodes = ast.walk(ast.parse(file.read_text()))
        attributes = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in last]
        found += [f"{file.name}:{node.lineno}" for node in attributes if ast.unparse(node).endswith(private)]
    assert found == []


def steps(held: GymRows, count: int) -> None:
    for _ in range(count):
        held.step(np.array([0]), None)


@compiled
def test_nobody_looks_within_the_step_of_a_kernel() -> None:
    found = GymRows(0, AutoresetMode.SAME_STEP, seeds=lambda row: {"seed": 1})

    def look(row: int, info: Any) -> Any:
        with found.opened() as envs:
            states.append(envs[row].unwrapped.state.copy())  # type: ignore[attr-defined]
        return info

    states: list[Any] = []
    for kept in (False, True):
        found = GymRows(0, AutoresetMode.SAME_STEP, seeds=lambda row: {"seed": 1})
        found.build([encode(partial(gymnasium.make, "CartPole-v1", max_episode_steps=12))])
        found.reset({0: {"seed": 1}}, None)
        found.before_reset = look
        if kept:
            found.keep_from_kernels("somebody looks")
            steps(found, 11)
            assert states and abs(states[0][2]) > 0.2 and not found.failures  # as the episode ended
            assert "somebody looks" in found.stepper
        else:
            with pytest.raises(RuntimeError, match="keep_from_kernels"):
                steps(found, 11)
        found.close()


def test_it_is_left_out_again_after_somebody_has_looked() -> None:
    """Even by somebody whose variables still refer to an environment when ``opened()`` ends."""
    found = GymRows(0, AutoresetMode.SAME_STEP, kernels=False)
    found.build([encode(partial(gymnasium.make, "CartPole-v1"))] * 2)

    def look() -> None:
        with found.opened() as envs:
            for env in envs:
                env.reset(seed=1)
                assert env.unwrapped is not env

    look()
    for _ in range(3):
        found.step(np.array([0, 1]), None)
    assert found.bypassed == [True, True]
    look()
    found.step(np.array([0, 1]), None)
    assert found.bypassed == [True, True]
    found.close()


# ---------------------------------------------------------------------- evaluate


class Uphill:
    """Takes the first action that is allowed, and notes whether the masks are those of what it sees."""

    def __init__(self) -> None:
        self.right: list[bool] = []
        self.taxi: Any = gymnasium.make("Taxi-v4").unwrapped

    def predict(self, observations: Any, deterministic: bool = True, action_masks: Any = None) -> Any:
        expected = [self.taxi.action_mask(int(state)) for state in observations]
        self.right += [np.array_equal(one, other) for one, other in zip(expected, action_masks, strict=True)]
        return np.array([int(np.flatnonzero(mask)[int(state) % 2]) for state, mask in zip(observations, expected, strict=True)])


def test_evaluate_asks_for_the_masks_of_what_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaxiEnv, "action_masks", lambda self: self.action_mask(self.s), raising=False)
    policy = Uphill()
    evaluate(policy, "Taxi-v4", 2, num_envs=2, max_steps=30, executor="inline")
    assert len(policy.right) > 30 and all(policy.right)


def test_the_videos_of_evaluate_show_what_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(Film, "add", lambda self, picture: shown.append(picture))
    monkeypatch.setattr(Film, "close", lambda self: None)
    report = evaluate(
        lambda observations: np.zeros(len(observations), np.int64), "CartPole-v1", 1, record=[0], videos=tmp_path, executor="inline"
    )
    del shown[0]  # a picture is tried before the first step
    assert len(shown) == report.lengths[0] + 1 > 6
    assert sum(bool((one != other).any()) for one, other in pairwise(shown)) > 0.6 * len(shown)  # at first it hardly moves
