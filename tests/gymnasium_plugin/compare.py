"""Element-for-element comparison of everything that a vector environment returns, and a hash of it."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import iterate

from reactor_gymnasium import ReactorVectorEnv
from reactor_rl import Program


def debugged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots hold a pattern before they are written and after they were read last, in every program that is started."""
    start = Program.start
    monkeypatch.setattr(Program, "start", lambda self, **kwargs: start(self, **{**kwargs, "debug": True}))


def assert_same(ours: Any, theirs: Any, where: str = "") -> None:
    """Values, types, dtypes, shapes and keys, in their order."""
    if isinstance(theirs, np.ndarray):
        assert isinstance(ours, np.ndarray), f"{where}: {type(ours)} is no array"
        assert ours.dtype == theirs.dtype, f"{where}: {ours.dtype} is not {theirs.dtype}"
        assert ours.shape == theirs.shape, f"{where}: {ours.shape} is not {theirs.shape}"
        if theirs.dtype == object:
            for i, (a, b) in enumerate(zip(ours.ravel(), theirs.ravel(), strict=True)):
                assert_same(a, b, f"{where}[{i}]")
        else:
            np.testing.assert_array_equal(ours, theirs, where, strict=True)
        return
    assert type(ours) is type(theirs), f"{where}: {type(ours)} is not {type(theirs)}"
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), f"{where}: keys {list(ours)} are not {list(theirs)}"
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{where}[{key!r}]")
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs), f"{where}: length {len(ours)} is not {len(theirs)}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            assert_same(a, b, f"{where}[{i}]")
    elif isinstance(theirs, np.random.Generator):
        assert_same(ours.bit_generator.state, theirs.bit_generator.state, f"{where}.state")
    else:
        assert ours == theirs or (ours != ours and theirs != theirs), f"{where}: {ours!r} is not {theirs!r}"


def canonical(value: Any) -> Any:
    """A form of a value whose pickle is the same whenever the value is."""
    if isinstance(value, np.ndarray):
        content = [canonical(item) for item in value.ravel()] if value.dtype == object else np.ascontiguousarray(value).tobytes()
        return ("array", str(value.dtype), value.shape, content)
    if isinstance(value, np.generic):
        return (str(value.dtype), value.tobytes())
    if isinstance(value, dict):
        return ("dict", [(key, canonical(item)) for key, item in value.items()])
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, [canonical(item) for item in value])
    if isinstance(value, np.random.Generator):
        return canonical(value.bit_generator.state)
    return repr(value) if type(value).__repr__ is not object.__repr__ else pickle.dumps(value)


def fingerprint(trace: Any) -> str:
    return hashlib.sha256(repr(canonical(trace)).encode()).hexdigest()


Play = Callable[[Any], list[Any]]


def rollout(seed: Any = 0, steps: int = 12, partly: bool = True) -> Play:
    """A rollout with resets in its middle; returns all that is returned, as it was at that moment."""

    def play(envs: Any) -> list[Any]:
        disabled = envs.metadata["autoreset_mode"].value == "Disabled"
        envs.action_space.seed(7)
        seen: list[Any] = [deepcopy(envs.reset(seed=seed))]
        for step in range(steps):
            results = envs.step(envs.action_space.sample())
            seen.append(deepcopy(results))
            done = results[2] | results[3]
            if disabled and done.any():
                seen.append(deepcopy(envs.reset(options={"reset_mask": done})))
            elif partly and step == steps // 3:
                mask = np.zeros(envs.num_envs, np.bool_)
                mask[::2] = True
                seen.append(
                    deepcopy(envs.reset(seed=[step + i for i in range(envs.num_envs)], options={"reset_mask": mask, "a": 1}))
                )
            elif partly and step == 2 * steps // 3:
                seen.append(deepcopy(envs.reset(seed=None)))
        return seen

    return play


def played(envs: Any, play: Play) -> list[Any]:
    try:
        return play(envs)
    finally:
        envs.close()


def assert_like_sync(env_fns: Sequence[Callable[[], Any]], play: Play, sync: dict[str, Any] | None = None, **kwargs: Any) -> None:
    """Play the same on ``SyncVectorEnv`` and on ours."""
    common = {name: kwargs[name] for name in ("copy", "observation_mode", "autoreset_mode") if name in kwargs}
    theirs = played(SyncVectorEnv(env_fns, **{**common, **(sync or {})}), play)
    ours = played(ReactorVectorEnv(env_fns, **kwargs), play)
    assert_same(ours, theirs, "trace")


def trajectories(
    envs: Any, actions: Sequence[Any], seed: Any = 0, between: Callable[[Any, int], None] | None = None
) -> list[list[Any]]:
    """What each environment returns for its own actions, whichever of them step together: of its reset, then of each step.

    Args:
        envs: Steps any number of its environments together, which ``infos["env_id"]`` names.
        actions: For each step, one action for each environment.
        seed: Of the reset.
        between: Called before each step, with its number.
    """
    seen: list[list[Any]] = [[] for _ in range(envs.num_envs)]
    observations, infos = envs.reset(seed=seed)
    flags = np.zeros(len(infos.get("env_id", seen)), np.bool_)
    results: Any = (observations, np.zeros(len(flags)), flags, flags, infos)
    number = 0
    while True:
        ids = results[4].get("env_id", np.arange(envs.num_envs)).tolist()
        rows = iterate(envs.observation_space, results[0])
        for row, (index, observation) in enumerate(zip(ids, rows, strict=True)):
            rest = [array[row] for array in results[1:4]]
            if not seen[index]:
                assert rest == [0, False, False]  # where batches take turns, resets are handed out in the place of steps
                rest = []
            seen[index].append(deepcopy([observation, *rest, _infos_of(results[4], row, sum(rest[1:]) > 0)]))
        assert max(map(len, seen)) <= len(actions) + 2, "some environments step more often than others"
        if min(map(len, seen)) > len(actions):
            return [of_one[: len(actions) + 1] for of_one in seen]
        taken = [min(len(seen[index]), len(actions)) - 1 for index in ids]
        batch = [actions[step][index] for step, index in zip(taken, ids, strict=True)]
        if between is not None:
            between(envs, number)
        number += 1
        results = envs.step(np.array(batch))


def _infos_of(infos: dict[str, Any], row: int, ended: bool) -> dict[str, Any]:
    """The infos of one environment, sorted: the order of keys is that of the first environment of the batch that has them."""
    found: dict[str, Any] = {}
    for key in sorted(infos):
        value = infos[key]
        there = infos[f"_{key}"][row] if f"_{key}" in infos else ended or key != "final_obs"
        if there and not key.startswith("_") and key != "env_id":
            found[key] = _infos_of(value, row, ended) if isinstance(value, dict) else value[row]
    return found
