"""How long until CartPole-v1 is solved: a mean return of 475 over 20 greedy episodes?

Wall-clock from the beginning of ``learn`` in a process of its own, median over seeds. Ours evaluate beside the training, which
is part of their time. SB3's ``DQN`` and ``PPO`` have the settings that RL Baselines3 Zoo has tuned for this environment, and the
clock stands still while they are evaluated, which would otherwise be most of their time. One torch thread each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from common import RESULTS, bar_plot, print_machine, print_table, write_json

ENV, GOAL, EPISODES = "CartPole-v1", 475.0, 20
EVERY = 2_000
"""Steps between two evaluations, about."""
LIMIT = {"SyncDQN": 200_000, "PQN": 500_000}
OTHERS_LIMIT = 200_000


def ours(name: str, seed: int) -> dict[str, Any]:
    from reactor_sb3 import PQN, StopOnEvaluation, SyncDQN
    from reactor_sb3.pqn import Annealed

    model: Any
    if name == "SyncDQN":
        model = SyncDQN(
            "MlpPolicy", ENV, n_actors=8, rollout_steps=16, gradient_steps=16, batch_size=256, learning_rate=3e-3,
            learning_starts=1000, buffer_size=100_000, target_update_interval=256, exploration_fraction=0.04,
            exploration_final_eps=0.04, double_q=True,
            policy_kwargs={"net_arch": [64, 64]}, seed=seed, evaluate_every=EVERY // 128, evaluate_steps=10_000,
        )  # fmt: skip
    else:
        model = PQN(
            "MlpPolicy", ENV, n_actors=4, envs_per_actor=8, rollout_steps=32, q_lambda=0.95, learning_rate=Annealed(1e-3),
            exploration_fraction=0.2, seed=seed, evaluate_every=EVERY // 1024, evaluate_steps=10_000,
        )  # fmt: skip
    with model:
        model.start()  # as SB3's environments are there before its clock starts
        begin = time.perf_counter()
        model.learn(LIMIT[name], callback=StopOnEvaluation(GOAL), log_interval=None)
        seconds = time.perf_counter() - begin
        reached = bool(model.evaluations) and max(one.mean for one in model.evaluations) >= GOAL
        return {"seconds": seconds, "timesteps": model.num_timesteps, "reached": reached}


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

        spent, last, reached = 0.0, 0, False

        def _on_step(self) -> bool:
            if self.num_timesteps - self.last < EVERY:
                return True
            begin = time.perf_counter()
            self.last = self.num_timesteps
            mean = float(np.mean(evaluate_policy(self.model, env, EPISODES)[0]))
            self.reached = bool(mean >= GOAL)
            self.spent += time.perf_counter() - begin
            return not self.reached

    env = Monitor(gymnasium.make(ENV))
    model: Any
    if name == "SB3 DQN":
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
    return {"seconds": seconds, "timesteps": model.num_timesteps, "reached": evaluate.reached}


CONTENDERS = {
    "SyncDQN": ours, "PQN": ours, "SB3 DQN": theirs, "SB3 PPO, SubprocVecEnv": theirs, "SB3 PPO, ReactorVecEnv": theirs,
}  # fmt: skip


def one(name: str, seed: int) -> dict[str, Any]:
    """One contender with one seed, in a process of its own."""
    command = [sys.executable, __file__, "--one", name, str(seed)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout
    return dict(json.loads(said.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help="only contenders whose name contains this")
    parser.add_argument("--output", type=type(RESULTS), default=RESULTS)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.quick = False
    if options.one:
        name, seed = options.one
        print(json.dumps(CONTENDERS[name](name, int(seed))))
        return
    print_machine()
    names = [name for name in CONTENDERS if options.only.lower() in name.lower()]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for seed in range(options.seeds):
        for name in names:
            found[name].append(one(name, seed))
            print(f"seed {seed}, {name}: {found[name][-1]}", flush=True)
    cases = {}
    for name, runs in found.items():
        # A run that never got there took longer than any: the median is honest as long as most do.
        seconds = sorted(run["seconds"] if run["reached"] else float("inf") for run in runs)
        cases[name] = {
            "median_seconds": statistics.median(seconds), "reached": sum(run["reached"] for run in runs), "runs": runs,
            "median_timesteps": statistics.median(run["timesteps"] for run in runs),
        }  # fmt: skip
    rows = [
        [name, f"{case['median_seconds']:.1f} s", f"{case['median_timesteps']:,.0f}", f"{case['reached']} of {options.seeds}"]
        for name, case in cases.items()
    ]
    print_table("CartPole-v1 to 475", ["contender", "median time", "median steps", "reached"], rows)
    if options.only:
        return
    write_json(options, "time_to_reward", cases)
    bar_plot(
        options.output / "time_to_reward.png", "CartPole-v1 to a mean of 475",
        {"CartPole-v1": {name: case["median_seconds"] for name, case in cases.items()}}, "seconds", log=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
