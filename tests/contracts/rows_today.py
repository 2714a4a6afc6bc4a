"""Today's ``EnvBlock`` as ``EnvRows``: until it is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from reactor_gymnasium.environments.block import EnvBlock
from reactor_gymnasium.environments.rows import IDLE, EnvRows, SavedEnv, StepBuffers
from reactor_gymnasium.environments.saving import load_env, save_env


class BlockRows(EnvRows):
    def __init__(self, first: int, autoreset: Any, seeds: Any = None) -> None:
        super().__init__(first, autoreset, seeds)
        self.block = EnvBlock(first, autoreset)

    def build(self, makers: Sequence[Any], construct: Callable[..., Any] | None = None) -> None:
        self.block.build(makers, construct)
        self.pending, self.bounds = self.block.pending, range(len(makers) + 1)

    def close(self) -> None:
        self.block.close()

    def step(self, actions: Any, out: StepBuffers | None) -> None:
        self._forget()
        block = self.block
        block.mark, block.keep_infos, block.last_info, block.seeds = self.mark, self.keep_infos, self.before_reset, self.seeds
        block.step(actions, out if out is not None and out.put else None)  # type: ignore[arg-type]
        self.rewards, self.ended, self.finals, self.infos = block.rewards, block.ended, block.finals, block.infos
        for row in [row for row, pending in enumerate(block.pending) if pending == IDLE]:
            self.infos.pop(row, None)  # a kernel's step leaves them
        self.failures, self.over = list(block.failures), [row for row, _, _ in block.ended]
        if out is not None and out.rewards is not None:
            self.failures += out.write_rewards(self.rewards)
            out.write_ends(self.ended)

    def show(self, out: StepBuffers) -> None:
        self.failures = self.failures + out.write_each(self.block.observations)

    def objects(self, layout: Any) -> Any:
        return [None if seen is None else layout.take_objects(seen) for seen in self.block.observations]

    @contextmanager
    def opened(self, changes: bool = True) -> Iterator[list[Any]]:
        with self.block.opened(changes) as envs:
            yield envs

    def _reset(self, env: int, kwargs: Mapping[str, Any]) -> None:
        if info := self.block.reset(env, kwargs):
            self.infos[env] = info

    def save(self, env: int, saving: Callable[[Any], bytes] = save_env) -> SavedEnv:
        with self.block.opened() as envs:
            return SavedEnv(saving(envs[env]), self.block.observations[env], self.block.pending[env])

    def load(self, env: int, saved: SavedEnv) -> None:
        with self.block.opened() as envs:
            load_env(envs[env], saved.state)
        self.block.observations[env], self.block.pending[env] = saved.shown, saved.pending
