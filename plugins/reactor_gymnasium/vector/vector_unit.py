"""``VectorUnit``: a vector environment (numpy, EnvPool, a simulator of a user's) as a unit of rows; it resets its rows itself."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import Space
from gymnasium.vector import AutoresetMode, VectorWrapper

from reactor_gymnasium.arguments import Bools
from reactor_gymnasium.environments.owning import own
from reactor_gymnasium.environments.returned import check_info
from reactor_gymnasium.environments.rows import StepBuffers
from reactor_gymnasium.environments.storage import ObservationLayout
from reactor_gymnasium.environments.unit_rows import UnitRows

__all__ = ["SubEnvSpec", "VectorRows", "VectorUnit", "sub_env_spec"]

_SURFACE = ("num_envs", "single_observation_space", "single_action_space", "reset", "step")


@dataclass(frozen=True)
class SubEnvSpec:
    """A member as it describes itself: how many rows it steps, their spaces, and when it resets those whose episode is over."""

    rows: int
    observation_space: Space[Any]
    action_space: Space[Any]
    autoreset_mode: AutoresetMode | None


def sub_env_spec(env: Any, where: str) -> SubEnvSpec:
    """The specification of a member.

    Raises:
        TypeError: If it is not a vector environment.
        ValueError: If it does not step all its rows together.
    """
    if missing := [name for name in _SURFACE if not hasattr(env, name)]:
        raise TypeError(
            f"{where} is not a vector environment but {env!r}, without {', '.join(missing)}. ReactorVectorEnv.of takes functions "
            "that make vector environments; give functions that make single ones to ReactorVectorEnv itself"
        )
    rows = operator.index(env.num_envs)
    config = getattr(env, "config", None)  # EnvPool's
    together = config.get("batch_size") if isinstance(config, Mapping) else getattr(env, "batch_size", None)
    if (together or rows) != rows:
        raise ValueError(f"{where} steps {together} of its {rows} environments at a time: make it without batch_size")
    return SubEnvSpec(
        rows, env.single_observation_space, env.single_action_space, getattr(env, "metadata", {}).get("autoreset_mode")
    )


class VectorUnit:
    """A vector environment.

    Args:
        env: The vector environment.
        index: Which one it is.
        specs: What those like it said of themselves when they were looked at, by index.
        layout: Of an observation.

    Attributes:
        batched: The dtype of its rewards, if that is news, else an empty string; and Gymnasium's batched infos. ``None`` for
            neither.

    Raises:
        TypeError, ValueError: If it is no vector environment, or does not step all its rows together.
        RuntimeError: If it is another one than was looked at.
    """

    over, keeps, takes_batch = False, False, True
    ended: Sequence[tuple[int, bool, bool]] = ()
    infos: Mapping[int, Any] = {}

    def __init__(self, env: Any, index: int, specs: Mapping[int, SubEnvSpec], layout: ObservationLayout) -> None:
        found, expected = sub_env_spec(env, f"shard {index}"), specs[index]
        if found != expected:
            raise RuntimeError(
                f"shard {index} is another one each time that it is made: {found}, and before that {expected}. Its function "
                "must make the same whenever it is called"
            )
        self.env = self.state = env
        self.rows, self.layout = found.rows, layout
        self.rewards: npt.NDArray[Any] = np.zeros(self.rows)
        self.flags = np.zeros(self.rows, np.bool_), np.zeros(self.rows, np.bool_)
        self.batched: tuple[str, Mapping[str, Any]] | None = None
        self._batch: Any = None  # of observations, as it was given
        self._dtype: np.dtype[Any] | None = None  # of rewards, once there were some

    def reset(self, **kwargs: Any) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        self._batch, info = self.env.reset(**kwargs)
        if self._batch is None:
            raise TypeError(f"reset() returned None as the observation, its space is {self.layout.space}")
        check_info(info, "reset")
        self.batched = ("", info) if info else None

    def step(self, actions: Any) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        self._batch, rewards, terminations, truncations, info = self.env.step(actions)
        self.rewards = self._column("rewards", rewards)
        self.flags = terminated, truncated = self._column("terminations", terminations), self._column("truncations", truncations)
        if type(info) is not dict:
            check_info(info, "step")
        dtype = ""
        if self._dtype != self.rewards.dtype:
            self._dtype = self.rewards.dtype
            dtype = self._dtype.str
        self.batched = None
        if info or dtype:
            # Last observations and infos are those of rows whose episodes have ended, even if it has no masks.
            missing = [f"_{key}" for key in ("final_obs", "final_info") if key in info and f"_{key}" not in info]
            self.batched = dtype, {**info, **dict.fromkeys(missing, np.logical_or(terminated, truncated))} if missing else info

    def _column(self, name: str, value: Any) -> npt.NDArray[Any]:
        array = np.asarray(value)
        if array.shape != (self.rows,):
            raise ValueError(f"the {name} have shape {array.shape}; of {self.rows} rows they have shape {(self.rows,)}")
        return array

    def show(self, out: StepBuffers, lo: int) -> None:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        if out.observations is not None:
            self.layout.write_block(out.observations, slice(lo, lo + self.rows), self._batch)

    def leaves(self, layout: ObservationLayout) -> list[tuple[Any, ...] | None]:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`."""
        return list(own(layout.take_block(self._batch, self.rows)))

    def last(self, row: int) -> Any:
        """See :class:`~reactor_gymnasium.environments.unit_rows.Unit`: those that reset their rows themselves keep no last one.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError


class VectorRows(UnitRows):
    """Vector environments, one after the other.

    Args:
        first: Index of the first one.
        layout: Of an observation.
        specs: See :class:`VectorUnit`.
    """

    def __init__(self, first: int, layout: ObservationLayout, specs: Mapping[int, SubEnvSpec]) -> None:
        super().__init__(first, None, partial(VectorUnit, specs=specs, layout=layout), layout, unit="shard")

    def _reset(self, number: int, env: Any, kwargs: Mapping[str, Any]) -> None:
        """Refuses what resets all its rows when it is to reset some, as those do that know nothing of masks."""
        (lo, hi), shown = self.bounds[number : number + 2], self.shown.observations
        mask: Bools | None = (kwargs.get("options") or {}).get("reset_mask")
        before = None if shown is None else shown[lo:hi].copy()
        super()._reset(number, env, kwargs)
        if mask is None or before is None or isinstance(env, VectorWrapper):  # which may change what such rows show
            return
        for part in before.dtype.names or (...,):
            if before[part][~mask].tobytes() != shown[lo:hi][part][~mask].tobytes():
                raise ValueError(
                    f"{type(env).__name__} has reset rows that options['reset_mask'] leaves out: it does not support masks. "
                    "Reset whole shards of it, or all"
                )
