"""A trainer as its parts and its checkpoints see it, which the trainer itself imports."""

from __future__ import annotations

import os
from collections import deque
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

import gymnasium
import numpy.typing as npt
import torch
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from reactor_rl.plugin import ExecutorName
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.trainers.program import ProgramConfig
from reactor_torch import Network, Networks

__all__ = ["Model"]

Array = npt.NDArray[Any]


class Model(Protocol):
    """The attributes that parts use of :class:`~reactor_sb3.trainers.trainer.Trainer` and of SB3's ``BaseAlgorithm``."""

    log_unit: ClassVar[Any]
    checkpoint_format: ClassVar[int]
    split: bool
    arguments: dict[str, Any]
    session: Any
    """A :class:`reactor_sb3.trainers.session.Session`."""
    nets: Networks
    pipeline: int
    executor: ExecutorName
    nodes: Any
    workers: int | None
    start_method: str | None
    restarts: int
    round_timeout: float | None
    evaluate_every: int | None
    wants_infos: bool
    watch: str | os.PathLike[str] | None
    watch_every: int
    watch_episodes: int
    watch_steps: int | None
    _last_obs: Any
    _last_episode_starts: Any
    _learned_timesteps: int
    _run: Any

    action_space: gymnasium.Space[Any]
    env: VecEnv | None
    device: torch.device
    ep_info_buffer: deque[Any] | None
    ep_success_buffer: deque[Any] | None
    n_envs: int
    num_timesteps: int
    policy: Any
    start_time: float
    tensorboard_log: str | None
    _episode_num: int
    _n_updates: int
    _num_timesteps_at_start: int
    _stats_window_size: int
    _total_timesteps: int
    _vec_normalize_env: VecNormalize | None

    @property
    def logger(self) -> Logger: ...

    @property
    def rollout_steps(self) -> int: ...

    @property
    def update_rows(self) -> int: ...

    @property
    def evaluations(self) -> list[Evaluation]: ...

    def acting(self) -> tuple[torch.nn.Module, Any]: ...

    @property
    def minibatch_rows(self) -> int: ...

    def check_settings(self) -> None: ...

    def check_shown(self) -> None: ...

    def further_settings(self) -> tuple[Any, ...]: ...

    def close(self) -> None: ...

    def cut_episodes(self, which: Array) -> None: ...

    def dump_logs(self) -> None: ...

    def exploration_rates(self) -> Array: ...

    def look(self) -> None: ...

    def networks(self) -> dict[str, Network]: ...

    def limited_threads(self) -> AbstractContextManager[None]: ...

    def round_done(self) -> None: ...

    def plan_blocks(self) -> None: ...

    def program_config(self) -> ProgramConfig: ...

    def start(self) -> Any: ...

    def updates_due(self) -> int: ...

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]: ...

    def _update_current_progress_remaining(self, num_timesteps: int, total_timesteps: int) -> None: ...

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: Array | None = None) -> None: ...
