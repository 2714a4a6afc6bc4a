"""The arguments in a checkpoint that a trainer is made from: what a file may ask for. See :mod:`reactor_sb3.checkpoints.alike`."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np
import torch
from gymnasium.spaces import flatdim
from stable_baselines3.common.vec_env import VecEnv

from reactor_rl.plugin import Pickled
from reactor_sb3.checkpoints.alike import LARGE, alike, is_count, want
from reactor_sb3.checkpoints.archive import RefusedError
from reactor_sb3.trainers.options import constructor_hints, constructor_names

__all__ = ["check_amounts", "check_arguments", "check_policy"]

_MOST = {
    "learner_threads": 64, "n_learners": 64, "n_epochs": 1000, "gradient_steps": 100_000,
    "n_steps": 1_000_000, "rollout_steps": 1_000_000, "train_freq": 1_000_000, "evaluate_steps": 1_000_000, "n_delta": 100_000,
    "n_eval_episodes": 100_000, "n_critic_updates": 1000, "cg_max_steps": 1000, "line_search_max_iter": 1000,
}  # fmt: skip
"""Most of something that a round may have, where nobody vouches for the file: it must end some day, on this machine."""
_LARGEST_BATCH = 2**30
"""Bytes of the observations and activations of a batch, where nobody vouches for the file."""


def check_arguments(cls: Any, arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that the constructor does not have, and plain values of other types than it says it takes.

    Raises:
        CorruptError: If there are any.
    """
    any_keyword = any(one.kind is one.VAR_KEYWORD for one in inspect.signature(cls).parameters.values())
    want(any_keyword or constructor_names(cls) >= arguments.keys(), "an argument", sorted(arguments))
    hints = constructor_hints(cls)
    for name, value in arguments.items():
        if isinstance(value, (type(None), bool, int, float, str, list, tuple, dict, np.ndarray, torch.Tensor, Pickled)):
            hint = hints.get(name, Any)
            kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
            want(any(_fits(value, one) for one in kinds), name, value)


def check_amounts(arguments: Mapping[str, Any]) -> None:
    """Refuse what would keep this machine busy for ever, or take all threads that it can have.

    Raises:
        RefusedError: Names it.
    """
    for name, most in _MOST.items():
        value = arguments.get(name)
        amount = value[0] if isinstance(value, (list, tuple)) and value else value
        if isinstance(amount, (int, float)) and amount > most:
            raise RefusedError(f"wants {name}={str(value)[:100]}: with allow_pickle=False it may be {most} at most")


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is float:  # infinity switches some things off
        return (isinstance(value, float) and not math.isnan(value)) or _fits(value, int)
    if hint is int:  # some say True for 1, or 32.0
        return isinstance(value, (bool, int, float)) and abs(value) < LARGE and value == int(value)
    if hint is bool:
        return type(value) is bool or (type(value) is int and value in (0, 1))
    kind = get_origin(hint) or hint
    return hint is Any or (isinstance(kind, type) and isinstance(value, kind))


def check_policy(
    policy_class: type[Any], usual: Mapping[str, Any], arguments: Mapping[str, Any], env: VecEnv, weights: Any
) -> None:
    """Refuse weights that are not those of the policy that the arguments describe, before it takes any memory.

    Args:
        policy_class: The policy's class.
        usual: Those of ``policy_kwargs`` that there are if the arguments have none of that name.
        arguments: Arguments of the trainer's constructor, plain data.
        env: The environment as the policy sees it.
        weights: The policy's weights, as saved.

    Raises:
        CorruptError: If they are not.
        RefusedError: If a batch would take too much memory.
    """
    kwargs = arguments.get("policy_kwargs") or {}
    want(type(kwargs) is dict, "policy_kwargs")
    kwargs = {**usual, **kwargs}
    critics = kwargs.get("n_critics", 1)
    want(is_count(critics, 1) and critics <= len(weights), "the number of critics")  # they are made one by one
    if "use_sde" in arguments:
        kwargs = {"use_sde": arguments["use_sde"], **kwargs}
    outline = type(policy_class.__name__, (policy_class,), {"device": torch.device("meta")})
    with torch.device("meta"), _unchecked_distributions():
        state = outline(env.observation_space, env.action_space, lambda _: 1e-3, **kwargs).state_dict()
    alike(weights, dict(state), "policy")
    batch = arguments.get("batch_size", 1)
    row = flatdim(env.observation_space) + sum(len(part) for part in weights.values() if part.ndim)
    want(is_count(batch, 1), "batch_size", batch)
    if batch * row * 4 > _LARGEST_BATCH:
        most = _LARGEST_BATCH // (4 * row)
        raise RefusedError(f"wants batch_size={batch}: with allow_pickle=False it may be {most} at most, for these networks")


@contextlib.contextmanager
def _unchecked_distributions() -> Iterator[None]:
    """Let torch make distributions of what has no values to check."""
    checked = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(checked)
