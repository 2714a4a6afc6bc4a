"""``python -m reactor_rl tune``: what a trainer's rounds cost here, and the rates to be expected with other settings.

Rates are predicted from measured costs, and nothing is changed. Spreeze (Hou et al. 2025) adapts batch size and parallelism while
it trains; here they are part of the algorithm, and the user's to decide.
"""

from __future__ import annotations

import argparse
import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import gymnasium
from stable_baselines3.common.vec_env import unwrap_vec_normalize

from reactor_rl.plugin import Target, UsageError, open_target, usable_cores
from reactor_sb3.environments.makers import maker_of
from reactor_sb3.trainers.costs import LearnerCost, actor_cost
from reactor_sb3.trainers.placing import predicted, timed_learner
from reactor_sb3.trainers.trainer import Trainer

__all__ = ["Prediction", "call_of", "main", "predictions"]

NOTE = """
"steps" are those of all environments. "learned from" counts the rows of each minibatch: a transition that is learned from twice
counts twice. All settings are part of the algorithm: others give other weights, and those below the line another balance of
updates and steps, which may reach a goal with more steps or with fewer. The fastest of those above it:
"""


def main(argv: list[str]) -> int:
    """Time a trainer's rounds, and predict its speed with other settings.

    Throw-away copies of an actor and of the learner are timed, as by executor="auto". Nothing is changed and nothing is trained.
    """
    parser = argparse.ArgumentParser(prog="python -m reactor_rl tune", description=inspect.getdoc(main))
    parser.add_argument("target", metavar="TARGET", help="MODULE:FACTORY, a function that makes a trainer, or a target that does")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="arguments of the function: value or key=value")
    given = parser.parse_intermixed_args(argv)
    with (
        open_target(given.target, given.arguments) as made,
        made.make() if isinstance(made, Target) else nullcontext(made) as model,
    ):
        if not isinstance(model, Trainer):
            raise UsageError(f"{given.target} must make a trainer of reactor_sb3, got {model!r}")
        print_predictions(model)
    return 0


def print_predictions(model: Trainer) -> None:
    """Print a table of predicted rates, and the constructor's call of the fastest trainer with as many updates to the steps."""
    found = list(predictions(model))
    first = found[0]
    print(
        f"{type(model).__name__} on {usable_cores()} cores. An actor's round takes {1e3 * first.actor:.2f} ms, and there are "
        f"{model.n_actors}; an update takes {1e3 * first.learner / max(first.updates, 1):.2f} ms, and there are {first.updates}. "
        "Predicted, a second:\n"
    )
    print(f"  {'':20}{'steps':>14}{'learned from':>16}")
    for keeps in (True, False):
        for one in (one for one in found if one.keeps_balance is keeps):
            changed = ", ".join(f"{name}={value}" for name, value in one.changed.items()) or "as it is"
            print(f"  {changed:20}{one.sampling:14,.0f}{one.update_frames:16,.0f}")
        if keeps:
            print(f"  {50 * '-'}")
    best = max((one for one in found if one.keeps_balance), key=lambda one: one.sampling)
    print(f"{NOTE}\n{call_of(model, best.changed)}")


# ---------------------------------------------------------------------- predictions


@dataclass(frozen=True)
class Prediction:
    """The rates to be expected of a trainer with some settings.

    Attributes:
        changed: Arguments of the constructor that are other ones than the given trainer's.
        sampling: Steps of all environments a second.
        update_frames: Transitions that updates are made from, a second.
        actor: Seconds of an actor's round.
        learner: Seconds of the learner's round, all gradients one after the other.
        updates: How many updates that is.
    """

    changed: Mapping[str, Any]
    sampling: float
    update_frames: float
    actor: float
    learner: float
    updates: int

    @property
    def keeps_balance(self) -> bool:
        """Whether as many updates, of as many rows, are made from as many steps: only how they are shared out differs."""
        return self.changed.keys() <= {"pipeline", "split"}


def predictions(model: Trainer) -> Iterator[Prediction]:
    """The rates of a trainer as it is, and with another setting; each when it has been measured.

    Args:
        model: The trainer. It is only looked at.
    """
    of_envs: dict[int, float] = {}
    of_rows: dict[tuple[int, int, bool], LearnerCost] = {}
    for changed in _candidates(model):
        try:
            other = _with(model, changed)
        except ValueError:  # these do not go together with the others
            continue
        with other:
            config, envs, rows = other.program_config(), other.envs_per_actor, len(other.example())
            if envs not in of_envs:
                of_envs[envs] = actor_cost(config)
            how = rows, config.pipeline, config.split  # on which it depends how many threads help
            if how not in of_rows:
                of_rows[how] = timed_learner(config, other)
            one, updates = of_rows[how], other.updates_due()
            actor, share = of_envs[envs], updates / max(one.updates, 1)
            cost = LearnerCost(one.alone * share, one.helped * share, updates)
            seconds = predicted(config, actor, cost)
            steps, learned = other.rollout_steps * other.n_envs, updates * len(other.example())
            yield Prediction(changed, steps / seconds, learned / seconds, actor, cost.helped, updates)


def _candidates(model: Trainer) -> Iterator[dict[str, Any]]:
    arguments = model.arguments
    yield {}
    yield {"pipeline": 1 - model.pipeline}
    if "split" in arguments:
        yield {"split": not arguments["split"]}
    yield {"n_actors": 2 * model.n_actors}
    yield {"envs_per_actor": 2 * model.envs_per_actor}
    if "batch_size" in arguments:
        larger = [factor * arguments["batch_size"] for factor in (2, 4)]
        size = model.rollout_steps * model.n_envs  # which minibatches are to divide, where there is no replay buffer
        yield from ({"batch_size": rows} for rows in larger if "buffer_size" in arguments or size % rows == 0)
    elif arguments["n_minibatches"] > 1:
        yield {"n_minibatches": arguments["n_minibatches"] // 2}
    steps = model.updates_due() if "gradient_steps" in arguments else 0
    yield from ({"gradient_steps": other} for other in (steps // 2, 2 * steps) if other > 0)


def _with(model: Trainer, changed: Mapping[str, Any]) -> Any:
    """A trainer like another one, with a replay buffer that is no larger than necessary.

    Raises:
        ValueError: If there can be none.
    """
    arguments = {**model.arguments, **changed, "verbose": 0, "tensorboard_log": None}
    n_envs = arguments["n_actors"] * arguments["envs_per_actor"]
    if "buffer_size" in arguments:
        least = max(arguments["batch_size"], arguments["learning_starts"], model.rollout_steps * n_envs) + n_envs
        arguments["buffer_size"] = min(arguments["buffer_size"], least)
    env: Any = model.env
    if n_envs != model.n_envs:
        if unwrap_vec_normalize(env) is not None:
            raise ValueError("the statistics are of another number of environments")
        env = maker_of(env)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user has been warned of the same
        return type(model)(env=env, **arguments)


# ---------------------------------------------------------------------- as source


def call_of(model: Trainer, changed: Mapping[str, Any]) -> str:
    """The constructor's call that makes a trainer with other settings; without arguments that have their default."""
    parameters = inspect.signature(type(model)).parameters
    arguments = {**model.arguments, **changed}
    told = [_source(arguments.pop("policy"), "policy"), _env(model)]
    told += [
        f"{name}={_source(value, name)}"
        for name, value in arguments.items()
        if not (type(value) is type(parameters[name].default) and value == parameters[name].default)
    ]
    return f"{type(model).__name__}({', '.join(told)})"


def _env(model: Trainer) -> str:
    """The environment's id, if it is made by one."""
    makes: Any = maker_of(model.env).env_fns[0]
    by_id = isinstance(makes, functools.partial) and makes.func is gymnasium.make and not makes.keywords
    return repr(makes.args[0]) if by_id else "env"


def _source(value: Any, name: str) -> str:
    """A value as source, or the name of its parameter where it cannot be written as source."""
    if isinstance(value, bool | int | float | str | None):
        return repr(value)
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return "{" + ", ".join(f"{key!r}: {_source(part, key)}" for key, part in value.items()) + "}"
    if isinstance(value, list | tuple):
        inside = ", ".join(_source(part, name) for part in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    return name
