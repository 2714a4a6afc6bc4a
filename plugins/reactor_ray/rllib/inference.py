"""From observations to actions, bit for bit as RLlib's connectors, ``forward_exploration()``, ``GetActions`` and ``TensorToNumpy``.

RLlib's way changes a module's mode twice in each step, builds objects for a distribution of which two numbers are wanted, and walks
through trees of one leaf. The short way is for exactly RLlib's own classes; what is the user's own is called as RLlib calls it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import tree
from gymnasium import Space, spaces
from ray.rllib.connectors.module_to_env import GetActions
from ray.rllib.core.columns import Columns
from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical, TorchDiagGaussian
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModule
from ray.rllib.core.rl_module.rl_module import RLModule
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.utils.numpy import convert_to_numpy
from ray.rllib.utils.spaces.space_utils import clip_action, get_base_struct_from_space, unsquash_action
from ray.rllib.utils.torch_utils import convert_to_torch_tensor

__all__ = ["ColumnPolicy", "action_converter", "evaluating", "forward", "infer_actions", "tensor"]

_NARROWED = {np.dtype(np.float64): np.float32, np.dtype(np.float16): np.float32, np.dtype(np.int64): np.int32}
_get_actions = GetActions()


@contextmanager
def evaluating(module: Any) -> Iterator[None]:
    """Keep a module, or those of a ``MultiRLModule``, in evaluation mode, which RLlib enters and leaves for each forward pass.

    Args:
        module: An ``RLModule``, or ``None``.
    """
    found = [one for one in (module.values() if isinstance(module, MultiRLModule) else [module]) if isinstance(one, TorchRLModule)]
    trained = [one for one in found if one.training]
    for one in found:
        one.eval()
    try:
        yield
    finally:
        for one in trained:
            one.train()


def forward(module: Any, batch: dict[Any, Any], *, explore: bool, step: int) -> dict[Any, Any]:
    """The result of ``module.forward_exploration(batch, t=step)`` or ``module.forward_inference(batch)``.

    Args:
        module: An ``RLModule`` inside :func:`evaluating`.
        batch: Its tensors; for a ``MultiRLModule`` those of each module.
        explore: Which of the two.
        step: Environment steps so far, by which modules schedule their exploration.
    """
    name = "forward_exploration" if explore else "forward_inference"
    inner = f"_{name}"
    kind, keywords = type(module), {"t": step} if explore else {}
    if isinstance(module, MultiRLModule):
        if getattr(kind, name) is getattr(RLModule, name) and getattr(kind, inner) is getattr(MultiRLModule, inner):
            return {id: forward(module[id], one, explore=explore, step=step) for id, one in batch.items() if id in module}
    elif getattr(kind, name) is getattr(TorchRLModule, name, None) and name not in vars(module):
        if module.training:  # a callback has trained it
            module.eval()
        name = inner
    said: dict[Any, Any] = getattr(module, name)(batch, **keywords)
    return said


def infer_actions(module: Any, said: dict[str, Any], *, explore: bool) -> dict[str, Any]:
    """A module's outputs as arrays, with actions and their log-probabilities if it named only a distribution."""
    if explore and Columns.ACTION_DIST_INPUTS in said and Columns.ACTIONS not in said and Columns.ACTION_LOGP not in said:
        draw = _DRAWS.get(module.get_exploration_action_dist_cls())
        if draw is not None:
            said[Columns.ACTIONS], said[Columns.ACTION_LOGP] = draw(said[Columns.ACTION_DIST_INPUTS])
    said = _get_actions(rl_module=module, batch=said, episodes=[None], explore=explore)
    return {name: _array(value) for name, value in said.items()}


def tensor(values: Any, device: Any) -> Any:
    """``convert_to_torch_tensor`` of an array, or of arrays nested as a space is."""
    plain = type(values) is np.ndarray and values.dtype.kind in "fiub" and values.flags.writeable
    if not plain or (device is not None and torch.device(device).type != "cpu"):
        return convert_to_torch_tensor(values, device=device)
    made = torch.from_numpy(values)
    return made.float() if values.dtype.kind == "f" and made.dtype != torch.float16 else made


def action_converter(space: Space[Any], *, normalize: bool, clip: bool) -> Callable[[Any], Any] | None:
    """How a module's actions become those of one environment's ``space``; ``None`` if they are that already."""
    if not (normalize or clip) or isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        return None
    struct, convert = get_base_struct_from_space(space), unsquash_action if normalize else clip_action
    return lambda actions: convert(actions, struct)


def _categorical(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``torch.distributions.Categorical``. Like there, it is ``multinomial`` that raises if logits are not finite."""
    logits = logits - logits.logsumexp(dim=-1, keepdim=True)
    probabilities = logits.softmax(dim=-1)
    drawn = torch.multinomial(probabilities.reshape(-1, logits.shape[-1]), 1, True).reshape(*logits.shape[:-1], 1)
    return drawn.squeeze(-1), logits.gather(-1, drawn).squeeze(-1)


def _diag_gaussian(inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As ``torch.distributions.Normal``, summed over the last dimension."""
    mean, log_std = inputs.chunk(2, dim=-1)
    std = log_std.exp()
    drawn = torch.normal(mean, std)
    log_prob = -((drawn - mean) ** 2) / (2 * std**2) - std.log() - math.log(math.sqrt(2 * math.pi))
    return drawn, log_prob.sum(-1)


_DRAWS: dict[Any, Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    TorchCategorical: _categorical,
    TorchDiagGaussian: _diag_gaussian,
}


def _array(value: Any) -> Any:
    """``convert_to_numpy`` of a value, always a copy: a module may write to its tensors again."""
    if type(value) is not torch.Tensor or not value.dim() or value.device.type != "cpu":
        return convert_to_numpy(value)
    array = value.detach().numpy()
    return array.astype(_NARROWED.get(array.dtype, array.dtype))


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
        """Actions for all environments, inside :func:`evaluating`.

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
