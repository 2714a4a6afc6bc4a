"""Settings of RLlib's that need every step, seeds of its runners, and how far their exploration is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from ray.rllib.callbacks.callbacks import RLlibCallback

__all__ = ["custom_connectors", "environment_seeds", "exploration_step", "overridden", "runner_seeds", "step_requirement"]

_ENV_TO_MODULE = [
    "AddObservationsFromEpisodesToBatch", "AddTimeDimToBatchAndZeroPad", "AddStatesFromEpisodesToBatch", "AgentToModuleMapping",
    "BatchIndividualItems", "NumpyToTensor",
]  # fmt: skip
_MODULE_TO_ENV = [
    "GetActions", "TensorToNumpy", "UnBatchToIndividualItems", "ModuleToAgentUnmapping", "RemoveSingleTsTimeRankFromBatch",
    "NormalizeAndClipActions", "ListifyDataForVectorEnv",
]  # fmt: skip
_OF_MANY_AGENTS = {"AgentToModuleMapping", "ModuleToAgentUnmapping"}
_CALLBACKS = ["on_episode_created", "on_episode_start", "on_episode_step", "on_episode_end"]


def custom_connectors(runner: Any) -> str | None:
    """The first setting that gives an RLlib runner other connectors than RLlib's default ones; None if none does."""
    for name, pipeline, expected in (
        ("env_to_module_connector", runner._env_to_module, _ENV_TO_MODULE),
        ("module_to_env_connector", runner._module_to_env, _MODULE_TO_ENV),
    ):
        if not runner.config.is_multi_agent:
            expected = [one for one in expected if one not in _OF_MANY_AGENTS]
        if _names(pipeline.connectors) != expected:
            return f"{name} (the pipeline is {_names(pipeline.connectors)})"
    return None


def overridden(runner: Any, name: str) -> str | None:
    """The setting by which a runner has a callback of this name; None if it has none that does something."""
    if getattr(runner.config, f"callbacks_{name}"):
        return f"{name}={getattr(runner.config, f'callbacks_{name}')}"
    for callbacks in runner._callbacks:
        if getattr(type(callbacks), name) is not getattr(RLlibCallback, name):
            return f"{type(callbacks).__name__}.{name}"
    return None


def step_requirement(runner: Any) -> str | None:
    """The first setting of an RLlib runner that needs its episodes step by step, as a user would name it; None if none does.

    Such are connectors besides RLlib's own default ones, modules with state, the callbacks of episodes, and episodes that are to
    stay lists.
    """
    if not runner.config.episodes_to_numpy:
        return "episodes_to_numpy=False"
    if (custom := custom_connectors(runner)) is not None:
        return custom
    if runner.module is None:
        return "no RLModule"
    if runner.module.is_stateful():
        return "an RLModule with state"
    return next((setting for name in _CALLBACKS if (setting := overridden(runner, name)) is not None), None)


def _names(connectors: Sequence[Any]) -> list[str]:
    """Names of their classes; with the module if that is not RLlib's, so that no name is mistaken for one of RLlib's."""
    kinds = [type(connector) for connector in connectors]
    return [kind.__name__ if kind.__module__.startswith("ray.rllib.") else f"{kind.__module__}.{kind.__name__}" for kind in kinds]


def environment_seeds(seed: int, runner: int, num_envs: int, *, evaluation: bool = False) -> list[int]:
    """One seed below 2**31 for each environment.

    RLlib gives environment ``i`` of runner ``r`` the seed ``seed + r + i``, so that environment 1 of runner 1 plays the episodes
    of environment 0 of runner 2.

    Args:
        seed: That of the algorithm.
        runner: The index of the runner: 0 is the local one.
        num_envs: How many environments it has.
        evaluation: Whether the runner is one of those that evaluate.
    """
    keys = [(int(evaluation), runner, index) for index in range(num_envs)]
    return [int(np.random.SeedSequence(seed, spawn_key=key).generate_state(1)[0]) >> 1 for key in keys]


def runner_seeds(runner: Any) -> list[int] | None:
    """Seeds for the first reset of an RLlib runner's environments; ``None`` if the algorithm has no seed."""
    config = runner.config
    if config.seed is None:
        return None
    return environment_seeds(config.seed, runner.worker_index or 0, runner.num_envs, evaluation=bool(config.in_evaluation))


def exploration_step(runner: Any, taken: int) -> int:
    """Steps of all runners so far, by which modules schedule their exploration, as RLlib's runners reckon it.

    Args:
        runner: An RLlib runner.
        taken: Steps of all its environments since its last ``sample()``.
    """
    runners = runner.config.num_env_runners or 1
    return int((runner.num_env_steps_sampled_lifetime // runners + taken) * runners)
