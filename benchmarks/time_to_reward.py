"""How long does an algorithm train until it reaches a reward? Runs from scratch, over seeds, each in its own process.

Pairs of rows have equal settings: the same algorithm, networks, batches, number of updates for each step, and environments, here
and there. Other rows have other settings, and say so. Seconds are those spent in ``learn`` until the mean return of some greedy
episodes reaches the goal. All are evaluated alike, after the same number of steps; the clock stands still for it. Workers and
environments are there before the clock starts. SB3 has the number of torch's threads that suits it best for the networks of the
goal, by ``training.py``; the environments that it steps are on the vector environment that suits it best.

Each goal has a result file of its own: ``--only pendulum`` is a whole run of one. It is written after each training, and with
``--merge`` those that it has are not repeated: what takes hours can be run in pieces. Each training has its date and processor.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import product
from typing import Any

from common import RESULTS, arguments, end_children, print_machine, summary, wanted, write_json
from goals import Goal, goals
from machine import cores, machine
from showing import print_table


def reached(goal: Goal, name: str, seed: int) -> dict[str, Any]:
    """One trainer with one seed."""
    import numpy as np
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize, sync_envs_normalization

    torch.set_num_threads(min(goal.threads, cores()))
    kwargs = None if goal.make else {"render_mode": None}  # LunarLander would simulate its engines' particles
    env = None if goal.score else make_vec_env(goal.make or goal.env, 1, seed=seed + 10_000, env_kwargs=kwargs)

    def score(model: Any) -> float:
        if goal.score:
            return goal.score(model)
        if model.get_vec_normalize_env() is not None:
            sync_envs_normalization(model.get_env(), env)
        return float(np.mean(evaluate_policy(model, env, goal.episodes)[0]))

    class Evaluate(BaseCallback):
        """Looks whether the goal is reached; the clock stands still meanwhile."""

        spent, last, reached = 0.0, 0, False

        def _on_step(self) -> bool:
            return not self.reached and time.perf_counter() - begin - self.spent < goal.patience

        def _on_rollout_start(self) -> None:  # the networks have learned from all that was sampled
            if self.num_timesteps - self.last < goal.every or self.reached:
                return
            begin = time.perf_counter()
            self.last = self.num_timesteps
            self.reached = score(self.model) >= goal.reward
            self.spent += time.perf_counter() - begin

    model = goal.trainers[name](seed)
    if goal.score is None and model.get_vec_normalize_env() is not None:
        env = VecNormalize(env, training=False, norm_reward=False)
    if hasattr(model, "start"):
        model.start()  # as SB3's environments are there before its clock starts
    evaluate = Evaluate()
    begin = time.perf_counter()
    model.learn(goal.limit, callback=evaluate, log_interval=None)
    seconds = time.perf_counter() - begin - evaluate.spent
    (model if hasattr(model, "close") else model.get_env()).close()
    return {"seconds": seconds, "timesteps": evaluate.last, "reached": evaluate.reached}


def in_process(*what: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", *what]
    said = subprocess.run(command, capture_output=True, text=True, timeout=7200, check=True).stdout
    return {**json.loads(said.splitlines()[-1]), "cpu": machine()["cpu"], "date": time.strftime("%Y-%m-%d %H:%M")}


def case_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A trainer's runs, and what is between them. One that never got there took longer than any: then there is no number."""
    figures = summary([run["seconds"] if run["reached"] else math.inf for run in runs])
    return {
        **{f"{key}_seconds": None if math.isinf(value) else value for key, value in figures.items()},
        "reached": sum(run["reached"] for run in runs),
        "median_timesteps": statistics.median(run["timesteps"] for run in runs), "runs": runs,
    }  # fmt: skip


def row(name: str, case: Mapping[str, Any]) -> list[str]:
    said = ["-" if case[f"{key}_seconds"] is None else f"{case[f'{key}_seconds']:.1f} s" for key in ("median", "min", "max")]
    seeds = f"{case['reached']} of {len(case['runs'])}"
    return [name, said[0], f"{said[1]} to {said[2]}", f"{case['median_timesteps']:,.0f}", seeds]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--merge", action="store_true", help="go on where the result file stopped")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        goal, name, seed = options.one
        try:
            print(json.dumps(reached(goals()[goal](), name, int(seed))))
        finally:
            end_children()
        return
    options.whole = not (options.quick or options.rivals)
    if options.whole:
        options.output = RESULTS
    print_machine()
    ends = time.monotonic() + (options.budget or math.inf)
    for title, make in goals().items():
        if not wanted(title, options.only):
            continue
        goal = make()
        names = [name for name in goal.trainers if wanted(name, options.rivals)]
        file = options.output / f"reward_{title}.json"
        before = json.loads(file.read_text())["cases"] if options.merge and file.exists() else {}
        runs: dict[str, list[dict[str, Any]]] = {name: before[name]["runs"] if name in before else [] for name in names}
        found = {name: case_of(of_name) for name, of_name in runs.items() if of_name}
        for seed, name in product(range(1 if options.quick else options.seeds), names):
            if seed < len(runs[name]) or time.monotonic() > ends:
                continue
            runs[name].append(in_process(title, name, str(seed)))
            print(f"seed {seed}, {name}: {runs[name][-1]}", flush=True)
            found = {one: case_of(of_one) for one, of_one in runs.items() if of_one}
            write_json(options, f"reward_{title}", found)
        head = [f"{goal.env} to {goal.reward:g}", "median", "min to max", "steps", "seeds"]
        print_table("Seconds until it is reached", head, [row(name, case) for name, case in found.items()])


if __name__ == "__main__":
    main()
