"""What environments run on, decided by costs that are made up, and in processes that may not start others."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import sys
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

import reactor_gymnasium
from reactor_gymnasium import ReactorVectorEnv, placement
from reactor_gymnasium.placement import CALM, CERTAIN, LEAST, SHARD_COST, StepCosts, choose_executor, info_cost
from reactor_rl import autotune
from reactor_rl.autotune import Choice, parallel_executor


def never(*_: Any) -> Any:
    raise AssertionError("this should not have been measured")


def decided(seconds: float, helper: Any, n: int = 8, workers: int = 2, batch: int | None = None, **more: Any) -> Choice[Any]:
    arguments = {"executor": "auto", "caller_works": True} | more
    cost = helper if helper is never else lambda work: helper
    return choose_executor(lambda: StepCosts((seconds,) * n, "timed"), batch or n, workers, helper_cost=cost, **arguments)


@pytest.mark.parametrize(
    ("seconds", "n", "helper", "shared"),
    [
        (4e-6, 8, 8e-6, False),  # CartPole: 35 us alone, and no sleeping helper is woken in what it would save
        (4e-6, 32, 8e-6, True),
        (4e-6, 32, 60e-6, False),  # where waking it takes longer, or the machine is busy
        (4e-6, 64, 60e-6, True),
        (4e-6, 64, 400e-6, False),
        (1.5e-6, 8, 8e-6, False),  # FrozenLake
        (50e-6, 8, math.inf, False),
    ],
)
def test_helpers_are_taken_where_they_pay(seconds: float, n: int, helper: float, shared: bool) -> None:
    found = decided(seconds, helper, n)
    assert (found.executor, found.workers) == ((parallel_executor(), 2) if shared else ("inline", 1))
    why = "helpers cannot be started" if helper == math.inf else "too little to share" if helper < CALM else "the cores are busy"
    assert found.why == ("timed" if shared else f"timed, {why}")


def test_what_is_expected_is_a_tenth_less_than_alone() -> None:
    alone, shared = 32 * 4e-6 + SHARD_COST, 16 * 4e-6 + SHARD_COST
    assert 0.9 * alone - shared > LEAST
    assert decided(4e-6, 0.9 * alone - shared - 1e-9, 32).executor == parallel_executor()
    assert decided(4e-6, 0.9 * alone - shared + 1e-9, 32).executor == "inline"


def test_what_helpers_cost_is_asked_for_a_worker_s_share() -> None:
    asked: list[float] = []
    for batch in (32, 16):
        choose_executor(lambda: StepCosts((9e-6,) * 32, ""), batch, 2, "auto", True, lambda work: asked.append(work) or 0.0)  # type: ignore[func-returns-value]
    assert asked == pytest.approx([16 * 9e-6 + SHARD_COST, 8 * 9e-6 + SHARD_COST])


def test_infos_cost_more_from_a_helper() -> None:
    for infos, executor in ((0.0, parallel_executor()), (1e-6, "inline")):
        found = choose_executor(lambda: StepCosts((4e-6,) * 32, "", infos), 32, 2, "auto", True, lambda _: 45e-6)  # noqa: B023
        assert found.executor == executor


def test_infos_are_timed_and_nothing_is_left_behind() -> None:
    before = repr(np.random.get_state())
    with contextlib.closing(gym.make("FrozenLake-v1")) as told, contextlib.closing(gym.make("CartPole-v1")) as silent:
        assert info_cost(told) >= 0.0 == info_cost(silent)
    assert repr(np.random.get_state()) == before


def test_what_helpers_cost_is_only_measured_where_it_decides() -> None:
    assert decided(0.1e-6, never).executor == "inline"
    assert decided(1.0, never).executor == parallel_executor()
    assert decided(1e-6, never, workers=1) == Choice("inline", 1, None, "one worker")
    assert decided(1e-6, never, executor="inline") == Choice("inline", 1, None, "")
    assert decided(1e-6, never, executor="threads") == Choice("threads", 2, None, "")
    assert decided(1e-6, never, caller_works=False).executor == parallel_executor()
    assert decided(10e-3, never).executor == parallel_executor()
    assert 8 * 10e-3 > CERTAIN > 8 * 50e-6
    assert decided(50e-6, 0.0).executor == parallel_executor()


def test_each_batch_waits_for_helpers() -> None:
    assert decided(4e-6, 30e-6, n=32, batch=32).executor == parallel_executor()
    assert decided(4e-6, 30e-6, n=32, batch=8).executor == "inline"


def test_what_cannot_be_timed_is_shared() -> None:
    found = choose_executor(lambda: StepCosts(None, "no luck"), 8, 2, "auto", True, never)
    assert found == Choice(parallel_executor(), 2, None, "no luck")


def test_threads_are_not_chosen_where_workers_are_to_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    assert decided(1.0, never).executor == "threads"
    assert decided(1.0, never, restarts=1).executor == "processes"


INLINE = "executor='inline', workers=1 [a daemonic process may not start others"


@pytest.mark.slow
@pytest.mark.skipif(parallel_executor() != "processes", reason="threads may be started anywhere")
def test_in_a_worker_of_a_pool_everything_runs_inline() -> None:
    """As in ``multiprocessing.Pool`` and torch's ``DataLoader``."""
    gymnasium_s = "__import__('reactor_gymnasium').make_vec('CartPole-v1', num_envs=4, workers=2)"
    sb3_s = (
        "__import__('stable_baselines3.common.env_util', fromlist=['']).make_vec_env('CartPole-v1', n_envs=4, "
        "vec_env_cls=__import__('reactor_sb3').ReactorVecEnv, vec_env_kwargs={'workers': 2})"
    )
    stepped = "(lambda e: (e.reset(), e.step([0] * 4), repr(e), e.close())[2])"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for made in (gymnasium_s, sb3_s):
            assert INLINE in pool.apply(eval, (f"{stepped}({made})",))
        with pytest.raises(Exception, match="executor='auto' or 'inline'"):
            pool.apply(eval, (f"{gymnasium_s[:-1]}, executor='processes')",))


def _vector_env(**how: Any) -> Any:
    return ReactorVectorEnv([partial(gym.make, "CartPole-v1")] * 4, context="fork", **how)


def _joined(**how: Any) -> Any:
    return ReactorVectorEnv.of([partial(CartPoleVectorEnv, 2)] * 2, context="fork", **how)


def _atari(**how: Any) -> Any:
    pytest.importorskip("ale_py")
    return reactor_gymnasium.AtariVectorEnv("pong", 2, context="fork", **how)


def _vec_env(**how: Any) -> Any:
    return pytest.importorskip("reactor_sb3").ReactorVecEnv([partial(gym.make, "CartPole-v1")] * 4, start_method="fork", **how)


def _parallel(**how: Any) -> Any:
    spread = pytest.importorskip("mpe2.simple_spread_v3")
    return pytest.importorskip("reactor_pettingzoo").ParallelVectorEnv(spread.parallel_env, 2, context="fork", **how)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="a system without fork")
@pytest.mark.parametrize("made", [_vector_env, _joined, _atari, _vec_env, _parallel])
def test_what_helpers_cost_is_measured_with_those_that_are_started_as_asked_for(monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    asked = []
    monkeypatch.setattr(placement, "CERTAIN", math.inf)
    monkeypatch.setattr(autotune, "WORTH_IT", 1e6)
    monkeypatch.setattr(autotune, "_known", {})
    monkeypatch.setattr(autotune, "_measured", lambda spin, away, context, work: asked.append(context) or math.inf)
    with contextlib.closing(made(workers=2)):
        assert asked == ["fork"]
