"""Policies of Stable-Baselines3, of sb3-contrib and of torch, as episodes ask them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from torch import nn

from reactor_gymnasium.plugin import AskedPolicy, BoundPolicy, PolicyCall, PolicyContext, PolicyNoise, counted, hashed
from reactor_sb3.environments.wrapped_alone import channels_first
from reactor_sb3.evaluation.normalizer import changes_of, normalizer_of
from reactor_torch import (
    FILLING,
    HeldForward,
    OneStream,
    Source,
    as_policy,
    choices_among,
    naming_spoilt,
    refuse_spoilt,
    spoilt_rows,
)

__all__ = ["asked"]

Array = npt.NDArray[Any]
Seen = dict[str, Array]


def asked(policy: Any, context: PolicyContext) -> AskedPolicy | None:
    """A model or policy of Stable-Baselines3, or a module of torch, as it is asked; an entry point.

    Returns:
        ``None`` for what is something else.

    Raises:
        ValueError: If it was made for other spaces, or its weights are not finite numbers.
        TypeError: If a module is to observe, or to do, what it cannot.
    """
    model, module = (policy, policy.policy) if isinstance(policy, BaseAlgorithm) else (None, policy)
    if isinstance(module, BasePolicy):
        _check_spaces(module, context, type(policy).__name__, "" if model is None else changes_of(model))
    elif not isinstance(module, nn.Module):
        return None
    source = as_policy(policy, context.observation_space, context.action_space, here=True)
    return None if source is None else ReadPolicy(source, module, model, context)


def _check_spaces(policy: BasePolicy, context: PolicyContext, named: str, hint: str) -> None:
    given: Any = context.observation_space
    if policy.observation_space not in (given, channels_first(given)):
        raise ValueError(f"{named} was trained to observe {policy.observation_space}, and the environment shows {given}{hint}")
    if policy.action_space != context.action_space:
        raise ValueError(
            f"{named} was trained for the actions {policy.action_space}, and the environment takes {context.action_space}"
        )


class ReadPolicy(AskedPolicy):
    """A :class:`~reactor_torch.Policy` as it is asked: with noise and a memory of each row's own.

    Args:
        source: The policy, and the module that has its weights.
        module: The policy as its library has it.
        model: The model that has it, if one does.
        context: What it acts in.
    """

    def __init__(self, source: Source, module: Any, model: Any, context: PolicyContext) -> None:
        self.policy, self.named, self.draws = source.policy, type(module).__name__, not context.deterministic
        self.space: Any = context.action_space
        self.observed: Any = module.observation_space if isinstance(module, BasePolicy) else context.observation_space
        self.numbers: frozenset[str] = frozenset() if isinstance(module, BasePolicy) else _whole_numbers(context.observation_space)
        self.normalizer = None if model is None else normalizer_of(model, context.observation_space)
        self.random_share = getattr(model, "exploration_rate", 0.0) if self.draws else 0.0
        self.masked, self.by_row, self.in_workers = self.policy.masked, self.policy.by_row, True
        self.module: Any = None
        self.weights: Any
        distribution, forward = self.policy.distribution, getattr(self.policy.network, "forward", None)
        if isinstance(forward, HeldForward):
            self.module, self.in_workers = forward.module, forward.device.type == "cpu"
            # A distribution looks at parameters that belong to no layer.
            self.weights = {name: one.detach().cpu().numpy() for name, one in source.module.named_parameters(recurse=False)}
        else:
            self.weights = source.weights()
        if distribution is None and not isinstance(self.space, spaces.Box):
            refuse_spoilt(source.module, f"the policy {self.named}")  # its answers are choices, of which none is NaN
        if self.random_share > 0:
            self.noise = PolicyNoise("uniform", 2)
        elif self.draws and distribution is not None and distribution.noise != "none":
            self.noise = PolicyNoise(distribution.noise, distribution.width)

    def bind(self, observations: Any, rows: int) -> BoundPolicy:
        find, act, fit = self.raw(observations, rows), self._acting(rows), self.policy.fitting
        share, space, named = self.random_share, self.space, self.named

        def ask(turn: PolicyCall) -> Any:
            actions, noise = act(find(turn), turn.noise), turn.noise
            if share > 0:
                actions = np.where(noise[:, 0] < share, (noise[:, 1] * space.n).astype(np.int64), actions)
            return counted(actions if fit is None else fit(actions), rows, space, named)

        return ask

    def _acting(self, rows: int) -> Callable[[Array, Any], Array]:
        """A function from what :meth:`raw` gives, and noise, to raw actions."""
        distribution, weights = self.policy.distribution, self.weights
        if distribution is None:
            return lambda actions, noise: actions
        mode, choose = distribution.mode, distribution.drawing(rows)
        if self.noise is None or self.random_share > 0:
            return lambda outputs, noise: mode(outputs)
        scale = distribution.scaled(np.ones((1, distribution.width), np.float32), weights)  # once: weights stay as they are
        return lambda outputs, noise: choose(outputs, noise * scale)

    def raw(self, observations: Any, rows: int) -> Callable[[PolicyCall], Array]:
        """See :class:`~reactor_gymnasium.plugin.AskedPolicy`: outputs, or actions of a policy that draws them by itself."""
        policy, named, module, space = self.policy, self.named, self.module, self.space
        choices = choices_among(space) if policy.masked else ()
        masks, starts = np.ones((1, rows, sum(choices)), np.bool_), np.ones((1, rows), np.bool_)
        seen, look = self._seen(observations)
        bound = policy.bind(self.weights, seen, masks=masks if policy.masked else None, starts=starts)
        state, distribution = bound.state, policy.distribution
        remembers = state.size > 0
        if distribution is not None:
            answer, wanted, scores = bound.outputs, (rows, distribution.outputs), bool(distribution.choices)
        else:
            answer = bound.begin(OneStream(np.random.default_rng(0))) if self.draws else bound.mode  # torch draws

        def find(turn: PolicyCall) -> Array:
            look()
            if policy.masked:
                masks[0] = _allowed(turn.masks, choices)
            for row, kept in enumerate(turn.memory if remembers else ()):
                starts[0, row], state[:, row] = kept is None, 0 if kept is None else kept
            with nullcontext() if module is None else naming_spoilt(module, f"the policy {named}"):
                found = answer(0)
            if distribution is not None:
                _check_outputs(found, wanted, scores, named, space)
            if remembers:
                turn.memory[:] = state.swapaxes(0, 1).copy()
            return found

        return find

    def _seen(self, observations: Any) -> tuple[Seen, Callable[[], None]]:
        """Observations as the policy sees them, and what has to be called before it looks at them."""
        observed, normalizer, numbers = self.observed, self.normalizer, self.numbers

        def shown() -> Seen:
            found = observations if normalizer is None else normalizer(observations)
            parts = found if isinstance(found, dict) else {"": found}
            return {key: part.astype(np.float32) if key in numbers else part for key, part in parts.items()}

        def look() -> None:
            for key, part in shown().items():
                memory[key][0] = part

        memory = {key: part[None] for key, part in shown().items()}
        seen = {}
        for key, part in memory.items():
            shape = observed[key].shape if isinstance(observed, spaces.Dict) else observed.shape
            seen[key] = part if part.shape[2:] == shape else np.moveaxis(part, -1, 2)  # SB3 has channels first
        return seen, look if normalizer or numbers else lambda: None

    def without_masks(self, env: Any) -> None:
        raise ValueError(
            f"{self.named} is told which actions are allowed, and the environment has no action_masks(): put sb3-contrib's "
            "ActionMasker around it, or pass lambda observations: model.predict(observations)[0]"
        )

    def digest(self) -> str:
        if self.module is None:
            parts = {name: self.weights[name] for name in self.weights.dtype.names if name != FILLING}
        else:
            parts = {name: part.cpu().numpy() for name, part in self.module.state_dict().items()}
        return hashed(parts if self.normalizer is None else [hashed(parts), *self.normalizer.statistics()])

    def held(self) -> Sequence[Any]:
        return (self.policy if self.module is None else self.module,)


def _check_outputs(outputs: Array, wanted: tuple[int, int], scores: bool, named: str, space: Any) -> None:
    """Check what a policy answers by: finite numbers, as many as there are to be."""
    if outputs.shape != wanted:
        raise ValueError(
            f"the policy {named} returned {'scores' if scores else 'numbers'} of shape {outputs.shape} for {wanted[0]} "
            f"observations; of {space} they have the shape {wanted}"
        )
    spoilt = spoilt_rows(outputs, scores)
    if spoilt is not None:
        raise ValueError(f"the policy {named} answered {outputs[spoilt][0].tolist()}, which are not finite numbers")


def _allowed(masks: Array | None, choices: Sequence[int]) -> Array:
    """Check the masks of some rows, and return them.

    Raises:
        ValueError: If they are of another shape, or forbid everything.
    """
    if masks is None or masks.shape[1] != sum(choices):
        raise ValueError(
            f"action_masks() must allow or forbid {sum(choices)} choices, got {None if masks is None else masks.shape[1]}"
        )
    for number, part in enumerate(np.split(masks, np.cumsum(choices)[:-1], axis=1)):
        if not part.any(1).all():
            raise ValueError(f"action_masks() forbids all of choice {number}; it has to allow one at least")
    return masks


def _whole_numbers(space: Any) -> frozenset[str]:
    """Keys of observations that are whole numbers, and no bytes or choices; a module of torch is given fractions.

    Raises:
        TypeError: If there are other observations than arrays by key.
    """
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
    if not all(isinstance(one, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) for one in parts.values()):
        raise TypeError(f"a torch.nn.Module may observe arrays or a Dict of arrays, and the environment shows {space}")
    return frozenset(
        key for key, one in parts.items() if isinstance(one, spaces.Box) and one.dtype.kind in "iu" and one.dtype != np.uint8
    )
