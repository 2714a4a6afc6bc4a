"""``ReactorVectorEnv.of``: shards give what each of them gives alone, on any number of workers, and are told apart in errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from compare import assert_same, debugged, fingerprint, played
from envs import Facts
from gymnasium import spaces
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space, iterate
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from places import INLINE, PROCESSES, THREADS, WAITING

from reactor_gymnasium import ReactorVectorEnv
from reactor_rl import ProgramError, RunError

pytestmark = pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")

PLACES = [INLINE, {"executor": "auto"}, THREADS, THREADS | WAITING, PROCESSES, PROCESSES | WAITING]
NESTED = spaces.Dict(
    a=spaces.Box(-np.inf, np.inf, (2,), np.float32), b=spaces.Tuple((spaces.Discrete(9), spaces.Text(3))), c=spaces.MultiBinary(2)
)


class Simulator(VectorEnv[Any, Any, Any]):
    """Counts steps of its rows, of which row ``i`` ends its episodes after ``i + 2``, and adds what its actions say."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        rows: int,
        space: Any = None,
        rewards: Any = np.float64,
        infos: str = "none",
        action_space: Any = None,
        fails: int = -1,
    ) -> None:
        self.num_envs, self.kind, self.dtype, self.fails = rows, infos, rewards, fails
        self.single_observation_space = space or spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.single_action_space = action_space or spaces.Discrete(5)
        self.observation_space = batch_space(self.single_observation_space, rows)
        self.action_space = batch_space(self.single_action_space, rows)
        self.kept: list[Any] = []
        self.level = 1

    def observe(self) -> Any:
        time, noise = self.time, self.noise
        if isinstance(self.single_observation_space, spaces.Box):
            return np.stack([time, noise, time * noise], 1).astype(np.float32)
        texts = tuple(str(one % 100) for one in time.tolist())
        return {
            "a": np.stack([time, noise], 1).astype(np.float32),
            "b": (time % 9, texts),
            "c": np.stack([time % 2, time % 3 % 2], 1).astype(np.int8),
        }

    def infos(self) -> dict[str, Any]:
        time, even = self.time.copy(), self.time % 2 == 0
        if self.kind == "columns":
            return {
                "time": time,
                "env_id": np.arange(self.num_envs),
                "players": {"env_id": np.arange(self.num_envs), "x": self.noise},
            }
        if self.kind == "masked" and even.any():
            return {"even": np.where(even, time, 0), "_even": even, "deep": {"x": time[:, None], "_x": even}, "_deep": even}
        if self.kind == "other":
            return {
                "name": "sim",
                "list": [f"{one}" for one in time],
                "count": 3,
                "rate": 0.5,
                "object": np.array([{}] * len(time)),
            }
        return {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.given = (seed, options)
        self.time = np.zeros(self.num_envs, np.int64)
        self.noise = self.np_random.random(self.num_envs)
        self.over = np.zeros(self.num_envs, np.bool_)
        return self.observe(), self.infos()

    def step(self, actions: Any) -> Any:
        self.kept.append(actions)
        if self.fails == self.time[0]:
            raise ArithmeticError("no more")
        self.time = np.where(self.over, 0, self.time + 1)
        given = actions["x"] if isinstance(actions, dict) else actions[1] if isinstance(actions, tuple) else actions
        self.noise = np.where(self.over, 0.0, self.noise + np.asarray(given, np.float64) * self.level)
        ended = self.time >= np.arange(self.num_envs) + 2
        odd = np.arange(self.num_envs) % 2 == 1
        self.over = ended
        return self.observe(), self.noise.astype(self.dtype), ended & odd, ended & ~odd, self.infos()

    def render(self) -> Any:
        return [np.full((2, 2, 3), one, np.uint8) for one in self.time]


def sync(first: int, rows: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP, infos: str = "nested") -> SyncVectorEnv:
    return SyncVectorEnv(
        [partial(Facts, first + i, length=(first + i) % 4 + 2, infos=infos) for i in range(rows)], autoreset_mode=mode
    )


def atari(rows: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Any:
    ale_py = pytest.importorskip("ale_py")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py.AtariVectorEnv("pong", rows, num_threads=1, autoreset_mode=mode, max_num_frames_per_episode=40)


WORKS: dict[str, list[Callable[[], Any]]] = {
    "CartPole": [partial(CartPoleVectorEnv, rows, max_episode_steps=7) for rows in (3, 5, 2, 4)],
    "one shard": [partial(CartPoleVectorEnv, 4)],
    "nested spaces": [partial(Simulator, rows, NESTED, np.float32) for rows in (2, 3, 1)],
    "columns": [partial(Simulator, rows, infos="columns") for rows in (2, 2, 2)],
    "some infos": [
        partial(Simulator, rows, infos=kind) for rows, kind in ((2, "masked"), (3, "none"), (2, "masked"), (1, "other"))
    ],
    "rewards": [partial(Simulator, 2, rewards=kind) for kind in (np.float32, np.int16, np.float32)],
    "joysticks": [partial(Simulator, rows, action_space=spaces.Tuple((spaces.Text(2), spaces.Discrete(3)))) for rows in (2, 1, 2)],
    "pads": [partial(Simulator, rows, action_space=spaces.Dict(x=spaces.Box(-1, 1, (), np.float32))) for rows in (1, 3)],
    "sync, next step": [partial(sync, 0, 3), partial(sync, 3, 2)],
    "sync, same step": [partial(sync, 0, 3, AutoresetMode.SAME_STEP), partial(sync, 3, 4, AutoresetMode.SAME_STEP)],
    "ALE": [partial(atari, 1, AutoresetMode.SAME_STEP), partial(atari, 2, AutoresetMode.SAME_STEP)],
}


def actions_of(members: Sequence[Any], steps: int) -> list[list[Any]]:
    """For each step what each member alone is given."""
    for number, member in enumerate(members):
        member.action_space.seed(number)
    return [[member.action_space.sample() for member in members] for _ in range(steps)]


def together(space: Any, parts: Sequence[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: together(part, [one[key] for one in parts]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(together(part, [one[i] for one in parts]) for i, part in enumerate(space.spaces))
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else sum(map(tuple, parts), ())


def assert_infos(joined: dict[str, Any], parts: Sequence[dict[str, Any]], rows: Sequence[int], ended: Sequence[Any]) -> None:
    """Every value of every member is in its rows, and nothing else is."""
    lo, seen, claimed = 0, set[str](), dict[str, Any]()
    for infos, count, over in zip(parts, rows, ended, strict=True):
        hi = lo + count
        for key, value in infos.items():
            if key.startswith("_") and key[1:] in infos:
                continue
            seen |= {key, f"_{key}"}
            mask = infos.get(f"_{key}", over if key in ("final_obs", "final_info") else np.ones(count, np.bool_))
            claimed.setdefault(key, np.zeros(sum(rows), np.bool_))[lo:hi] = mask
            if not isinstance(value, dict):
                expected = value if isinstance(value, (list, np.ndarray)) and len(value) == count else [value] * count
                shift = lo if key == "env_id" else 0
                for row in range(count):
                    assert_same(np.asarray(joined[key][lo + row]).tolist(), (np.asarray(expected[row]) + shift).tolist() if shift
                                else np.asarray(expected[row]).tolist(), key)  # fmt: skip
        lo = hi
    assert set(joined) == seen
    for key, mask in claimed.items():
        assert_same(joined[f"_{key}"], mask, key)
        values = [infos.get(key) for infos in parts]
        if any(isinstance(value, dict) for value in values):
            assert_infos(joined[key], [value or {} for value in values], rows, ended)
        elif all(isinstance(value, np.ndarray) and value.dtype == values[0].dtype for value in values):
            assert joined[key].dtype == values[0].dtype


@pytest.mark.slow
@pytest.mark.parametrize("work", sorted(WORKS))
def test_rows_are_those_of_the_shards_alone(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    debugged(monkeypatch)
    members = [make() for make in WORKS[work]]
    rows = [member.num_envs for member in members]
    firsts = np.cumsum([0, *rows])[:-1].tolist()
    plan = actions_of(members, 24)
    dtypes = set()
    with ReactorVectorEnv.of(WORKS[work], executor="threads", workers=2) as envs:
        assert envs.num_envs == sum(rows) and envs.metadata["autoreset_mode"] is members[0].metadata["autoreset_mode"]
        single = members[0].single_observation_space
        assert envs.single_observation_space == single and envs.observation_space == batch_space(single, sum(rows))
        assert envs.action_space == batch_space(members[0].single_action_space, sum(rows))
        for begin in (0, 12):
            found: Any = envs.reset() if begin else envs.reset(seed=0)
            if begin:
                alone: Any = [member.reset() for member in members]
                if work.startswith("ALE"):  # without a seed an emulator draws its own
                    break
            else:
                alone = [member.reset(seed=first) for member, first in zip(members, firsts, strict=True)]
            assert_same(found[0], together(single, [one[0] for one in alone]))
            assert_infos(found[1], [one[1] for one in alone], rows, [np.zeros(count, np.bool_) for count in rows])
            for actions in plan[begin : begin + 12]:
                found = envs.step(together(envs.single_action_space, actions))
                alone = [member.step(given) for member, given in zip(members, deepcopy(actions), strict=True)]
                assert_same(found[0], together(single, [one[0] for one in alone]))
                rewards = np.concatenate([one[1] for one in alone])
                dtypes.add(rewards.dtype)
                assert_same(found[1], rewards)
                for place in (2, 3):
                    assert_same(found[place], np.concatenate([one[place] for one in alone]))
                assert_infos(found[4], [one[4] for one in alone], rows, [one[2] | one[3] for one in alone])
    assert len(dtypes) == 1
    for member in members:
        member.close()


def play(envs: Any) -> list[Any]:
    envs.action_space.seed(3)
    mask = np.zeros(envs.num_envs, np.bool_)
    mask[envs.bounds[1] :] = True
    seen = [deepcopy(envs.reset(seed=1))]
    seen += [deepcopy(envs.step(envs.action_space.sample())) for _ in range(9)]
    seen.append(deepcopy(envs.reset(seed=[*range(len(envs.bounds) - 1)], options={"reset_mask": mask} if mask.any() else None)))
    seen += [deepcopy(envs.step(envs.action_space.sample())) for _ in range(9)]
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("work", ["CartPole", "nested spaces", "some infos", "sync, same step"])
def test_one_fingerprint(work: str) -> None:
    places = PLACES if work == "CartPole" else [PLACES[0], PLACES[2], PLACES[4]]
    found = {str(place): fingerprint(played(ReactorVectorEnv.of(WORKS[work], **place), play)) for place in places}
    assert len(set(found.values())) == 1, found
    other = played(ReactorVectorEnv.of(WORKS[work][::-1], executor="inline"), play)
    assert work == "sync, same step" or fingerprint(other) not in found.values()


def test_workers_are_at_most_as_many_as_shards() -> None:
    with ReactorVectorEnv.of(WORKS["CartPole"][:2], executor="threads", workers=8) as envs:
        assert envs.workers == 2
        assert repr(envs) == "ReactorVectorEnv.of(2 shards, num_envs=8, executor='threads', workers=2)"
        assert "shards[0:1]" in envs.draw() and "shards[1:2]" in envs.draw()


# ---------------------------------------------------------------------- resets


def given(envs: Any) -> Any:
    return envs.get_attr("given")


def test_what_each_shard_is_reset_with() -> None:
    with ReactorVectorEnv.of([partial(Simulator, rows) for rows in (2, 1, 3)], executor="threads", workers=2) as envs:
        envs.reset()
        assert given(envs) == ((None, None),) * 3
        envs.reset(seed=10, options={"a": 1})
        assert given(envs) == ((10, {"a": 1}), (12, {"a": 1}), (13, {"a": 1}))
        envs.reset(seed=np.int64(4))
        assert given(envs) == ((4, None), (6, None), (7, None))
        options = {"b": 2, "reset_mask": np.array([True, True, False, True, True, True])}
        before = envs.step(np.ones(6, np.int64))[0]
        observations, _ = envs.reset(seed=[1, 2, 3], options=options)
        assert given(envs) == ((1, {"b": 2}), (6, None), (3, {"b": 2}))
        assert sorted(options) == ["b", "reset_mask"]
        assert_same(observations[2], before[2])
        with pytest.raises(ValueError, match="5 seeds were given: pass one for each of the 3 shards, or of the 6 rows, or an int"):
            envs.reset(seed=[1, 2, 3, 4, 5])
        with pytest.raises(ValueError, match=r"must have shape `\(6,\)`"):
            envs.reset(options={"reset_mask": np.ones(3, np.bool_)})


def test_seeds_of_rows_and_masks_within_a_shard_are_for_those_that_take_them() -> None:
    alone = sync(0, 5, AutoresetMode.DISABLED)
    makers = [partial(sync, 0, 2, AutoresetMode.DISABLED), partial(sync, 2, 3, AutoresetMode.DISABLED)]
    with ReactorVectorEnv.of(makers, executor="threads", workers=2) as envs:
        assert_same(envs.reset(seed=[5, 4, 3, 2, 1]), alone.reset(seed=[5, 4, 3, 2, 1]))
        actions = np.arange(5)
        for _ in range(12):
            found, expected = envs.step(actions), alone.step(actions)
            assert_same(found, expected)
            if (over := found[2] | found[3]).any():
                found, expected = envs.reset(options={"reset_mask": over}), alone.reset(options={"reset_mask": over})
                assert_same(found[0], expected[0])


def test_before_the_first_reset() -> None:
    with ReactorVectorEnv.of(WORKS["columns"], executor="inline") as envs:
        with pytest.raises(ResetNeeded, match="before the first step"):
            envs.step(np.zeros(6, np.int64))
        with pytest.raises(ResetNeeded, match="the first reset must be of all rows"):
            envs.reset(options={"reset_mask": np.arange(6) > 1})


# ---------------------------------------------------------------------- actions


def test_shards_see_the_actions_that_they_would_see_alone() -> None:
    with ReactorVectorEnv.of([partial(Simulator, rows) for rows in (2, 1)], executor="threads", workers=2) as envs:
        envs.reset()
        every: list[Any] = [np.arange(3), np.arange(3, dtype=np.int32), [2, 1, 0], np.full(3, 4)]
        for actions in every:
            envs.step(actions)
        for part, kept in zip((slice(2), slice(2, 3)), envs.get_attr("kept"), strict=True):
            assert_same(kept, [actions[part] for actions in every])
        with pytest.raises(ValueError, match="the actions have shape"):
            envs.step(np.zeros(2, np.int64))
        with pytest.raises(ValueError, match="no actions for rows 2 to 2: 2 were given"):
            envs.step([0, 0])


# ---------------------------------------------------------------------- calls, snapshots, copies


@pytest.mark.parametrize("place", [{"executor": "inline"}, {"executor": "processes", "workers": 2}], ids=str)
def test_calls_attributes_frames_and_snapshots(place: dict[str, Any]) -> None:
    makers = [partial(Simulator, 2), lambda: RecordEpisodeStatistics(Simulator(1))]
    with ReactorVectorEnv.of(makers, **place) as envs:
        envs.reset(seed=2)
        envs.step(np.ones(3, np.int64))
        envs.set_attr("level", [2, 3])
        assert envs.get_attr("level") == (2, 3) == envs.call("level")
        envs.set_attr("level", 4)
        assert envs.get_attr("level") == (4, 4)
        with pytest.raises(ValueError, match="Got `3` values for 2"):
            envs.set_attr("level", [1, 2, 3])
        with pytest.raises(AttributeError, match="nothing") as caught:
            envs.get_attr("nothing")
        assert "raised in shard 1 of" in "".join(caught.value.__notes__)
        frames = envs.render()
        assert frames is not None and [int(frame.max()) for frame in frames] == [1, 1, 1]
        assert len(envs.np_random) == 2
        saved = envs._run.snapshot()
        expected = [envs.step(np.full(3, i)) for i in range(4)]
        envs._run.restore(saved)
        found = [envs.step(np.full(3, i)) for i in range(4)]
        for one, other in zip(found, expected, strict=True):
            one[4].pop("episode", None), other[4].pop("episode", None)  # has a time in it
            assert_same(one, other)
    with pytest.raises(TypeError, match="cannot be copied or pickled"):
        deepcopy(envs)


@pytest.mark.slow
def test_what_loses_its_state_is_not_saved() -> None:
    with ReactorVectorEnv.of([partial(atari, 1)], executor="inline") as envs:
        envs.reset(seed=0)
        with pytest.raises(
            RunError, match=r"shard 0 of ReactorVectorEnv.of \(AtariVectorEnv.* cannot be saved and restored exactly"
        ):
            envs._run.snapshot()


def test_views_and_copies() -> None:
    for copy in (True, False):
        with ReactorVectorEnv.of(WORKS["CartPole"], executor="inline", copy=copy) as envs:
            first, _ = envs.reset(seed=0)
            before = first.copy()
            envs.step(np.ones(envs.num_envs, np.int64))
            assert np.array_equal(first, before) is copy


def test_wrappers_of_gymnasium_go_around_it() -> None:
    envs = RecordEpisodeStatistics(ReactorVectorEnv.of(WORKS["CartPole"], executor="inline"))
    envs.reset(seed=0)
    lengths = []
    for _ in range(30):
        infos = envs.step(np.ones(14, np.int64))[4]
        lengths += infos["episode"]["l"][infos["_episode"]].tolist() if "episode" in infos else []
    envs.close()
    assert len(lengths) >= 28 and max(lengths) <= 7


# ---------------------------------------------------------------------- mistakes


def unlike(**kwargs: Any) -> Callable[[], Any]:
    def make() -> Any:
        env = Simulator(2)
        for name, value in kwargs.items():
            setattr(env, name, value)
        return env

    return make


def unpicklable() -> Callable[[], Any]:
    lock = threading.Lock()
    return lambda: (lock, Simulator(2))[1]


@pytest.mark.parametrize(
    ("makers", "kind", "message"),
    [
        ([], ValueError, "needs at least one environment: vector_env_fns is empty"),
        ([Simulator(1)], TypeError, r"vector_env_fns\[0\] must be a function that makes a new environment, got Simulator"),
        ([partial(Simulator, 2), partial(Facts, 0)], TypeError, "shard 1 is not a vector environment .* without num_envs"),
        ([partial(Simulator, 2), partial(Simulator, 2, NESTED)], RuntimeError, "shard 1 has the observation space Dict"),
        (
            [partial(Simulator, 2), unlike(single_action_space=spaces.Discrete(3))],
            RuntimeError,
            "shard 1 has the action space Disc",
        ),
        ([partial(Simulator, 1), unlike(metadata={})], RuntimeError, "shard 1 has the autoreset mode None, and shard 0 has Auto"),
        ([unlike(batch_size=1)], ValueError, "shard 0 steps 1 of its 2 environments at a time: make it without batch_size"),
        ([unpicklable()], ProgramError, r"vector_env_fns\[0\] of ReactorVectorEnv.of cannot be pickled"),
    ],
)
def test_what_does_not_go_together_is_refused(makers: list[Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        ReactorVectorEnv.of(makers, executor="inline")


@pytest.mark.parametrize("place", [{"executor": "inline"}, {"executor": "processes", "workers": 2}], ids=str)
def test_a_shard_that_fails_is_named(place: dict[str, Any]) -> None:
    with ReactorVectorEnv.of([partial(Simulator, 2), partial(Simulator, 3, fails=2), partial(Simulator, 1)], **place) as envs:
        envs.reset()
        envs.step(np.zeros(6, np.int64))
        envs.step(np.zeros(6, np.int64))
        with pytest.raises(ArithmeticError, match="no more") as caught:
            envs.step(np.zeros(6, np.int64))
        assert "raised in shard 1 of" in "".join(caught.value.__notes__)
        with pytest.raises(RunError, match="shard 1 raised ArithmeticError"):
            envs.step(np.zeros(6, np.int64))


class Reuses(Simulator):
    """Writes all its observations into one array, and knows nothing of masks."""

    def observe(self) -> Any:
        rows = self.__dict__.setdefault("rows", np.zeros((self.num_envs, 3), np.float32))
        rows[...] = super().observe()
        return rows


@pytest.mark.parametrize("kind", [CartPoleVectorEnv, Reuses])
def test_members_that_reset_rows_which_a_mask_leaves_out_are_refused(kind: Any) -> None:
    with ReactorVectorEnv.of([partial(kind, 2)] * 2, executor="inline") as envs:
        envs.reset(seed=0)
        envs.step(np.ones(4, np.int64))
        with pytest.raises(
            ValueError, match=rf"{kind.__name__} has reset rows that .* leaves out: it does not support masks"
        ) as caught:
            envs.reset(options={"reset_mask": np.array([True, True, True, False])})
        assert "raised in shard 1 of" in "".join(caught.value.__notes__)


class Unfit(Simulator):
    """Gives something of another shape than it says."""

    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = super().step(actions)
        return (observations, rewards[:1], *rest) if self.kind == "rewards" else (observations[:, :2], rewards, *rest)


@pytest.mark.parametrize(
    ("what", "message"),
    [("rewards", r"the rewards have shape \(1,\); of 3 rows"), ("other", r"the observation has shape \(3, 2\)")],
)
def test_what_has_another_shape_than_it_says(what: str, message: str) -> None:
    with ReactorVectorEnv.of([partial(Simulator, 2), partial(Unfit, 3, infos=what)], executor="inline") as envs:
        envs.reset()
        with pytest.raises(ValueError, match=message) as caught:
            envs.step(np.zeros(5, np.int64))
        assert "raised in shard 1 of" in "".join(caught.value.__notes__)


def test_single_rows_are_what_gymnasium_iterates() -> None:
    """The batched observation is Gymnasium's form of it."""
    with ReactorVectorEnv.of(WORKS["nested spaces"], executor="inline") as envs:
        observations, _ = envs.reset(seed=0)
        assert all(one in NESTED for one in iterate(envs.observation_space, observations))
    assert gymnasium.vector.VectorEnv in type(envs).__mro__
