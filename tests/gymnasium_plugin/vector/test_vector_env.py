"""The interface of ``ReactorVectorEnv``: what it returns and keeps, what it refuses, how calls begin and end."""

from __future__ import annotations

import multiprocessing
import pickle
import threading
import time
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same
from envs import Facts, Samples, label
from gates import TIMEOUT, Gates
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, CustomSpaceError, NoAsyncCallError
from gymnasium.vector import AutoresetMode
from places import INLINE, PROCESSES, THREADS

from reactor_gymnasium import ReactorVectorEnv

PLACES = [INLINE, THREADS]
BOX = spaces.Box(-1, 1, (2,), np.float32)


def facts(n: int, **kwargs: Any) -> list[Any]:
    return [partial(Facts, i, **kwargs) for i in range(n)]


def zeros(n: int) -> Any:
    return np.zeros(n, np.int64)


# ---------------------------------------------------------------------- what is returned


@pytest.mark.parametrize("place", [*PLACES, PROCESSES], ids=str)
@pytest.mark.parametrize("space", [BOX, spaces.Dict(a=BOX, b=spaces.Text(3)), spaces.Tuple((BOX, spaces.Discrete(3)))], ids=str)
def test_copies_are_yours(space: Any, place: dict[str, Any]) -> None:
    with ReactorVectorEnv([partial(Samples, space)] * 3, **place) as envs:
        given: list[Any] = [envs.reset(seed=0)]
        given += [envs.step(zeros(3)) for _ in range(4)]
        before = pickle.dumps(given)
        for _ in range(4):
            envs.step(zeros(3))
        assert pickle.dumps(given) == before
        first = given[0][0]
        (first if isinstance(first, np.ndarray) else first["a"] if isinstance(first, dict) else first[0])[:] = 9  # writable


@pytest.mark.parametrize("place", [*PLACES, PROCESSES], ids=str)
def test_without_copies_the_buffer_is_the_same_each_time(place: dict[str, Any]) -> None:
    with ReactorVectorEnv(facts(3), copy=False, **place) as envs:
        buffer, _ = envs.reset(seed=0)
        for step in range(1, 3):
            observations, rewards, terminations, truncations, _ = envs.step(zeros(3))
            assert observations is buffer
            assert buffer[2].tolist() == [2, 2, step, 1, step]
            kept = [array.copy() for array in (rewards, terminations, truncations)]
            envs.step(zeros(3))
            assert_same([rewards, terminations, truncations], kept)
            envs.reset(seed=0)
            envs.set_attr("total", step)
        buffer[:] = 0  # as AsyncVectorEnv's, it may be written into
    with ReactorVectorEnv([partial(Samples, spaces.Dict(a=BOX))] * 2, copy=False, **place) as envs:
        first, _ = envs.reset(seed=0)
        second = envs.step(zeros(2))[0]
        assert first["a"] is second["a"] or np.shares_memory(first["a"], second["a"])


def test_metadata_is_a_copy() -> None:
    before = dict(Facts.metadata)
    with ReactorVectorEnv(facts(2), executor="inline", autoreset_mode="SameStep") as envs:
        assert envs.metadata == {**before, "autoreset_mode": AutoresetMode.SAME_STEP}
    assert Facts.metadata == before


def test_repr_says_its_size_and_a_notebook_shows_the_workers() -> None:
    envs = ReactorVectorEnv(facts(3), executor="threads", workers=2)
    shown = ET.fromstring(envs._repr_html_() or "")
    assert shown[0].text == repr(envs) and "worker 1" in "".join(shown[1].itertext())
    assert "num_envs=3" in repr(envs)
    assert "workers=2" in repr(envs)
    envs.close()
    assert "num_envs=3" in repr(envs) and envs._repr_html_() is None


# ---------------------------------------------------------------------- what is shared


def growing(memory: dict[str, int]) -> gymnasium.Env[Any, Any]:
    memory["made"] = memory.get("made", 0) + 1
    env = Facts(memory["made"])
    env.memory = memory
    return env


EVERYWHERE = [{"executor": "auto"}, INLINE, THREADS, PROCESSES, PROCESSES | {"context": "fork"}]


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork.*:DeprecationWarning")
@pytest.mark.parametrize("place", EVERYWHERE, ids=str)
def test_environments_share_nothing(place: dict[str, Any]) -> None:
    shared: dict[str, int] = {}
    with ReactorVectorEnv([partial(growing, shared)] * 3, **place) as envs:
        envs.reset(options={"a": {}})
        assert envs.get_attr("index") == (1, 1, 1)
        assert envs.call("grow_memory") == ({"made": 1, "calls": 1},) * 3
        assert envs.call("grow", "x", {}) == ({"x": 1},) * 3
        envs.set_attr("memory", {"calls": 5})
        assert envs.call("grow_memory") == ({"calls": 6},) * 3
        envs.call("grow", "b", into={})
        assert envs.get_attr("options") == ({"a": {}},) * 3


class ChangesOptions(Facts):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        assert options is not None
        options["seen"] = options.get("seen", 0) + 1
        return super().reset(seed=seed, options=options)


def test_options_are_not_shared() -> None:
    for place in PLACES:
        with ReactorVectorEnv([partial(ChangesOptions, i) for i in range(3)], **place) as envs:
            mine: dict[str, Any] = {"seen": 0}
            envs.reset(options=mine)
            assert mine == {"seen": 0}
            assert envs.get_attr("options") == ({"seen": 1},) * 3


# ---------------------------------------------------------------------- what is refused at the start


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"env_fns": []}, ValueError, "at least one environment"),
        ({"env_fns": [Facts(0)]}, TypeError, r"env_fns\[0\] must be a function that makes a new environment, got <"),
        (
            {"env_fns": [partial(Facts, 0), None]},
            TypeError,
            r"env_fns\[1\] must be a function that makes a new environment, got None",
        ),
        ({"max_concurrency": 0}, ValueError, "`max_concurrency` must be positive"),
        ({"max_concurrency": False}, ValueError, "`max_concurrency` must be an integer"),
        ({"worker": print}, ValueError, "no worker function"),
        ({"observation_mode": "other"}, ValueError, "Invalid `observation_mode`"),
        ({"observation_mode": (BOX, 3)}, TypeError, "to be Spaces"),
        ({"autoreset_mode": "Never"}, ValueError, "Never"),
    ],
    ids=label,
)
def test_bad_arguments(arguments: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ReactorVectorEnv(**{"env_fns": facts(2), **arguments})


@pytest.mark.parametrize("executor", ["inline", "threads", "processes"])
def test_spaces_that_do_not_fit(executor: Any) -> None:
    other = [partial(Samples, BOX), partial(Samples, spaces.Box(-1, 2, (2,)))]
    shape = [partial(Samples, BOX), partial(Samples, spaces.Box(-1, 1, (3,)))]
    actions = [partial(Samples, BOX), partial(Samples, BOX, spaces.Discrete(9))]
    with pytest.raises(RuntimeError, match=r"observation_mode='same'.*Environment 1"):
        ReactorVectorEnv(other, executor=executor, workers=2)
    with pytest.raises(RuntimeError, match=r"common shape and dtype.*environment 1"):
        ReactorVectorEnv(shape, executor=executor, workers=2, observation_mode=(BOX, BOX))
    with pytest.raises(RuntimeError, match=r"Environment 1 has the action space"):
        ReactorVectorEnv(actions, executor=executor, workers=2)


def test_spaces_without_a_layout_need_shared_memory_off() -> None:
    from envs import Named

    with pytest.raises(TypeError, match="has a dynamic shape so its not possible"):
        ReactorVectorEnv([partial(Samples, spaces.Dict(a=spaces.Graph(BOX, None)))], executor="inline")
    with pytest.raises(ValueError, match="shared_memory=False") as raised:
        ReactorVectorEnv([partial(Samples, Named())], executor="inline")
    assert isinstance(raised.value.__cause__, CustomSpaceError)


class Marking(Facts):
    """Leaves a file when it is made and another when it is closed."""

    def __init__(self, index: int, folder: str, fails: int) -> None:
        super().__init__(index)
        self.mark = Path(folder) / f"{index}-{time.monotonic_ns()}"
        if index == fails:
            raise OSError(f"no licence for {index}")
        self.mark.with_suffix(".made").touch()

    def close(self) -> None:
        self.mark.with_suffix(".closed").touch()


@pytest.mark.parametrize("executor", ["inline", "threads", "processes"])
@pytest.mark.parametrize("fails", [0, 3])
def test_construction_that_fails_names_the_environment_and_closes_the_others(executor: Any, fails: int, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"no licence for {fails}") as raised:
        ReactorVectorEnv([partial(Marking, i, str(tmp_path), fails) for i in range(4)], executor=executor, workers=2)
    assert any(f"environment {fails}" in note for note in raised.value.__notes__)
    made, closed = ({path.stem for path in tmp_path.glob(f"*.{end}")} for end in ("made", "closed"))
    assert made == closed
    assert len(made) >= fails


def test_more_workers_than_environments_and_max_concurrency() -> None:
    for workers, most, expected in ((9, None, 3), (3, 1, 1), (3, 2, 2), (np.int64(2), np.int32(5), 2)):
        with ReactorVectorEnv(facts(3), executor="threads", workers=workers, max_concurrency=most) as envs:  # type: ignore[arg-type]
            assert envs.workers == expected
            envs.reset(seed=0)
            assert envs.step(zeros(3))[0][:, 0].tolist() == [0, 1, 2]


# ---------------------------------------------------------------------- what is refused later


BAD_ACTIONS: list[tuple[Any, Any, type[Exception]]] = [
    (spaces.Discrete(3), np.zeros(4, np.int64), ValueError),
    (spaces.Discrete(3), np.zeros(2, np.int64), ValueError),
    (spaces.Discrete(3), np.zeros((3, 1), np.int64), ValueError),
    (spaces.Discrete(3), np.zeros(3, np.float64), ValueError),
    (spaces.Discrete(3), np.array(["a", "b", "c"]), ValueError),
    (spaces.Discrete(3), [0, 1], ValueError),
    (spaces.Discrete(3), [0, 1, 2, 1], ValueError),
    (spaces.Discrete(3), 1, TypeError),
    (spaces.Discrete(3), None, TypeError),
    (spaces.Discrete(3), np.int64(1), TypeError),
    (spaces.Discrete(3), [0, 1, threading.Lock()], TypeError),
    (BOX, np.zeros((3, 3), np.float32), ValueError),
    (BOX, np.zeros((2, 3), np.float32), ValueError),
    (BOX, np.zeros(2, np.float32), ValueError),
    (BOX, np.zeros((3, 2), np.complex128), ValueError),
    (spaces.Dict(a=spaces.Discrete(2)), {"a": np.zeros(2, np.int64)}, ValueError),
    (spaces.Dict(a=spaces.Discrete(2)), {"b": np.zeros(3, np.int64)}, KeyError),
    (spaces.Tuple((spaces.Discrete(2),)), (np.zeros(4, np.int64),), ValueError),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("through", ["step", "step_async"])
@pytest.mark.parametrize(("space", "actions", "kind"), BAD_ACTIONS, ids=label)
def test_bad_actions_change_nothing(space: Any, actions: Any, kind: type[Exception], through: str, place: dict[str, Any]) -> None:
    with ReactorVectorEnv(facts(3, action_space=space), **place) as envs:
        envs.reset(seed=0)
        with pytest.raises(kind):
            getattr(envs, through)(actions)
        assert envs.get_attr("total") == (0, 0, 0)
        assert envs.step(envs.action_space.sample())[0][:, 3].tolist() == [1, 1, 1]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_refused_calls_change_nothing(place: dict[str, Any]) -> None:
    mask = np.array([True, False, False])
    refused: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "length must match num_envs=3 but got length=2", lambda: envs.reset(seed=[1, 2])),
        (TypeError, "seed must be an integer, got 1.5", lambda: envs.reset(seed=1.5)),  # type: ignore[arg-type]
        (TypeError, "seed must be an integer, got 'b'", lambda: envs.reset(seed=[1, "b", 2])),  # type: ignore[list-item]
        (ValueError, "seed must be 0 or greater, got -1", lambda: envs.reset(seed=-1)),
        (ValueError, "seed must be 0 or greater, got -3", lambda: envs.reset(seed=np.array([1, 2, -3]))),
        (TypeError, "numpy array", lambda: envs.reset(options={"reset_mask": [True, False, False]})),
        (ValueError, "must have shape", lambda: envs.reset(options={"reset_mask": mask[:2]})),
        (TypeError, "dtype=np.bool_", lambda: envs.reset(options={"reset_mask": mask.astype(int)})),
        (ValueError, "at least one True", lambda: envs.reset(options={"reset_mask": mask & False})),
        (TypeError, "pickle", lambda: envs.reset(options={"lock": threading.Lock()})),
        (ValueError, "Trying to call function `reset` with `call`", lambda: envs.call("reset")),
        (ValueError, "Trying to call function `step` with `call`", lambda: envs.call("step", 0)),
        (ValueError, "Trying to call function `close` with `call`", lambda: envs.call("close")),
        (TypeError, "pickle", lambda: envs.call("grow", "x", threading.Lock())),
        (ValueError, "length equal to the number of environments", lambda: envs.set_attr("index", [1, 2])),
        (TypeError, "pickle", lambda: envs.set_attr("index", [1, 2, threading.Lock()])),
        (NoAsyncCallError, "reset_async", lambda: envs.reset_wait()),
        (NoAsyncCallError, "step_async", lambda: envs.step_wait()),
        (NoAsyncCallError, "call_async", lambda: envs.call_wait()),
    ]
    with ReactorVectorEnv(facts(3), **place) as envs:
        envs.reset(seed=4)
        envs.step(zeros(3))
        for kind, text, call in refused:
            with pytest.raises(kind, match=text):
                call()
            assert envs.get_attr("index") == (0, 1, 2)
        assert envs.step(zeros(3))[0].tolist() == [[i, 4 + i, 1, 2, 2] for i in range(3)]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_one_call_at_a_time(place: dict[str, Any]) -> None:
    with ReactorVectorEnv(facts(2), **place) as envs:
        begins: dict[str, Any] = {
            "step": lambda: envs.step_async(zeros(2)), "reset": envs.reset_async, "call": lambda: envs.call_async("draw_number"),
        }  # fmt: skip
        ends: dict[str, Any] = {"step": envs.step_wait, "reset": envs.reset_wait, "call": envs.call_wait}
        others: list[Any] = [lambda: envs.step(zeros(2)), envs.reset, lambda: envs.set_attr("index", 1), envs.render]
        envs.reset()
        for name, begin in begins.items():
            begin()
            for again in [*begins.values(), *others]:
                with pytest.raises(AlreadyPendingCallError, match=f"pending call to `{name}`"):
                    again()
            for other in set(ends) - {name}:
                with pytest.raises(NoAsyncCallError):
                    ends[other]()
            ends[name]()


@pytest.mark.parametrize("place", [*PLACES, PROCESSES], ids=str)
def test_nothing_works_after_close(place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv(facts(2), **place)
    envs.reset()
    envs.close()
    envs.close()
    for call in (
        lambda: envs.step(zeros(2)), envs.reset, lambda: envs.call("draw_number"), envs.render, lambda: envs.set_attr("index", 1),
        lambda: envs.step_async(zeros(2)), envs.step_wait, envs.reset_wait, envs.call_wait, envs.draw,
    ):  # fmt: skip
        with pytest.raises(ClosedEnvironmentError, match=r"after a call to `close\(\)`"):
            call()


# ---------------------------------------------------------------------- waiting


class Slow(Facts):
    def __init__(self, index: int, seconds: float) -> None:
        super().__init__(index)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        time.sleep(self.seconds)
        return super().step(action)

    def reset(self, **kwargs: Any) -> Any:
        if self.resets:
            time.sleep(self.seconds)
        return super().reset(**kwargs)


@pytest.mark.parametrize("place", [*PLACES, PROCESSES], ids=str)
def test_after_a_timeout_waiting_again_gives_the_result(place: dict[str, Any], tmp_path: Path) -> None:
    gates = Gates(tmp_path)
    with ReactorVectorEnv(gates.makers(2), **place) as envs:
        envs.reset(seed=0)
        envs.step_async(zeros(2))
        with pytest.raises(multiprocessing.TimeoutError, match=r"`step_wait` has timed out after 0\.01"):
            envs.step_wait(timeout=TIMEOUT)
        with pytest.raises(AlreadyPendingCallError):
            envs.step(zeros(2))
        gates.open(0, 1, name="step-0")
        assert envs.step_wait(timeout=60)[0][:, 3].tolist() == [1, 1]
        envs.reset_async(seed=7)
        with pytest.raises(multiprocessing.TimeoutError, match="`reset_wait` has timed out"):
            envs.reset_wait(timeout=TIMEOUT)
        gates.open_all()
        assert envs.reset_wait()[0][:, 1].tolist() == [7, 8]
        assert envs.step(zeros(2))[0][:, 3].tolist() == [1, 1]


@pytest.mark.parametrize("place", [*PLACES, PROCESSES], ids=str)
def test_closing_while_a_call_is_pending_warns(place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv([partial(Slow, i, 0.05) for i in range(2)], **place)
    envs.reset()
    envs.step_async(zeros(2))
    with pytest.warns(UserWarning, match=r"Calling `close` while waiting for a pending call to `step` to complete\."):
        envs.close()
    assert envs.closed


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_without_the_caller_step_async_returns_at_once(executor: Any, tmp_path: Path) -> None:
    gates = Gates(tmp_path)
    with ReactorVectorEnv(gates.makers(2), executor=executor, workers=2, caller_works=False) as envs:
        envs.reset()
        envs.step_async(zeros(2))  # if it waited for the step, nobody would open the gates
        gates.begun(0, "step-0")
        gates.begun(1, "step-0")
        gates.open(0, 1, name="step-0")
        assert envs.step_wait()[0][:, 3].tolist() == [1, 1]
