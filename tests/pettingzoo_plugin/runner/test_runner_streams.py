"""Noise of each environment and agent; and what stands in for the global generators: numbers for each tick, lent and given back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import mtrand

from reactor_pettingzoo.runner.streams import AHEAD, OwnStreams, SeatStreams


@pytest.mark.parametrize("kind", ["normal", "gumbel", "logistic", "uniform"])
def test_noise_is_the_same_for_any_number_of_others_and_of_steps_at_once(kind: Any) -> None:
    def taken(first: int, copies: int, agents: int, *steps: int) -> Any:
        streams = SeatStreams(first, copies, agents)
        streams.begin(3)
        return np.concatenate([streams.take(kind, some, 5) for some in steps])

    noise = taken(0, 3, 2, 12)
    assert noise.shape == (12, 3, 2, 5) and len(np.unique(noise)) == noise.size
    assert noise.tobytes() == taken(0, 3, 2, 1, 4, 7).tobytes()
    assert np.array_equal(noise[:, 1:, :1], taken(1, 2, 1, 12))
    assert (noise.dtype == np.float32) is (kind != "uniform")


def drawn(own: OwnStreams, tick: int) -> tuple[float, float]:
    own.tick = tick
    with own:
        return np.random.random(), float(torch.rand(()))


def test_every_tick_has_numbers_of_its_own_whatever_was_drawn_before() -> None:
    own = OwnStreams()
    own.begin(3, 0)
    found = [drawn(own, tick) for tick in range(AHEAD + 9)]
    assert len(set(found)) == len(found)
    for tick in (AHEAD + 4, 7):
        own.begin(3, 0)
        assert drawn(own, tick) == found[tick]
    for seed, number in ((4, 0), (3, 1)):
        own.begin(seed, number)
        assert drawn(own, 7) not in found


def test_the_process_has_its_own_generators_again() -> None:
    def state() -> Any:
        legacy: Any = np.random.get_state()
        return id(mtrand.get_bit_generator()), legacy[1].tobytes(), legacy[2:], torch.get_rng_state().tolist()

    own = OwnStreams()
    own.begin(0, 0)
    before = state()
    drawn(own, 0)
    assert state() == before
