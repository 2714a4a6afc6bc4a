"""Train a policy for each agent of MPE's simple_spread, all side by side, and let them play.

    python examples/simple_spread_ippo.py [--steps 400000] [--workers 2] [--centralised] [--plot simple_spread_ippo.png]

Needs `reactor-rl[sb3,pettingzoo]`.
"""

import argparse
from functools import partial

from mpe2 import simple_spread_v3

from reactor_pettingzoo import evaluate
from reactor_pettingzoo.learning import SyncIPPO

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400_000, help="of all copies together; all agents act in each")
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--centralised", action="store_true", help="critics see the state of the environment: MAPPO")
parser.add_argument("--plot", default=None, help="where to draw the learning curve")
options = parser.parse_args()

make = partial(simple_spread_v3.parallel_env, N=3, max_cycles=25)
model = SyncIPPO(
    "MlpPolicy",
    make,
    n_steps=128,
    batch_size=256,
    learning_rate=7e-4,
    gamma=0.95,
    ent_coef=0.01,
    n_actors=8,
    seed=0,
    evaluate_every=20,
    centralised_critic=options.centralised,
    workers=options.workers,
)
before = evaluate(model.policies, make, episodes=50, seed=1, workers=options.workers)
with model:
    model.learn(options.steps)
after = evaluate(model.policies, make, episodes=50, seed=1, workers=options.workers)
print(f"return of all agents before training {before.returns.mean():.0f}, after it {after.returns.mean():.0f}")

if options.plot:
    import matplotlib.pyplot as plt

    plt.plot([one.timesteps for one in model.evaluations], [one.mean for one in model.evaluations])
    plt.xlabel("steps")
    plt.ylabel("return of all agents")
    plt.savefig(options.plot, dpi=110)
