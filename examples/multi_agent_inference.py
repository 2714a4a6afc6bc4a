"""Ten agents with a network each: trained to imitate a rule, then played in 16 copies of the environment on all cores.

    python examples/multi_agent_inference.py [--episodes 96] [--workers 2] [--plot returns.png]

Needs `reactor-rl[pettingzoo]`.
"""

import argparse
from functools import partial

import numpy as np
import torch
from mpe2 import simple_spread_v3

from reactor_pettingzoo import MultiAgentRunner, RandomPolicy

parser = argparse.ArgumentParser()
parser.add_argument("--episodes", type=int, default=96, help="of the rule, which the networks learn from")
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--plot", default=None, help="where to draw the agents' returns")
options = parser.parse_args()

N = 10
make = partial(simple_spread_v3.parallel_env, N=N, max_cycles=25)
AGENTS = [f"agent_{number}" for number in range(N)]


def to_its_landmark(number: int, observations: np.ndarray) -> np.ndarray:
    """A policy may be any function of a batch of observations: here, agent i goes to landmark i."""
    x, y = observations[:, 4 + 2 * number], observations[:, 5 + 2 * number]
    sideways, upwards = np.where(x > 0, 2, 1), np.where(y > 0, 4, 3)
    return np.where(np.maximum(abs(x), abs(y)) < 0.1, 0, np.where(abs(x) > abs(y), sideways, upwards))


def trained(seen: np.ndarray, done: np.ndarray) -> torch.nn.Module:
    """A network that does what was done."""
    net = torch.nn.Sequential(torch.nn.Linear(seen.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 5))
    optimizer = torch.optim.Adam(net.parameters(), 3e-3)
    inputs, targets = torch.tensor(seen), torch.tensor(done)
    for _ in range(30):
        for rows in torch.randperm(len(inputs)).split(256):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(inputs[rows]), targets[rows]).backward()
            optimizer.step()
    return net


rules = {agent: partial(to_its_landmark, number) for number, agent in enumerate(AGENTS)}
with MultiAgentRunner(make, rules, num_envs=16, workers=options.workers) as runner:
    shown = runner.run(episodes=options.episodes, seed=0, record=True)
torch.manual_seed(0)
torch.set_num_threads(1)
seen, done = shown.trajectories["observations.0"], shown.trajectories["actions.0"]  # (ticks, copies, agents, ...)
networks = {agent: trained(seen[:, :, at].reshape(-1, seen.shape[-1]), done[:, :, at].ravel()) for at, agent in enumerate(AGENTS)}

with MultiAgentRunner(make, {"all": RandomPolicy()}, num_envs=16, workers=options.workers) as runner:
    at_random = runner.run(episodes=32, seed=1)
with MultiAgentRunner(make, networks, num_envs=16, workers=options.workers) as runner:  # ten networks, one call a tick
    print(runner)
    report = runner.run(episodes=32, seed=1)

for name, found in (("rule", shown), ("networks", report), ("random", at_random)):
    returns = [summary.mean for summary in found.returns.values()]
    print(f"{name:>8}: mean return of an agent {np.mean(returns):.1f}, {found.steps_per_second:,.0f} steps a second")
print("fingerprint:", report.fingerprint)
if options.plot:
    report.plot(options.plot)
