"""Forms of wrappers that record episodes.

Between the ends of episodes they do no more than count steps and note rewards. That is done for all rows at once here; what was
noted is handed over where an episode ends or begins, and before anybody looks. Ends and beginnings are the wrappers' own: their
methods are called, with a stand-in in the place of the environment.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reactor_gymnasium.environments.owning import shared
from reactor_gymnasium.native.forms import ALL, InPlaceOf, RowForm, RowResults, numbers_of

__all__ = ["RECORDERS", "EpisodeStatistics", "Monitor", "Recorder"]

Array = npt.NDArray[Any]

LENGTH = 256
"""Steps whose rewards are kept in one array, before they are handed over: once for so many steps, Python's lists cost little, and
the array stays in a near cache.
"""


class Recorder(RowForm):
    """The wrappers of one level that record episodes.

    Attributes:
        over: Rows whose episode has ended, and none has begun.
    """

    saves, asks_ends, counts = 1.5, True, True

    def __init__(self, wrappers: Sequence[Any]) -> None:
        super().__init__(wrappers)
        self.over: set[int] = set()
        self.kind: type = float  # of the rewards that were noted last
        self._rewards = np.zeros((LENGTH, len(wrappers)))
        self._now = 0
        self._from = [0] * len(wrappers)  # what comes before it was handed over

    @abstractmethod
    def note(self, row: int, rewards: list[float]) -> None:
        """Do what a row's wrapper does in steps that end no episode."""

    # ------------------------------------------------------------------ steps

    def outward(self, results: RowResults) -> None:
        """See :meth:`RowForm.outward`."""
        if results.moved is not None:
            self.count_step(results.rewards, results.kind)
            if results.moved is not ALL:
                for row in {*range(results.n)}.difference(numbers_of(results.moved, results.n)):
                    self._hand_over(row, self._now - 1)
                    self._from[row] = self._now
            if results.ended:
                moved, infos = numbers_of(results.moved, results.n), results.infos
                self.end_all(results, {row: infos.setdefault(row, {}) for row in results.ended if row in moved})
        if results.begun is not None and not results.again:
            for row in numbers_of(results.begun, results.n):
                self.begin(row, results.reset_arguments(row))

    def count_step(self, rewards: Array, kind: type) -> None:
        """See :meth:`RowForm.count_step`."""
        if kind is not self.kind:
            self.give_back()
            self.kind = kind
        if self._now == LENGTH:
            self.give_back()
            self._now, self._from = 0, [0] * len(self._from)
        self._rewards[self._now] = rewards
        self._now += 1

    def end_all(self, results: RowResults, infos: Mapping[int, dict[str, Any]]) -> None:
        """:meth:`end` several, and let others ``begin`` in their place if rows are reset in the same step.

        Args:
            results: Of the step.
            infos: By row the last info of an episode.
        """
        for row, info in infos.items():
            try:
                self.end(row, info)
                if results.again:
                    self.begin(row, {})
            except Exception as error:
                results.fail(row, error)

    def end(self, row: int, info: dict[str, Any]) -> None:
        """The step that was noted last has ended a row's episode, with an info, to which the wrapper adds what it adds.

        Raises:
            Exception: What the wrapper raises.
        """
        last = self._now - 1
        self._hand_over(row, last)
        self._from[row] = self._now
        self.over.add(row)
        self._instead(row, (None, self.kind(self._rewards[last, row]), True, False, info), {})

    def begin(self, row: int, kwargs: Mapping[str, Any]) -> None:
        """An episode begins in a row, whose ``reset()`` was called with some arguments."""
        self._hand_over(row, self._now)
        self.over.discard(row)
        self._instead(row, (None, {}), kwargs)

    def _instead(self, row: int, returned: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        wrapper = self.wrappers[row]
        env, wrapper.env = wrapper.env, InPlaceOf(wrapper.env, returned)
        try:
            wrapper.step(None) if len(returned) == 5 else wrapper.reset(**kwargs)
        finally:
            wrapper.env = env

    def one(self, row: int, returned: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """See :meth:`RowForm.one`."""
        if len(returned) == 2:
            self.over.discard(row)
        elif returned[2] or returned[3]:
            self.over.add(row)
        return super().one(row, returned, kwargs)

    def give(self, row: int) -> None:
        """Let a row's wrapper have what was noted."""
        self._hand_over(row, self._now)

    def _hand_over(self, row: int, until: int) -> None:
        begun = self._from[row]
        if begun < until:
            self._from[row] = until
            self.note(row, self._rewards[begun:until, row].tolist())


# ---------------------------------------------------------------------- those that are known


class Monitor(Recorder):
    """Stable-Baselines3's, which logs episodes to a file, too, if it is told to.

    One that has no file and no ``info_keywords`` is not called at ends, for that would take longer than all else of a step.
    """

    module, owner = "stable_baselines3.common.monitor", "Monitor"
    written_from = ("1a003521a1ab",)

    def __init__(self, wrappers: Sequence[Any]) -> None:
        super().__init__(wrappers)
        self._plain = list(map(_plain, wrappers))
        self._noted = {row for row, wrapper in enumerate(wrappers) if wrapper.rewards}  # whose `rewards` are not empty
        self._steps = [0] * len(wrappers)  # which `total_steps` does not count yet

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        if not wrapper.allow_early_resets:
            return "its Monitor refuses early resets"
        if wrapper.reset_keywords:
            return "its Monitor has reset_keywords"
        if shared(map(vars(wrapper).get, ("rewards",))):
            return "somebody else refers to its Monitor's rewards"
        kept = wrapper.rewards, wrapper.episode_returns, wrapper.episode_lengths, wrapper.episode_times
        if any(type(one) is not list for one in kept) or type(wrapper.total_steps) is not int:
            return "somebody has changed its Monitor"
        return "its Monitor needs a reset" if wrapper.needs_reset and not over else None

    def note(self, row: int, rewards: list[float]) -> None:
        self.wrappers[row].rewards += rewards
        self._noted.add(row)
        self._steps[row] += len(rewards)

    def end_all(self, results: RowResults, infos: Mapping[int, dict[str, Any]]) -> None:
        if not results.again:
            super().end_all(results, infos)
            return
        now, until, others = time.time(), self._now, {}
        plain, all_rewards, begun, noted, steps = self._plain, self._rewards, self._from, self._noted, self._steps
        for row, info in infos.items():
            of_row = plain[row]
            if of_row is None:
                others[row] = info
                continue
            started, returns, lengths, times = of_row
            rewards = all_rewards[begun[row] : until, row].tolist()
            begun[row] = until
            steps[row] += len(rewards)
            if row in noted:
                noted.remove(row)
                wrapper = self.wrappers[row]
                rewards, wrapper.rewards = wrapper.rewards + rewards, []
            total, length, seconds = sum(rewards), len(rewards), now - started
            rounded = total if total.is_integer() else round(total, 6)  # which takes a while
            info["episode"] = {"r": rounded, "l": length, "t": int(seconds * 1e6 + 0.5) / 1e6}  # likewise
            returns.append(total)
            lengths.append(length)
            times.append(seconds)
        if others:
            super().end_all(results, others)

    def begin(self, row: int, kwargs: Mapping[str, Any]) -> None:
        super().begin(row, kwargs)
        self._noted.discard(row)

    def give(self, row: int) -> None:
        super().give(row)
        self.wrappers[row].total_steps += self._steps[row]
        self._steps[row] = 0

    def take(self, row: int) -> bool:
        (self._noted.add if self.wrappers[row].rewards else self._noted.discard)(row)
        return True

    def refuses(self) -> bool:
        return bool(self.over)


def _plain(wrapper: Any) -> tuple[float, list[float], list[int], list[float]] | None:
    """The beginning of the times of a Monitor, and what it keeps of episodes; ``None`` if more is to be done at ends."""
    if wrapper.results_writer is not None or wrapper.info_keywords or wrapper.current_reset_info:
        return None
    return wrapper.t_start, wrapper.episode_returns, wrapper.episode_lengths, wrapper.episode_times


class EpisodeStatistics(Recorder):
    """Gymnasium's."""

    module, owner = "gymnasium.wrappers.common", "RecordEpisodeStatistics"
    written_from = ("656d2a395c96",)

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        usual = type(wrapper.episode_returns) in (float, np.float64, np.float32) and type(wrapper.episode_lengths) is int
        return None if usual else "somebody has changed its RecordEpisodeStatistics"

    def note(self, row: int, rewards: list[float]) -> None:
        wrapper, kind = self.wrappers[row], self.kind
        total = wrapper.episode_returns
        if kind is np.float64:
            total = np.float64(total)
        elif kind is not float:
            rewards = [*map(kind, rewards)]
        for reward in rewards:  # not by sum(), which rounds otherwise since Python 3.12
            total += reward
        wrapper.episode_returns = total
        wrapper.episode_lengths += len(rewards)

    def take(self, row: int) -> bool:
        return self.misfit(self.wrappers[row], False) is None


RECORDERS: tuple[type[Recorder], ...] = (Monitor, EpisodeStatistics)
