"""Batches that take turns: each environment is given and returns what it would alone, in a fixed order, while the caller works."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_like_sync, assert_same, fingerprint, played, rollout, trajectories
from envs import Facts, Samples
from gates import TIMEOUT, Gates
from gymnasium import spaces
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.vector import AutoresetMode
from places import PLACES
from test_vector_env import Slow
from test_vector_env_faults import faulty

from reactor_gymnasium import ReactorVectorEnv, make_vec
from reactor_rl import Program, RunError
from reactor_rl.runtime.worker.observers import Poison

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*You are calling 'step:UserWarning"),  # after the end of an episode, in DISABLED mode
]

N = 8
BOX = spaces.Box(-1, 1, (2,), np.float32)
WORKS: dict[str, list[Callable[[], Any]]] = {
    "CartPole": [partial(gymnasium.make, "CartPole-v1", max_episode_steps=6 + i) for i in range(N)],
    "Blackjack": [partial(gymnasium.make, "Blackjack-v1")] * N,
    "FrozenLake": [partial(gymnasium.make, "FrozenLake-v1")] * N,
    "spaces": [partial(Samples, spaces.Dict(a=BOX, b=spaces.Text(4)), spaces.Discrete(2), length=i % 3 + 1) for i in range(N)],
    "objects": [partial(Samples, spaces.Text(6), spaces.Discrete(2), length=3)] * N,
    "nested infos": [partial(Facts, i, length=i % 3 + 1, infos="nested") for i in range(N)],
    "changing infos": [partial(Facts, i, length=i % 4 + 2, infos="changing") for i in range(N)],
    "joysticks": [partial(Facts, i, action_space=spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2)))) for i in range(N)],
}
CALLER_WORKS = [place | {"caller_works": True} for place in PLACES[1:]]
RNG = np.random.default_rng(0)
ACTIONS = RNG.integers(0, 2, (16, N))


def facts(n: int = N, **kwargs: Any) -> list[Any]:
    return [partial(Facts, i, **{"length": 1000, **kwargs}) for i in range(n)]


def test_what_adds_infos_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with ReactorVectorEnv(facts(4, infos="nested"), batch_size=2, executor="inline") as envs:
        envs.reset(seed=0)
        first = [envs.step(ACTIONS[0, :2])[4] for _ in range(2)]
        monkeypatch.delattr("reactor_gymnasium.environments.infos.VectorEnv")
        again = [envs.step(ACTIONS[0, :2])[4] for _ in range(2)]
    assert [set(infos) for infos in first] == [set(infos) for infos in again] and len(first[0]) > 2


def zeros(n: int) -> Any:
    return np.zeros(n, np.int64)


def actions_for(work: str) -> Any:
    return np.stack([ACTIONS, 1 - ACTIONS], -1) if work == "joysticks" else ACTIONS


class Batches:
    """Hands a vector environment its actions in the form of its batched action space."""

    def __init__(self, envs: Any) -> None:
        self.envs = envs

    def __getattr__(self, name: str) -> Any:
        return getattr(self.envs, name)

    def step(self, actions: Any) -> Any:
        return self.envs.step((actions[:, 0], actions[:, 1]) if actions.ndim == 2 else actions)


def play(work: str) -> Callable[[Any], list[Any]]:
    return lambda envs: trajectories(Batches(envs), actions_for(work), seed=4)


def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, slots hold a pattern before they are written. Those of the batches that wait keep what they have."""
    start = Program.start
    monkeypatch.setattr(Program, "start", lambda self, **how: start(self, **{**how, "debug": how["executor"] != "processes"}))
    monkeypatch.setattr(Poison, "before_pass", lambda self: None)


# ---------------------------------------------------------------------- what is returned


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("work", ["CartPole", "Blackjack", "spaces", "objects", "nested infos", "joysticks"])
def test_each_environment_returns_what_it_does_without_batches(
    work: str, mode: AutoresetMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = played(ReactorVectorEnv(WORKS[work], autoreset_mode=mode, executor="inline"), play(work))
    assert [len(of_one) for of_one in expected] == [len(ACTIONS) + 1] * N
    poisoned(monkeypatch)
    for batch_size, place in zip((N, 4, 2, 1), (*PLACES[:2], CALLER_WORKS[0], PLACES[1]), strict=True):
        found = played(ReactorVectorEnv(WORKS[work], autoreset_mode=mode, batch_size=batch_size, **place), play(work))
        assert_same(found, expected, f"{place}, batch_size={batch_size}, ")


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_helpers_of_any_number(batch_size: int) -> None:
    expected = played(ReactorVectorEnv(WORKS["CartPole"], executor="inline"), play("CartPole"))
    for workers in (1, 2, 3, 4):
        for caller in (True, False):
            place: dict[str, Any] = {"executor": "threads" if workers < 4 else "processes", "workers": workers}
            with ReactorVectorEnv(WORKS["CartPole"], batch_size=batch_size, caller_works=caller, **place) as envs:
                assert envs.workers <= workers + 1
                assert_same(play("CartPole")(envs), expected, str(place))


def test_one_batch_is_no_batch() -> None:
    for mode in AutoresetMode:
        assert_like_sync(WORKS["CartPole"], rollout(3), batch_size=N, autoreset_mode=mode, executor="threads", workers=2)


def assert_batched(value: Any, batch_size: int, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            assert_batched(item, batch_size, f"{where}[{key!r}]")
            if not key.startswith("_"):
                mask = value[f"_{key}"]
                assert mask.dtype == np.bool_ and mask.shape == (batch_size,), where
    else:
        assert isinstance(value, np.ndarray) and len(value) == batch_size, where


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("work", ["FrozenLake", "nested infos"])
def test_the_order_is_fixed_and_everything_is_of_the_size_of_a_batch(work: str, place: dict[str, Any]) -> None:
    batch_size = 2
    with ReactorVectorEnv(WORKS[work], batch_size=batch_size, autoreset_mode="SameStep", **place) as envs:
        assert (envs.num_envs, envs.batch_size) == (N, batch_size)
        assert envs.action_space.shape == (batch_size,)
        results: Any = envs.reset(seed=0)
        for number in range(4 * N):
            lo = number * batch_size % N
            assert_same(results[-1]["env_id"], np.arange(lo, lo + batch_size))
            assert_same(results[-1]["_env_id"], np.ones(batch_size, np.bool_))
            assert_batched(results[-1], batch_size, "infos")
            if work != "FrozenLake":
                assert results[0][:, 0].tolist() == [lo, lo + 1]
            assert results[0] in envs.observation_space
            if number:
                _, rewards, terminations, truncations, _ = results
                assert (rewards.dtype, rewards.shape) == (np.float64, (batch_size,))
                assert {(flags.dtype, flags.shape) for flags in (terminations, truncations)} == {(np.dtype(bool), (batch_size,))}
            results = envs.step(zeros(batch_size))


def test_seeds_go_by_index() -> None:
    with ReactorVectorEnv(facts(4), batch_size=2, executor="threads", workers=2) as envs:
        for seeds, expected in ((7, [7, 8, 9, 10]), ([5, None, 3, 1], [5, -1, 3, 1]), (None, [-1] * 4)):
            found = [*envs.reset(seed=seeds)[0][:, 1], *envs.step(zeros(2))[0][:, 1]]
            assert found == expected


def test_the_choice_says_what_it_is() -> None:
    with make_vec("CartPole-v1", 4, batch_size=2, executor="threads", workers=2) as envs:
        assert repr(envs).startswith("ReactorVectorEnv(CartPole-v1, num_envs=4, batch_size=2, executor='threads', workers=")
        assert envs.reset(seed=0)[0].shape == (2, 4)


# ---------------------------------------------------------------------- what comes between


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_reset_forgets_what_goes_on(batch_size: int, place: dict[str, Any]) -> None:
    expected = played(ReactorVectorEnv(WORKS["CartPole"], executor="inline"), play("CartPole"))
    with ReactorVectorEnv(WORKS["CartPole"], batch_size=batch_size, **place) as envs:
        for before in (0, 1, 2, 3, N // batch_size + 1):
            envs.reset(seed=before)
            for _ in range(before):
                envs.step(zeros(batch_size))
            assert_same(play("CartPole")(envs), expected, f"after {before} steps, ")


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_steps_that_were_begun_are_taken_before_a_reset(place: dict[str, Any]) -> None:
    with ReactorVectorEnv(facts(4), batch_size=2, **place) as envs:
        envs.reset(seed=0)
        for taken in ((0, 0), (1, 0), (1, 1), (2, 1)):
            envs.reset(seed=sum(taken))
            before = envs.get_attr("total")
            for _ in range(sum(taken)):
                envs.step(zeros(2))
            observations, _ = envs.reset(seed=0)
            assert observations[:, 3].tolist() == [0, 0]
            assert observations[:, 4].tolist() == [before[0] + taken[0], before[1] + taken[0]]
            second, rewards, *_ = envs.step(zeros(2))
            assert second[:, 3].tolist() == rewards.tolist() == [0, 0]
            assert second[:, 4].tolist() == [before[2] + taken[1], before[3] + taken[1]]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_calls_in_the_middle_lose_nothing(batch_size: int, place: dict[str, Any], tmp_path: Path) -> None:
    env_fns = [partial(Facts, i, length=i % 3 + 2, infos="array") for i in range(N)]

    def traced(envs: Any) -> None:
        with envs.trace(str(tmp_path / "trace.json")):
            pass

    calls: list[Callable[[Any], Any]] = [
        lambda envs: envs.get_attr("index"),
        lambda envs: envs.render(),
        lambda envs: envs.call("draw_number"),
        lambda envs: envs.set_attr("memory", [{"a": i} for i in range(N)]),
        lambda envs: envs.np_random_seed,
        traced,
        lambda envs: envs.draw(),
    ]

    def between(envs: Any, number: int) -> None:
        if number % 3 == 1:
            calls[number // 3 % len(calls)](envs)
        if number % 5 == 2:
            assert envs.get_attr("index") == tuple(range(N))

    expected = played(ReactorVectorEnv(env_fns, executor="inline"), lambda envs: trajectories(envs, ACTIONS))
    with ReactorVectorEnv(env_fns, batch_size=batch_size, **place) as envs:
        assert_same(trajectories(envs, ACTIONS, between=between), expected)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_call_sees_every_step_that_was_begun(place: dict[str, Any]) -> None:
    with ReactorVectorEnv(facts(4), batch_size=2, **place) as envs:
        envs.reset()
        for number in range(1, 6):
            envs.step(zeros(2))
            first, second = (number + 1) // 2, number // 2
            assert envs.get_attr("total") == (first, first, second, second)
        envs.set_attr("total", 100)
        assert envs.step(zeros(2))[0][:, 4].tolist() == [3, 3]  # of before
        assert envs.step(zeros(2))[0][:, 4].tolist() == [101, 101]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_trace_of_batches(place: dict[str, Any], tmp_path: Path) -> None:
    with ReactorVectorEnv(facts(4), batch_size=2, **place) as envs:
        envs.reset(seed=0)
        envs.step(zeros(2))
        with envs.trace(str(tmp_path / "trace.json")) as tracing:
            for _ in range(6):
                envs.step(zeros(2))
        assert tracing.reactions >= 6
        assert envs.step(zeros(2))[0][:, 3].tolist() == [4, 4]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_the_results_of_a_reset_have_nothing_of_the_steps_before(place: dict[str, Any]) -> None:
    env_fns = [partial(Facts, i, length=1) for i in range(4)]
    with ReactorVectorEnv(env_fns, batch_size=2, autoreset_mode="SameStep", **place) as envs:
        envs.reset(seed=0)
        ended = [envs.step(zeros(2)) for _ in range(8)]
        assert {(*results[2].tolist(), *results[3].tolist()) for results in ended[1:]} == {(1, 1, 0, 0), (0, 0, 1, 1)}
        assert "final_obs" in ended[-1][-1]
        for _ in range(2):
            envs.reset(seed=0)
            _, *rest, infos = envs.step(zeros(2))
            assert_same(rest, [np.zeros(2), np.zeros(2, np.bool_), np.zeros(2, np.bool_)])
            assert sorted(infos) == ["_env_id", "env_id"]
            for _ in range(3):  # the second batch's last episode ends by termination once and by truncation once
                envs.step(zeros(2))


# ---------------------------------------------------------------------- beginning and ending


class InTwo(Batches):
    """Steps by halves."""

    def __init__(self, envs: Any, begin: str, end: str) -> None:
        super().__init__(envs)
        self.begin, self.end = getattr(envs, begin), getattr(envs, end)

    def step(self, actions: Any) -> Any:
        self.begin(actions)
        return self.end()


@pytest.mark.slow
@pytest.mark.parametrize("names", [("send", "recv"), ("step_async", "step_wait"), ("send", "step_wait")], ids=str)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_step_is_send_and_recv(place: dict[str, Any], names: tuple[str, str]) -> None:
    for batch_size in (N, 4, 2):
        expected = played(ReactorVectorEnv(WORKS["nested infos"], executor="inline"), play("nested infos"))
        with ReactorVectorEnv(WORKS["nested infos"], batch_size=batch_size, **place) as envs:
            assert_same(trajectories(InTwo(envs, *names), ACTIONS, seed=4), expected)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_comes_in_the_wrong_order_is_refused_and_changes_nothing(place: dict[str, Any]) -> None:
    def play_wrongly(envs: Any) -> list[Any]:
        seen: list[Any] = [envs.reset(seed=0)]
        for number in range(7):
            for end in (envs.recv, envs.step_wait, envs.reset_wait, envs.call_wait):
                with pytest.raises(NoAsyncCallError):
                    end()
            for bad in (zeros(3), zeros(1), [0], np.zeros(2), zeros(4)):
                with pytest.raises(ValueError, match=r"actions"):
                    envs.send(bad)
            envs.send(zeros(2) + number % 3)
            for again in (
                lambda: envs.send(zeros(2)), lambda: envs.step(zeros(2)), envs.reset, lambda: envs.get_attr("index"),
                lambda: envs.set_attr("index", 9), envs.render, envs.reset_async,
            ):  # fmt: skip
                with pytest.raises(AlreadyPendingCallError, match="pending call to `step`"):
                    again()
            for end in (envs.reset_wait, envs.call_wait):
                with pytest.raises(NoAsyncCallError):
                    end()
            seen.append(envs.recv())
        return [*seen, envs.call("kept")]

    def play_rightly(envs: Any) -> list[Any]:
        return [envs.reset(seed=0), *(envs.step(zeros(2) + number % 3) for number in range(7)), envs.call("kept")]

    expected = played(ReactorVectorEnv(facts(4), batch_size=2, executor="inline"), play_rightly)
    assert_same(played(ReactorVectorEnv(facts(4), batch_size=2, **place), play_wrongly), expected)


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_nothing_is_lost_by_timeouts(place: dict[str, Any], tmp_path: Path) -> None:
    gates = Gates(tmp_path)
    with ReactorVectorEnv(gates.makers(4), batch_size=2, **place) as envs:
        envs.reset(seed=0)
        assert envs.step(zeros(2))[0][:, :4].tolist() == [[2, 2, 1, 0], [3, 3, 1, 0]]
        late = []
        for number in range(2, 6):
            envs.step_async(zeros(2))
            index = 2 * (number % 2)
            results: Any = None
            for timeout in (TIMEOUT, TIMEOUT, 20):
                if timeout == 20:
                    gates.open(index, index + 1, name=f"step-{number // 2 - 1}")
                if results is None:
                    try:
                        results = envs.step_wait(timeout=timeout)
                    except multiprocessing.TimeoutError:
                        late.append(number)
            assert results[0][:, :4].tolist() == [[index, index, 1, number // 2], [index + 1, index + 1, 1, number // 2]]
        # The calling thread, once it is late, is done.
        assert late == sorted([2, 3, 4, 5] * (1 if envs.executor == "inline" else 2))
        for index in (0, 1, 2, 3):
            gates.open(index, name="step-2")
        envs.reset_async(seed=9)
        with pytest.raises(multiprocessing.TimeoutError, match="`reset_wait` has timed out"):
            envs.reset_wait(timeout=TIMEOUT)
        gates.open_all()
        assert envs.reset_wait()[0][:, 1].tolist() == [9, 10]
        assert envs.step(zeros(2))[0][:, 1].tolist() == [11, 12]


# ---------------------------------------------------------------------- whose memory it is


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("work", ["FrozenLake", "spaces", "nested infos"])
def test_what_was_returned_stays_as_it_was(work: str, place: dict[str, Any]) -> None:
    with ReactorVectorEnv(WORKS[work], batch_size=4, **place) as envs:
        given: list[Any] = [envs.reset(seed=0)]
        given += [envs.step(zeros(4)) for _ in range(4)]
        before = pickle.dumps(given)
        for _ in range(5):
            envs.step(zeros(4))
        given[1][-1].clear()  # what the caller does to its infos is nobody else's business
        envs.reset(seed=1)
        given[1] = pickle.loads(before)[1]
        assert fingerprint(given) == fingerprint(pickle.loads(before))


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_views_last_until_the_same_environments_step_again(place: dict[str, Any]) -> None:
    with ReactorVectorEnv(facts(4), batch_size=2, copy=False, **place) as envs:
        views: dict[int, Any] = {}
        observations, _ = envs.reset(seed=0)
        for number in range(8):
            batch = number % 2
            assert views.setdefault(batch, observations) is observations
            assert not np.shares_memory(observations, views[0]) or batch == 0
            before = observations.copy()
            envs.get_attr("total")  # the other batch has taken its step by now
            np.testing.assert_array_equal(observations, before)
            assert before[:, 0].tolist() == [2 * batch, 2 * batch + 1]
            assert before[:, 3].tolist() == [number // 2] * 2
            observations, *_ = envs.step(zeros(2))
        observations[:] = 0  # as AsyncVectorEnv's, they may be written into


FORMS: list[tuple[Any, Callable[[Any], Any]]] = [
    (spaces.Discrete(5), lambda actions: actions),
    (spaces.Discrete(5), lambda actions: actions.astype(np.int32)),
    (spaces.Discrete(5), list),
    (BOX, lambda actions: np.stack([actions, actions], 1).astype(np.float32)),
    (BOX, lambda actions: [np.full(2, action, np.float32) for action in actions]),
    (spaces.Dict(a=spaces.Discrete(5), b=BOX), lambda actions: {"a": actions.copy(), "b": np.stack([actions] * 2, 1) / 8}),
]


def spoil(actions: Any) -> None:
    for part in actions.values() if isinstance(actions, dict) else [actions]:
        for i in range(len(part)):
            if isinstance(part[i], np.ndarray):
                part[i][:] = -1
            else:
                part[i] = -1


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("form", range(len(FORMS)))
def test_actions_may_be_changed_once_they_were_sent(form: int, place: dict[str, Any]) -> None:
    space, formed = FORMS[form]

    def play_spoiling(envs: Any, spoils: bool) -> Any:
        envs.reset()
        for number in range(7):
            actions = formed(np.arange(2) + number % 4)
            envs.send(actions)
            if spoils:
                spoil(actions)
            envs.recv()
        return envs.call("kept")

    expected = played(
        ReactorVectorEnv(facts(6, action_space=space), batch_size=2, executor="inline"), partial(play_spoiling, spoils=False)
    )
    found = played(ReactorVectorEnv(facts(6, action_space=space), batch_size=2, **place), partial(play_spoiling, spoils=True))
    assert_same(found, expected)
    assert [len(kept) for kept in found] == [3, 3, 2, 2, 2, 2]


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("where", ["step", "reset", "call"])
def test_an_exception_in_the_second_batch_names_the_environment(where: str, place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv(faulty({3: (where, LookupError("lost"))}), batch_size=2, **place)

    def steps(number: int) -> None:
        for _ in range(number):
            envs.step(zeros(2))

    envs.reset(seed=0)
    steps(4)  # of which the last begins the second step of environments 2 and 3, if it can
    with pytest.raises(LookupError, match="lost") as raised:
        {"step": lambda: steps(1), "reset": envs.reset, "call": lambda: envs.call("draw_number")}[where]()
    assert "raised in environment 3 of" in raised.value.__notes__[-1]
    if where == "call":
        steps(2)
    else:
        with pytest.raises(RunError, match="environment 3 raised LookupError"):
            envs.step(zeros(2))
    envs.close()
    assert envs.closed


@pytest.mark.parametrize("call", ["get_attr", "reset", "set_attr"])
def test_an_exception_of_a_step_that_goes_on_is_raised_by_what_waits_for_it(call: str) -> None:
    for place in (*PLACES[1:], CALLER_WORKS[0]):
        envs = ReactorVectorEnv(faulty({3: ("step", LookupError("lost"))}), batch_size=2, **place)
        envs.reset(seed=0)
        for _ in range(4):
            envs.step(zeros(2))
        calls: dict[str, Callable[[], Any]] = {
            "get_attr": lambda envs=envs: envs.get_attr("index"),
            "reset": envs.reset,
            "set_attr": lambda envs=envs: envs.set_attr("index", 3),
        }
        with pytest.raises(LookupError, match="lost"):
            calls[call]()
        with pytest.raises(RunError):
            envs.reset()
        envs.close()


class Closing(Slow):
    """Leaves a file when it is closed, and another at each step that it has taken."""

    def __init__(self, index: int, folder: Path) -> None:
        super().__init__(index, 0.05)
        self.folder = folder

    def step(self, action: Any) -> Any:
        results = super().step(action)
        (self.folder / f"{self.index}.{self.total}").touch()
        return results

    def close(self) -> None:
        (self.folder / f"{self.index}.closed").touch()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_closing_while_a_batch_steps(place: dict[str, Any], tmp_path: Path) -> None:
    envs = ReactorVectorEnv([partial(Closing, i, tmp_path) for i in range(4)], batch_size=2, **place)
    envs.reset()
    for _ in range(2):
        envs.step(zeros(2))
    envs.close()  # no call is pending, so there is nothing to warn of
    assert sorted(path.stem for path in tmp_path.glob("*.closed")) == ["0", "1", "2", "3"]
    with pytest.raises(ClosedEnvironmentError):
        envs.step(zeros(2))


@pytest.mark.parametrize("place", [PLACES[0], PLACES[2]], ids=str)
def test_what_is_dropped_while_a_batch_steps_leaves_nothing(place: dict[str, Any]) -> None:
    envs = ReactorVectorEnv([partial(Slow, i, 0.05) for i in range(4)], batch_size=2, **place)
    envs.reset()
    envs.step(zeros(2))
    del envs


def test_closing_while_results_are_awaited_warns() -> None:
    envs = ReactorVectorEnv([partial(Slow, i, 0.05) for i in range(4)], batch_size=2, executor="threads", workers=2)
    envs.reset()
    envs.send(zeros(2))
    with pytest.warns(UserWarning, match="Calling `close` while waiting for a pending call to `step`"):
        envs.close()


@pytest.mark.parametrize("batch_size", [0, -2, 3, 5, 8, 2.0, True, "2"], ids=repr)
def test_a_batch_size_that_does_not_divide(batch_size: Any) -> None:
    with pytest.raises(ValueError, match=r"batch_size=.*a divisor of 4 \(num_envs // 2 for two batches\)"):
        ReactorVectorEnv(facts(4), batch_size=batch_size)


def test_what_batches_cannot_do() -> None:
    with pytest.raises(ValueError, match="needs one observation space for all batches"):
        ReactorVectorEnv(facts(4), batch_size=2, observation_mode="different")
    with ReactorVectorEnv(facts(4, infos="nested"), batch_size=2, executor="inline") as envs:
        envs.reset(seed=0)
        envs.step(zeros(2))
        mask = np.array([True, False, False, False])
        with pytest.raises(ValueError, match="`options\\['reset_mask'\\]` needs all environments in one batch"):
            envs.reset(options={"reset_mask": mask})
        assert envs.step(zeros(2))[0][:, 3].tolist() == [1, 1]  # nothing has happened


# ---------------------------------------------------------------------- the caller works while they do


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_the_caller_works_while_a_batch_steps(executor: Any, tmp_path: Path) -> None:
    gates = Gates(tmp_path)
    # The one worker is a helper, unless one says otherwise.
    with ReactorVectorEnv(gates.makers(4), batch_size=2, executor=executor, workers=1) as envs:
        envs.reset()
        for number in range(8):
            envs.step(zeros(2))
            index, name = 2 * (number % 2), f"step-{number // 2}"
            gates.begun(index, name)  # while the caller is here
            gates.open(index, index + 1, name=name)
        gates.open_all()


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_between_the_halves_of_a_step_the_caller_works(executor: Any, tmp_path: Path) -> None:
    gates = Gates(tmp_path)
    with ReactorVectorEnv(gates.makers(2), executor=executor, workers=2, caller_works=False) as envs:
        envs.reset()
        for number in range(4):
            envs.send(zeros(2))
            for index in range(2):
                gates.begun(index, f"step-{number}")
            gates.open(0, 1, name=f"step-{number}")
            envs.recv()
        gates.open_all()
        for number in range(5, 9):
            envs.step(zeros(2))
            assert gates.count() == 2 * number  # none goes on while the caller is here
