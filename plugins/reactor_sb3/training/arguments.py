"""What trainers are given besides what SB3's own algorithms know, checked before anything is made."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import torch
from stable_baselines3.common.utils import get_device

from reactor_gymnasium.plugin import checked_executor, checked_number
from reactor_rl.plugin import check_nodes, check_timeout

__all__ = [
    "DEVICES",
    "NOT_KEPT",
    "check_devices",
    "check_executor",
    "check_parallelism",
    "check_places",
    "keeps_arguments",
    "shared_out",
]

NOT_KEPT = frozenset({"self", "env", "_init_setup_model"})
"""Of a constructor's parameters, those that are no argument to make the same trainer again with."""
DEVICES = ("device", "critic_device", "actor_device")
"""Of those of any trainer, what says where something is computed."""

P = ParamSpec("P")
T = TypeVar("T")


def keeps_arguments(init: Callable[Concatenate[T, P], None]) -> Callable[Concatenate[T, P], None]:
    """A constructor that notes in ``self.arguments`` what it is given, defaults included: what makes the same trainer again.

    ``n_envs``, which SB3 has in ``make_vec_env``, is answered with what it is called here.
    """
    signature = inspect.signature(init)

    @wraps(init)
    def keeping(self: T, *args: P.args, **kwargs: P.kwargs) -> None:
        if "n_envs" in kwargs:
            raise TypeError(
                f"{type(self).__name__} has no n_envs: its environments are its actors', so pass n_actors={kwargs['n_envs']!r}, "
                "each with an environment of its own, or n_actors= and envs_per_actor="
            )
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        vars(self)["arguments"] = {name: value for name, value in bound.arguments.items() if name not in NOT_KEPT}
        init(self, *args, **kwargs)

    return cast(Callable[Concatenate[T, P], None], keeping)


def check_parallelism(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments of a trainer's constructor that make no sense, all but those that SB3 checks.

    Raises:
        TypeError: If a number is none.
        ValueError: If it is too small, or arguments do not go together.
    """
    pipeline = arguments["pipeline"]
    for name in ("learner_threads", "evaluate_episodes"):
        checked_number(name, arguments[name], 1)
    learners, batch_size = arguments["n_learners"], arguments.get("batch_size", math.inf)
    checked_number("n_learners", learners, 1)
    if learners > 1 and learners > batch_size:
        raise ValueError(f"n_learners={learners}: a minibatch of batch_size={batch_size} rows has no slice for each of them")
    checked_number("restarts", arguments["restarts"], 0)
    check_timeout("round_timeout", arguments["round_timeout"])
    for name in ("n_actors", "envs_per_actor", "workers", "evaluate_every", "evaluate_steps"):
        if arguments[name] is not None:
            checked_number(name, arguments[name], 1)
    check_executor(arguments)
    check_devices(arguments)
    if pipeline not in (0, 1):
        raise ValueError(f"pipeline={pipeline!r}: 0 learns from a round before the next one, 1 while the next one is sampled")


def check_executor(arguments: Mapping[str, Any]) -> None:
    """Refuse an executor that there is not, or that does not go with nodes or threads of the learner that are asked for.

    Raises:
        TypeError, ValueError: If there is no such executor, or it does not go with other arguments.
    """
    executor = arguments.get("executor", "auto")
    checked_executor(executor)
    check_nodes(executor, arguments.get("nodes"))
    if executor == "threads" and arguments.get("learner_threads", 1) > 1:
        raise ValueError(
            'executor="threads" needs learner_threads=1: torch has one number of threads for the whole process, which the '
            "actors' threads would find changed"
        )


def shared_out(n_actors: int | None, envs_per_actor: int | None, count: int | None, usual: int) -> tuple[int, int]:
    """How many actors there are, and how many environments each of them has.

    Args:
        n_actors: What is asked for, if anything is.
        envs_per_actor: Likewise.
        count: Environments of the live vector environment that the actors' are made from, ``None`` if there is none.
        usual: Actors that there are if nothing else says how many.

    Raises:
        ValueError: If so many environments cannot be shared out like that.
    """
    if count is None:
        return int(n_actors or usual), int(envs_per_actor or 1)
    actors = n_actors or count // (envs_per_actor or 1)
    envs = envs_per_actor or count // max(actors, 1)
    if actors * envs != count:
        said = " and ".join(f"{name}={n}" for name, n in (("n_actors", n_actors), ("envs_per_actor", envs_per_actor)) if n)
        raise ValueError(
            f"{said} cannot share out the {count} environments of the vector environment: leave both out for an actor each, or "
            f"give numbers whose product is {count}"
        )
    return int(actors), int(envs)


def check_devices(arguments: Mapping[str, Any]) -> None:
    """Refuse devices that are not there, of those that are named; SB3 would silently use others.

    Raises:
        RuntimeError: If torch knows no such device.
        ValueError: If it is not in this machine.
    """
    for name in DEVICES:
        if (device := arguments.get(name)) is None:
            continue
        wanted = get_device("cpu") if device == "auto" else torch.device(device)
        if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
            raise ValueError(
                f'{name}="{wanted}": torch sees {torch.cuda.device_count()} CUDA devices here; use {name}="cpu", or "auto" '
                "for one of them if there is any"
            )


def check_places(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that say where a trainer runs and make no sense, of those that there are.

    Raises:
        TypeError: If a number is none.
        ValueError: If a name or a number is none that there could be.
        RuntimeError: If torch knows no such device.
    """
    checked_number("restarts", arguments.get("restarts", 0), 0)
    check_timeout("round_timeout", arguments.get("round_timeout"))
    if arguments.get("workers") is not None:
        checked_number("workers", arguments["workers"], 1)
    checked_executor(arguments.get("executor", "auto"))
    check_devices(arguments)
