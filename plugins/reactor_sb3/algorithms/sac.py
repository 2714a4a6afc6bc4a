"""Parts of every kind of soft actor-critic: its batches, and the entropy coefficient, what a unit of log-probability costs.

It is fixed or learned (Haarnoja et al. 2018, section 5), as SB3's SAC and its kin keep it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from reactor_torch import Network, TransitionBatch

__all__ = ["SACBatch", "entropy_network", "learn_entropy", "present_coefficient", "refuse_sde"]


@dataclass
class SACBatch(TransitionBatch):
    """Transitions, the noise of the actions that are chosen for them, and what a unit of log-probability costs.

    Attributes:
        noise: Noise of the actions chosen for observations: standard normal, ``(rows, n)``, float32.
        next_noise: The same for next observations.
        ent_coef: The entropy coefficient before this update.
    """

    noise: torch.Tensor
    next_noise: torch.Tensor
    ent_coef: float


def refuse_sde(model: Any, use_sde: bool) -> None:
    """Refuse ``use_sde=True``.

    Raises:
        ValueError: If it is.
    """
    if use_sde:
        raise ValueError(
            "use_sde=True: the noise of an update's actions is drawn by the trainer, and state-dependent noise belongs to the "
            f"policy; use {model.host}'s {model.default_log_name}, with ReactorVecEnv"
        )


def entropy_network(model: Any) -> dict[str, Network]:
    """The coefficient's logarithm as something that learns; nothing if it is fixed."""
    optimizer = model.ent_coef_optimizer
    return {} if optimizer is None else {"ent_coef": Network({"log_ent_coef": model.log_ent_coef}, optimizer)}


def present_coefficient(model: Any) -> float:
    """The coefficient, as the coming update has it."""
    if model.ent_coef_optimizer is None:
        return float(model.ent_coef_tensor)
    logarithm, kernels = model.nets.flat("ent_coef").data, model.nets.kernels("ent_coef")
    return float(kernels.exp(float(logarithm)) if kernels else logarithm.exp())


def learn_entropy(model: Any, log_prob: float, coefficient: float) -> dict[str, float]:
    """Step the logarithm so that the entropy of the policy comes near its target.

    Args:
        model: A trainer with the attributes of SB3's ``SAC``.
        log_prob: Mean log-probability of the actor's actions in this update.
        coefficient: The coefficient that the update had.

    Returns:
        What is to be logged.
    """
    if model.ent_coef_optimizer is None:
        return {"ent_coef": coefficient}
    gradient = -(log_prob + float(model.target_entropy))
    loss = float(model.nets.flat("ent_coef").data) * gradient
    model.nets.step("ent_coef", gradient)
    return {"ent_coef": coefficient, "ent_coef_loss": loss}
