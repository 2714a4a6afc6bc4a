"""A channel counts: every token that is put in comes out once, between threads and between processes, however they wait."""

from __future__ import annotations

import multiprocessing
import threading
import time
from typing import Any

import pytest

from reactor_rl.runtime.channel import Channel, SpinControl

TOKENS = 200_000
WAYS = {"spinning": 200e-6, "parking at once": 0.0}


@pytest.fixture
def pair() -> Any:
    there, back = Channel(), Channel()
    yield there, back
    there.unlink()
    back.unlink()


def take(channel: Channel, spinning: SpinControl) -> None:
    if not channel.wait(spinning):
        assert channel.poll(True, 20.0)


def answer(there: Channel, back: Channel, spin: float, count: int) -> None:
    spinning = SpinControl(spin)
    for _ in range(count):
        take(there, spinning)
        back.signal()


def test_tokens_add_up() -> None:
    channel = Channel()
    for _ in range(5):
        channel.signal()
    assert [channel.poll(False) for _ in range(7)] == [True] * 5 + [False] * 2
    channel.unlink()


@pytest.mark.parametrize("spin", WAYS.values(), ids=WAYS)
def test_ping_pong_between_threads(pair: tuple[Channel, Channel], spin: float) -> None:
    there, back = pair
    count = TOKENS // 40
    thread = threading.Thread(target=answer, args=(there, back, spin, count))
    thread.start()
    spinning = SpinControl(spin)
    for _ in range(count):
        there.signal()
        take(back, spinning)
    thread.join(20.0)
    assert not thread.is_alive() and not there.poll(False) and not back.poll(False)


@pytest.mark.slow
@pytest.mark.parametrize("spin", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_ping_pong_between_processes(pair: tuple[Channel, Channel], method: str, spin: float) -> None:
    there, back = pair
    count = TOKENS // 10
    process = multiprocessing.get_context(method).Process(target=answer, args=(there, back, spin, count))
    process.start()
    try:
        spinning = SpinControl(spin)
        for _ in range(count):
            there.signal()
            take(back, spinning)
        process.join(20.0)
        assert process.exitcode == 0 and not there.poll(False) and not back.poll(False)
    finally:
        process.kill()
        process.join()


def drain(channel: Channel, done: Channel, count: int) -> None:
    spinning = SpinControl(200e-6)
    for _ in range(count):
        take(channel, spinning)
    assert not channel.poll(False)
    done.signal()


def test_no_token_is_lost_or_doubled_by_who_runs_ahead(pair: tuple[Channel, Channel]) -> None:
    channel, done = pair
    count = 5 * TOKENS
    process = multiprocessing.get_context("spawn").Process(target=drain, args=(channel, done, count))
    process.start()
    try:
        for _ in range(count):
            channel.signal()
        assert done.poll(True, 60.0) and not channel.poll(False)
        process.join(20.0)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()


def test_a_wait_that_gives_up_takes_nothing() -> None:
    channel, spinning = Channel(), SpinControl(1e-4)
    assert not channel.wait(spinning)
    assert not channel.poll(True, 1e-3)
    channel.signal()
    assert channel.wait(spinning) and not channel.poll(False)
    channel.unlink()


def test_a_sleeper_wakes_with_the_token_and_not_before() -> None:
    channel, woken = Channel(), []

    def sleep() -> None:
        woken.append((channel.poll(True, 20.0), time.monotonic()))

    thread = threading.Thread(target=sleep)
    thread.start()
    time.sleep(0.05)
    assert not woken
    signalled = time.monotonic()
    channel.signal()
    thread.join(20.0)
    ((found, at),) = woken
    assert found and at >= signalled
    channel.unlink()
