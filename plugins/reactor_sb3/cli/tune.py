"""``python -m reactor_rl tune``: what a trainer's rounds cost here, and what other settings would bring."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from inspect import getdoc

from reactor_rl.plugin import Target, UsageError, subject_of, usable_cores
from reactor_sb3.trainers.trainer import Trainer
from reactor_sb3.trainers.tuning import call_of, predictions

__all__ = ["main"]

NOTE = """
"steps" are those of all environments. "learned from" counts the rows of each minibatch: a transition that is learned from twice
counts twice. All settings are part of the algorithm: others give other weights, and those below the line another balance of
updates and steps, which may reach a goal with more steps or with fewer. The fastest of those above it:
"""


def main(argv: list[str]) -> int:
    """Time a trainer's rounds, and predict its speed with other settings.

    Throw-away copies of an actor and of the learner are timed, as by executor="auto". Nothing is changed and nothing is trained.
    """
    parser = argparse.ArgumentParser(prog="python -m reactor_rl tune", description=getdoc(main))
    parser.add_argument("target", metavar="TARGET", help="MODULE:FACTORY, a function that makes a trainer, or a target that does")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="*", help="arguments of the function: value or key=value")
    given = parser.parse_intermixed_args(argv)
    with subject_of(given.target, given.arguments) as made, made.make() if isinstance(made, Target) else nullcontext(made) as model:
        if not isinstance(model, Trainer):
            raise UsageError(f"{given.target} made {model!r}, which is no trainer of reactor_sb3")
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
