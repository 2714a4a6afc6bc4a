"""Solve CartPole with PPO: actors sample and compute advantages on all cores, the same result on any number of them.

    python examples/ppo_cartpole.py [--seed 0] [--workers 2] [--pipeline 1]

Needs the extra `[sb3]`.
"""

import argparse

from reactor_sb3 import StopOnEvaluation, SyncPPO

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--pipeline", type=int, default=0, help="1: sample a round while the one before is learned from")
options = parser.parse_args()

model = SyncPPO(
    "MlpPolicy",
    "CartPole-v1",
    n_actors=8,
    n_steps=32,  # a round is 8 x 32 steps ...
    batch_size=256,  # ... which are one minibatch ...
    n_epochs=20,  # ... that is learned from so often
    gamma=0.98,
    gae_lambda=0.8,
    learning_rate=1e-3,
    pipeline=options.pipeline,
    seed=options.seed,
    workers=options.workers,
    evaluate_every=10,  # rounds; 10 episodes of the most probable actions on a snapshot of the weights, beside the training
    evaluate_episodes=10,
    evaluate_steps=1000,
)
with model:
    model.learn(100_000, callback=StopOnEvaluation(475), log_interval=None)
    for evaluation in model.evaluations:
        print(f"{evaluation.timesteps:>7,} steps: mean return {evaluation.mean:.1f}")
    best = max(model.evaluations, key=lambda evaluation: evaluation.mean)
    print(f"mean return of 10 episodes after {best.timesteps:,} steps: {best.mean:.1f}")
    print("weights:", model.fingerprint())
