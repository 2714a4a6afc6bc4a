"""The reactor that steps a contiguous block of Gymnasium environments: the unit of placement. Row = index of environment."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode

from reactor_gymnasium.environments.block import EnvBlock
from reactor_gymnasium.environments.env_state import load
from reactor_gymnasium.environments.folded import Folded
from reactor_gymnasium.environments.storage import Casting, Leaves
from reactor_gymnasium.vector.shard import Failures, Infos, Shard
from reactor_rl.plugin import loads

__all__ = ["EnvShard"]


class EnvShard(Shard):
    """Environments ``first`` to ``first + len(env_fns) - 1`` of a vector environment.

    Args:
        env_fns: What makes them, each encoded by itself: what two of them share must not depend on where they are.
        first: Index of the first one.
        row: Row of the first one in its batch.
        single_observation_space: The space that its observations are batched by.
        single_action_space: The space that every environment's actions come from.
        same_observations: Whether observation spaces must be equal, or only have the same shape and dtype.
        autoreset_mode: When an environment whose episode has ended is reset.
        apart: See :func:`~reactor_gymnasium.environments.infos.pack`.
        casting: See :class:`~reactor_gymnasium.environments.storage.Leaves`.
        owner: Name of the class that the user has made, for messages.
        watched: Whether to tell at any time which environment is being stepped.
        ways: How each of them can be saved, if that is known already.
        whole: Whether it has every environment, in the caller's process.
    """

    envs: list[Folded]

    def __init__(
        self,
        env_fns: Sequence[Any],
        first: int,
        row: int,
        single_observation_space: gymnasium.Space[Any],
        single_action_space: gymnasium.Space[Any],
        same_observations: bool,
        autoreset_mode: AutoresetMode,
        apart: bool,
        casting: Casting,
        owner: str,
        watched: bool = False,
        ways: Sequence[str | None] = (),
        whole: bool = False,
    ) -> None:
        super().__init__(first, row, len(env_fns), Leaves(single_observation_space, casting), watched, ways)
        self.apart, self.owner, self.env_fns, self.whole = apart, owner, tuple(env_fns), whole
        self.single_observation_space, self.single_action_space = single_observation_space, single_action_space
        self.same_observations, self.autoreset_mode = same_observations, autoreset_mode

    # ------------------------------------------------------------------ start and end

    def build(self) -> None:
        block = self.block = EnvBlock(self.first, self.autoreset_mode)
        self.envs, self.last = block.envs, block.observations
        block.build(self.env_fns)
        self._check_spaces()
        self.pack_rewards = struct.Struct(f"{len(self.envs)}d").pack_into  # three times as fast as numpy with a list of numbers

    def _check_spaces(self) -> None:
        for index, held in enumerate(self.envs, self.first):
            env = held.env
            if self.same_observations:
                if env.observation_space != self.single_observation_space:
                    raise RuntimeError(
                        f"{self.owner}(..., observation_mode='same') however the sub-environments observation spaces are not "
                        f"equivalent. Environment {index} has {env.observation_space}, environment 0 has "
                        f"{self.single_observation_space}. If this is intentional, use `observation_mode='different'` instead."
                    )
            elif not is_space_dtype_shape_equiv(env.observation_space, self.single_observation_space):
                raise RuntimeError(
                    f"{self.owner}(..., observation_mode='different' or custom space) however the sub-environments observation "
                    f"spaces do not share a common shape and dtype: environment {index} has {env.observation_space}, expected is "
                    f"{self.single_observation_space}"
                )
            if env.action_space != self.single_action_space:
                raise RuntimeError(
                    f"Environment {index} has the action space {env.action_space}, different from {self.single_action_space} of "
                    "environment 0. In order to batch actions, the action spaces from all environments must be equal."
                )

    # ------------------------------------------------------------------ steps

    def step(self) -> None:
        block = self.block
        if self.watched:
            block.mark = self.at.buffer
        block.step(self.actions.value if self.actions.present else self.items.value, self._bound())
        failures: Failures = []
        if block.failures:  # a comprehension over nothing costs a call
            failures = [self._failure(row, error) for row, error in block.failures]
        self._write_rewards(block.rewards, failures)
        terminations, truncations = self.terminations.buffer, self.truncations.buffer
        terminations.fill(False)
        truncations.fill(False)
        for row, terminated, truncated in block.ended:
            terminations[row], truncations[row] = terminated, truncated
        finals: Infos = {}
        if block.finals:
            finals = {row: {"final_obs": last, "final_info": info} for row, (last, info) in block.finals.items()}
        if finals or block.infos or failures or self.leaves.objects:
            self._send(finals, block.infos, failures)

    def _write_rewards(self, rewards: list[Any], failures: Failures) -> None:
        out = self.rewards.buffer
        try:
            self.pack_rewards(out, 0, *rewards)
        except (struct.error, TypeError, ValueError, OverflowError):
            # An array of one element is a reward too; anything else is that environment's mistake.
            for row, reward in enumerate(rewards):
                try:
                    out[row] = np.asarray(reward, np.float64).item()
                except (TypeError, ValueError, OverflowError) as error:
                    error.add_note(f"the reward is {reward!r}")
                    failures.append(self._failure(row, error))

    # ------------------------------------------------------------------ other requests

    def serve(self) -> None:
        with self.block.opened():
            super().serve()

    def _begin_episode(self, number: int, kwargs: dict[str, Any], infos: Infos) -> None:
        info = self.block.reset(number, kwargs)
        if info:
            infos[number] = info

    def _write_last(self, failures: Failures) -> None:
        if out := self._bound():
            failures += [self._failure(row, error) for row, error in out.write_each(self.last)]

    # ------------------------------------------------------------------ snapshots

    def __getstate__(self) -> dict[str, Any]:
        if not self.envs:  # before they are made
            return self.__dict__.copy()
        with self.block.opened():
            kept = [
                self._saved(row, held.env, last, make, self.owner)
                for row, (held, last, make) in enumerate(zip(self.envs, self.last, self.env_fns, strict=True))
            ]
        return {"kept": kept, "done": list(self.block.pending)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "kept" not in state:
            self.__dict__.update(state)
            return
        with self.block.opened():
            for row, (held, (saved, last)) in enumerate(zip(self.envs, state["kept"], strict=True)):
                load(held.env, saved)
                self.last[row] = loads(last)
        self.block.pending = state["done"]
