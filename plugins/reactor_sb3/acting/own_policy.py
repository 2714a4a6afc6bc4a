"""Policies that draw their actions themselves, from torch's generator: those with a ``forward`` or a noise of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from reactor_sb3.acting.plain_policy import Bounds, Drawing, Observed
from reactor_sb3.acting.policy_networks import TorchStructure
from reactor_torch import torch_state, torch_stream

__all__ = ["OwnPolicy"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OwnPolicy:
    """The :class:`~reactor_sb3.acting.plain_policy.ActingPolicy` of a policy that is evaluated by its own ``forward``.

    Attributes:
        structure: The policy.
        bounds: Of its actions.
        sde_sample_freq: Steps between two draws of its state-dependent noise, -1 for one a round.
    """

    structure: TorchStructure
    bounds: Bounds | None
    sde_sample_freq: int

    def bind(self, parameters: Array, observations: Observed) -> Drawing:
        """See :class:`~reactor_sb3.acting.plain_policy.ActingPolicy`."""
        return OwnDrawing(self, parameters, observations)


class OwnDrawing:
    """Such a policy with its weights."""

    def __init__(self, own: OwnPolicy, parameters: Array, observations: Observed) -> None:
        self.structure, self.bounds, self.sde_sample_freq = own.structure, own.bounds, own.sde_sample_freq
        self.policy = own.structure.with_weights(parameters)
        self.observations = own.structure.tensors(observations)
        shape = next(iter(observations.values())).shape[:2]
        self.log_probs, self.values = np.empty(shape, np.float32), np.empty(shape, np.float32)

    def __call__(self, step: int) -> Array:
        """See :class:`~reactor_sb3.acting.plain_policy.Drawing`."""
        with torch.inference_mode():
            actions: Array = self.policy._predict(self.structure.of_step(self.observations, step), deterministic=True).numpy()
        actions = actions.reshape(-1, *(self.policy.action_space.shape or ()))
        return actions if self.bounds is None else self.bounds(actions)

    def begin_round(self, random: np.random.Generator, record: Array) -> Callable[[int], Array]:
        """See :class:`~reactor_sb3.acting.plain_policy.Drawing`."""
        state = torch_state(int(random.integers(2**63)))
        bounds, policy, every = self.bounds, self.policy, self.sde_sample_freq
        actions, drawn = record["actions"], record["actions" if bounds is None else "drawn"]
        envs = actions.shape[1]

        def act(step: int) -> Array:
            with torch_stream(state), torch.inference_mode():
                if policy.use_sde and (step == 0 or (every > 0 and step % every == 0)):
                    policy.reset_noise(envs)
                chosen, values, log_probs = policy(self.structure.of_step(self.observations, step))
            self.values[step], self.log_probs[step] = values.flatten().numpy(), log_probs.numpy()
            drawn[step] = chosen.numpy()
            if bounds is not None:
                actions[step] = bounds(drawn[step])
            return actions[step]  # type: ignore[no-any-return]

        return act

    def end_round(self) -> tuple[Array, Array]:
        """See :class:`~reactor_sb3.acting.plain_policy.Drawing`."""
        return self.log_probs, self.values

    def values_of(self, observations: Observed) -> Array:
        """See :class:`~reactor_sb3.acting.plain_policy.Drawing`."""
        with torch.inference_mode():
            return self.policy.predict_values(self.structure.copies(observations)).flatten().numpy()  # type: ignore[no-any-return]
