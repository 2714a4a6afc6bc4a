"""Everything that runs on several machines gives the same there as inline: one fingerprint on one, two and three nodes."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from ray_actors import process_of

gymnasium = pytest.importorskip("gymnasium")

INLINE = {"executor": "inline"}


def vector_env(**how: Any) -> str:
    """What a vector environment shows in some steps, infos included."""
    from reactor_gymnasium import ReactorVectorEnv

    found, draw = hashlib.blake2b(digest_size=8), np.random.default_rng(0)
    with ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1", max_episode_steps=9)] * 7, **how) as envs:
        found.update(envs.reset(seed=1)[0].tobytes())
        for _ in range(25):
            *arrays, infos = envs.step(draw.integers(0, 2, 7))
            for array in arrays:
                found.update(np.ascontiguousarray(array).tobytes())
            found.update(repr(sorted(infos)).encode())
        found.update(repr(envs.get_attr("spec")).encode())
    return found.hexdigest()


def trainer(name: str, env: str, how_long: int, *, settings: dict[str, Any], **how: Any) -> str:
    """The weights that a trainer ends with."""
    import reactor_sb3

    with getattr(reactor_sb3, name)("MlpPolicy", env, seed=3, **settings, **how) as model:
        model.learn(how_long)
        return str(model.fingerprint())


def runner(**how: Any) -> str:
    """What happens in copies of a game whose policies are asked by the shards that step it."""
    from mpe2 import simple_spread_v3

    from reactor_pettingzoo import MultiAgentRunner, RandomPolicy

    env_fn = partial(simple_spread_v3.parallel_env, max_cycles=10)
    with MultiAgentRunner(env_fn, {"all": RandomPolicy()}, num_envs=5, **how) as playing:
        return playing.run(200, seed=0, progress_bar=False).fingerprint


def everyone(**how: Any) -> str:
    """A tournament."""
    from pettingzoo.classic.connect_four import connect_four

    from reactor_pettingzoo import RandomPolicy, tournament

    population = {"one": RandomPolicy(), "two": RandomPolicy()}
    return tournament(connect_four.env, population, episodes=4, seed=0, progress_bar=False, **how).fingerprint


OFF_POLICY = {"n_actors": 5, "train_freq": 8, "gradient_steps": 2, "learning_starts": 64, "batch_size": 16, "buffer_size": 1000}
CASES: dict[str, tuple[str, Callable[..., str]]] = {
    "ReactorVectorEnv": ("gymnasium", vector_env),
    "SyncDQN": ("stable_baselines3", partial(trainer, "SyncDQN", "CartPole-v1", 400, settings=OFF_POLICY)),
    "SyncDQN, overlapped": (
        "stable_baselines3", partial(trainer, "SyncDQN", "CartPole-v1", 400, settings={**OFF_POLICY, "pipeline": 1}),
    ),
    "SyncPPO": (
        "stable_baselines3",
        partial(trainer, "SyncPPO", "CartPole-v1", 160, settings={"n_actors": 5, "n_steps": 16, "batch_size": 40, "n_epochs": 2}),
    ),
    "SyncSAC": ("stable_baselines3", partial(trainer, "SyncSAC", "Pendulum-v1", 200, settings=OFF_POLICY)),
    "MultiAgentRunner": ("mpe2", runner),
    "tournament": ("pettingzoo", everyone),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CASES)
def test_the_same_on_nodes_in_this_process(name: str) -> None:
    host, run = CASES[name]
    pytest.importorskip(host)
    expected = run(**INLINE)
    for nodes in (2, 3):
        assert run(executor="federated", nodes=nodes, workers=1) == expected, f"{nodes} nodes"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", CASES)
def test_the_same_on_machines_of_a_cluster(cluster: Any, name: str) -> None:
    host, run = CASES[name]
    pytest.importorskip(host)
    expected = run(**INLINE)
    for nodes in (1, 3) if name != "ReactorVectorEnv" else (1, 2, 3):
        assert run(executor="ray", nodes=nodes, workers=1) == expected, f"{nodes} nodes"


@pytest.mark.timeout(120)
def test_the_same_with_workers_on_each_node(cluster: Any) -> None:
    assert vector_env(executor="ray", nodes=None) == vector_env(**INLINE)


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore::reactor_rl.RecoveryWarning")
@pytest.mark.parametrize("algorithm", [None, "SyncDQN"])
def test_the_same_after_a_node_was_killed(cluster: Any, algorithm: str | None) -> None:
    from reactor_gymnasium import ReactorVectorEnv

    def kill(run: Any) -> None:
        os.kill(process_of(run, 1), signal.SIGKILL)

    def stepped(**how: Any) -> list[bytes]:
        with ReactorVectorEnv([partial(gymnasium.make, "CartPole-v1")] * 6, **how) as envs:
            seen = [envs.reset(seed=1)[0].tobytes()]
            for step in range(40):
                if step == 20 and how != INLINE:
                    kill(envs._run)
                seen.append(envs.step(np.full(6, step % 2))[0].tobytes())
        return seen

    def trained(**how: Any) -> str:
        import reactor_sb3

        with reactor_sb3.SyncDQN("MlpPolicy", "CartPole-v1", seed=3, **OFF_POLICY, **how) as model:
            model.learn(200)
            if how != INLINE:
                kill(model._run)
            return str(model.learn(200, reset_num_timesteps=False).fingerprint())

    if algorithm is not None:
        pytest.importorskip("stable_baselines3")
    run = stepped if algorithm is None else trained
    assert run(executor="ray", nodes=3, workers=1, restarts=1) == run(**INLINE)
