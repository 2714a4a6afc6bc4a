"""Networks of torch for reactor programs: small ones without torch's dispatch, and their parameters as flat records."""

from reactor_rl.plugin import needs

with needs("sb3", "reactor_torch"):
    from reactor_torch.greedy import Greedy, Layered, Network, TorchNetwork, computing
    from reactor_torch.layers import Layer, layers_of
    from reactor_torch.parameters import FILLING, packed, parameter_record, tensors, write_parameters
    from reactor_torch.stacked import DenseNetwork, Stacked, dense_network_of, ends_in_softmax, is_compiled, stack
    from reactor_torch.streams import torch_state, torch_stream

__all__ = [
    "FILLING",
    "DenseNetwork",
    "Greedy",
    "Layer",
    "Layered",
    "Network",
    "Stacked",
    "TorchNetwork",
    "computing",
    "dense_network_of",
    "ends_in_softmax",
    "is_compiled",
    "layers_of",
    "packed",
    "parameter_record",
    "stack",
    "tensors",
    "torch_state",
    "torch_stream",
    "write_parameters",
]
