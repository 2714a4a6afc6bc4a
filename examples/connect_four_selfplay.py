"""Learn connect four from games against snapshots of oneself, then let all snapshots play each other.

    python examples/connect_four_selfplay.py [--steps 300000] [--workers 2] [--plot connect_four_selfplay.png]

Needs `reactor-rl[sb3,pettingzoo]`, pygame, and scipy for the mixture.
"""

import argparse

from pettingzoo.classic import connect_four_v3

from reactor_pettingzoo import RandomPolicy, tournament
from reactor_pettingzoo.learning import League, SyncIPPO

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300_000, help="moves of both players in all games")
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--plot", default=None, help="where to draw ratings and payoffs of the snapshots")
options = parser.parse_args()

model = SyncIPPO(
    "MlpPolicy",
    connect_four_v3.env,
    league=League(every=20, size=8, opponents=4),
    n_steps=128,
    batch_size=256,
    n_epochs=4,
    learning_rate=1e-3,
    ent_coef=0.01,
    policy_kwargs={"net_arch": [128, 128]},
    n_actors=8,
    envs_per_actor=2,
    seed=0,
    workers=options.workers,
)
with model:
    model.learn(options.steps)
    report = model.league_report(episodes=20, workers=options.workers)
print(report)
print("played beside the training, won of 100:", model.payoffs(), sep="\n")
mixture = {name: round(share, 2) for name, share in report.nash().items() if share > 0}
print(f"the mixture that none of them beats: {mixture}")

players = {"learned": model.policies["main"], "random": RandomPolicy()}
found = tournament(connect_four_v3.env, players, episodes=100, seed=1, deterministic=False, workers=options.workers)
first, second = found.payoffs[0, 0, 1], found.payoffs[1, 1, 0]
print(f"against random moves it gets {first:.2f} as the first player, {second:.2f} as the second (1: every game is won)")
if options.plot:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    left.plot(list(report.elo), list(report.elo.values()), "o-")
    left.set_ylabel("Elo among the snapshots")
    left.tick_params("x", rotation=45)
    image = right.imshow(100 * report.payoffs.shares, vmin=0, vmax=100)
    right.set_xticks(range(len(report.elo)), list(report.elo), rotation=45)
    right.set_yticks(range(len(report.elo)), list(report.elo))
    figure.colorbar(image, label="% of games won by the row's policy")
    figure.savefig(options.plot, dpi=80)
