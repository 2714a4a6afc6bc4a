"""The reactor that steps members: vector environments that step many rows by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import VectorWrapper

from reactor_gymnasium.environments.columns import Block
from reactor_gymnasium.environments.env_state import load
from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.environments.storage import Leaves
from reactor_gymnasium.vector.arguments import Bools
from reactor_gymnasium.vector.members import Facts, facts_of
from reactor_gymnasium.vector.shard import Failures, Infos, Shard
from reactor_rl.plugin import decode, loads

__all__ = ["MemberShard", "Told"]

Told = tuple[list[tuple[int, str]], list[Block]]
"""Dtypes of rewards, by member, when they are new; and infos, by rows of the vector environment."""


@dataclass
class _Member:
    """A vector environment, its rows in this reactor, and the dtype of its rewards, once it has given some."""

    env: Any
    rows: slice
    rewards: np.dtype[Any] | None = None


class MemberShard(Shard):
    """Members ``first`` to ``first + len(makers) - 1`` of a vector environment; each has several rows.

    Args:
        makers: What makes them, each encoded by itself.
        facts: What they said of themselves when they were looked at.
        first: Index of the first one.
        row: Its first row.
        watched: Whether to tell at any time which member is being stepped.
        ways: How each of them can be saved, if that is known already.
    """

    unit = "shard"
    envs: list[_Member]

    def __init__(
        self,
        makers: Sequence[Any],
        facts: Sequence[Facts],
        first: int,
        row: int,
        watched: bool = False,
        ways: Sequence[str | None] = (),
    ) -> None:
        super().__init__(first, row, sum(one.rows for one in facts), Leaves(facts[0].observation_space), watched, ways)
        self.makers, self.facts = tuple(makers), tuple(facts)
        self.last = [None] * len(facts)  # of each member, batched
        self.news: list[tuple[int, str]] = []

    # ------------------------------------------------------------------ start and end

    def build(self) -> None:
        row = 0
        for index, (maker, expected) in enumerate(zip(self.makers, self.facts, strict=True), self.first):
            try:
                env = decode(maker)()
                self.envs.append(_Member(env, slice(row, row + expected.rows)))
                found = facts_of(env, f"shard {index}")
            except Exception as error:
                error.add_note(f"while shard {index} was constructed")
                raise
            if found != expected:
                raise RuntimeError(
                    f"shard {index} is another one each time that it is made: {found}, and before that {expected}. Its function "
                    "must make the same whenever it is called"
                )
            row += expected.rows

    # ------------------------------------------------------------------ steps

    def step(self) -> None:
        together = self.actions.present
        given: Any = self.actions.value if together else self.items.value
        infos: Infos = {}
        failures: Failures = []
        rows = self.observations.buffer if self.leaves.arrays else None
        flags = self.rewards.buffer, self.terminations.buffer, self.truncations.buffer
        for number, member in zip(self._numbers(), self.envs, strict=True):
            try:
                # It may keep the actions that it was given, so they must not be a view of the port.
                actions = given[member.rows].copy() if together else given[number]
                observations, *of_rows, info = member.env.step(actions)
                self.last[number] = own(observations)  # it, or the next member, may write into the same arrays again
                if rows is not None:
                    self.leaves.write_block(rows, member.rows, observations)
                self._write_flags(member, flags, of_rows)
                if info:
                    infos[number] = _masked(own(info), flags[1][member.rows] | flags[2][member.rows])
            except Exception as error:  # the others still take their step
                failures.append(self._failure(number, error))
        self._send({}, infos, failures)

    def _write_flags(self, member: _Member, flags: Sequence[Any], given: Sequence[Any]) -> None:
        """Write rewards, terminations and truncations."""
        rows = member.rows.stop - member.rows.start
        for name, out, value in zip(("rewards", "terminations", "truncations"), flags, given, strict=True):
            array = np.asarray(value)
            if array.shape != (rows,):
                raise ValueError(f"the {name} have shape {array.shape}; of {rows} rows they have shape {(rows,)}")
            out[member.rows] = array
            if name == "rewards" and member.rewards != array.dtype:
                member.rewards = array.dtype
                self.news.append((self.first + self.envs.index(member), array.dtype.str))

    # ------------------------------------------------------------------ other requests

    def _begin_episode(self, number: int, kwargs: dict[str, Any], infos: Infos) -> None:
        member = self.envs[number]
        mask: Bools | None = (kwargs.get("options") or {}).get("reset_mask")
        before = self.last[number]
        observations, info = member.env.reset(**kwargs)
        self.last[number] = own(self._begun(observations))
        if mask is not None and not isinstance(member.env, VectorWrapper):  # a wrapper may change what it gives of rows left alone
            self._check_left_alone(member, ~mask, before, self.last[number])
        if info:
            infos[number] = own(info)

    def _write_last(self, failures: Failures) -> None:
        rows = self.observations.buffer
        for number, (member, observations) in enumerate(zip(self.envs, self.last, strict=True)):
            if observations is not None:
                try:
                    self.leaves.write_block(rows, member.rows, observations)
                except Exception as error:
                    failures.append(self._failure(number, error))

    def _check_left_alone(self, member: _Member, alone: Bools, before: Any, after: Any) -> None:
        """Refuse what reset all its rows when it was to reset some, as those do that know nothing of masks."""
        for path, _, _ in self.leaves.arrays:
            old, new = before, after
            for key in path:
                old, new = old[key], new[key]
            if np.asarray(old)[alone].tobytes() != np.asarray(new)[alone].tobytes():
                raise ValueError(
                    f"{type(member.env).__name__} has reset rows that options['reset_mask'] leaves out: it does not support masks. "
                    "Reset whole shards of it, or all"
                )

    def _send(self, finals: Infos, infos: Infos, failures: Failures) -> None:
        if self.leaves.objects:
            self.objects.set(
                [
                    leaves
                    for member, observations in zip(self.envs, self.last, strict=True)
                    for leaves in self.leaves.take_block(observations, member.rows.stop - member.rows.start)
                ]
            )
        if infos or failures or self.news:
            rows = [self.envs[number].rows for number in infos]
            blocks = [
                (self.row + of_one.start, of_one.stop - of_one.start, info)
                for of_one, info in zip(rows, infos.values(), strict=True)
            ]
            self.extras.set(((self.news, blocks), failures))
            self.news = []

    # ------------------------------------------------------------------ snapshots

    def __getstate__(self) -> dict[str, Any]:
        if not self.envs:  # before they are made
            return self.__dict__.copy()
        kept = [
            self._saved(number, member.env, last, maker, "ReactorVectorEnv.of")
            for number, (member, last, maker) in enumerate(zip(self.envs, self.last, self.makers, strict=True))
        ]
        return {"kept": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        for number, (member, (saved, last)) in enumerate(zip(self.envs, state["kept"], strict=True)):
            load(member.env, saved)
            self.last[number] = loads(last)


def _masked(info: dict[str, Any], ended: Bools) -> dict[str, Any]:
    """Infos in which last observations and infos are those of rows whose episodes have ended, even if the member has no masks."""
    missing = {f"_{key}": ended for key in ("final_obs", "final_info") if key in info and f"_{key}" not in info}
    return {**info, **missing}
