"""What stands in for the global generators: numbers for each tick, and the process has its own again."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.random import mtrand

from reactor_pettingzoo.runner.streams import AHEAD, OwnStreams


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
