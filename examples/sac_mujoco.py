"""SAC on a MuJoCo task: eight actors, as many updates as steps, and evaluations beside the training, drawn as a learning curve.

    python examples/sac_mujoco.py --steps 1000000

Needs the extra `[sb3]` and `gymnasium[mujoco]`, and matplotlib for the curve. `--split` lets critics and actor learn side by side,
on two workers: a delayed variant of SB3's SAC, and as deterministic.
"""

import argparse
import importlib.util

from reactor_sb3 import SyncSAC

parser = argparse.ArgumentParser()
parser.add_argument("--env", default="HalfCheetah-v5")
parser.add_argument("--steps", type=int, default=2_048, help="1,000,000 for a real run")
parser.add_argument("--update-to-data", type=float, default=1.0, help="updates for each step of an environment")
parser.add_argument("--split", action="store_true")
parser.add_argument("--watch", help='a film of the policy at play now and then: "run.mp4" (needs the extra watch)')
parser.add_argument("--curve", default="sac_mujoco.png", help="where to draw the learning curve")
parser.add_argument("--workers", type=int, default=None, help="changes the time that it takes, and nothing else")
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

ACTORS, STEPS = 8, 8
model = SyncSAC(
    "MlpPolicy",
    options.env,
    n_actors=ACTORS,
    train_freq=STEPS,
    gradient_steps=max(1, round(options.update_to_data * ACTORS * STEPS)),
    batch_size=256,
    learning_starts=min(10_000, options.steps // 2),
    buffer_size=min(1_000_000, max(options.steps, 1_000)),
    pipeline=1,
    split=options.split,
    evaluate_every=max(1, options.steps // (20 * ACTORS * STEPS)),
    evaluate_episodes=3,
    evaluate_steps=1_000,
    watch=options.watch,
    watch_steps=64,
    workers=options.workers,
    seed=options.seed,
)
with model:
    model.learn(options.steps)
    for one in model.evaluations:
        print(f"{one.timesteps:>9,} steps: mean return of {len(one.returns)} episodes {one.mean:.0f}")
    print(model)
    print(f"{model.num_timesteps:,} steps, weights {model.fingerprint()}")

if importlib.util.find_spec("matplotlib") is None:
    print("no learning curve: matplotlib is not installed")
else:
    import matplotlib.pyplot as plt

    steps = [one.timesteps for one in model.evaluations]
    plt.fill_between(
        steps, [min(one.returns) for one in model.evaluations], [max(one.returns) for one in model.evaluations], alpha=0.2
    )
    plt.plot(steps, [one.mean for one in model.evaluations])
    plt.xlabel("steps")
    plt.ylabel("return of 3 episodes: mean, lowest and highest")
    plt.title(f"SyncSAC on {options.env}")
    plt.savefig(options.curve, dpi=110)
    print(f"learning curve: {options.curve}")
