"""What environments went through since the last ``sample()``, kept as columns: one array per vector step, not one item per row.

Shapes: ``N`` environments, ``K`` vector steps. An environment's rows between two of its steps are cut out at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tree

from reactor_ray.rllib.episodes import Rows

__all__ = ["Fragment"]


class Fragment:
    """The columns of the steps from :meth:`begin` or :meth:`go_on` on. A step's index counts from there.

    Args:
        lookback: How many steps before a fragment its episodes may look back at.
    """

    def __init__(self, lookback: int) -> None:
        self._keep = lookback
        self._observations: list[Any] = []
        self._infos: list[list[dict[str, Any]]] = []
        self._actions: list[Any] = []
        self._rewards: list[Any] = []
        self._extras: dict[str, list[Any]] = {}
        self._times: list[float] = []
        self._before = 0
        self._stacked: tuple[Any, Any, Any, dict[str, Any]] | None = None

    def begin(self, observations: Any, infos: list[dict[str, Any]], time: float) -> None:
        """Forget everything: all environments were reset.

        Args:
            observations: ``(N, *shape)``, nested as the space is.
            infos: ``N`` of them.
            time: When, by ``time.perf_counter()``.
        """
        self._observations, self._infos, self._times = [observations], [infos], [time]
        self._actions, self._rewards, self._extras = [], [], {}
        self._before, self._stacked = 0, None

    def resume(self, time: float) -> None:
        """What comes next begins now, not when the newest step was taken."""
        self._times[-1] = time

    def go_on(self) -> None:
        """Forget what no next step looks back at."""
        steps, self._before = len(self._actions), min(self._keep, len(self._actions))
        for column in (self._observations, self._infos, self._times, self._actions, self._rewards, *self._extras.values()):
            del column[: steps - self._before]
        self._stacked = None

    def add(
        self, actions: Any, extras: dict[str, Any], observations: Any, rewards: Any, infos: list[dict[str, Any]], time: float
    ) -> None:
        """Add a vector step, of which nothing may change afterwards."""
        if not len(self):
            self._extras = {name: self._extras.get(name, []) for name in extras}
        self._actions.append(actions)
        for name, column in self._extras.items():
            column.append(extras[name])
        self._observations.append(observations)
        self._rewards.append(rewards)
        self._infos.append(infos)
        self._times.append(time)

    @property
    def observations(self) -> Any:
        """The newest: ``(N, *shape)``, nested as the space is."""
        return self._observations[-1]

    def __len__(self) -> int:
        return len(self._actions) - self._before

    def times(self, lo: int, hi: int) -> tuple[float, float]:
        """When an environment's steps from ``lo`` to before ``hi`` began, and when the last was taken."""
        return self._times[self._before + lo], self._times[self._before + hi]

    def rows(self, env: int, lo: int, hi: int, taken: int) -> Rows:
        """An environment's steps from ``lo`` to before ``hi`` as arrays, which are views of the fragment's.

        Args:
            env: Which environment.
            lo: The first step.
            hi: One more than the last.
            taken: How many steps of the same episode came before this fragment.
        """
        if self._stacked is None:
            extras = {name: _joined(column) for name, column in self._extras.items()}
            self._stacked = _joined(self._observations), _joined(self._actions), np.stack(self._rewards, axis=1), extras
        observations, actions, rewards, extras = self._stacked
        back, first, end = self._cut(lo, hi, taken)
        return Rows(
            observations=tree.map_structure(_of(env, slice(first, end + 1)), observations),
            actions=tree.map_structure(_of(env, slice(first, end)), actions),
            rewards=rewards[env, first:end],
            infos=[row[env] for row in self._infos[first : end + 1]],
            extras={name: tree.map_structure(_of(env, self._cut_of(name, first, end)), column) for name, column in extras.items()},
            steps=hi - lo,
            lookback=back,
        )

    def items(self, env: int, lo: int, hi: int, taken: int) -> Rows:
        """The same as lists of single items, as an episode has them while it goes on."""
        back, first, end = self._cut(lo, hi, taken)

        def single(rows: list[Any]) -> list[Any]:
            return [tree.map_structure(lambda leaf: leaf[env], row) for row in rows]

        return Rows(
            observations=single(self._observations[first : end + 1]),
            actions=single(self._actions[first:end]),
            rewards=[row[env] for row in self._rewards[first:end]],
            infos=[row[env] for row in self._infos[first : end + 1]],
            extras={name: single(column[self._cut_of(name, first, end)]) for name, column in self._extras.items()},
            steps=hi - lo,
            lookback=back,
        )

    def _cut(self, lo: int, hi: int, taken: int) -> tuple[int, int, int]:
        """How many steps of lookback, and the first and one more than the last row, lookback included."""
        back = min(self._before, taken) if lo == 0 else 0
        return back, self._before + lo - back, self._before + hi

    def _cut_of(self, name: str, first: int, end: int) -> slice:
        """The same rows of what the module said besides, which it may have begun to say with this fragment."""
        late = len(self._actions) - len(self._extras[name])
        return slice(max(first - late, 0), end - late)


def _joined(rows: list[Any]) -> Any:
    """Rows ``(N, *shape)`` as arrays ``(N, K, *shape)``, so that what belongs to an environment lies together."""
    return tree.map_structure(lambda *leaves: np.stack(leaves, axis=1), *rows)


def _of(env: int, cut: slice) -> Callable[[Any], Any]:
    return lambda leaf: leaf[env, cut]
