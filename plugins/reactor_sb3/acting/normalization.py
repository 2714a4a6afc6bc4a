"""``VecNormalize`` in a trainer: its running statistics are state of the learner, and travel to the actors with the parameters.

So all actors see a round through the same statistics, those of the rounds before it (SB3's own algorithms have new ones at each
step). The learner adds what a round has brought, step by step in actor order, to the ``VecNormalize`` that the user holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from reactor_sb3.acting.records import Observations, by_step

__all__ = [
    "Normalization",
    "Normalizing",
    "add_round",
    "by_key",
    "normalized_again",
    "put_statistics",
    "statistics_of",
    "statistics_state",
]

Array = npt.NDArray[Any]
SWITCHES = ("training", "norm_obs", "norm_reward")
LIMITS = ("clip_obs", "clip_reward", "gamma", "epsilon")
_PREFIX = "(normalization) "


@dataclass(frozen=True)
class Normalization:
    """Normalisation of observations and rewards by actors and evaluators, and its place in the record of parameters.

    Attributes:
        originals: Layout of observations as the environments give them.
        keys: Which parts of them have statistics.
    """

    originals: Observations
    keys: tuple[str, ...]

    def by(self, parameters: Array) -> Normalizing:
        """The statistics in a record of parameters, see :func:`statistics_of`; valid for as long as it stays the same."""
        return Normalizing(self.keys, parameters)


class Normalizing:
    """``VecNormalize`` with statistics that stand still."""

    def __init__(self, keys: tuple[str, ...], parameters: Array) -> None:
        norm_obs, self.norm_reward = parameters[_PREFIX + "applied"].tolist()
        self.clip_obs, self.clip_reward, epsilon = parameters[_PREFIX + "limits"].tolist()
        self.of_returns = np.sqrt(parameters[_PREFIX + "var of returns"] + epsilon)
        self.moments = {
            key: (parameters[f"{_PREFIX}mean {key}"], np.sqrt(parameters[f"{_PREFIX}var {key}"] + epsilon))
            for key in (keys if norm_obs else ())
        }

    def observations(self, originals: Mapping[str, Array], normalized: Mapping[str, Array]) -> None:
        """Write normalised observations.

        Args:
            originals: Observations by key, ``(..., *shape)``.
            normalized: Where to write them, of the same shapes.
        """
        for key, rows in originals.items():
            if key in self.moments:
                mean, deviation = self.moments[key]
                normalized[key][...] = _clipped((rows - mean) / deviation, self.clip_obs)
            else:
                normalized[key][...] = rows

    def rewards(self, rewards: Array) -> Array:
        """Normalised rewards."""
        return _clipped(rewards / self.of_returns, self.clip_reward) if self.norm_reward else rewards


def _clipped(rows: Array, most: float) -> Array:
    # Not np.clip(), which takes twice as long for a few rows and gives the same bits.
    return np.minimum(np.maximum(rows, -most), most).astype(np.float32)


def by_key(normalizer: VecNormalize | None) -> dict[str, RunningMeanStd]:
    """The statistics of observations, if there are any, by key; of an observation that is an array the key is empty."""
    of_observations: Any = getattr(normalizer, "obs_rms", {})
    return dict(of_observations) if isinstance(of_observations, dict) else {"": of_observations}


def statistics_of(normalizer: VecNormalize) -> dict[str, torch.Tensor]:
    """The statistics and settings that actors need, by name."""
    values: dict[str, Any] = {
        "applied": np.array([normalizer.norm_obs, normalizer.norm_reward]),
        "limits": np.array([normalizer.clip_obs, normalizer.clip_reward, normalizer.epsilon]),
        "var of returns": np.asarray(normalizer.ret_rms.var),
    }
    for key, of_key in by_key(normalizer).items():
        values |= {f"mean {key}": np.asarray(of_key.mean), f"var {key}": np.asarray(of_key.var)}
    return {_PREFIX + name: torch.tensor(value) for name, value in values.items()}


def add_round(normalizer: VecNormalize, originals: Observations, transitions: Array) -> None:
    """Add what a round has brought to the statistics, as ``VecNormalize`` does at each step, unless it is not ``training``.

    Args:
        normalizer: The user's.
        originals: Layout of observations as the environments give them.
        transitions: A record for each actor, see :func:`reactor_sb3.acting.records.transition_record`.
    """
    if not normalizer.training:
        return
    if normalizer.norm_obs:
        observations = originals.of(transitions, "original_observations")
        for key, of_key in by_key(normalizer).items():
            # Step by step, as VecNormalize does: one update by all rows together would have other last bits.
            for rows in by_step(observations[key]):
                of_key.update(rows)
    for rewards, dones in zip(by_step(transitions["original_rewards"]), by_step(transitions["dones"]), strict=True):
        normalizer._update_reward(rewards)
        # Behind the update, which the reward of the last step is still part of.
        normalizer.returns[dones] = 0


# ---------------------------------------------------------------------- checkpoints


def statistics_state(normalizer: VecNormalize | None) -> dict[str, Any] | None:
    """All of a ``VecNormalize`` that the coming rounds depend on; plain data and arrays."""
    if normalizer is None:
        return None
    return {
        "switches": {name: bool(getattr(normalizer, name)) for name in SWITCHES},
        "limits": np.array([getattr(normalizer, name) for name in LIMITS], np.float64),
        "norm_obs_keys": normalizer.norm_obs_keys,
        "observations": {key: _moments(of_key) for key, of_key in by_key(normalizer).items()},
        "of_returns": _moments(normalizer.ret_rms),
        "returns": np.array(normalizer.returns, np.float64),
    }


def _settings(saved: dict[str, Any]) -> dict[str, Any]:
    return {
        **saved["switches"],
        **dict(zip(LIMITS, saved["limits"].tolist(), strict=True)),
        "norm_obs_keys": saved["norm_obs_keys"],
    }


def normalized_again(venv: VecEnv, saved: dict[str, Any]) -> VecNormalize:
    """A ``VecNormalize`` with the settings of one whose state has been saved, and no statistics yet."""
    return VecNormalize(venv, **_settings(saved))


def _moments(statistics: RunningMeanStd) -> dict[str, Any]:
    mean, var = np.array(statistics.mean, np.float64), np.array(statistics.var, np.float64)
    return {"mean": mean, "var": var, "count": float(statistics.count)}


def put_statistics(normalizer: VecNormalize, saved: dict[str, Any]) -> None:
    """The inverse of :func:`statistics_state`."""
    vars(normalizer).update(_settings(saved))
    normalizer.returns = saved["returns"].copy()
    statistics = {"": normalizer.ret_rms, **{f"of {key}": of_key for key, of_key in by_key(normalizer).items()}}
    moments = {"": saved["of_returns"], **{f"of {key}": of_key for key, of_key in saved["observations"].items()}}
    for name, of_name in moments.items():
        statistics[name].mean, statistics[name].var = of_name["mean"].copy(), of_name["var"].copy()
        statistics[name].count = of_name["count"]
