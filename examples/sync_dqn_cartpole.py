"""Solve CartPole with parallel Q-learning: sampling, learning and evaluating on all cores, the same result on any number of them.

    python examples/sync_dqn_cartpole.py [--seed 0] [--workers 2] [--plot sync_dqn_cartpole.png]

Needs the extra `[sb3]`, and matplotlib for the plot.
"""

import argparse

from reactor_sb3 import StopOnEvaluation, SyncDQN

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--plot", default=None, help="where to write the learning curve")
options = parser.parse_args()

model = SyncDQN(
    "MlpPolicy",
    "CartPole-v1",
    n_actors=8,
    train_freq=16,  # a round is 8 x 16 steps ...
    gradient_steps=16,  # ... and so many updates
    batch_size=256,
    learning_rate=3e-3,
    learning_starts=1000,
    buffer_size=100_000,
    target_update_interval=256,
    exploration_fraction=0.08,
    exploration_final_eps=0.04,
    double_q=True,
    policy_kwargs={"net_arch": [64, 64]},
    seed=options.seed,
    workers=options.workers,
    evaluate_every=16,  # rounds; 20 greedy episodes on a snapshot of the weights, beside the training
    evaluate_steps=10_000,
)
with model:
    model.learn(100_000, callback=StopOnEvaluation(475))
    for evaluation in model.evaluations[::4]:
        print(f"{evaluation.timesteps:>7,} steps: mean return {evaluation.mean:.1f}")
    best = max(model.evaluations, key=lambda evaluation: evaluation.mean)
    print(f"mean return of 20 episodes after {best.timesteps:,} steps: {best.mean:.1f}")
    print("weights:", model.fingerprint())
    model.save("sync_dqn_cartpole")  # SyncDQN.load("sync_dqn_cartpole").predict(observation)

if options.plot:
    import matplotlib.pyplot as plt

    plt.plot([one.timesteps for one in model.evaluations], [one.mean for one in model.evaluations])
    plt.xlabel("steps")
    plt.ylabel("mean return of 20 episodes")
    plt.title("SyncDQN on CartPole-v1")
    plt.savefig(options.plot, dpi=110)
