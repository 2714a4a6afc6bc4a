"""Which trainings are not worth going on with: judged by trials before them alone, so never by which one was faster."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reactor_gymnasium.plugin import checked_number

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner

__all__ = ["Contender", "OptunaPruner", "Pruner", "SuccessiveHalving", "pruner_of"]


@dataclass
class Contender:
    """A trial as pruners see it.

    Attributes:
        params: Its hyperparameters, as they were drawn.
        distributions: What they were drawn from.
        reports: What its first training has reported, by step.
        over: Whether that training has ended.
        outcome: How the trial has ended, state and value, once it has.
        attributes: What Optuna's pruner keeps of it, by the step at which it was judged.
    """

    params: Mapping[str, Any]
    distributions: Mapping[str, BaseDistribution]
    reports: dict[int, float] = field(default_factory=dict)
    over: bool = False
    outcome: tuple[str, float | None] | None = None
    attributes: dict[int, dict[str, Any]] = field(default_factory=dict)


class Pruner:
    """Judges reports. ``None`` for a report that cannot be judged yet, because a trial before it has not come as far."""

    rungs: tuple[int, ...] = ()
    """Steps at which trials are compared; empty where every report is judged."""

    def stops(self, before: Sequence[Contender], ended: int, own: Contender, step: int, sign: int) -> bool | None:
        """Whether a training is to stop.

        Args:
            before: The trials before it.
            ended: How many of them had ended when it was drawn, whatever has ended by now.
            own: Its trial, which has reported at ``step`` last.
            step: The step.
            sign: 1 if more is better, -1 if less is.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class SuccessiveHalving(Pruner):
    """Lets a training pass a rung if it is among the best that have come so far: itself and the trials before it.

    Args:
        rungs: Steps at which trials are compared, each by the first report at or after it.
        reduction_factor: One in so many passes a rung; while there are fewer, the best one does.

    Raises:
        ValueError: If there is no rung, they do not rise, or a number makes no sense.
    """

    rungs: tuple[int, ...]
    reduction_factor: int = 3

    def __post_init__(self) -> None:
        rungs = tuple(self.rungs)
        for rung in rungs:
            checked_number("rungs", rung, 1)
        if not rungs or list(rungs) != sorted(set(rungs)):
            raise ValueError(f"rungs must be steps that rise, at least one, got {self.rungs!r}")
        checked_number("reduction_factor", self.reduction_factor, 2)
        object.__setattr__(self, "rungs", rungs)

    def stops(self, before: Sequence[Contender], ended: int, own: Contender, step: int, sign: int) -> bool | None:
        earlier = max((one for one in own.reports if one < step), default=-1)
        passed = [rung for rung in self.rungs if earlier < rung <= step]
        if not passed:
            return False
        rung = passed[-1]
        theirs = []
        for one in before:
            value = _at(one.reports, rung)
            if value is not None:
                theirs.append(sign * value)
            elif not one.over:
                return None
        mine = sign * own.reports[step]
        best = sorted([*theirs, mine], reverse=True)
        return mine < best[max(len(best) // self.reduction_factor, 1) - 1]


def _at(reports: Mapping[int, float], rung: int) -> float | None:
    """The first report at or after a rung."""
    steps = [step for step in reports if step >= rung]
    return reports[min(steps)] if steps else None


class OptunaPruner(Pruner):
    """One of Optuna's, which is shown what the trials before have reported up to the step that is judged."""

    def __init__(self, pruner: BasePruner) -> None:
        self.pruner = pruner

    def stops(self, before: Sequence[Contender], ended: int, own: Contender, step: int, sign: int) -> bool | None:
        import optuna
        from optuna.trial import TrialState, create_trial

        for one in before:
            # One that has come as far may wait for its own answer, with which the pruner notes something of it.
            if not one.over and (max(one.reports, default=-1) < step or (step in one.reports and step not in one.attributes)):
                return None
        storage = optuna.storages.InMemoryStorage()
        direction = optuna.study.StudyDirection.MAXIMIZE if sign > 0 else optuna.study.StudyDirection.MINIMIZE
        name = "sweep"  # pruners with brackets share out trials by it
        number = storage.create_new_study([direction], name)
        states = {"complete": TrialState.COMPLETE, "pruned": TrialState.PRUNED, "failed": TrialState.FAIL}
        for at_number, one in enumerate((*before, own)):
            state, value, upto = TrialState.RUNNING, None, step
            if at_number < ended:
                assert one.outcome is not None
                state, value, upto = states[one.outcome[0]], one.outcome[1], max((step, *one.reports))
            attributes: dict[str, Any] = {}
            for at in sorted(one.attributes):
                if at <= upto and not (one is own and at == step):
                    attributes = one.attributes[at]
            frozen = create_trial(
                state=state, value=value, params=dict(one.params), distributions=dict(one.distributions),
                system_attrs=dict(attributes),
                intermediate_values={at: reported for at, reported in one.reports.items() if at <= upto},
            )  # fmt: skip
            storage.create_new_trial(number, template_trial=frozen)
        pruner = copy.deepcopy(self.pruner)  # some note in themselves what they see first
        study = optuna.Study(name, storage, pruner=pruner)
        last = study.get_trials(deepcopy=False)[-1]
        stops = bool(pruner.prune(study, last))
        own.attributes[step] = dict(storage.get_trial(last._trial_id).system_attrs)
        return stops

    def __repr__(self) -> str:
        return _told(self.pruner)


def _told(pruner: BasePruner) -> str:
    """A pruner and its settings: another one is another search."""
    from optuna.pruners import BasePruner

    told = {name.lstrip("_"): _told(one) if isinstance(one, BasePruner) else repr(one) for name, one in vars(pruner).items()}
    return f"{type(pruner).__name__}({', '.join(sorted(f'{name}={one}' for name, one in told.items()))})"


def pruner_of(prune: Any) -> Pruner | None:
    """The user's ``prune``, as a pruner.

    Raises:
        TypeError: If it cannot prune.
    """
    from optuna.pruners import BasePruner, NopPruner

    if prune is None or isinstance(prune, NopPruner):
        return None
    if isinstance(prune, BasePruner):
        return OptunaPruner(prune)
    if isinstance(prune, Pruner):
        return prune
    raise TypeError(f"prune must be a SuccessiveHalving or one of Optuna's pruners, got {prune!r}")
