"""Callbacks that end a training, or a helper of one, as ``kill -9`` does."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from pathlib import Path

from stable_baselines3.common.callbacks import BaseCallback


class Killing(BaseCallback):
    """Kills a helper when some rounds begin."""

    def __init__(self, rounds: set[int]) -> None:
        super().__init__()
        self.rounds, self.round = rounds, 0

    def _on_rollout_start(self) -> None:
        self.round += 1
        if self.round in self.rounds:
            draw = random.Random(self.round)
            helpers = sorted([process.pid for process in multiprocessing.active_children() if process.pid is not None])
            os.kill(draw.choice(helpers), signal.SIGKILL)

    def _on_step(self) -> bool:
        return True


class Dying(BaseCallback):
    """Saves a checkpoint when one round ends, and kills its own process when a later one does."""

    def __init__(self, path: str | Path, saved: int, dies: int) -> None:
        super().__init__()
        self.path, self.saved, self.dies, self.round = path, saved, dies, 0

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.round += 1
        if self.round == self.saved:
            self.model.save_checkpoint(self.path)  # type: ignore[attr-defined]
        if self.round == self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
