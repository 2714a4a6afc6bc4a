"""``ReactorEnvRunner``: RLlib's env runner for one agent, which keeps a fragment as columns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tree
from gymnasium.vector import AutoresetMode
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.env.env_runner import ENV_STEP_FAILURE
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.utils.metrics import (
    CONNECTOR_PIPELINE_TIMER,
    ENV_TO_MODULE_CONNECTOR,
    MODULE_TO_ENV_CONNECTOR,
    RLMODULE_INFERENCE_TIMER,
    WEIGHTS_SEQ_NO,
)

from reactor_ray.rllib.environments import PREFIX, as_taken
from reactor_ray.rllib.fragment import Fragment, continued
from reactor_ray.rllib.inference import ColumnPolicy, evaluating
from reactor_ray.rllib.settings import custom_connectors, exploration_step, overridden, runner_seeds

__all__ = ["ReactorEnvRunner"]

_TIMERS = (
    (ENV_TO_MODULE_CONNECTOR, CONNECTOR_PIPELINE_TIMER),
    (RLMODULE_INFERENCE_TIMER,),
    (MODULE_TO_ENV_CONNECTOR, CONNECTOR_PIPELINE_TIMER),
)


class ReactorEnvRunner(SingleAgentEnvRunner):
    """RLlib's ``SingleAgentEnvRunner`` with another ``sample()``: the same episodes, made at a fragment's end out of columns.

    RLlib's own adds every step of every environment to an episode object, and reads it back from there for the module. Here a
    vector step is a row of columns, the module gets whole rows, and an episode is made once, when it is handed over.

    Use it with ``config.env_runners(env_runner_cls=ReactorEnvRunner)``. Environments are those of the config, made as it says; for
    ``ReactorVectorEnv`` give it :func:`~reactor_ray.rllib.env_id`. Their seeds are keyed by runner and environment.

    Callbacks, metrics, states and checkpoints are RLlib's own. Single connectors have no timers.

    Raises:
        ValueError: For what would need episodes within a fragment: connectors that are not RLlib's default ones, an
            ``on_episode_step`` callback; for ``episodes_to_numpy=False``, modules of several, and environments that do not reset
            in the step after an episode's end.
    """

    _needs_initial_reset: bool
    num_envs: int

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self._refuse_settings()
        self._watched = overridden(self, "on_episode_end") is not None
        self._fragment = Fragment(self.config.episode_lookback_horizon)
        self._done: list[Any] = []
        self._ended: list[tuple[Any, int, int, int, bool, bool]] = []

    def _refuse_settings(self) -> None:
        for setting in (
            custom_connectors(self),
            overridden(self, "on_episode_step"),
            None if self.episodes_to_numpy else "episodes_to_numpy=False",
        ):
            if setting is not None:
                raise ValueError(
                    f"{setting}: ReactorEnvRunner makes episodes at a fragment's end, and this needs them step by step. Leave it "
                    "out, or leave env_runner_cls=ReactorEnvRunner out: RLlib's own runner has it"
                )
        if isinstance(self.module, MultiRLModule):
            raise ValueError("rl_module(rl_module_spec=MultiRLModuleSpec(...)): ReactorEnvRunner asks one module for actions")
        if self.env is not None and self.env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP) != AutoresetMode.NEXT_STEP:
            raise ValueError(
                f"environment(...): its autoreset_mode is {self.env.metadata['autoreset_mode']}, but RLlib's runners take the step "
                "after an episode's end for the reset, which is AutoresetMode.NEXT_STEP"
            )

    def make_env(self) -> None:
        """Make the environments as the config says, those of ``env_id`` under any ``gym_env_vectorize_mode``."""
        if isinstance(self.config.env, str) and self.config.env.startswith(PREFIX):
            self.config.gym_env_vectorize_mode = "vector_entry_point"
        super().make_env()
        self._column_policy: ColumnPolicy | None = None

    def make_module(self) -> None:
        """Make the module as the config says."""
        super().make_module()
        self._column_policy = None

    # ------------------------------------------------------------------ sample

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        """Called by ``sample()``; see there."""
        if force_reset or num_episodes is not None or self._needs_initial_reset:
            self._reset_envs_and_episodes(explore)
        else:
            self._fragment.resume(time.perf_counter())
        if num_episodes is not None:
            self._needs_initial_reset = True
        self._done, self._ended = [], []
        weights = np.full(self.num_envs, self._weights_seq_no)
        taken = 0
        with evaluating(self.module):
            while taken < num_timesteps if num_timesteps is not None else len(self._done) < (num_episodes or 0):
                if random_actions:
                    actions = for_env = self.env.action_space.sample()
                    extras: dict[str, Any] = {}
                else:
                    step = exploration_step(self, taken)
                    actions, for_env, extras = self._actor.act(self._fragment.observations, explore=explore, step=step)
                results = self._try_env_step(for_env)
                if results == ENV_STEP_FAILURE:
                    self._fill_ended()
                    self._reset_envs_and_episodes(explore)
                    taken = 0
                    continue
                observations, rewards, terminations, truncations, infos = results
                extras[WEIGHTS_SEQ_NO] = weights
                self._fragment.add(actions, extras, observations, rewards, infos, time.perf_counter())
                taken += self._account(observations, infos, terminations, truncations, num_episodes)
        self._fill_ended()
        self._log_timers()
        self._done_episodes_for_metrics.extend(self._done)
        ongoing = [] if num_timesteps is None else self._cut()
        self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=taken)
        self._increase_sampled_metrics(taken, len(self._done))
        return [*self._done, *ongoing]

    def _reset_envs(self, episodes: list[Any], shared_data: dict[str, Any], explore: bool) -> None:
        """Called by ``_reset_envs_and_episodes()``: reset all, with seeds if it is the first time."""
        for env in range(self.num_envs):
            self._new_episode(env, episodes)
        self._ongoing_episodes_for_metrics.clear()
        seeds = runner_seeds(self) if self._needs_initial_reset else None
        observations, infos = self._try_env_reset(seed=None if seeds is None else as_taken(self.env, seeds))
        self._fragment.begin(observations, infos, time.perf_counter())
        self._first = np.zeros(self.num_envs, np.int64)  # the step with which an environment's episode began or goes on
        self._resets = np.zeros(self.num_envs, np.bool_)  # whether its next step only resets it
        for env in range(self.num_envs):
            episodes[env].add_env_reset(observation=_row(observations, env), infos=infos[env])
        if self.module is not None:
            self._actor.begin(np.arange(self.num_envs))
        for env in range(self.num_envs):
            self._make_on_episode_callback("on_episode_start", env, episodes)

    @property
    def _actor(self) -> ColumnPolicy:
        if self._column_policy is None:
            clipping = self._module_to_env.connectors[-2]
            self._column_policy = ColumnPolicy(self.module, self._device, clipping, self.env.single_action_space, self.num_envs)
        return self._column_policy

    def _account(self, observations: Any, infos: list[Any], terminations: Any, truncations: Any, num_episodes: int | None) -> int:
        """Begin and end the episodes that the newest step begins and ends. Returns how many environments took a step."""
        resets = self._resets.copy()
        changed = resets | terminations | truncations
        if not changed.any():
            return self.num_envs
        steps, begun = len(self._fragment), np.flatnonzero(resets)
        for env in begun.tolist():
            self._ongoing_episodes[env].add_env_reset(observation=_row(observations, env), infos=infos[env])
        self._first[begun], self._resets[begun] = steps, False
        if self._column_policy is not None:
            self._column_policy.begin(begun)
        for env in np.flatnonzero(changed).tolist():
            if resets[env]:
                self._make_on_episode_callback("on_episode_start", env, self._ongoing_episodes)
                continue
            self._end_episode(env, steps, bool(terminations[env]), bool(truncations[env]))
            if num_episodes is not None and len(self._done) >= num_episodes:
                break
        return self.num_envs - len(begun)

    def _end_episode(self, env: int, steps: int, terminated: bool, truncated: bool) -> None:
        episode, lo = self._ongoing_episodes[env], int(self._first[env])
        if self._watched:
            self._fragment.fill(episode, env, lo, steps, terminated, truncated, listed=True)
            self._make_on_episode_callback("on_episode_end", env, self._ongoing_episodes)
            episode.to_numpy()
        else:
            self._ended.append((episode, env, lo, steps, terminated, truncated))
        self._done.append(episode)
        self._new_episode(env, self._ongoing_episodes)
        self._resets[env] = True

    def _fill_ended(self) -> None:
        """Give the episodes that have ended their steps."""
        for ended in self._ended:
            self._fragment.fill(*ended)
        self._ended = []

    def _cut(self) -> list[Any]:
        """Hand over what goes on as a chunk, and go on with the next."""
        steps, chunks = len(self._fragment), []
        for env, episode in enumerate(self._ongoing_episodes):
            lo = int(self._first[env])
            if not self._resets[env] and lo < steps:
                self._fragment.fill(episode, env, lo, steps)
                self._ongoing_episodes_for_metrics[episode.id_].append(episode)
                chunks.append(episode)
                self._ongoing_episodes[env] = continued(episode)
        self._fragment.go_on()
        self._first[:] = 0
        return chunks

    def _log_timers(self) -> None:
        if self._column_policy is not None and len(self._fragment):
            for key, seconds in zip(_TIMERS, self._column_policy.seconds, strict=True):
                self.metrics.log_value(key, seconds / len(self._fragment), reduce="ema")
            self._column_policy.seconds = [0.0, 0.0, 0.0]


def _row(column: Any, env: int) -> Any:
    return tree.map_structure(lambda leaf: leaf[env], column)
