"""SyncDQN with its actors on the machines of a Ray cluster: the same weights as on this machine alone.

    python examples/ray_sync_dqn.py                             # two nodes, both on this machine
    RAY_ADDRESS=auto python examples/ray_sync_dqn.py --nodes 4  # on a machine of a cluster: this one and three others

It pays where sampling a round takes long: slow environments, many actors. CartPole is not like that: it is here for being quick.
"""

import argparse
import time
from typing import Any

import ray

from reactor_sb3 import SyncDQN


def train(timesteps: int, **where: Any) -> str:
    with SyncDQN(
        "MlpPolicy", "CartPole-v1", n_actors=6, train_freq=16, gradient_steps=16, learning_starts=500, buffer_size=20_000,
        learning_rate=1e-3, target_update_interval=500, seed=0, **where,
    ) as model:  # fmt: skip
        model.start()
        begin = time.perf_counter()
        model.learn(timesteps)
        seconds = time.perf_counter() - begin
        print(f"{model}: {seconds:.1f} s, fingerprint {model.fingerprint()[:16]}")
        return str(model.fingerprint())


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2, help="machines, this one included")
    parser.add_argument("--timesteps", type=int, default=10_000)
    options = parser.parse_args()
    apart = train(options.timesteps, executor="ray", nodes=options.nodes)
    ray.shutdown()
    alone = train(options.timesteps, executor="inline")
    print("the same weights" if apart == alone else "OTHER WEIGHTS")
