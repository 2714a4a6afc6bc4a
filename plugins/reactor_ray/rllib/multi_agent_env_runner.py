"""RLlib's runner of many agents, with environments on several cores and a fragment as columns."""

from __future__ import annotations

import logging
import time
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import VectorizeMode
from ray.rllib.callbacks.utils import make_callback
from ray.rllib.core.columns import Columns
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.multi_agent_env import MultiAgentEnv
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.utils import _gym_env_creator
from ray.rllib.utils.metrics import (
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    NUM_MODULE_STEPS_SAMPLED,
    NUM_MODULE_STEPS_SAMPLED_LIFETIME,
    RLMODULE_INFERENCE_TIMER,
)
from ray.rllib.utils.pre_checks.env import check_multiagent_environments
from ray.tune.registry import ENV_CREATOR, _global_registry

from reactor_ray.rllib.environments import own_cpus
from reactor_ray.rllib.inference import action_converter, evaluating, forward, infer_actions, tensor
from reactor_ray.rllib.multi_agent_fragment import Acted, MultiAgentFragment, Sampled
from reactor_ray.rllib.multi_agent_vector_env import AgentColumns, ReactorVectorMultiAgentEnv
from reactor_ray.rllib.settings import exploration_step, runner_seeds, step_requirement
from reactor_rl.plugin import ExecutorName

__all__ = ["ReactorMultiAgentEnvRunner"]

logger = logging.getLogger(__name__)

_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class ReactorMultiAgentEnvRunner(MultiAgentEnvRunner):
    """Steps many environments of many agents on the runner's cores; RLlib's own runner steps them one after the other.

    The environments are PettingZoo's parallel ones or RLlib's ``MultiAgentEnv``, whose living agents all act in every step and have
    the same spaces. Agents may end before the others, and join later. Each module computes the actions of all its agents in all
    environments at once. A fragment is kept as columns, and RLlib's episodes are made at its end.

    **What stays as it was.** Episodes, their order and the metrics are those of ``MultiAgentEnvRunner`` with the same environments,
    seeds and modules. Where a setting needs each step when it is taken (connectors besides the default ones, modules with state,
    callbacks of episodes, nested spaces), RLlib's own loop samples, with the environments still on several cores;
    :attr:`stepwise` says why. Timers of connectors are there only then.

    **What is different.** Environments' seeds are keyed by (runner, environment), where RLlib's runners share some. Within a
    module's batch agents are in the order of ``possible_agents``; RLlib's order is that of a set of strings, which differs from
    process to process.

    To choose workers or executor, subclass it:

        >>> class OnFourCores(ReactorMultiAgentEnvRunner):
        ...     workers = 4
        >>> config = PPOConfig().env_runners(env_runner_cls=OnFourCores, num_envs_per_env_runner=16)

    Args:
        config: The algorithm's configuration.
        **kwargs: As for ``MultiAgentEnvRunner``.

    Attributes:
        workers: On how many cores environments are stepped. ``None``: on those that Ray gave the runner
            (``num_cpus_per_env_runner``), and in the algorithm's own process on all of them. Never changes a result.
        executor: As for ``ParallelVectorEnv``. Never changes a result.
        stepwise: The setting that needs RLlib's own loop; ``None`` if no setting does.

    Raises:
        ValueError: If agents have different spaces, or ``gym_env_vectorize_mode`` asks for another way to step environments.
    """

    workers: int | None = None
    executor: ExecutorName = "auto"
    stepwise: str | None
    env: Any
    _ongoing_episodes: list[Any]

    def __init__(self, config: Any, **kwargs: Any) -> None:
        super().__init__(config, **kwargs)
        self._fragment: MultiAgentFragment | None = None
        self._groups: list[Any] = []
        self._random = False
        self._asking = 0.0  # seconds spent in modules since the last call
        self.stepwise = self._step_requirement() if self.env is not None else None
        if self.stepwise:
            logger.info("%s samples step by step, as RLlib's own runner does, because of %s", type(self).__name__, self.stepwise)

    def _step_requirement(self) -> str | None:
        for kind, space in (
            ("observation", self.env.envs[0].observation_spaces[self.env.agents[0]]),
            ("action", self.env.envs[0].action_spaces[self.env.agents[0]]),
        ):
            if not isinstance(space, _ARRAYS):
                return f"the {kind} space {space}"
        return step_requirement(self)

    # ------------------------------------------------------------------ environments

    def make_env(self) -> None:
        """Make the environments and start what steps them."""
        config = self.config
        if self.env is not None:
            self.env.close()
        if not config.env:
            raise ValueError("config.env is not set: call config.environment(...) with an environment of many agents")
        if VectorizeMode(config.gym_env_vectorize_mode) is not VectorizeMode.SYNC:
            raise ValueError(
                f"gym_env_vectorize_mode={config.gym_env_vectorize_mode!r}: {type(self).__name__} steps environments on its own "
                "workers; leave it out, and set `workers` and `executor` of the runner's class"
            )
        context = config.env_config
        if not isinstance(context, EnvContext):
            context = EnvContext(
                context, worker_index=self.worker_index, num_workers=config.num_env_runners, remote=config.remote_worker_envs
            )
        if isinstance(config.env, str) and _global_registry.contains(ENV_CREATOR, config.env):
            creator = partial(_global_registry.get(ENV_CREATOR, config.env), context)
        else:
            creator = partial(_gym_env_creator, env_descriptor=config.env, env_context=context)
        if not config.disable_env_checking:
            self._check(creator)
        workers = own_cpus() if self.workers is None else self.workers
        self.env = ReactorVectorMultiAgentEnv(creator, config.num_envs_per_env_runner, workers=workers, executor=self.executor)
        self.num_envs = self.env.num_envs
        space = self.env.single_action_spaces[self.env.agents[0]]
        self._into_space = action_converter(space, normalize=config.normalize_actions, clip=config.clip_actions)
        self._needs_initial_reset = True
        make_callback(
            "on_environment_created",
            callbacks_objects=self._callbacks,
            callbacks_functions=config.callbacks_on_environment_created,
            kwargs={"env_runner": self, "metrics_logger": self.metrics, "env": self.env, "env_context": context},
        )

    @staticmethod
    def _check(creator: Any) -> None:
        """RLlib's own check of its environments; ``ParallelVectorEnv`` checks PettingZoo's."""
        env = creator()
        try:
            if isinstance(env, MultiAgentEnv):
                check_multiagent_environments(env)
        finally:
            env.close()

    def _try_env_reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super()._try_env_reset(seed=runner_seeds(self) if isinstance(seed, int) else seed, options=options)

    # ------------------------------------------------------------------ sampling

    def _sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool,
        random_actions: bool = False,
        force_reset: bool = False,
    ) -> list[Any]:
        if self.stepwise:
            samples: list[Any] = super()._sample(
                num_timesteps=num_timesteps,
                num_episodes=num_episodes,
                explore=explore,
                random_actions=random_actions,
                force_reset=force_reset,
            )
            return samples
        if self._fragment is None or force_reset or num_episodes is not None or self._needs_initial_reset:
            fragment = self._reset_all()
        else:
            fragment = self._fragment
        self._needs_initial_reset = num_episodes is not None
        # A fragment of random actions has not the columns of one that modules acted in.
        fragment.begin(self.config.episode_lookback_horizon if random_actions == self._random else 0)
        self._random = random_actions
        done: list[Any] = []
        env_steps = agent_steps = episodes = 0
        by_agents = self.config.count_steps_by != "env_steps"
        goal = num_episodes if num_timesteps is None else num_timesteps
        assert goal is not None
        with evaluating(self.module):
            while (episodes if num_timesteps is None else agent_steps if by_agents else env_steps) < goal:
                acted, actions = self._random_actions() if random_actions else self._actions(explore, env_steps)
                stepping = ~fragment.now.over
                rows = self._try_env_step(actions)
                if not isinstance(rows, AgentColumns):  # an environment failed, and all were made anew
                    done += self._counted(fragment.sampled()).done
                    env_steps = agent_steps = 0
                    fragment = self._reset_all()
                    continue
                fragment.add(acted, rows)
                env_steps += int(stepping.sum())
                agent_steps += int(rows.there.reshape(self.num_envs, -1)[stepping].sum())
                over = np.flatnonzero(rows.over).tolist()
                episodes += len(over)
                for environment in over:
                    self._new_episode(environment)
                    fragment.new_episode(environment, self._ongoing_episodes[environment])
                if over or not stepping.all() or not np.array_equal(rows.acting, fragment.rows[-2].acting):
                    self._groups = fragment.modules()
        if self._asking:
            self.metrics.log_value(RLMODULE_INFERENCE_TIMER, self._asking / len(fragment), reduce="ema")
            self._asking = 0.0
        sampled = self._counted(fragment.sampled())
        done += sampled.done
        self._ongoing_episodes = [playing[-1].episode for playing in fragment.playing]
        if num_episodes is not None:
            del done[num_episodes:]
            sampled.ongoing.clear()
        self._done_episodes_for_metrics.extend(done)
        for episode in sampled.ongoing:
            self._ongoing_episodes_for_metrics[episode.id_].append(episode)
        return done + sampled.ongoing

    def _reset_all(self) -> MultiAgentFragment:
        """Begin a new episode in each environment."""
        self._ongoing_episodes = [None] * self.num_envs
        self._shared_data: dict[str, Any] = {}
        for environment in range(self.num_envs):
            self._new_episode(environment)
        self._ongoing_episodes_for_metrics.clear()
        self._try_env_reset(seed=self._seed if self._needs_initial_reset else None)
        self._needs_initial_reset = False
        self._fragment = MultiAgentFragment(self.env.agents, self.env.rows, self._ongoing_episodes)
        self._groups = self._fragment.modules()
        return self._fragment

    def _actions(self, explore: bool, env_steps: int) -> tuple[Acted, Any]:
        """Ask each module for all its agents: returns what there is to record, and the actions of all rows."""
        observations = tensor(self.env.rows.observations, self._device)
        # An index makes copies, which torch begins at a cache line: results must not depend on where memory happens to be.
        batch: Any = {module: {Columns.OBS: observations[of_module]} for module, of_module in self._groups}
        asked = time.perf_counter()
        batch = forward(self.module, batch, explore=explore, step=exploration_step(self, env_steps))
        self._asking += time.perf_counter() - asked
        batch = {module: infer_actions(self.module[module], said, explore=explore) for module, said in batch.items()}
        acted: list[Any] = [(module, of_module, batch[module]) for module, of_module in self._groups]
        return Acted(acted, self._weights_seq_no), self._of_all_rows(acted, as_they_are=False)

    def _random_actions(self) -> tuple[Acted, Any]:
        n = len(self.env.agents)
        acted: list[Any] = []
        for module, of_module in self._groups:
            drawn = [self.env.single_action_spaces[self.env.agents[row % n]].sample() for row in of_module.tolist()]
            acted.append((module, of_module, {Columns.ACTIONS: np.stack(drawn)}))
        return Acted(acted, None), self._of_all_rows(acted, as_they_are=True)

    def _of_all_rows(self, acted: list[Any], *, as_they_are: bool) -> Any:
        """Modules' actions as the environments are to see them; zeros for agents that do not act."""
        space = self.env.single_action_spaces[self.env.agents[0]]
        actions = np.zeros((len(self.env.rows.there), *(space.shape or ())), space.dtype)
        for _, of_module, said in acted:
            taken = said[Columns.ACTIONS]
            if not as_they_are and self._into_space is not None:
                taken = self._into_space(taken)
            actions[of_module] = taken
        return actions

    def _counted(self, sampled: Sampled) -> Sampled:
        """Log how much was sampled."""
        log = self.metrics.log_value
        if sampled.env_steps:
            self._log_env_steps(metric=self._metrics_num_env_steps_sampled, num_steps=sampled.env_steps)
            log(NUM_ENV_STEPS_SAMPLED, sampled.env_steps, reduce="sum")
            log(NUM_ENV_STEPS_SAMPLED_LIFETIME, sampled.env_steps, reduce="lifetime_sum", with_throughput=True)
        if sampled.done:
            log(NUM_EPISODES, len(sampled.done), reduce="sum")
            log(NUM_EPISODES_LIFETIME, len(sampled.done), reduce="lifetime_sum")
        for counts, name, lifetime in (
            (sampled.agent_steps, NUM_AGENT_STEPS_SAMPLED, NUM_AGENT_STEPS_SAMPLED_LIFETIME),
            (sampled.module_steps, NUM_MODULE_STEPS_SAMPLED, NUM_MODULE_STEPS_SAMPLED_LIFETIME),
        ):
            for key, steps in counts.items():
                key = str(key) if name == NUM_AGENT_STEPS_SAMPLED else key
                log((name, key), steps, reduce="sum")
                log((lifetime, key), steps, reduce="lifetime_sum")
        return sampled
