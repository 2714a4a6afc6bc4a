"""How good is it really? A thousand episodes of a policy, the same on any machine.

    python examples/evaluate_policy.py [--episodes 1000] [--workers 2] [--num-envs 32] [--log eval.jsonl]

Needs `reactor-rl[sb3]`.
"""

import argparse

from stable_baselines3 import PPO

from reactor_gymnasium import evaluate

parser = argparse.ArgumentParser()
parser.add_argument("--timesteps", type=int, default=20_000, help="of the training")
parser.add_argument("--episodes", type=int, default=1000)
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--num-envs", type=int, default=None, help="likewise")
parser.add_argument("--log", default=None, help="a file to go on with, if this is killed and called again")
options = parser.parse_args()

model = PPO("MlpPolicy", "CartPole-v1", seed=0, device="cpu")
model.learn(options.timesteps)

for deterministic in (True, False):
    report = evaluate(
        model,
        "CartPole-v1",
        episodes=options.episodes,
        num_envs=options.num_envs,
        workers=options.workers,
        deterministic=deterministic,
        log=f"{deterministic}-{options.log}" if options.log else None,
        resume=options.log is not None,
    )
    print(report)
    low, high = report.interval()
    print(f"mean return {report.mean:.1f}, between {low:.1f} and {high:.1f}\n")
