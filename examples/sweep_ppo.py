"""Which learning rate, which network? A search over whole trainings, with the same trials on any number of cores.

    python examples/sweep_ppo.py [--trials 16] [--seeds 3] [--workers 2] [--path study]

Needs `reactor-rl[sweep]`.
"""

import argparse

from optuna.distributions import CategoricalDistribution, FloatDistribution
from stable_baselines3 import PPO

from reactor_sb3 import SuccessiveHalving, sweep

parser = argparse.ArgumentParser()
parser.add_argument("--timesteps", type=int, default=20_000, help="of each training")
parser.add_argument("--trials", type=int, default=16)
parser.add_argument("--seeds", type=int, default=3, help="trainings of each trial that is not given up")
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--path", default=None, help="a folder to go on from, if this is killed and called again")
options = parser.parse_args()

SPACE = {
    "learning_rate": FloatDistribution(1e-4, 1e-2, log=True),
    "gae_lambda": FloatDistribution(0.8, 1.0),
    "n_steps": CategoricalDistribution([128, 256, 512]),
    "width": CategoricalDistribution([16, 64]),
}


def train(trial):
    params = dict(trial.params)
    width = params.pop("width")
    model = PPO(
        "MlpPolicy",
        "CartPole-v1",
        policy_kwargs={"net_arch": [width, width]},
        seed=trial.seed,
        device="cpu",
        **params,
    )
    return model.learn(options.timesteps, callback=trial.callback())


report = sweep(
    train,
    SPACE,
    trials=options.trials,
    seeds=options.seeds,
    workers=options.workers,
    prune=SuccessiveHalving(rungs=(options.timesteps // 4, options.timesteps // 2)),
    path=options.path,
)
print(report)
print(f"the best: trial {report.best.number}, mean return {report.best.value:.1f}, {report.best.params}")
