"""Which trainings are not worth going on with: judged by trials before them alone, so never by which one was faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reactor_gymnasium.plugin import checked_number
from reactor_sb3.sweeping.trials import SearchedTrial

__all__ = ["Pruner", "SuccessiveHalving"]


class Pruner:
    """Judges the reports of each trial's first training."""

    rungs: tuple[int, ...] = ()
    """Steps at which trials are compared; empty where every report is judged."""

    def stops(self, before: Sequence[SearchedTrial], ended: int, own: SearchedTrial, step: int, sign: int) -> bool | None:
        """Whether a training is to stop; ``None`` if that cannot be told yet, because a trial before it has not come as far.

        Args:
            before: The trials before it.
            ended: How many of them had ended when it was drawn, whatever has ended by now.
            own: Its trial, which has reported at ``step`` last.
            step: The step.
            sign: 1 if more is better, -1 if less is.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SuccessiveHalving(Pruner):
    """Lets a training pass a rung if it is among the best that have come so far: itself and the trials before it.

    Args:
        rungs: Steps at which trials are compared, each by the first report at or after it.
        reduction_factor: One in so many passes a rung; while there are fewer, the best one does.

    Raises:
        ValueError: If there is no rung, they do not rise, or a number makes no sense.
    """

    rungs: tuple[int, ...]
    reduction_factor: int = 3

    def __post_init__(self) -> None:
        rungs = tuple(self.rungs)
        for rung in rungs:
            checked_number("rungs", rung, 1)
        if not rungs or list(rungs) != sorted(set(rungs)):
            raise ValueError(f"rungs must be steps that rise, at least one, got {self.rungs!r}")
        checked_number("reduction_factor", self.reduction_factor, 2)
        object.__setattr__(self, "rungs", rungs)

    def stops(self, before: Sequence[SearchedTrial], ended: int, own: SearchedTrial, step: int, sign: int) -> bool | None:
        earlier = max((one for one in own.first.reports if one < step), default=-1)
        passed = [rung for rung in self.rungs if earlier < rung <= step]
        if not passed:
            return False
        rung = passed[-1]
        theirs = []
        for one in before:
            value = _at(one.first.reports, rung)
            if value is not None:
                theirs.append(sign * value)
            elif one.first.end is None:
                return None
        mine = sign * own.first.reports[step]
        best = sorted([*theirs, mine], reverse=True)
        return mine < best[max(len(best) // self.reduction_factor, 1) - 1]


def _at(reports: Mapping[int, float], rung: int) -> float | None:
    """The first report at or after a rung."""
    steps = [step for step in reports if step >= rung]
    return reports[min(steps)] if steps else None
