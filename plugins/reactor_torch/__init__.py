"""Networks of torch for reactor programs: small ones without torch's dispatch, their parameters as arrays, and learners."""

import logging

from reactor_rl import __version__
from reactor_rl.plugin import require_extra

with require_extra("sb3", "reactor_torch"):
    from reactor_torch.acting import (
        Answer,
        AskedNet,
        Calls,
        DenseNet,
        ImageNet,
        Net,
        OwnCalls,
        RecurrentNet,
        TorchNet,
    )
    from reactor_torch.autograd import Autograd
    from reactor_torch.batches import Batch, MaskedBatch, MinibatchSlicer, PPOBatch, QBatch, TransitionBatch, normalized
    from reactor_torch.convolved import Convolved, ConvolvedForward, image_layers_of
    from reactor_torch.dense import Dense, Function, Layer, Renormalisation, bound_layers, layers_of
    from reactor_torch.distributions import (
        FORBIDDEN,
        ActionDistribution,
        Bernoulli,
        Categorical,
        Deterministic,
        Gaussian,
        GaussianByRow,
        SquashedGaussian,
        SquashedGaussianByRow,
        Values,
        check_masks,
        distribution_of,
    )
    from reactor_torch.finite import naming_spoilt, refuse_spoilt, spoilt_rows
    from reactor_torch.first_weights import portable_first_weights
    from reactor_torch.flat import FlatOptimizer, FlatParameters
    from reactor_torch.forward import DenseForward, HeldForward, TorchForward
    from reactor_torch.gradient_worker import GradientWorker, SlicedGradients, WorkerConfig, torch_threads
    from reactor_torch.kernels import Team, differentiating, gather
    from reactor_torch.learned import (
        ActorCritic,
        Critics,
        QuantileCritics,
        QuantileNetwork,
        RecurrentActorCritic,
        SquashedActor,
        SquashedActorByRow,
        lstm_of,
    )
    from reactor_torch.loss import Loss, Network, Task, Update
    from reactor_torch.losses import (
        policy_gradient_loss,
        ppo_loss,
        q_loss,
        q_targets,
        quantile_loss,
        quantile_targets,
        scaled,
        squashed_sample,
        td_loss,
        weighted_sum,
    )
    from reactor_torch.lstm import Lstm, LstmWeights
    from reactor_torch.modules import ModuleCalls, drawn_by_torch
    from reactor_torch.natural import NaturalActor, conjugate_gradient
    from reactor_torch.networks import Networks
    from reactor_torch.parameters import (
        FILLING,
        ParameterWriter,
        computed_in,
        packed,
        parameter_record,
        tensors_of,
        write_parameters,
    )
    from reactor_torch.policy import BoundPolicy, Noise, OneStream, Policy, Source, as_policy, choices_among
    from reactor_torch.slicing import check_split, exchanged_bytes
    from reactor_torch.stacked import Stacked
    from reactor_torch.streams import drawing_nothing, draws, torch_state, torch_stream
    from reactor_torch.structure import Structure, differences, refuse_global_hooks
    from reactor_torch.tangents import Tangents
    from reactor_torch.unmodified import reason

__all__ = [
    "ActionDistribution",
    "ActorCritic",
    "Answer",
    "AskedNet",
    "Autograd",
    "Batch",
    "Bernoulli",
    "BoundPolicy",
    "Calls",
    "Categorical",
    "Convolved",
    "ConvolvedForward",
    "Critics",
    "Dense",
    "DenseForward",
    "DenseNet",
    "Deterministic",
    "FILLING",
    "FORBIDDEN",
    "FlatOptimizer",
    "FlatParameters",
    "Function",
    "Gaussian",
    "GaussianByRow",
    "GradientWorker",
    "HeldForward",
    "ImageNet",
    "Layer",
    "Loss",
    "Lstm",
    "LstmWeights",
    "MaskedBatch",
    "MinibatchSlicer",
    "ModuleCalls",
    "NaturalActor",
    "Net",
    "Network",
    "Networks",
    "Noise",
    "OneStream",
    "OwnCalls",
    "PPOBatch",
    "ParameterWriter",
    "Policy",
    "QBatch",
    "QuantileCritics",
    "QuantileNetwork",
    "RecurrentActorCritic",
    "RecurrentNet",
    "Renormalisation",
    "SlicedGradients",
    "Source",
    "SquashedActor",
    "SquashedActorByRow",
    "SquashedGaussian",
    "SquashedGaussianByRow",
    "Stacked",
    "Structure",
    "Tangents",
    "Task",
    "Team",
    "TorchForward",
    "TorchNet",
    "TransitionBatch",
    "Update",
    "Values",
    "WorkerConfig",
    "as_policy",
    "bound_layers",
    "check_masks",
    "check_split",
    "choices_among",
    "computed_in",
    "conjugate_gradient",
    "differences",
    "differentiating",
    "distribution_of",
    "drawing_nothing",
    "drawn_by_torch",
    "draws",
    "exchanged_bytes",
    "gather",
    "image_layers_of",
    "layers_of",
    "lstm_of",
    "naming_spoilt",
    "normalized",
    "packed",
    "parameter_record",
    "policy_gradient_loss",
    "portable_first_weights",
    "ppo_loss",
    "q_loss",
    "q_targets",
    "quantile_loss",
    "quantile_targets",
    "reason",
    "refuse_global_hooks",
    "refuse_spoilt",
    "scaled",
    "spoilt_rows",
    "squashed_sample",
    "td_loss",
    "tensors_of",
    "torch_state",
    "torch_stream",
    "torch_threads",
    "weighted_sum",
    "write_parameters",
    "__version__",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())
