"""What does an algorithm learn when one line is changed? Returns of SB3's at equal steps beside ours, no numbers given.

``SAC("MlpPolicy", env)`` becomes ``SyncSAC("MlpPolicy", env)``: all else is left to the defaults of either, but for one thread of
torch in both. They have the same seeds and the same number of steps in all environments; then the mean return of greedy episodes is
taken, of ours and of SB3's alike. Seconds are those of ``learn``.

It can be run piece by piece: a run is a line, a seed, and who. ``--only "SAC Pendulum"`` names lines, ``--seeds 0,1`` seeds, and
with ``--merge`` what is missing is added to the result file that there is. It is written after each run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from itertools import product
from typing import Any, NamedTuple

from common import RESULTS, arguments, end_children, print_machine, summary, wanted, write_json
from showing import print_table


class Line(NamedTuple):
    """A line, and how long it is trained.

    Attributes:
        algorithm: Of SB3; ours is ``Sync`` and that.
        env: An id.
        steps: Of all environments together.
        quick: Likewise, in a quick run.
    """

    algorithm: str
    env: str
    steps: int
    quick: int


LINES = {
    "SAC Pendulum": Line("SAC", "Pendulum-v1", 4_000, 400),
    "TD3 Pendulum": Line("TD3", "Pendulum-v1", 4_000, 400),
    "PPO CartPole": Line("PPO", "CartPole-v1", 20_480, 4_096),
    "DQN CartPole": Line("DQN", "CartPole-v1", 30_000, 2_000),
    "PPO HalfCheetah": Line("PPO", "HalfCheetah-v5", 51_200, 4_096),
    "SAC HalfCheetah": Line("SAC", "HalfCheetah-v5", 10_000, 400),
}
WHO = ("SB3", "ours")
EPISODES = 20


def trained(line: Line, who: str, seed: int, steps: int) -> dict[str, Any]:
    """A training of one seed, and what it has come to."""
    import numpy as np
    import stable_baselines3
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    import reactor_sb3

    torch.set_num_threads(1)
    if who == "ours":
        model: Any = getattr(reactor_sb3, f"Sync{line.algorithm}")("MlpPolicy", line.env, seed=seed)
    else:
        model = getattr(stable_baselines3, line.algorithm)("MlpPolicy", line.env, seed=seed, device="cpu")
    begin = time.perf_counter()
    model.learn(steps, log_interval=None)
    seconds = time.perf_counter() - begin
    envs = make_vec_env(line.env, 1, seed=seed + 10_000)
    returns = evaluate_policy(model, envs, EPISODES)[0]
    if who == "ours":
        model.close()
    return {"return": float(np.mean(returns)), "timesteps": model.num_timesteps, "updates": model._n_updates, "seconds": seconds}


def in_process(*what: str) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--one", *what]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=7200, check=True).stdout
    return dict(json.loads(said.splitlines()[-1]))


def case_of(line: Line, runs: dict[str, dict[str, Any]], steps: int) -> dict[str, Any]:
    """The runs of a line, by who and seed, with those seeds summed up that both have."""
    seeds = sorted(set(runs["SB3"]) & set(runs["ours"]), key=int)
    found: dict[str, Any] = {"algorithm": line.algorithm, "env": line.env, "steps": steps, "seeds": len(seeds), "runs": runs}
    for who in WHO if seeds else ():
        found[who] = {
            key: summary([runs[who][seed][key] for seed in seeds]) for key in ("return", "seconds", "updates")
        }  # fmt: skip
    return found


def row(name: str, case: dict[str, Any]) -> list[str]:
    cells = []
    for who in WHO:
        of = case[who]["return"]
        cells += [f"{of['median']:,.0f}", f"{of['min']:,.0f} to {of['max']:,.0f}"]
    return [name, f"{case['steps']:,}", str(case["seeds"]), *cells, *(f"{case[who]['seconds']['median']:.1f} s" for who in WHO)]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seeds", default="0,1,2,3,4", help="which")
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
    for seed, name, who in product(seeds, chosen, WHO):
        line = LINES[name]
        steps = line.quick if options.quick else line.steps
        runs = cases[name]["runs"] if name in cases else {one: {} for one in WHO}
        if seed in runs[who] or time.monotonic() > ends:
            continue
        runs[who][seed] = in_process(name, who, seed, str(steps))
        print(f"{name}, seed {seed}, {who}: {runs[who][seed]}", flush=True)
        cases[name] = case_of(line, runs, steps)
        write_json(options, "one_line", {one: cases[one] for one in LINES if one in cases})
    head = ["", "steps", "seeds", "SB3", "", "ours", "", "SB3", "ours"]
    print_table("Mean returns after equal steps", head, [row(name, case) for name, case in cases.items() if case["seeds"]])


if __name__ == "__main__":
    main()
