"""Parts of an algorithm of your own; see ``docs/guide/own-algorithm.md``."""

from reactor_sb3.acting.behaviours import (
    MASKS,
    Behaviour,
    BoundBehaviour,
    EpsilonGreedy,
    Exploring,
    Field,
    OnPolicy,
    Rollout,
    Turn,
    advantages,
)
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.acting.forwards import copied
from reactor_sb3.acting.player import PlayConfig
from reactor_sb3.acting.records import transition_record
from reactor_sb3.algorithms.ppo import PPOBatch, PPOLoss, PPOTrainer
from reactor_sb3.environments.wrapped_alone import channels_first
from reactor_sb3.evaluation.normalizer import changes_of, normalizer_of
from reactor_sb3.learned import (
    read_actor,
    read_actor_critic,
    read_critics,
    read_q_net,
    read_quantile_critics,
    read_quantile_net,
)
from reactor_sb3.policies import read_policy, read_values
from reactor_sb3.trainers.learner import Minibatch, flat_rows
from reactor_sb3.trainers.off_policy import OffPolicyTrainer
from reactor_sb3.trainers.on_policy import OnPolicyTrainer, Rollouts, lambda_returns
from reactor_sb3.trainers.options import Options, SplitOptions, keeps_arguments
from reactor_sb3.trainers.session import Referee
from reactor_sb3.trainers.verify_targets import Training

__all__ = [
    "MASKS",
    "Behaviour",
    "BoundBehaviour",
    "EpsilonGreedy",
    "Evaluation",
    "Exploring",
    "Field",
    "Minibatch",
    "OffPolicyTrainer",
    "OnPolicy",
    "OnPolicyTrainer",
    "Options",
    "PPOBatch",
    "PPOLoss",
    "PPOTrainer",
    "PlayConfig",
    "Referee",
    "Rollout",
    "Rollouts",
    "SplitOptions",
    "Training",
    "Turn",
    "advantages",
    "changes_of",
    "channels_first",
    "copied",
    "flat_rows",
    "keeps_arguments",
    "lambda_returns",
    "normalizer_of",
    "read_critics",
    "read_q_net",
    "read_quantile_critics",
    "read_quantile_net",
    "read_actor_critic",
    "read_actor",
    "read_policy",
    "read_values",
    "transition_record",
]
