"""The executor without helpers: the caller's thread does everything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reactor_rl.runtime.arena import aligned_zeros
from reactor_rl.runtime.channel import Channel
from reactor_rl.runtime.executor import Pair, Reactors
from reactor_rl.runtime.plan import Plan
from reactor_rl.runtime.worker.cells import Side

__all__ = ["Inline"]


class Inline:
    """Runs a plan of one worker."""

    name = "inline"
    spin = 0.0

    def __init__(self, plan: Plan) -> None:
        self.memory = aligned_zeros((plan.layout.size,), np.uint8).data
        self.sides: Sequence[Side | None] = (None,)
        self.channels: Mapping[Pair, Channel] = {}

    def launch(self, reactors: Sequence[Reactors]) -> None:
        assert len(reactors) == 1

    def attached(self) -> None:
        pass

    def send(self, worker: int, message: Any) -> None:
        raise AssertionError("there are no helpers")

    def sent(self, worker: int, timeout: float) -> bool:
        raise AssertionError("there are no helpers")

    def receive(self, worker: int, timeout: float) -> Any:
        raise AssertionError("there are no helpers")

    def died(self) -> tuple[int, int | None] | None:
        return None

    def stopped(self, worker: int) -> bool:
        return False

    def stop(self, grace: float | None) -> None:
        pass
