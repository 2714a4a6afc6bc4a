"""What does an algorithm learn when one line is changed? Returns of its host's at equal steps beside ours, for all of them.

``SAC("MlpPolicy", env)`` becomes ``SyncSAC("MlpPolicy", env)``: both have the same arguments, which are few; all else is left to
the defaults of either, but for one thread of torch in both. They have the same seeds and the same number of steps in all
environments; then the mean return of greedy episodes is taken, of ours and of the host's alike. Of the seeds there is the
interquartile mean with a 95 % interval, as Agarwal et al. 2021 have it ("Deep Reinforcement Learning at the Edge of the Statistical
Precipice"). Seconds are those of ``learn``.

It can be run piece by piece: a run is a line, a seed, and who. ``--only "SAC Pendulum"`` names lines, ``--seeds 0,1`` seeds, and
with ``--merge`` what is missing is added to the result file that there is. It is written after each run. ``--jobs 2`` runs two at a
time, each on a core of its own where the system can tie it to one.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from common import RESULTS, arguments, end_children, print_machine, summary, wanted, write_json
from showing import print_table


class Line(NamedTuple):
    """A line, and how long it is trained.

    Attributes:
        algorithm: Of the host; ours is ``Sync`` and that.
        env: An id, or ``MODULE:NAME`` of what makes one.
        steps: Of all environments together.
        given: Arguments of both.
    """

    algorithm: str
    env: str
    steps: int
    given: dict[str, Any] = {}


_Q: dict[str, Any] = {  # the zoo's for CartPole, but for networks of 64-64
    "learning_rate": 2.3e-3, "batch_size": 64, "buffer_size": 100_000, "learning_starts": 1000, "target_update_interval": 10,
    "train_freq": 256, "gradient_steps": 128, "exploration_fraction": 0.16, "exploration_final_eps": 0.04,
    "policy_kwargs": {"net_arch": [64, 64]},
}  # fmt: skip
_QUANTILES: dict[str, Any] = {**_Q, "policy_kwargs": {"net_arch": [64, 64], "n_quantiles": 10}}  # as the zoo's for CartPole has
_HINDSIGHT: dict[str, Any] = {
    "replay_buffer_class": "HerReplayBuffer", "learning_starts": 500, "train_freq": 1, "batch_size": 64, "learning_rate": 1e-3,
    "gamma": 0.95, "exploration_fraction": 0.3, "exploration_final_eps": 0.1, "target_update_interval": 250,
}  # fmt: skip
LINES = {
    "PPO CartPole": Line("PPO", "CartPole-v1", 20_480),
    "A2C CartPole": Line("A2C", "CartPole-v1", 40_000),
    "DQN CartPole": Line("DQN", "CartPole-v1", 50_000, _Q),
    "SAC Pendulum": Line("SAC", "Pendulum-v1", 4_000),
    "TD3 Pendulum": Line("TD3", "Pendulum-v1", 5_000, {"action_noise": 0.1}),
    "DDPG Pendulum": Line("DDPG", "Pendulum-v1", 5_000, {"action_noise": 0.1}),
    "DDPG Pendulum, 3,000 steps": Line("DDPG", "Pendulum-v1", 3_000, {"action_noise": 0.1}),
    "DQN BitFlipping, hindsight": Line("DQN", "hindsight", 8_000, _HINDSIGHT),
    "QRDQN CartPole": Line("QRDQN", "CartPole-v1", 50_000, _QUANTILES),
    "TQC Pendulum": Line("TQC", "Pendulum-v1", 4_000),
    "CrossQ Pendulum": Line("CrossQ", "Pendulum-v1", 3_000, {"policy_kwargs": {"net_arch": [256, 256]}}),
    "MaskablePPO, masked bits": Line("MaskablePPO", "sb3_contrib.common.envs:InvalidActionEnvDiscrete", 10_240),
    "RecurrentPPO CartPole": Line("RecurrentPPO", "CartPole-v1", 10_240, {"policy": "MlpLstmPolicy"}),
    "TRPO CartPole": Line("TRPO", "CartPole-v1", 20_480),
    "ARS CartPole": Line("ARS", "CartPole-v1", 40_000, {"policy": "LinearPolicy"}),
}
WHO = ("host", "ours")
EPISODES = 20
ENOUGH = 10
"""Seeds with which a test of their pairs can say something."""


def bits() -> Any:
    """Bits to be flipped until they are those that are wanted: SB3's own example for hindsight."""
    from stable_baselines3.common.envs import BitFlippingEnv

    return BitFlippingEnv(n_bits=8, continuous=False)


def maker_of(env: str) -> Any:
    """What makes it: an id, or a function."""
    if env == "hindsight":
        return bits
    module, colon, name = env.partition(":")
    return getattr(__import__(module, fromlist=[name]), name) if colon else env


def made(line: Line, who: str, seed: int) -> Any:
    """A model of the host's, or of ours."""
    from stable_baselines3 import HerReplayBuffer
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.noise import NormalActionNoise

    from reactor_sb3 import ALGORITHMS

    row, given = ALGORITHMS[f"Sync{line.algorithm}"], dict(line.given)
    if "action_noise" in given:
        given["action_noise"] = NormalActionNoise(np.zeros(1), np.full(1, given["action_noise"]))
    usual = "MlpPolicy"
    if given.get("replay_buffer_class") == "HerReplayBuffer":
        given["replay_buffer_class"], usual = HerReplayBuffer, "MultiInputPolicy"
    policy, env = given.pop("policy", usual), maker_of(line.env)
    if who == "ours":
        return row.cls(policy, env, seed=seed, **given)
    return row.host_cls(policy, env if isinstance(env, str) else make_vec_env(env, 1), seed=seed, device="cpu", **given)


def trained(line: Line, who: str, seed: int, steps: int) -> dict[str, Any]:
    """A training of one seed, and what it has come to."""
    import torch
    from stable_baselines3.common.env_util import make_vec_env

    if line.algorithm == "MaskablePPO":
        from sb3_contrib.common.maskable.evaluation import evaluate_policy
    else:
        from stable_baselines3.common.evaluation import evaluate_policy

    torch.set_num_threads(1)
    model = made(line, who, seed)
    begin = time.perf_counter()
    model.learn(steps, log_interval=None)
    seconds = time.perf_counter() - begin
    envs = make_vec_env(maker_of(line.env), 1, seed=seed + 10_000)
    returns = evaluate_policy(model, envs, EPISODES)[0]
    if who == "ours":
        model.close()
    return {"return": float(np.mean(returns)), "timesteps": model.num_timesteps, "updates": model._n_updates, "seconds": seconds}


def in_process(core: int | None, *what: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", *what]
    if core is not None and hasattr(os, "sched_setaffinity"):
        command = ["taskset", "-c", str(core), *command]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=7200, check=True).stdout
    return dict(json.loads(said.splitlines()[-1]))


def interquartile(values: Sequence[float]) -> dict[str, float]:
    """The mean of the middle half of the values, and the interval that holds 95 % of those of as many values drawn from them."""
    from scipy.stats import trim_mean

    drawn = np.random.default_rng(0).choice(values, (10_000, len(values)))
    low, high = np.percentile(trim_mean(drawn, 0.25, axis=1), [2.5, 97.5])
    return {"mean": float(trim_mean(values, 0.25)), "low": float(low), "high": float(high)}


def case_of(line: Line, runs: dict[str, dict[str, Any]], steps: int) -> dict[str, Any]:
    """The runs of a line, by who and seed, with those seeds summed up that both have.

    From ten seeds on it has the p-value of Wilcoxon's signed-rank test, two-sided, with a pair for each seed.
    """
    from scipy.stats import wilcoxon

    seeds = sorted(set(runs["host"]) & set(runs["ours"]), key=int)
    found: dict[str, Any] = {"algorithm": line.algorithm, "env": line.env, "steps": steps, "seeds": len(seeds), "runs": runs}
    returns = [[runs[who][seed]["return"] for seed in seeds] for who in WHO]
    if len(seeds) >= ENOUGH and returns[0] != returns[1]:
        found["p_value"] = float(wilcoxon(*returns).pvalue)
    for who in WHO if seeds else ():
        found[who] = {key: summary([runs[who][seed][key] for seed in seeds]) for key in ("return", "seconds", "updates")}
        found[who]["interquartile"] = interquartile([runs[who][seed]["return"] for seed in seeds])
    return found


def row(name: str, case: dict[str, Any]) -> list[str]:
    cells = []
    for who in WHO:
        of = case[who]["interquartile"]
        cells += [f"{of['mean']:,.0f}", f"{of['low']:,.0f} to {of['high']:,.0f}"]
    return [name, f"{case['steps']:,}", str(case["seeds"]), *cells, *(f"{case[who]['seconds']['median']:.1f} s" for who in WHO)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", default="0,1,2,3,4", help="which")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time (default: %(default)s)")
    parser.add_argument("--merge", action="store_true", help="add what is missing to the result file that there is")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, who, seed, steps = options.one
        try:
            print(json.dumps(trained(LINES[name], who, int(seed), int(steps))))
        finally:
            end_children()
        return
    if options.merge and not options.quick:
        options.output, options.whole = RESULTS, True
    print_machine()
    file = options.output / "one_line.json"
    before = json.loads(file.read_text())["cases"] if options.merge and file.exists() else {}
    cases: dict[str, Any] = {name: before[name] for name in LINES if name in before}
    ends = time.monotonic() + (options.budget or float("inf"))
    seeds = options.seeds.split(",")[: 1 if options.quick else None]
    chosen = [name for name in LINES if wanted(name, options.only)]
    cores: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    for number in range(options.jobs):
        cores.put(number if options.jobs > 1 else None)

    def run(seed: str, name: str, who: str) -> tuple[str, str, str, dict[str, Any] | None]:
        if time.monotonic() > ends:
            return seed, name, who, None
        core = cores.get()
        try:
            steps = LINES[name].steps // (8 if options.quick else 1)
            return seed, name, who, in_process(core, name, who, seed, str(steps))
        finally:
            cores.put(core)

    todo = [one for one in product(seeds, chosen, WHO) if one[0] not in cases.get(one[1], {"runs": {one[2]: {}}})["runs"][one[2]]]
    with ThreadPoolExecutor(options.jobs) as pool:
        for seed, name, who, found in pool.map(lambda one: run(*one), todo):
            if found is None:
                continue
            runs = cases[name]["runs"] if name in cases else {one: {} for one in WHO}
            runs[who][seed] = found
            print(f"{name}, seed {seed}, {who}: {found}", flush=True)
            cases[name] = case_of(LINES[name], runs, LINES[name].steps // (8 if options.quick else 1))
            write_json(options, "one_line", {one: cases[one] for one in LINES if one in cases})
    head = ["", "steps", "seeds", "host", "", "ours", "", "host", "ours"]
    print_table("Returns after equal steps", head, [row(name, case) for name, case in cases.items() if case["seeds"]])


if __name__ == "__main__":
    main()
