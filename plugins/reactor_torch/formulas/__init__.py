"""Losses with gradients derived by hand, and networks as these see them: dense ones, or any by autograd."""

from reactor_torch.formulas.actor_critic import ActorCritic, DenseActorCritic
from reactor_torch.formulas.continuous import (
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
from reactor_torch.formulas.crossq import CrossQActorFormula, CrossQCriticFormula
from reactor_torch.formulas.distributions import Bernoullis, Categoricals, Distribution, Gaussians
from reactor_torch.formulas.dqn import DQNFormula, QFormula
from reactor_torch.formulas.ppo import PPOFormula
from reactor_torch.formulas.quantiles import DenseQuantileCritics, QRDQNFormula, TQCCriticFormula
from reactor_torch.formulas.recurrent import RecurrentActorCritic, RecurrentPPOFormula, lstm_of
from reactor_torch.formulas.state_dependent import StateDependent

__all__ = [
    "ActorCritic",
    "Bernoullis",
    "Categoricals",
    "Critics",
    "CrossQActorFormula",
    "CrossQCriticFormula",
    "DQNFormula",
    "DenseActorCritic",
    "DenseCritics",
    "DenseQuantileCritics",
    "DenseSquashedActor",
    "Distribution",
    "Gaussians",
    "PPOFormula",
    "QFormula",
    "QRDQNFormula",
    "RecurrentActorCritic",
    "RecurrentPPOFormula",
    "SACActorFormula",
    "SACCriticFormula",
    "SquashedActor",
    "StateDependent",
    "TD3ActorFormula",
    "TD3CriticFormula",
    "TQCCriticFormula",
    "lstm_of",
    "squashed_sample",
]
