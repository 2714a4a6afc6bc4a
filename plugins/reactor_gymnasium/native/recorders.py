"""Wrappers that record episodes, which are left out while a kernel steps what is in them.

Between the ends of episodes they do no more than count steps and note rewards. That is done for all rows at once here; what was
noted is handed over where an episode ends or begins, and before anybody looks. Ends and beginnings are the wrappers' own: their
methods are called, with a stand-in in the place of the environment.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.owning import shared
from reactor_gymnasium.native.guards import unlike
from reactor_gymnasium.native.kernel import BlockKernel, StandsFor, found_by_name, name_of

__all__ = ["KNOWN", "EpisodeStatistics", "Monitor", "Recorder", "left_out"]

Array = npt.NDArray[Any]
Env = gymnasium.Env[Any, Any]
Failures = list[tuple[int, Exception]]
"""Rows, and what a wrapper has raised there."""

LENGTH = 256
"""Steps whose rewards are kept in one array, before they are handed over."""


class Recorder(StandsFor):
    """The outermost wrappers of a block's rows.

    Args:
        wrappers: They are all of one class; nobody else refers to one.
        summed: The type of a sum of rewards.

    Attributes:
        over: Rows whose episode has ended, and none has begun.
    """

    def __init__(self, wrappers: Sequence[Any], summed: type[float]) -> None:
        self.wrappers, self.summed = wrappers, summed
        self.over: set[int] = set()
        self._inner = _StandIn()
        self._rewards = np.zeros((LENGTH, len(wrappers)))
        self._now = 0
        self._from = [0] * len(wrappers)  # what comes before it was handed over

    @classmethod
    def misfit(cls, wrapper: Any, over: bool) -> str | None:
        """Why a wrapper cannot be left out, ``None`` if it can.

        Args:
            wrapper: It is of the very class.
            over: Whether the next step resets it.
        """
        return None

    @abstractmethod
    def note(self, row: int, rewards: list[float]) -> None:
        """Do what a row's wrapper does in steps that end no episode."""

    def refuses(self) -> bool:
        """Whether a wrapper would refuse a step, for an episode is over."""
        return False

    # ------------------------------------------------------------------ steps

    def count(self, rewards: Array, left: Sequence[int]) -> None:
        """Note a step.

        Args:
            rewards: Of all rows.
            left: Those that took no step.
        """
        if self._now == LENGTH:
            self.hand_over()
            self._now, self._from = 0, [0] * len(self._from)
        self._rewards[self._now] = rewards
        self._now += 1
        for row in left:
            self._from[row] = self._now

    def record(self, kernel: BlockKernel, mode: AutoresetMode) -> tuple[dict[int, dict[str, Any]], Failures]:
        """Note a kernel's step; unless episodes are followed by others in the same step, what it has begun and ended, too.

        Args:
            kernel: The kernel.
            mode: When environments are reset.

        Returns:
            The infos of the step, if they have got more than the kernel tells, by row; and what wrappers have raised.
        """
        begun: list[int] = []
        if mode is AutoresetMode.NEXT_STEP and kernel.was_reset.any():
            begun = np.flatnonzero(kernel.was_reset).tolist()
        self.count(kernel.rewards, [*begun, *[row for row, _ in kernel.failures]])
        for row in begun:
            self.begin(row, {})
        if mode is AutoresetMode.SAME_STEP or not (over := kernel.terminated | kernel.truncated).any():
            return {}, []
        infos = kernel.infos_by_row()
        failures = self.end_all({row: infos.setdefault(row, {}) for row in np.flatnonzero(over).tolist()})
        return dict(sorted(infos.items())), failures

    def end_all(self, infos: Mapping[int, dict[str, Any]], again: bool = False) -> Failures:
        """:meth:`end` several, and let others ``begin`` in their place if that is wanted.

        Args:
            infos: By row the last info of an episode.
            again: Whether it is.

        Returns:
            What wrappers have raised.
        """
        failures: Failures = []
        for row, info in infos.items():
            try:
                self.end(row, info)
                if again:
                    self.begin(row, {})
            except Exception as error:
                failures.append((row, error))
        return failures

    def begin_all(self, resets: Mapping[int, Mapping[str, Any]]) -> None:
        """:meth:`begin` several."""
        for row, kwargs in resets.items():
            self.begin(row, kwargs)

    def end(self, row: int, info: dict[str, Any]) -> None:
        """The step that was noted last has ended a row's episode, with an info, to which the wrapper adds what it adds.

        Raises:
            Exception: What the wrapper raises.
        """
        last = self._now - 1
        self._hand_over(row, last)
        self._from[row] = self._now
        self.over.add(row)
        self._inner.shown = None, self.summed(self._rewards[last, row]), True, False, info
        self._instead(row, "step", None)

    def begin(self, row: int, kwargs: Mapping[str, Any]) -> None:
        """An episode begins in a row, whose ``reset()`` was called with some arguments."""
        self._hand_over(row, self._now)
        self.over.discard(row)
        self._instead(row, "reset", **kwargs)

    def _instead(self, row: int, method: str, *args: Any, **kwargs: Any) -> None:
        wrapper = self.wrappers[row]
        env, wrapper.env = wrapper.env, self._inner
        try:
            getattr(wrapper, method)(*args, **kwargs)
        finally:
            wrapper.env = env

    def _hand_over(self, row: int, until: int) -> None:
        begun = self._from[row]
        if begun < until:
            self._from[row] = until
            self.note(row, self._rewards[begun:until, row].tolist())

    def hand_over(self) -> None:
        """Let the wrappers have what was noted."""
        for row in range(len(self.wrappers)):
            self._hand_over(row, self._now)


class _StandIn:
    """Takes the place of the environment inside of a wrapper.

    Attributes:
        shown: What a step brings.
    """

    shown: Any = None

    def step(self, action: Any) -> Any:
        return self.shown

    def reset(self, **kwargs: Any) -> tuple[None, dict[str, Any]]:
        return None, {}


# ---------------------------------------------------------------------- those that are known


class Monitor(Recorder):
    """Stable-Baselines3's, which logs episodes to a file, too, if it is told to.

    One that has no file and no ``info_keywords`` is not called at ends, for that would take longer than all else of a step.
    """

    module, owner = "stable_baselines3.common.monitor", "Monitor"
    written_from = ("1a003521a1ab",)

    def __init__(self, wrappers: Sequence[Any], summed: type[float]) -> None:
        super().__init__(wrappers, summed)
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

    def end_all(self, infos: Mapping[int, dict[str, Any]], again: bool = False) -> Failures:
        if not again:
            return super().end_all(infos)
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
        return super().end_all(others, again) if others else []

    def begin(self, row: int, kwargs: Mapping[str, Any]) -> None:
        super().begin(row, kwargs)
        self._noted.discard(row)

    def hand_over(self) -> None:
        super().hand_over()
        for wrapper, steps in zip(self.wrappers, self._steps, strict=True):
            wrapper.total_steps += steps
        self._steps = [0] * len(self.wrappers)

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
        usual = isinstance(wrapper.episode_returns, float) and type(wrapper.episode_lengths) is int
        return None if usual else "somebody has changed its RecordEpisodeStatistics"

    def note(self, row: int, rewards: list[float]) -> None:
        wrapper = self.wrappers[row]
        total = wrapper.episode_returns
        for reward in rewards:  # not by sum(), which rounds otherwise since Python 3.12
            total += reward
        wrapper.episode_returns = self.summed(total)
        wrapper.episode_lengths += len(rewards)


KNOWN: dict[tuple[str, str], type[Recorder]] = {(kind.module, kind.owner): kind for kind in (Monitor, EpisodeStatistics)}


def left_out(env: Env, over: bool = False) -> type[Recorder] | str | None:
    """The class that records episodes instead of an environment's outermost wrapper.

    Args:
        env: The environment with its wrappers.
        over: Whether the next step resets it.

    Returns:
        The class, or why the wrapper stays where it is; ``None`` if it records no episodes.
    """
    kind = type(env)
    recorder = KNOWN.get(name_of(kind))
    if recorder is None or not found_by_name(kind):
        return None
    return unlike(kind, recorder.written_from) or recorder.misfit(env, over) or recorder
