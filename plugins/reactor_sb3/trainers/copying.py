"""Copy a trainer, as SB3's algorithms can be copied: all of it except its run."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from reactor_sb3.acting.forwards import copied
from reactor_sb3.acting.normalization import normalized_again, put_statistics, statistics_state
from reactor_sb3.environments.makers import spare_envs

__all__ = ["copy_of"]

SHARED = frozenset({"arguments", "observation_space", "action_space", "policy_class", "lr_schedule", "nodes"})
"""Attributes that nobody changes."""
LEFT = frozenset({"session", "nets", "env", "policy", "_run", "_vec_normalize_env", "_logger", "_custom_logger"})
"""Attributes that a copy has of its own."""


def copy_of(model: Any, memo: dict[int, Any]) -> Any:
    """Copy a trainer: weights, optimisers, replay buffer, counters, settings and random streams, with environments of its own.

    The next ``learn()`` of the copy begins a run of its own, with new episodes, as after ``close()``.

    Raises:
        TypeError: If it is a league.
    """
    if model.session.referee is not None:
        raise TypeError(
            f"a {type(model).__name__} with a league cannot be copied, as its matches belong to a run: use save() and load(), or "
            "save_checkpoint() and resume()"
        )
    made = object.__new__(type(model))
    memo[id(model)] = made
    values = vars(made)
    values.update({name: value for name, value in vars(model).items() if name in SHARED})
    values["policy"] = copied(model.policy, memo)
    for name, value in vars(model).items():
        if name not in SHARED and name not in LEFT:
            values[name] = copy.deepcopy(value, memo)
    values["_custom_logger"] = False
    old, new = model.session, type(model.session)(model.session.evaluate_env, model.session.display.env)
    values["session"] = new
    values["env"], values["_vec_normalize_env"] = _envs_of(model), None
    made._setup_actors()
    new.streams = copy.deepcopy(old.streams)
    new.generator.set_state(old.generator.get_state())
    new.report.evaluations, new.discounts = list(old.report.evaluations), dict(old.discounts)
    if hasattr(old, "arrays"):
        new.arrays = type(old.arrays)()
        new.arrays.look(made.replay_buffer)
    made._make_networks()
    made.cut_episodes(np.ones(made.n_envs, np.bool_))
    return made


def _envs_of(model: Any) -> VecEnv | None:
    if model.env is None:
        return None
    venv: VecEnv = spare_envs(model.session.makes, model.n_envs)
    statistics = statistics_state(model._vec_normalize_env)
    if statistics is not None:
        venv = normalized_again(venv, statistics)
    wrapped: VecEnv = model._wrap_env(venv)
    if statistics is not None:
        normalizer = unwrap_vec_normalize(wrapped)
        assert normalizer is not None
        put_statistics(normalizer, statistics)
    return wrapped
