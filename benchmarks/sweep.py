"""How long does a search take, and is it the same search twice?

16 trainings of PPO on CartPole, whose learning rate and length of rollouts Optuna's ``TPESampler`` draws with a seed, on as many
cores as there are. ``reactor_rl`` is ``sweep``. ``processes by hand`` is one process for each core that takes trials from a study
in a journal, as RL Zoo is run on a machine, with torch's default number of threads; beside it the same with one thread.
``Optuna, n_jobs`` is ``study.optimize`` with a thread for each core. Each round is the same search: what differs in it, between the
rounds of one contender, is said beside its speed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from functools import partial
from typing import Any

from common import Contender, arguments, benchmark, compared
from machine import cores
from showing import print_table, rate_rows

OURS = "reactor_rl"
CASE = "16 PPO trainings, CartPole-v1"
TRIALS, SEED = 16, 0
STEPS = 2_048


def suggested(trial: Any) -> dict[str, Any]:
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
        "n_steps": trial.suggest_categorical("n_steps", [128, 256, 512]),
    }


def trained(params: Any, seed: int, steps: int) -> Any:
    from stable_baselines3 import PPO

    return PPO("MlpPolicy", "CartPole-v1", seed=seed, device="cpu", **params).learn(steps)


def objective(steps: int, trial: Any) -> float:
    """As Optuna wants it: trained, and evaluated by SB3."""
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    model = trained(suggested(trial), SEED, steps)
    return float(evaluate_policy(model, make_vec_env("CartPole-v1", 1, seed=SEED), 20)[0])


def sampler() -> Any:
    from optuna.samplers import TPESampler

    return TPESampler(seed=SEED, n_startup_trials=4)


def study_in(path: str) -> Any:
    """A study in a journal, made if it is not there."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(path)), study_name="one", sampler=sampler(), direction="maximize",
        load_if_exists=True,
    )  # fmt: skip


def taking_part(path: str, trials: int, steps: int, threads: int) -> None:
    """One of the processes: trials until there are enough."""
    import torch
    from optuna.study import MaxTrialsCallback
    from optuna.trial import TrialState

    if threads:
        torch.set_num_threads(threads)
    states = (TrialState.COMPLETE, TrialState.RUNNING)
    study_in(path).optimize(partial(objective, steps), trials, callbacks=[MaxTrialsCallback(trials, states=states)])


class Searching(Contender):
    """Searches from the beginning, again and again.

    Args:
        name: Of the contender.
        trials: How many.
        steps: Of a training.
        found: Gets a hash of each search, by name.
    """

    def __init__(self, name: str, trials: int, steps: int, found: dict[str, list[str]]) -> None:
        self.name, self.trials, self.steps, self.found = name, trials, steps, found.setdefault(name, [])

    def go(self, count: int) -> float:
        trials = self.searched(count)
        if count == self.trials:  # a shorter one warms up
            self.found.append(hashlib.blake2b(json.dumps(trials, sort_keys=True).encode(), digest_size=8).hexdigest())
        return count

    def searched(self, count: int) -> list[Any]:
        """Hyperparameters and values of as many trials, in their order."""
        if self.name.startswith(OURS):
            from reactor_sb3 import sweep

            steps = self.steps
            report = sweep(
                lambda trial: trained(trial.params, trial.seed, steps), _space, count, seed=SEED, sampler=sampler(),
                in_flight=2 * cores(), workers=1 if "one core" in self.name else cores(), env="CartPole-v1",
            )  # fmt: skip
            return [(dict(one.params), one.value) for one in report.trials]
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/journal.log"
            if self.name.startswith("Optuna"):
                study_in(path).optimize(partial(objective, self.steps), count, n_jobs=cores())
            else:
                threads = "1" if "one thread" in self.name else "0"
                command = [sys.executable, __file__, "--take-part", path, str(count), str(self.steps), threads]
                study_in(path)
                processes = [subprocess.Popen(command) for _ in range(cores())]
                codes = [process.wait() for process in processes]  # all of them
                if any(codes):
                    raise RuntimeError("a process has failed")
            return [(one.params, one.value) for one in study_in(path).get_trials()]


def _space(trial: Any) -> None:
    suggested(trial)


def measure(case: str, options: argparse.Namespace) -> dict[str, Any]:
    trials, steps = (4, 256) if options.quick else (TRIALS, options.steps)
    found: dict[str, list[str]] = {}
    names = [OURS, f"{OURS}, one core", "processes by hand", "processes by hand, one thread", f"Optuna, n_jobs={cores()}"]
    figures = compared({name: partial(Searching, name, trials, steps, found) for name in names}, options, fixed=trials)
    return figures.as_json(OURS) | {
        "trials": trials,
        "steps": steps,
        "searches": found,
        "different": {name: len(set(found[name])) for name in found},
    }


def show(name: str, found: dict[str, Any]) -> None:
    rows = rate_rows(found, OURS)
    for row in rows:
        if row[0] in found["rates"]:
            row[1] = f"{found['trials'] / found['rates'][row[0]]['median']:.1f} s"
        row.append(f"{found['different'].get(row[0], 0)} of {len(found['searches'].get(row[0], []))}")
    head = ["contender", "a search", "ours is", "min-max", "different searches"]
    print_table(f"{name}, {found['steps']:,} steps each", head, rows)
    print(f"  ours on one core is the same search: {set(found['searches'][OURS]) == set(found['searches'][f'{OURS}, one core'])}")


def main() -> None:
    if sys.argv[1:2] == ["--take-part"]:
        taking_part(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
        return
    parser = arguments(__doc__, rounds=3)
    parser.add_argument("--steps", type=int, default=STEPS, help="of each training")
    options = parser.parse_args()
    benchmark(
        __file__, options, [CASE], measure, show, "Whole trainings side by side", "seconds for a search",
        bar=lambda rate: TRIALS / rate,
    )  # fmt: skip


if __name__ == "__main__":
    main()
