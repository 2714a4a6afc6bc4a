"""The reactor that evaluates a snapshot of the parameters while training goes on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_rl import Input, Output, Reactor, reaction, shutdown, startup
from reactor_sb3.acting.player import PlayConfig, Player
from reactor_sb3.streams import Purpose, restore, state_of

__all__ = ["Evaluation", "Evaluator"]


@dataclass(frozen=True)
class Evaluation:
    """The results of one evaluation.

    Attributes:
        timesteps: Steps of training that the evaluated parameters have seen; of a match, its number.
        returns: Of the episodes.
        lengths: Of the episodes.
    """

    timesteps: int
    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Mean return."""
        return float(np.mean(self.returns))


class Evaluator(Reactor):
    """Plays series of episodes, a slice of steps at each tick, with the parameters as they were when a series began."""

    parameters = Input()
    changed = Input()
    """See :class:`~reactor_sb3.acting.actor.Actor`."""
    timesteps = Input()
    """Steps of training that the parameters of this tick have seen, or the number of a match, ``()``, int64."""
    result = Output()

    def __init__(self, plan: PlayConfig, parameters: npt.DTypeLike, purpose: Purpose = Purpose.EVALUATION) -> None:
        self.plan, self.record, self.purpose = plan, np.dtype(parameters), purpose
        self.player: Player | None = None

    @reaction(startup)
    def build(self) -> None:
        """Make the environment."""
        self.player = Player(self.plan, self.purpose, self.record)
        self.returns: list[float] = []
        self.lengths: list[int] = []

    @reaction(timesteps, uses=(parameters, changed), effects=result)
    def evaluate(self) -> None:
        """A slice of an evaluation, or the beginning of one if it is time."""
        plan, player = self.plan, self.player
        assert player is not None
        if player.due() and (self.parameters.present or self.changed.present):
            player.begin(int(self.timesteps.value), self.changed.value if self.changed.present else self.parameters.value)
            self.returns, self.lengths = [], []
        if player.began is None:
            return
        for episode in player.play(plan.steps, plan.episodes - len(self.returns)):
            self.returns.append(episode.total)
            self.lengths.append(episode.length)
        if len(self.returns) == plan.episodes:
            self.result.set(Evaluation(player.began, tuple(self.returns), tuple(self.lengths)))
            player.began = None

    @reaction(shutdown)
    def close(self) -> None:
        """Close the environment."""
        if self.player is not None:
            player, self.player = self.player, None
            player.close()

    def __getstate__(self) -> dict[str, Any]:
        if self.player is None:
            return self.__dict__.copy()
        player = self.player
        memory = {} if player.memory is None else {"memory": player.memory}
        drawn = {} if player.random is None else {"drawn": state_of(player.random)}
        return {
            **memory, **drawn,
            "envs": player.envs.saved(), "snapshot": player.snapshot.copy(), "began": player.began, "wait": player.wait,
            "returns": self.returns, "lengths": self.lengths,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "snapshot" not in state:
            self.__dict__.update(state)
            return
        player = self.player
        assert player is not None
        player.envs.put_back(state["envs"])
        player.take(state["snapshot"])
        player.began, player.wait, player.memory = state["began"], state["wait"], state.get("memory")
        self.returns, self.lengths = list(state["returns"]), list(state["lengths"])
        if player.random is not None:
            restore(player.random, state["drawn"])
