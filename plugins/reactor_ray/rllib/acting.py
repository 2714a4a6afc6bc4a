"""From the observations of all environments to their actions, as RLlib's default connectors get there, but in whole columns."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tree
from ray.rllib.core.columns import Columns
from ray.rllib.utils.numpy import convert_to_numpy

from reactor_ray.rllib.inference import action_converter, forward, infer_actions, tensor

__all__ = ["ColumnPolicy"]


class ColumnPolicy:
    """Asks a module for actions.

    Args:
        module: An ``RLModule``.
        clipping: RLlib's connector that knows how actions are brought into the space.
        action_space: Of one environment.
        device: Where the module is.
        num_envs: Number of environments, ``N``.
    """

    def __init__(self, module: Any, device: Any, clipping: Any, action_space: Any, num_envs: int) -> None:
        self._module = module
        self._device = device
        self._into_space = action_converter(action_space, normalize=clipping.normalize_actions, clip=clipping.clip_actions)
        self._stateful = module.is_stateful()
        self._state: Any = None
        self._num_envs = num_envs
        if self._stateful:
            initial = convert_to_numpy(module.get_initial_state())
            self._initial = initial
            self._state = tree.map_structure(lambda leaf: np.stack([leaf] * num_envs), initial)
        self.seconds = [0.0, 0.0, 0.0]
        """Spent on the way to the module, in it, and on the way back, since this was set to zeros."""

    def begin(self, envs: Any) -> None:
        """Forget the states of environments whose episodes begin, given by their indices."""
        if self._stateful and len(envs):
            for leaf, first in zip(tree.flatten(self._state), tree.flatten(self._initial), strict=True):
                leaf[envs] = first

    def act(self, observations: Any, *, explore: bool, step: int) -> tuple[Any, Any, dict[str, Any]]:
        """Actions for all environments, inside :func:`~reactor_ray.rllib.inference.evaluating`.

        Args:
            observations: ``(N, *shape)``, nested as the space is.
            explore: Whether by ``forward_exploration`` and a sampled action, or by ``forward_inference`` and the likeliest.
            step: Environment steps so far, by which modules schedule their exploration.

        Returns:
            Actions as the module gave them, ``(N, *shape)``; the same as environments take them; and what else it said.
        """
        started = time.perf_counter()
        if self._stateful:
            observations = tree.map_structure(lambda leaf: np.expand_dims(leaf, 1), observations)
        batch = {Columns.OBS: tensor(observations, self._device)}
        if self._stateful:
            batch[Columns.STATE_IN] = tensor(self._state, self._device)
        asked = time.perf_counter()
        said = forward(self._module, batch, explore=explore, step=step)
        answered = time.perf_counter()
        said = infer_actions(self._module, said, explore=explore)
        if self._stateful:
            state = said.pop(Columns.STATE_OUT)
            said = tree.map_structure(lambda leaf: np.squeeze(leaf, 1), said)
            said[Columns.STATE_OUT] = state
            self._state = tree.map_structure(np.array, state)
        actions = said.pop(Columns.ACTIONS)
        for_env = said.pop(Columns.ACTIONS_FOR_ENV, actions)
        if self._into_space is not None:
            for_env = self._into_space(actions)
        for place, seconds in enumerate((asked - started, answered - asked, time.perf_counter() - answered)):
            self.seconds[place] += seconds
        return actions, for_env, said
