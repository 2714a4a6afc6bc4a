"""What does one minibatch update cost?

Everything included: SB3's own ``train`` against ours, by our extension (``reactor_rl``), by autograd where there is no extension,
and by autograd beside it, on the same flat arrays. PPO is a learner of ``reactor_torch`` on SB3's policy, which learns an epoch of
a rollout in minibatches, permuted and normalised anew each time; DQN, SAC, TD3 and TQC are ``train`` of our
trainers, which sample a replay buffer for each update. All have one thread, or two where a case says so.

``products`` are the multiply-adds of an update alone, each by ``torch.mm`` or by our extension, whichever is faster, on as many
threads: no sampling, no biases, no activations, no losses, no optimiser. Their time as a share of ours says what is left to gain.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from common import Contender, arguments, benchmark, compared
from showing import print_table, rate_rows

OURS = "reactor_rl"
PLAIN = f"{OURS}, no extension"
AUTOGRAD = f"{OURS}, autograd"
SB3 = "SB3"
PRODUCTS = "products"


class Case(NamedTuple):
    """An algorithm, the features of an observation, hidden layers, actions (negative: that many numbers), rows, and threads."""

    algorithm: str
    features: int
    hidden: tuple[int, ...]
    actions: int
    batch: int
    threads: int = 1


CASES = {
    "PPO 4-64-64, batch 64": Case("PPO", 4, (64, 64), 2, 64),
    "PPO 4-64-64, batch 256": Case("PPO", 4, (64, 64), 2, 256),
    "PPO 17-256-256, batch 256": Case("PPO", 17, (256, 256), -6, 256),
    "DQN 4-64-64, batch 256": Case("DQN", 4, (64, 64), 2, 256),
    "DQN 4-256-256, batch 256": Case("DQN", 4, (256, 256), 2, 256),
    "SAC 17-256-256, batch 256": Case("SAC", 17, (256, 256), -6, 256),
    "TD3 17-256-256, batch 256": Case("TD3", 17, (256, 256), -6, 256),
    "TQC 17-256-256, batch 256": Case("TQC", 17, (256, 256), -6, 256),
    "PPO 17-256-256, batch 256, two threads": Case("PPO", 17, (256, 256), -6, 256, 2),
    "DQN 4-256-256, batch 256, two threads": Case("DQN", 4, (256, 256), 2, 256, 2),
    "SAC 17-256-256, batch 256, two threads": Case("SAC", 17, (256, 256), -6, 256, 2),
    "TD3 17-256-256, batch 256, two threads": Case("TD3", 17, (256, 256), -6, 256, 2),
    "TQC 17-256-256, batch 256, two threads": Case("TQC", 17, (256, 256), -6, 256, 2),
}
ROLLOUT, BUFFER, QUANTILES = 2048, 20_000, 25


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
    from sb3_contrib import TQC
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
        made: Any = {"DQN": DQN, "SAC": SAC, "TD3": TD3, "TQC": TQC}[case.algorithm]
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

        from reactor_sb3 import ALGORITHMS
        from reactor_torch import Team

        class Own(FlattenExtractor):
            """The same as SB3's, but a class of its own, so that autograd has to do it."""

        kwargs: dict[str, Any] = {"net_arch": list(case.hidden), "features_extractor_class": FlattenExtractor if dense else Own}
        self.case, self.team = case, Team(case.threads)
        made = ALGORITHMS[f"Sync{case.algorithm}"].cls
        with using(extension):
            self.model = made(
                "MlpPolicy", env_of(case), n_actors=1, batch_size=case.batch, buffer_size=BUFFER, seed=0, policy_kwargs=kwargs
            )
            self.model.replay_buffer = model_of(case).replay_buffer
            self.model.set_logger(configure(None, []))
            self.go(1)

    def go(self, count: int) -> float:
        with torch_threads(1), self.team:
            self.model.train(count, self.case.batch)
        return count

    def close(self) -> None:
        self.team.close()


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
        from reactor_torch import Network, Networks, Team

        self.model, self.case, self.team = model_of(case), case, Team(case.threads)
        policy = self.model.policy
        loss = PPOLoss(0.2, None, self.model.ent_coef, self.model.vf_coef)
        with using(extension):
            read = read_actor_critic if dense else None
            parts = {"policy": Network(policy, policy.optimizer, self.model.max_grad_norm, read=read)}
            self.nets = Networks(parts, {"policy": loss})
            self.go(1)

    def go(self, count: int) -> float:
        with torch_threads(1), self.team:
            return self.learn(count)

    def close(self) -> None:
        self.team.close()

    def learn(self, count: int) -> float:
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


# ---------------------------------------------------------------------- the products of an update

Product = tuple[str, int, int, int]
"""``forward``, ``weights`` or ``inputs``; rows, inputs and outputs of the layer."""


def forward(rows: int, widths: Sequence[int]) -> list[Product]:
    """Of dense layers between so many numbers."""
    return [("forward", rows, k, n) for k, n in pairwise(widths)]


def backward(rows: int, widths: Sequence[int]) -> list[Product]:
    """Gradients by all weights, and by the inputs of all layers but the first."""
    layers = list(pairwise(widths))
    return [("weights", rows, k, n) for k, n in layers] + [("inputs", rows, k, n) for k, n in layers[1:]]


def slopes(rows: int, widths: Sequence[int], inputs: int) -> list[Product]:
    """Gradients by the last inputs alone."""
    return [("inputs", rows, k, n) for k, n in pairwise([inputs, *widths[1:]])]


def products_of(case: Case) -> tuple[list[Product], int]:
    """All products of some updates, and how many updates these are."""
    rows, inputs, n = case.batch, (case.features, *case.hidden), abs(case.actions)
    both, critic = 2, (case.features + n, *case.hidden, QUANTILES if case.algorithm == "TQC" else 1)
    if case.algorithm == "PPO":
        return [one for outputs in (n, 1) for way in (forward, backward) for one in way(rows, (*inputs, outputs))], 1
    if case.algorithm == "DQN":
        return 2 * forward(rows, (*inputs, n)) + backward(rows, (*inputs, n)), 1
    critics = 2 * both * forward(rows, critic) + both * backward(rows, critic)  # targets, and critics both ways
    if case.algorithm == "TD3":  # the actor learns in each second update, from the first critic
        actor = (*inputs, n)
        learns = forward(rows, actor) + forward(rows, critic) + slopes(rows, critic, n) + backward(rows, actor)
        return 2 * (forward(rows, actor) + critics) + learns, 2
    actor = (*inputs, 2 * n)
    least = rows if case.algorithm == "TQC" else rows // 2  # SAC's actor learns from one critic in each row
    valued = both * forward(rows, critic) + both * slopes(least, critic, n)
    return forward(2 * rows, actor) + critics + valued + backward(rows, actor), 1


def ways_of(product: Product) -> list[Callable[[], object]]:
    """``torch.mm`` and our extension, on arrays of their own."""
    import torch

    from reactor_torch import kernels

    way, rows, k, n = product
    x, w, g = torch.randn(rows, k), torch.randn(n, k), torch.randn(rows, n)
    y, by_w, by_x = torch.empty(rows, n), torch.empty(n, k), torch.empty(rows, k)
    left, right, out = {"forward": (x, w.t(), y), "weights": (g.t(), x, by_w), "inputs": (g, w, by_x)}[way]
    ways: list[Callable[[], object]] = [lambda: torch.mm(left, right, out=out)]
    if kernels.compiled is not None:
        layer = ("linear", 0, k, n, 0.0, w.numpy(), None, by_w.numpy(), None, y.numpy(), None, None)
        network = kernels.compiled.Network(rows, (layer,))
        network.run(x.numpy())
        calls: dict[str, Callable[[], object]] = {
            "forward": lambda: network.run(x.numpy()), "weights": lambda: network.back(g.numpy()),
            "inputs": lambda: network.slopes(g.numpy(), None, 0, by_x.numpy()),
        }  # fmt: skip
        ways.append(calls[way])
    return ways


class MultipliesAlone(Contender):
    """The products of an update."""

    def __init__(self, case: Case) -> None:
        from reactor_torch import Team

        products, self.updates = products_of(case)
        self.threads, self.team = case.threads, Team(case.threads)
        with torch_threads(self.threads), self.team:
            self.products = [min(ways_of(product), key=shortest) for product in products]

    def go(self, count: int) -> float:
        with torch_threads(self.threads), self.team:
            for _ in range(count):
                for product in self.products:
                    product()
        return count * self.updates

    def close(self) -> None:
        self.team.close()


def shortest(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best


@contextlib.contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Let torch have so many threads for a while."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---------------------------------------------------------------------- who is measured


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from threadpoolctl import threadpool_limits

    case = CASES[name]
    torch.set_num_threads(case.threads)
    ours = LearnsPPO if case.algorithm == "PPO" else FromReplay
    makers: dict[str, Callable[[], Contender]] = {
        OURS: partial(ours, case, True), PLAIN: partial(ours, case, True, False),
        AUTOGRAD: partial(ours, case, False), SB3: partial(Theirs, case), PRODUCTS: partial(MultipliesAlone, case),
    }  # fmt: skip
    if case.threads > 1:  # of ours only the extension has them
        del makers[PLAIN], makers[AUTOGRAD]
    with threadpool_limits(case.threads):
        figures = compared(makers, options, seconds=0.35, warm_up=0.2)
    found = figures.as_json(OURS)
    if (share := found["ratios"].pop(PRODUCTS, None)) is not None:
        found["of_limit"] = share
    return found


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["learner", "an update", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))
    if of := found.get("of_limit"):
        print(f"  the products alone take {of['median']:.0%} of ours ({of['min']:.0%}-{of['max']:.0%})")


def main() -> None:
    options, label = arguments(__doc__).parse_args(), "us, shorter is better"
    how: dict[str, Any] = {"bar": lambda rate: 1e6 / rate, "hidden": [PRODUCTS]}
    benchmark(__file__, options, list(CASES), measure, show, "One minibatch update", label, **how)


if __name__ == "__main__":
    main()
