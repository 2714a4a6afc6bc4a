"""Losses with gradients derived by hand, and networks as these see them: dense ones, or any by autograd."""

from reactor_torch.formulas.actor_critic import ActorCritic, AutogradActorCritic, DenseActorCritic
from reactor_torch.formulas.continuous import (
    AutogradCritics,
    AutogradSquashedActor,
    Critics,
    DenseCritics,
    DenseSquashedActor,
    SACActorFormula,
    SACCriticFormula,
    SquashedActor,
    TD3ActorFormula,
    TD3CriticFormula,
    squashed_sample,
)
from reactor_torch.formulas.distributions import Bernoullis, Categoricals, Distribution, Gaussians
from reactor_torch.formulas.dqn import DQNFormula, QFormula
from reactor_torch.formulas.ppo import PPOFormula

__all__ = [
    "ActorCritic",
    "AutogradActorCritic",
    "AutogradCritics",
    "AutogradSquashedActor",
    "Bernoullis",
    "Categoricals",
    "Critics",
    "DQNFormula",
    "DenseActorCritic",
    "DenseCritics",
    "DenseSquashedActor",
    "Distribution",
    "Gaussians",
    "PPOFormula",
    "QFormula",
    "SACActorFormula",
    "SACCriticFormula",
    "SquashedActor",
    "TD3ActorFormula",
    "TD3CriticFormula",
    "squashed_sample",
]
