"""Optuna's pruners, which are asked once for each report."""

from __future__ import annotations

import copy
from collections.abc import Container, Sequence
from datetime import datetime
from typing import Any

import optuna
from optuna.pruners import BasePruner, NopPruner
from optuna.samplers import RandomSampler
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from reactor_sb3.sweeping.pruning import Pruner
from reactor_sb3.sweeping.study import STATES, silenced
from reactor_sb3.sweeping.trials import SearchedTrial

__all__ = ["OptunaPruner", "pruner_of"]

_NAME = "sweep"  # pruners with brackets share out trials by it


class OptunaPruner(Pruner):
    """One of Optuna's, which is shown what the trials before have reported up to the step that is judged."""

    def __init__(self, pruner: BasePruner) -> None:
        self.pruner = pruner
        self._storage: _ShownTrials | None = None  # made when it is known which direction is better
        self._ended: list[FrozenTrial] = []  # which change no more

    def stops(self, before: Sequence[SearchedTrial], ended: int, own: SearchedTrial, step: int, sign: int) -> bool | None:
        for one in before[ended:]:
            # One that has come as far may wait for its own answer, with which the pruner notes something of it.
            if one.first.end is None and (max(one.first.reports, default=-1) < step or one.first.unjudged == step):
                return None
        self._ended += [_frozen(one, None) for one in before[len(self._ended) : ended]]
        if self._storage is None:
            self._storage = _ShownTrials(sign)
        storage = self._storage
        storage.trials = [*self._ended[:ended], *(_frozen(one, step) for one in (*before[ended:], own))]
        pruner = copy.deepcopy(self.pruner)  # some note in themselves what they see first
        study = optuna.Study(_NAME, storage, sampler=RandomSampler(seed=0), pruner=pruner)
        stops = bool(pruner.prune(study, storage.trials[-1]))
        own.attributes[step] = dict(storage.trials[-1].system_attrs)
        return stops

    def __repr__(self) -> str:
        return _described(self.pruner)


def _frozen(trial: SearchedTrial, step: int | None) -> FrozenTrial:
    """A trial as it was at a step, or ``None`` at its end."""
    state, value = (TrialState.RUNNING, None)
    if step is None:
        assert trial.outcome is not None
        state, value = STATES[trial.outcome[0]], trial.outcome[1]
    noted = max((at for at in trial.attributes if step is None or at <= step), default=None)
    now = datetime.now()
    return FrozenTrial(
        number=trial.number, trial_id=trial.number, state=state, value=value, datetime_start=now,
        datetime_complete=now if state.is_finished() else None, params=dict(trial.params),
        distributions=dict(trial.distributions), user_attrs={},
        system_attrs={} if noted is None else dict(trial.attributes[noted]),
        intermediate_values={at: reported for at, reported in trial.first.reports.items() if step is None or at <= step},
    )  # fmt: skip


class _ShownTrials(InMemoryStorage):
    """A storage of one study that has just the trials that it is to show, by their number."""

    def __init__(self, sign: int) -> None:
        super().__init__()
        self.trials: list[FrozenTrial] = []
        with silenced():
            self.create_new_study([StudyDirection.MAXIMIZE if sign > 0 else StudyDirection.MINIMIZE], _NAME)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        found = [trial for trial in self.trials if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self.trials[trial_id]

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        return BaseStorage.get_best_trial(self, study_id)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        trial = copy.copy(self.trials[trial_id])  # who has the trial already does not see this
        trial.system_attrs = {**trial.system_attrs, key: value}
        self.trials[trial_id] = trial


def _described(pruner: BasePruner) -> str:
    """A pruner and its settings: another one is another search."""
    settings = {
        name.lstrip("_"): _described(one) if isinstance(one, BasePruner) else repr(one) for name, one in vars(pruner).items()
    }
    return f"{type(pruner).__name__}({', '.join(sorted(f'{name}={one}' for name, one in settings.items()))})"


def pruner_of(prune: Any) -> Pruner | None:
    """The user's ``prune``, as a pruner.

    Raises:
        TypeError: If it cannot prune.
    """
    if prune is None or isinstance(prune, NopPruner):
        return None
    if isinstance(prune, BasePruner):
        return OptunaPruner(prune)
    if isinstance(prune, Pruner):
        return prune
    raise TypeError(f"prune must be a SuccessiveHalving or one of Optuna's pruners, got {prune!r}")
