"""Optuna's side of a search: its study is asked for trials, and told how they ended, always in one order."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, distribution_to_json
from optuna.samplers import BaseSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from reactor_rl.plugin import global_random_state

__all__ = ["STATES", "OrderedStudy", "Space", "silenced", "space_of"]

Space = Mapping[str, BaseDistribution] | Callable[[optuna.Trial], Mapping[str, Any] | None]
"""Distributions by name, or a function that asks a trial of Optuna's for hyperparameters."""

STATES = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}


def space_of(space: Any) -> Any:
    """The space as plain values, for a record.

    Raises:
        TypeError: If it is not a space.
    """
    if isinstance(space, Mapping):
        for name, one in space.items():
            if not isinstance(name, str) or not isinstance(one, BaseDistribution):
                raise TypeError(f"space must map names to Optuna's distributions, got {name!r}: {one!r}")
            for choice in one.choices if isinstance(one, CategoricalDistribution) else ():
                if not _found_again(choice):
                    raise TypeError(
                        f"{name!r} has the choice {choice!r} ({type(choice).__name__}), which Optuna cannot find again: a copy is "
                        "not equal to it. Give each a name, and look that up in the training"
                    )
        if not space:
            raise ValueError("space is empty")
        return {name: distribution_to_json(one) if _wrong_choice(one) is None else repr(one) for name, one in space.items()}
    if not callable(space):
        raise TypeError(f"space must be a dict of Optuna's distributions, or a function of a trial of Optuna's, got {space!r}")
    return getattr(space, "__qualname__", type(space).__qualname__)


def _found_again(choice: Any) -> bool:
    """Whether a copy of a choice is told to be the same, as Optuna does that."""
    try:
        return isinstance(choice, float) or bool(copy.deepcopy(choice) == choice)
    except Exception:  # of arrays, say, or of what cannot be copied
        return False


def _check_kept(distributions: Mapping[str, BaseDistribution], stored: bool) -> None:
    """Refuse choices that cannot be kept.

    Args:
        distributions: By hyperparameter.
        stored: Whether a storage of Optuna's keeps them. It compares them with what it reads, and reads lists for tuples.

    Raises:
        TypeError: Naming the hyperparameter.
    """
    for name, one in distributions.items():
        wrong = _wrong_choice(one, stored)
        if wrong is not None:
            raise TypeError(
                f"{name!r} has the choice {wrong[0]!r} ({type(wrong[0]).__name__}), which cannot be kept in path= or in a study: "
                "choices must be strings, Python's numbers, booleans or None. Give each a name, and look that up in the training"
            )


def _wrong_choice(distribution: BaseDistribution, stored: bool = False) -> tuple[Any] | None:
    for choice in distribution.choices if isinstance(distribution, CategoricalDistribution) else ():
        try:
            alike = json.loads(json.dumps(choice)) == choice
        except (TypeError, ValueError):
            return (choice,)
        if stored and not alike:
            return (choice,)
    return None


class OrderedStudy:
    """A study of Optuna's in memory, that sees trials in their order alone; the user's study gets a copy of each that has ended.

    Args:
        space: Where trials are drawn from.
        sampler: Who draws them; ``None`` for the study's, and ``TPESampler(seed=seed)`` if that has no sampler either.
        seed: Of that one.
        direction: ``"maximize"`` or ``"minimize"``; the study's, if there is one.
        study: The user's study.
        kept: Whether hyperparameters are written to a file.

    Attributes:
        stopped: Whether the sampler has nothing left to draw.

    Raises:
        TypeError, ValueError: If something does not fit, or the sampler draws otherwise each time.
    """

    def __init__(
        self, space: Space, sampler: BaseSampler | None, seed: int, direction: str, study: optuna.Study | None, kept: bool
    ) -> None:
        if study is not None:
            if not isinstance(study, optuna.Study):
                raise TypeError(f"study must be an optuna.Study, got {study!r}")
            if len(study.directions) > 1:
                raise ValueError(f"study has {len(study.directions)} objectives, and a search has one")
            if sampler is not None and sampler is not study.sampler:
                raise ValueError("the study has a sampler: pass sampler= or study=, not both")
            sampler, direction = study.sampler, study.direction.name.lower()
        if direction not in ("maximize", "minimize"):
            raise ValueError(f"direction must be 'maximize' or 'minimize', got {direction!r}")
        if sampler is None:
            sampler = TPESampler(seed=seed)
        if not isinstance(sampler, BaseSampler):
            raise TypeError(f"sampler must be one of Optuna's, got {sampler!r}")
        self.space, self.theirs, self.kept = space, study, kept
        # The one place where a study keeps things as they are has no public name.
        self.stored = study is not None and not isinstance(getattr(study, "_storage", None), optuna.storages.InMemoryStorage)
        self.direction: Literal["maximize", "minimize"] = "maximize" if direction == "maximize" else "minimize"
        self.sign = 1 if direction == "maximize" else -1
        self.sampler = type(sampler).__name__
        self.known: list[FrozenTrial] = [] if study is None else study.get_trials(deepcopy=False)
        if _used(sampler):
            if study is None:
                raise ValueError(f"sampler {self.sampler} has drawn for another study already: pass a new one")
            raise ValueError(
                f"the study {study.study_name!r} has {len(self.known)} trials, and its sampler has drawn for them already: pass an "
                "empty study"
            )
        self._check_seeded(sampler)
        self.study = self._in_memory(copy.deepcopy(sampler))  # the user's is as it was for the next search
        self.study.stop = self._stop  # type: ignore[method-assign]  # which a sampler calls that has drawn all there is
        self.stopped = False
        self.running: dict[int, optuna.Trial] = {}

    def _in_memory(self, sampler: BaseSampler) -> optuna.Study:
        with silenced():
            return optuna.create_study(study_name="sweep", sampler=sampler, direction=self.direction)

    def _stop(self) -> None:
        self.stopped = True

    def _check_seeded(self, sampler: BaseSampler) -> None:
        """Refuse a sampler that draws something else each time: copies of one that is seeded draw the same."""
        if not (_unseeded(sampler) or self._first_draws(sampler) != self._first_draws(sampler)):
            return
        whose = "the study's sampler" if self.theirs is not None else "sampler"
        raise ValueError(f"{whose} {self.sampler} draws something else each time: give it a seed, as in {self.sampler}(seed=0)")

    def _first_draws(self, sampler: BaseSampler) -> list[Any]:
        with global_random_state():
            study = self._in_memory(copy.deepcopy(sampler))
            return [self._asked(study)[0].params for _ in range(2)]

    def _asked(self, study: optuna.Study) -> tuple[optuna.Trial, Any]:
        """A trial of a study, and what the user's space has returned."""
        if isinstance(self.space, Mapping):
            return study.ask(dict(self.space)), None
        trial = study.ask()
        return trial, self.space(trial)

    def ask(self) -> tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, BaseDistribution]]:
        """Ask for the next trial.

        Returns:
            Its hyperparameters as trainings are given them, as they were drawn, and what they were drawn from.
        """
        with global_random_state():
            trial, given = self._asked(self.study)
        self.running[trial.number] = trial
        if self.kept or self.stored:
            _check_kept(trial.distributions, self.stored)
        if given is not None and not isinstance(given, Mapping):
            raise TypeError(f"space must return a dict of hyperparameters or nothing, got {given!r}")
        return trial.params if given is None else given, trial.params, trial.distributions

    def tell(
        self, number: int, state: str, value: float | None, reports: Mapping[int, float], attributes: Mapping[str, Any]
    ) -> None:
        """Tell how a trial has ended, and hand it on to the user's study.

        Args:
            number: Of the trial.
            state: ``"complete"``, ``"pruned"`` or ``"failed"``.
            value: What it is judged by, if it is complete.
            reports: What it has reported, by step.
            attributes: What else the user's study is to have of it.

        Raises:
            ValueError: If the user's study has another trial in its place.
        """
        trial = self.running.pop(number)
        for step in sorted(reports):
            trial.report(reports[step], step)
        for name, attribute in attributes.items():
            trial.set_user_attr(name, attribute)
        with global_random_state():
            self.study.tell(trial, value if state == "complete" else None, STATES[state])
        if self.theirs is None:
            return
        frozen = self.study.get_trials(deepcopy=False)[number]
        if number >= len(self.known):
            self.theirs.add_trial(frozen)
            return
        known = self.known[number]
        # As text: a storage gives lists for tuples, and NaN is not equal to itself.
        if (json.dumps(known.params), known.state, known.values) != (json.dumps(frozen.params), frozen.state, frozen.values):
            raise ValueError(
                f"the study {self.theirs.study_name!r} has trials of another search: its trial {number} has {known.params} and is "
                f"{known.state.name.lower()} with {known.values}, here it has {frozen.params} and is {state} with {frozen.values}"
            )

    def check_all_told(self, told: int) -> None:
        """Refuse a study that has trials which nobody here knows of."""
        if self.theirs is not None and len(self.known) > told:
            raise ValueError(
                f"the study {self.theirs.study_name!r} has {len(self.known)} trials, of which the record of this search has {told}"
                ": pass the path= that they were made with, or an empty study"
            )


def _samplers(sampler: BaseSampler, depth: int = 3) -> Iterator[BaseSampler]:
    """A sampler, and those within it."""
    yield sampler
    for part in vars(sampler).values():
        if depth and isinstance(part, BaseSampler):
            yield from _samplers(part, depth - 1)


def _used(sampler: BaseSampler) -> bool:
    """Whether a sampler of Optuna's, or one within it, knows the trials of one study, and can draw for no other one."""
    return any(getattr(part, "_study_id", None) is not None for one in _samplers(sampler) for part in vars(one).values())


def _unseeded(sampler: BaseSampler) -> bool:
    """Whether a sampler of Optuna's, or one within it, has a generator that will be seeded by the clock."""
    parts = (part for one in _samplers(sampler) for part in vars(one).values())
    return any(type(part).__name__ == "LazyRandomState" and getattr(part, "_rng", part) is None for part in parts)


@contextmanager
def silenced() -> Iterator[None]:
    """Let Optuna say nothing about studies that nobody has asked for."""
    logger = logging.getLogger("optuna")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
