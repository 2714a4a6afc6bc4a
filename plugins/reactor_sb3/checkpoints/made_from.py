"""The arguments of a trainer's constructor, and its environment, in a checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial
from types import NoneType
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import flatdim
from stable_baselines3.common.type_aliases import TrainFreq
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule
from stable_baselines3.common.vec_env import VecEnv

from reactor_sb3.checkpoints.archive import CorruptError, RefusedError
from reactor_sb3.checkpoints.templates import check, like, want, whole
from reactor_sb3.environments.makers import EnvMaker
from reactor_sb3.trainers.arguments import plain_argument, taken_over
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.options import check_arguments

__all__ = ["arguments_now", "check_amounts", "check_made_from", "check_policy", "environment_of", "saved_environment"]

CHANGEABLE = ("learning_rate", "action_noise", "clip_range", "clip_range_vf", "delta_std")
"""Arguments that may be functions or objects, and be changed between two rounds."""
_OTHERWISE_KEPT = ("train_freq", "nodes")
"""Arguments that may be numbers, and whose attributes are something else."""
_MOST = {
    "learner_threads": 64, "n_learners": 64, "n_epochs": 1000, "gradient_steps": 100_000,
    "n_steps": 1_000_000, "train_freq": 1_000_000, "evaluate_steps": 1_000_000, "n_delta": 100_000,
    "n_eval_episodes": 100_000, "n_critic_updates": 1000, "cg_max_steps": 1000, "line_search_max_iter": 1000,
}  # fmt: skip
"""Most of something that a round may have, where nobody vouches for the file: it must end some day, on this machine. Well above
what published trainings have, and far below what would run for days. Chosen.
"""
_LARGEST_BATCH = 2**30
"""Bytes of the observations and activations of a batch, where nobody vouches for the file: 1 GB, which most machines have left.
Chosen.
"""


# ---------------------------------------------------------------------- as it is saved


def arguments_now(model: Model) -> dict[str, Any]:
    """A constructor's arguments as they are by now, where they have become attributes that were changed since.

    Raises:
        CorruptError: If one has become something else than a number.
    """
    arguments = {name: _now(model, name, value) for name, value in model.arguments.items()}
    rounds = getattr(model, "train_freq", None)
    if isinstance(rounds, TrainFreq):
        said = arguments["train_freq"]
        if (said[0] if isinstance(said, tuple) else said) != rounds.frequency:
            arguments["train_freq"] = rounds.frequency
    return arguments


def _now(model: Model, name: str, value: Any) -> Any:
    made = "lr_schedule" if name == "learning_rate" else f"{name}_schedule"  # which SB3 makes of it, and asks
    now = vars(model).get(made if made in vars(model) else name, value)
    if isinstance(now, FloatSchedule):  # what SB3 makes of a number, too
        now = now.value_schedule
        now = now.val if isinstance(now, ConstantSchedule) else now
    now = plain_argument(name, now)
    if name in CHANGEABLE:
        return now
    numbers = bool, int, float
    if isinstance(now, (*numbers, NoneType)) and isinstance(value, (*numbers, NoneType)):
        return now
    if name == "target_entropy" and value == "auto" and float(now) != -float(np.prod(model.action_space.shape or ())):
        return float(now)
    want(not isinstance(value, numbers) or name in _OTHERWISE_KEPT, name, "a number", now)
    return value


def environment_of(makes: EnvMaker) -> dict[str, Any]:
    """The maker of the environments: an id, which needs no pickle, or functions."""
    match makes.env_fns:
        case (partial(func=gymnasium.make, args=(str() as env_id,), keywords={**keywords}),) if not keywords:
            return {"id": env_id}
    return {"factory": makes}


def saved_environment(environment: dict[str, Any], allow_pickle: bool) -> Any:
    """The maker of a checkpoint's environments.

    Raises:
        RefusedError: If it is in a module that nobody has imported, and must not be.
    """
    if "factory" in environment:
        want(callable(environment["factory"]), "environment", "a function that makes one", environment["factory"])
        return environment["factory"]
    module, colon, _ = environment["id"].rpartition(":")
    if colon and not allow_pickle and sys.modules.get(module) is None:
        raise RefusedError(
            f"makes its environment from {environment['id'][:100]!r}, and with allow_pickle=False nothing is imported for it: "
            f"import {module[:100]} first, or pass env="
        )
    return environment["id"]


# ---------------------------------------------------------------------- what may stand there


def check_made_from(cls: Any, state: Mapping[str, Any], size: int) -> None:
    """Refuse what no trainer could be made from, or only one that is larger than the file says.

    Args:
        cls: The trainer's class.
        state: A checkpoint's state, of which only arguments and environment are looked at.
        size: Bytes of the file.

    Raises:
        CorruptError: If it is something else.
    """
    arguments, environment = state["arguments"], state["environment"]
    want(type(arguments) is dict and all(type(name) is str for name in arguments), "arguments", "a dict by name", arguments)
    kinds = list(environment) if type(environment) is dict else []
    is_one = kinds == ["factory"] or (kinds == ["id"] and type(environment["id"]) is str)
    want(is_one, "environment", "an id or a factory", environment)
    actors, envs = arguments.get("n_actors", 1), arguments.get("envs_per_actor", 1)
    for name, count in (("n_actors", actors), ("envs_per_actor", envs)):
        check(count, whole(1), name)
    want(actors * envs <= size, "n_actors", f"at most {size} environments", (actors, envs))
    evaluate_env = arguments.get("evaluate_env")
    want(isinstance(evaluate_env, EnvMaker | None), "evaluate_env", "what makes an environment", evaluate_env)
    try:
        with taken_over():
            check_arguments(cls, arguments)
    except ValueError as error:
        raise CorruptError(str(error)) from None


# ---------------------------------------------------------------------- where nobody vouches for the file


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


def check_policy(cls: Any, arguments: Mapping[str, Any], env: VecEnv, weights: Any) -> None:
    """Refuse weights that are not those of the policy that the arguments describe, before it takes any memory.

    Args:
        cls: The trainer's class.
        arguments: Arguments of its constructor, plain data.
        env: The environment as the policy sees it.
        weights: The policy's weights, as saved.

    Raises:
        CorruptError: If they are not.
        RefusedError: If a batch would take too much memory.
    """
    name = arguments.get("policy")
    want(type(name) is str and name in cls.policy_aliases, "policy", " or ".join(cls.policy_aliases), name)
    kwargs = arguments.get("policy_kwargs") or {}
    check(kwargs, dict, "policy_kwargs")
    kwargs = {**cls.usual_policy_kwargs, **kwargs}
    check(kwargs.get("n_critics", 1), whole(1, len(weights) + 1), "the number of critics")  # they are made one by one
    if "use_sde" in arguments:
        kwargs = {"use_sde": arguments["use_sde"], **kwargs}
    policy_class = cls.policy_aliases[name]
    outline = type(policy_class.__name__, (policy_class,), {"device": torch.device("meta")})
    checked = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)  # there are no values to check
    try:
        with torch.device("meta"):
            state = outline(env.observation_space, env.action_space, lambda _: 1e-3, **kwargs).state_dict()
    finally:
        torch.distributions.Distribution.set_default_validate_args(checked)
    check(weights, like(dict(state)), "policy")
    batch = arguments.get("batch_size", 1)
    check(batch, whole(1), "batch_size")
    row = flatdim(env.observation_space) + sum(len(part) for part in weights.values() if part.ndim)
    if batch * row * 4 > _LARGEST_BATCH:
        most = _LARGEST_BATCH // (4 * row)
        raise RefusedError(f"wants batch_size={batch}: with allow_pickle=False it may be {most} at most, for these networks")
