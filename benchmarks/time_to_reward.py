"""How long until CartPole-v1 is solved: a mean return of 475 over 20 greedy episodes?

Wall-clock from the beginning of ``learn`` in a process of its own, over seeds. Two questions, which are not to be mixed up:

* What does the framework bring? ``SyncDQN`` and ``SB3 DQN, same settings`` are one algorithm: network, batches, number and order of
  updates, 8 environments (there on ``DummyVecEnv``), exploration. Only the random streams differ.
* What do settings bring? The other rows are other algorithms, and SB3's have what RL Baselines3 Zoo has tuned for this environment.

Everybody is evaluated after every 2,048 steps, and so may stop there. Ours evaluate beside the training, which is part of their
time; the clock stands still while SB3's are evaluated, which would otherwise be most of their time. One torch thread each.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import RESULTS, print_machine, write_json
from showing import bar_plot, print_table

ENV, GOAL, EPISODES = "CartPole-v1", 475.0, 20
EVERY = 2_048
"""Steps between two evaluations: a multiple of every contender's round."""
LIMIT = {"SyncDQN": 200_000, "PQN": 500_000}
OTHERS_LIMIT = 200_000
SAME: dict[str, Any] = {
    "gradient_steps": 16, "batch_size": 256, "learning_rate": 3e-3, "learning_starts": 1000, "buffer_size": 100_000,
    "target_update_interval": 256, "exploration_fraction": 0.04, "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [64, 64]}, "device": "cpu",
}  # fmt: skip
"""Of SyncDQN and of SB3's DQN beside it: 8 environments, rounds of 16 steps of each."""


def ours(name: str, seed: int) -> dict[str, Any]:
    from reactor_sb3 import PQN, StopOnEvaluation, SyncDQN
    from reactor_sb3.training.pqn import Annealed

    evaluated: dict[str, Any] = {"evaluate_episodes": EPISODES, "evaluate_steps": EPISODES * 500}
    model: Any
    if name == "SyncDQN":
        model = SyncDQN(
            "MlpPolicy", ENV, n_actors=8, train_freq=16, seed=seed, evaluate_every=EVERY // (8 * 16), **evaluated, **SAME
        )
    else:
        model = PQN(
            "MlpPolicy", ENV, n_actors=4, envs_per_actor=8, rollout_steps=32, q_lambda=0.95, learning_rate=Annealed(1e-3),
            exploration_fraction=0.2, seed=seed, evaluate_every=EVERY // (32 * 32), **evaluated,
        )  # fmt: skip
    with model:
        model.start()  # as SB3's environments are there before its clock starts
        begin = time.perf_counter()
        model.learn(LIMIT[name], callback=StopOnEvaluation(GOAL), log_interval=None)
        seconds = time.perf_counter() - begin
        reached = bool(model.evaluations) and max(one.mean for one in model.evaluations) >= GOAL
        # The first evaluation is of the untrained weights, and the others have one only afterwards.
        after = sum(one.timesteps > 0 for one in model.evaluations)
        return {"seconds": seconds, "timesteps": model.num_timesteps, "reached": reached, "evaluations": after}


def theirs(name: str, seed: int) -> dict[str, Any]:
    import gymnasium
    import numpy as np
    import torch
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import SubprocVecEnv

    torch.set_num_threads(1)

    class Evaluate(BaseCallback):
        """Evaluates every so often; its own time does not count."""

        spent, last, reached, count = 0.0, 0, False, 0

        def _on_step(self) -> bool:
            if self.num_timesteps - self.last < EVERY:
                return True
            begin = time.perf_counter()
            self.last = self.num_timesteps
            mean = float(np.mean(evaluate_policy(self.model, env, EPISODES)[0]))
            self.reached = bool(mean >= GOAL)
            self.count += 1
            self.spent += time.perf_counter() - begin
            return not self.reached

    env = Monitor(gymnasium.make(ENV))
    model: Any
    if name == "SB3 DQN, same settings":
        model = DQN("MlpPolicy", make_vec_env(ENV, n_envs=8, seed=seed), train_freq=16, seed=seed, **SAME)
    elif name == "SB3 DQN":
        model = DQN(
            "MlpPolicy", ENV, learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99,
            target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16 * 50_000 / OTHERS_LIMIT,
            exploration_final_eps=0.04, policy_kwargs={"net_arch": [256, 256]}, seed=seed, device="cpu",
        )  # fmt: skip
    else:
        if name == "SB3 PPO, ReactorVecEnv":
            from reactor_sb3 import ReactorVecEnv

            venv = make_vec_env(ENV, n_envs=8, seed=seed, vec_env_cls=ReactorVecEnv)
        else:
            venv = make_vec_env(ENV, n_envs=8, seed=seed, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"})
        model = PPO(
            "MlpPolicy", venv, n_steps=32, batch_size=256, gae_lambda=0.8, gamma=0.98, n_epochs=20, ent_coef=0.0,
            learning_rate=lambda left: 1e-3 * left, clip_range=lambda left: 0.2 * left, seed=seed, device="cpu",
        )  # fmt: skip
    evaluate = Evaluate()
    begin = time.perf_counter()
    model.learn(OTHERS_LIMIT if "DQN" in name else 100_000, callback=evaluate, log_interval=None)
    seconds = time.perf_counter() - begin - evaluate.spent
    model.get_env().close()
    return {"seconds": seconds, "timesteps": model.num_timesteps, "reached": evaluate.reached, "evaluations": evaluate.count}


CONTENDERS = {
    "SyncDQN": ours, "SB3 DQN, same settings": theirs, "PQN": ours, "SB3 DQN": theirs, "SB3 PPO, SubprocVecEnv": theirs,
    "SB3 PPO, ReactorVecEnv": theirs,
}  # fmt: skip


def one(name: str, seed: int) -> dict[str, Any]:
    """One contender with one seed, in a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(seed)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    return dict(json.loads(said.splitlines()[-1]))


def case_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A contender's runs, and what is between them. One that never got there took longer than any: then there is no number."""
    seconds = sorted(run["seconds"] if run["reached"] else math.inf for run in runs)
    median, least, most = (None if math.isinf(one) else one for one in (statistics.median(seconds), seconds[0], seconds[-1]))
    return {
        "median_seconds": median, "min_seconds": least, "max_seconds": most, "reached": sum(run["reached"] for run in runs),
        "median_timesteps": statistics.median(run["timesteps"] for run in runs),
        "steps_per_evaluation": sum(run["timesteps"] for run in runs) / max(1, sum(run["evaluations"] for run in runs)),
        "runs": runs,
    }  # fmt: skip


def row(name: str, case: dict[str, Any]) -> list[str]:
    median, least, most = (
        "never" if case[key] is None else f"{case[key]:.1f} s" for key in ("median_seconds", "min_seconds", "max_seconds")
    )
    return [
        name, median, f"{least} to {most}", f"{case['median_timesteps']:,.0f}", f"{case['steps_per_evaluation']:,.0f}",
        f"{case['reached']} of {len(case['runs'])}",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="two seeds: to see that it works")
    parser.add_argument("--only", default="", help="only contenders whose name contains this")
    parser.add_argument("--output", type=Path, default=None, help="folder for JSON and plot (default: results, or results/part)")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, seed = options.one
        print(json.dumps(CONTENDERS[name](name, int(seed))))
        return
    options.whole = not (options.quick or options.only)
    options.output = options.output or (RESULTS if options.whole else RESULTS / "part")
    print_machine()
    names = [name for name in CONTENDERS if options.only.lower() in name.lower()]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for seed in range(2 if options.quick else options.seeds):
        for name in names:
            found[name].append(one(name, seed))
            print(f"seed {seed}, {name}: {found[name][-1]}", flush=True)
    cases = {name: case_of(runs) for name, runs in found.items()}
    head = ["contender", "median", "min to max", "median steps", "steps an evaluation", "reached"]
    print_table("CartPole-v1 to 475", head, [row(name, case) for name, case in cases.items()])
    write_json(options, "time_to_reward", cases)
    reached = {name: case["median_seconds"] for name, case in cases.items() if case["median_seconds"] is not None}
    bar_plot(
        options.output / "time_to_reward.png", "CartPole-v1 to a mean of 475", {"CartPole-v1": reached}, "seconds", log=True
    )  # fmt: skip


if __name__ == "__main__":
    main()
