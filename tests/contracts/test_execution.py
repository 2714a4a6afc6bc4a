"""Where something runs is asked in the same words everywhere, and refused with the same ones."""

import inspect
import multiprocessing
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from mpe2 import simple_spread_v3

import reactor_gymnasium
import reactor_pettingzoo
import reactor_rl
import reactor_sb3
from reactor_gymnasium import AtariVectorEnv, ReactorVectorEnv, evaluate
from reactor_pettingzoo import MultiAgentRunner, ParallelVectorEnv, RandomPolicy, tournament
from reactor_rl.plugin import Execution
from reactor_sb3 import ReactorEvalCallback, ReactorVecEnv, SyncDQN, SyncPPO, sweep

CARTPOLE = partial(gymnasium.make, "CartPole-v1")
PLAYERS = {"all": RandomPolicy()}
"""Of a population, or of a runner."""

ASKED: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "ReactorVectorEnv": (ReactorVectorEnv, ([CARTPOLE] * 2,)),
    "ReactorVectorEnv.of": (ReactorVectorEnv.of, ([lambda: gymnasium.make_vec("CartPole-v1", 2)],)),
    "AtariVectorEnv": (AtariVectorEnv, ("pong", 2)),
    "evaluate": (evaluate, (lambda seen: seen, "CartPole-v1", 2)),
    "ReactorVecEnv": (ReactorVecEnv, ([CARTPOLE] * 2,)),
    "ReactorEvalCallback": (ReactorEvalCallback, ("CartPole-v1",)),
    "SyncDQN": (SyncDQN, ("MlpPolicy", "CartPole-v1")),
    "SyncPPO": (SyncPPO, ("MlpPolicy", "CartPole-v1")),
    "sweep": (sweep, (lambda trial: 0.0, {})),
    "ParallelVectorEnv": (ParallelVectorEnv, (lambda: None, 2)),
    "MultiAgentRunner": (MultiAgentRunner, (simple_spread_v3.parallel_env, PLAYERS)),
    "tournament": (tournament, (simple_spread_v3.parallel_env, PLAYERS)),
}

REFUSED: list[tuple[str, Any, str]] = [
    ("workers", 0, "`workers` must be positive, got 0"),
    ("workers", True, "`workers` must be an integer, got True"),
    ("workers", 1.0, "`workers` must be an integer, got 1.0"),
    ("workers", "2", "`workers` must be an integer, got '2'"),
    ("executor", "gpu", "executor must be 'auto', .*got 'gpu'"),
    ("executor", None, "executor must be 'auto', .*got None"),
    ("nodes", 2, "nodes=2 needs an executor with several machines: executor='ray'"),
    ("start_method", "thread", "start_method must be one of .*'spawn' on this system, got 'thread'"),
    ("context", "thread", "context must be one of .*'spawn' on this system, got 'thread'"),
    ("caller_works", "no", "caller_works must be True or False, got 'no'"),
    ("restarts", -1, "`restarts` must be at least 0, got -1"),
    ("restarts", None, "`restarts` must be an integer, got None"),
    *(
        ("timeout", seconds, f"timeout must be a positive number of seconds, or None for no limit, got {seconds!r}")
        for seconds in (0, -1.0, True, "1")
    ),
    ("timeout", float("nan"), "timeout must be a (positive|finite) number.*, got nan"),
]


def keywords(called: Callable[..., Any]) -> set[str]:
    try:
        return set(inspect.signature(called).parameters)
    except ValueError:  # exceptions and others in C do not say
        return set()


@pytest.mark.parametrize(
    ("name", "word", "value", "says"),
    [(name, *case) for name, (called, _) in ASKED.items() for case in REFUSED if case[0] in keywords(called)],
    ids=lambda one: one if isinstance(one, str) and " " not in one else repr(one)[:20],
)
def test_a_setting_of_no_meaning_is_named(name: str, word: str, value: Any, says: str) -> None:
    called, given = ASKED[name]
    with pytest.raises((TypeError, ValueError), match=says):
        called(*given, **{word: value})


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
@pytest.mark.parametrize(
    ("name", "word"),
    [
        (name, word)
        for name, (called, _) in ASKED.items()
        for word in ("context", "start_method")
        if {word, "restarts"} <= keywords(called)
    ],
)
def test_workers_that_are_forked_are_not_replaced(name: str, word: str) -> None:
    called, given = ASKED[name]
    with pytest.raises(ValueError, match=f"restarts=2 cannot be used with {word}='fork': a new worker"):
        called(*given, restarts=2, **{word: "fork"})


def test_numbers_of_numpy_are_pythons() -> None:
    execution = Execution(workers=np.int64(2), restarts=np.int32(1), timeout=np.float32(1.5))  # type: ignore[arg-type]
    assert [type(one) for one in (execution.workers, execution.restarts, execution.timeout)] == [int, int, float]


def test_there_is_one_word_for_one_thing() -> None:
    words: dict[str, set[str]] = {}
    for package in (reactor_rl, reactor_gymnasium, reactor_sb3, reactor_pettingzoo):
        for name in package.__all__:
            if callable(one := getattr(package, name)) and "executor" in (found := keywords(one)):
                words[name] = {word for word in found if "timeout" in word or "method" in word or "context" in word}
    hosts = {"ReactorVectorEnv", "AtariVectorEnv", "ParallelVectorEnv"}  # AsyncVectorEnv says context
    assert words.keys() >= hosts | {"evaluate", "tournament", "MultiAgentRunner", "SyncDQN", "PQN", "sweep"}
    for name, found in words.items():
        assert found <= {"timeout", "context" if name in hosts else "start_method"}, (name, found)
