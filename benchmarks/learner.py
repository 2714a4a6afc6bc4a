"""What does one minibatch update cost?

Everything included: SB3's own ``train`` against ours, by our extension (``reactor_rl``), by autograd where there is no extension,
and by autograd beside it, on the same flat arrays. PPO is a learner of ``reactor_torch`` on SB3's policy, which learns an epoch of
a rollout in minibatches, permuted and normalised anew each time; DQN, SAC and TD3 are ``train`` of ``SyncDQN``, ``SyncSAC`` and
``SyncTD3``, which sample a replay buffer for each update. All have one thread.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from common import Contender, arguments, benchmark, compared
from showing import print_table, rate_rows

OURS = "reactor_rl"
PLAIN = f"{OURS}, no extension"
AUTOGRAD = f"{OURS}, autograd"
SB3 = "SB3"


class Case(NamedTuple):
    """An algorithm, the features of an observation, hidden layers, actions (negative: that many numbers), and rows."""

    algorithm: str
    features: int
    hidden: tuple[int, ...]
    actions: int
    batch: int


CASES = {
    "PPO 4-64-64, batch 64": Case("PPO", 4, (64, 64), 2, 64),
    "PPO 4-64-64, batch 256": Case("PPO", 4, (64, 64), 2, 256),
    "PPO 17-256-256, batch 256": Case("PPO", 17, (256, 256), -6, 256),
    "DQN 4-64-64, batch 256": Case("DQN", 4, (64, 64), 2, 256),
    "DQN 4-256-256, batch 256": Case("DQN", 4, (256, 256), 2, 256),
    "SAC 17-256-256, batch 256": Case("SAC", 17, (256, 256), -6, 256),
    "TD3 17-256-256, batch 256": Case("TD3", 17, (256, 256), -6, 256),
}
ROLLOUT, BUFFER = 2048, 20_000


def spaces_of(case: Case) -> tuple[Any, Any]:
    from gymnasium import spaces

    observations = spaces.Box(-np.inf, np.inf, (case.features,), np.float32)
    actions = spaces.Discrete(case.actions) if case.actions > 0 else spaces.Box(-1, 1, (-case.actions,), np.float32)
    return observations, actions


def env_of(case: Case) -> Any:
    """A class of environments that nobody steps."""
    import gymnasium

    class Nothing(gymnasium.Env[Any, Any]):
        observation_space, action_space = spaces_of(case)

        def reset(self, **_: Any) -> Any:
            return self.observation_space.sample(), {}

    return Nothing


def model_of(case: Case) -> Any:
    """SB3's, with something to learn from."""
    import torch
    from stable_baselines3 import DQN, PPO, SAC, TD3
    from stable_baselines3.common.logger import configure

    kwargs: dict[str, Any] = {
        "policy_kwargs": {"net_arch": list(case.hidden)},
        "batch_size": case.batch,
        "device": "cpu",
        "seed": 0,
    }
    rng = np.random.default_rng(0)
    if case.algorithm != "PPO":
        made: Any = {"DQN": DQN, "SAC": SAC, "TD3": TD3}[case.algorithm]
        model: Any = made("MlpPolicy", env_of(case)(), buffer_size=BUFFER, **kwargs)
        for _ in range(5000):
            seen, following = rng.normal(size=(2, 1, case.features)).astype(np.float32)
            taken = rng.integers(0, 2, (1, 1)) if case.actions > 0 else rng.uniform(-1, 1, (1, -case.actions)).astype(np.float32)
            model.replay_buffer.add(seen, following, taken, rng.normal(size=1), rng.random(1) < 0.1, [{}])
    else:
        model = PPO("MlpPolicy", env_of(case)(), n_steps=ROLLOUT, n_epochs=1, **kwargs)
        buffer = model.rollout_buffer
        for _ in range(ROLLOUT):
            seen = rng.normal(size=(1, case.features)).astype(np.float32)
            with torch.no_grad():
                actions, values, log_prob = model.policy(torch.from_numpy(seen))
            buffer.add(seen, actions.numpy().reshape(1, -1), rng.normal(size=1), np.zeros(1), values, log_prob)
        buffer.compute_returns_and_advantage(torch.zeros(1), np.zeros(1))
    model.set_logger(configure(None, []))
    return model


class Theirs(Contender):
    """SB3's ``train``."""

    def __init__(self, case: Case) -> None:
        self.model, self.case = model_of(case), case

    def go(self, count: int) -> float:
        if self.case.algorithm != "PPO":
            self.model.train(count, self.case.batch)
            return count
        for _ in range(count):
            self.model.train()
        return count * (ROLLOUT // self.case.batch)


class FromReplay(Contender):
    """``train`` of a trainer with a replay buffer, on the transitions that SB3's model has."""

    def __init__(self, case: Case, dense: bool, extension: bool = True) -> None:
        from stable_baselines3.common.logger import configure
        from stable_baselines3.common.torch_layers import FlattenExtractor

        from reactor_sb3 import SyncDQN, SyncSAC, SyncTD3

        class Own(FlattenExtractor):
            """The same as SB3's, but a class of its own, so that autograd has to do it."""

        kwargs: dict[str, Any] = {"net_arch": list(case.hidden), "features_extractor_class": FlattenExtractor if dense else Own}
        self.case = case
        made: Any = {"DQN": SyncDQN, "SAC": SyncSAC, "TD3": SyncTD3}[case.algorithm]
        with using(extension):
            self.model = made(
                "MlpPolicy", env_of(case), n_actors=1, batch_size=case.batch, buffer_size=BUFFER, seed=0, policy_kwargs=kwargs
            )
            self.model.replay_buffer = model_of(case).replay_buffer
            self.model.set_logger(configure(None, []))
            self.go(1)

    def go(self, count: int) -> float:
        self.model.train(count, self.case.batch)
        return count


@contextlib.contextmanager
def using(extension: bool) -> Iterator[None]:
    """Make buffers with our extension or without it."""
    from reactor_torch import kernels

    compiled = kernels.compiled
    if not extension:
        kernels.compiled = None
    try:
        yield
    finally:
        kernels.compiled = compiled


class LearnsPPO(Contender):
    """A learner on SB3's policy."""

    def __init__(self, case: Case, dense: bool, extension: bool = True) -> None:
        from reactor_sb3.algorithms.ppo import PPOLoss
        from reactor_sb3.learned import read_actor_critic
        from reactor_torch import Network, Networks

        self.model, self.case = model_of(case), case
        policy = self.model.policy
        loss = PPOLoss(0.2, None, self.model.ent_coef, self.model.vf_coef)
        with using(extension):
            read = read_actor_critic if dense else None
            parts = {"policy": Network(policy, policy.optimizer, self.model.max_grad_norm, read=read)}
            self.nets = Networks(parts, {"policy": loss})
            self.go(1)

    def go(self, count: int) -> float:
        import torch

        from reactor_sb3.algorithms.ppo import PPOBatch
        from reactor_torch import Task, normalized

        self.nets.begin_round(self.nets.losses)
        buffer, batch = self.model.rollout_buffer, self.case.batch
        for _ in range(count):
            parts = [buffer.observations, buffer.actions, buffer.advantages, buffer.returns, buffer.log_probs, buffer.values]
            flat = [part.reshape(ROLLOUT, -1) for part in parts]
            rows = [part if at < 2 and part.shape[1] > 1 else part[:, 0] for at, part in enumerate(flat)]
            whole = PPOBatch(*(torch.from_numpy(part) for part in rows))
            epoch = whole[torch.from_numpy(np.random.permutation(ROLLOUT))]
            epoch.advantages = normalized(epoch.advantages, batch)
            for at in range(0, ROLLOUT, batch):
                self.nets.compute([Task("policy", epoch, slice(at, at + batch))])
                self.nets.step("policy")
        return count * (ROLLOUT // batch)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    case = CASES[name]
    ours = LearnsPPO if case.algorithm == "PPO" else FromReplay
    makers: dict[str, Callable[[], Contender]] = {
        OURS: partial(ours, case, True), PLAIN: partial(ours, case, True, False),
        AUTOGRAD: partial(ours, case, False), SB3: partial(Theirs, case),
    }  # fmt: skip
    with threadpool_limits(1):
        figures = compared(makers, options, seconds=0.35, warm_up=0.2)
    return figures.as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["learner", "an update", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))


def main() -> None:
    options, label = arguments(__doc__).parse_args(), "us, shorter is better"
    benchmark(__file__, options, list(CASES), measure, show, "One minibatch update", label, bar=lambda rate: 1e6 / rate)


if __name__ == "__main__":
    main()
