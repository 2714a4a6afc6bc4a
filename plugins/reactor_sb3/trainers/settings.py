"""Follow changes of a trainer's settings. What SB3 lets one change counts from the next round on, or is refused by name.

SB3's loops read attributes of the model whenever they need them. Here actors have copies, and a run has ports of one size. So the
model's attributes are compared with what they were at the beginning of each round: by identity, which is quick.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.noise import ActionNoise, VectorizedActionNoise

from reactor_gymnasium.plugin import checked_number
from reactor_rl.plugin import dumps
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.program import ProgramConfig

__all__ = ["Settings", "check_finite_arguments", "check_settings"]

MOVING = frozenset({
    "num_timesteps", "_episode_num", "_n_updates", "_n_calls", "_learned_timesteps", "_current_progress_remaining",
    "_total_timesteps", "_num_timesteps_at_start", "exploration_rate", "update_in_round", "start_time", "ep_info_buffer",
    "ep_success_buffer", "_logger", "_custom_logger", "_run", "_over", "_stopped", "_explained", "arguments", "_last_obs",
    "_last_original_obs", "_last_episode_starts",
})  # fmt: skip
"""Attributes that a training changes itself."""
KEPT = (
    "n_actors", "envs_per_actor", "n_envs", "pipeline", "split", "n_learners", "learner_threads", "evaluate_every",
    "evaluate_episodes", "evaluate_steps", "workers", "executor", "nodes", "start_method", "restarts", "timeout",
    "watch", "watch_every", "watch_episodes", "watch_steps", "device", "actor_device", "use_sde", "n_delta", "n_eval_episodes",
)  # fmt: skip
"""Attributes that say what a run consists of."""
COUNTS = (
    "n_steps", "batch_size", "n_epochs", "n_minibatches", "policy_delay", "target_update_interval", "n_delta", "n_top",
    "n_eval_episodes",
)  # fmt: skip
"""Attributes that are whole numbers from 1 on."""
UNBOUNDED = frozenset({
    "max_grad_norm", "target_kl", "clip_range", "clip_range_vf", "target_noise_clip", "timeout", "exploration_fraction",
    "learning_starts",
})  # fmt: skip
"""Limits that may be infinite, which means no limit."""


class Settings:
    """The settings of a trainer that its run has been told."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, Any]] = []
        self._count = 0
        self._kept: dict[str, Any] = {}
        self._noise: Any = None
        self._further: tuple[Any, ...] = ()
        self._fields: Any = None
        self._policy = b""
        self._rows = 0

    def begin(self, model: Model, config: ProgramConfig) -> None:
        """Note what a run begins with."""
        self._note(model)
        self._kept = _kept(model)
        self._noise, self._further = _state_of(vars(model).get("action_noise")), model.further_settings()
        self._fields, self._policy = config.actors.policy.fields, dumps(config.actors.policy)
        self._rows = model.minibatch_rows

    def _note(self, model: Model) -> None:
        values = vars(model)
        self._seen = [(name, value) for name, value in values.items() if name not in MOVING]
        self._count = len(values)

    def news(self, model: Model) -> tuple[Any, bool] | None:
        """Look at the settings again, before a round.

        Returns:
            How actors are to act from now on, and whether its memory begins anew; ``None`` if nothing has changed for them.

        Raises:
            ValueError, TypeError: If a setting makes no sense, or a run cannot change it. Names it.
        """
        values = vars(model)
        changed = [name for name, value in self._seen if values.get(name) is not value]
        if len(values) != self._count:
            changed += values.keys() - MOVING - {name for name, _ in self._seen}
            self._count = len(values)
        noise = _state_of(values.get("action_noise"))
        renewed, further = noise != self._noise, model.further_settings()
        if not changed and not renewed and further == self._further:
            return None
        self.check_kept(model)
        check_settings(model)
        self._note(model)
        self._further = model.further_settings()
        if model.minibatch_rows != self._rows:
            self._resize(model)
        parts = torch.nn.Module | torch.optim.Optimizer
        if changed and not renewed and all(isinstance(values.get(name), parts) for name in changed):
            return None
        self._noise = noise
        policy = model.acting()[1]
        if policy.fields != self._fields:
            raise ValueError(
                f"{' and '.join(sorted(changed))} changed, and with it what a round has to note of each step, which a run keeps: "
                "call close() before you change it; the next learn() begins a new run, with new episodes"
            )
        before, self._policy = self._policy, dumps(policy)
        return None if before == self._policy else (policy, renewed)

    def check_kept(self, model: Model) -> None:
        """Refuse changes of what a run keeps."""
        for name, now in _kept(model).items():
            if now != self._kept[name]:
                what = "has rounds of one length" if name in ("n_steps", "train_freq") else "keeps what it began with"
                raise ValueError(
                    f"{name} was {self._kept[name]!r} when the run began, and is {now!r} now: a run {what}. Call close() before "
                    "you change it; the next learn() begins a new run, with new episodes"
                )

    def _resize(self, model: Model) -> None:
        """Have minibatches of another size."""
        if model.session.sliced is not None:
            raise ValueError(
                f"minibatches had {self._rows} rows when the run began, and have {model.minibatch_rows} now: gradient workers have "
                "memory for those they began with. Call close() before you change batch_size; the next learn() begins a new run"
            )
        model.plan_blocks()
        self._rows = model.minibatch_rows


def _kept(model: Model) -> dict[str, Any]:
    values = vars(model)
    length = "train_freq" if "train_freq" in values else "n_steps"
    return {**{name: values[name] for name in KEPT if name in values}, length: model.rollout_steps}


def _state_of(noise: ActionNoise | None) -> Any:
    """Something that is another one when a noise was replaced or changed."""
    if noise is None:
        return None
    if isinstance(noise, VectorizedActionNoise):
        return tuple(map(_state_of, noise.noises))
    return noise, *((name, _value_of(value)) for name, value in getattr(noise, "__dict__", {}).items())


def _value_of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tobytes(), value.shape, value.dtype.str
    return value if isinstance(value, int | float | str | bytes | type(None)) else id(value)


# ---------------------------------------------------------------------- what makes no sense


def check_settings(model: Model) -> None:
    """Refuse settings that make no sense, as the constructor does, in attributes that may have been changed since.

    Raises:
        TypeError, ValueError: Naming it.
    """
    values = vars(model)
    for name in COUNTS:
        if values.get(name) is not None:
            checked_number(name, values[name], 1)
    check_finite_arguments({name: values[name] for name in model.arguments if name in values})
    actors, envs = values["n_actors"], values["envs_per_actor"]
    if actors * envs != model.n_envs:
        raise ValueError(
            f"n_actors={actors} and envs_per_actor={envs} were changed, and the model has {model.n_envs} environments: pass them "
            f"to {type(model).__name__}.load(path, env)"
        )
    model.check_settings()


def check_finite_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse numbers that are not finite; limits may be infinite.

    Args:
        arguments: By name. In a dict among them only NaN is refused.
    """
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            nested = {f"{name}[{key!r}]": one for key, one in value.items()}
            check_finite_arguments({key: one for key, one in nested.items() if isinstance(one, Mapping) or _is_nan(one)})
        elif isinstance(value, Real) and not math.isfinite(value) and (math.isnan(value) or name not in UNBOUNDED):
            raise ValueError(f"{name} must be a finite number, got {value!r}")


def _is_nan(value: Any) -> bool:
    return isinstance(value, Real) and math.isnan(value)
