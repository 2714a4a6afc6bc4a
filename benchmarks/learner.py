"""What does one minibatch update cost?

Everything included: SB3's own ``train`` against a learner of ``reactor_torch`` on the same model of SB3's: with gradients by hand
(``reactor_rl``), the same without our extension, and by autograd on the same flat arrays. PPO learns an epoch of a rollout in
minibatches, permuted and normalised anew each time; DQN samples SB3's replay buffer for each update. All have one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from common import (
    Contender,
    arguments,
    bar_plot,
    chosen,
    interleaved,
    print_machine,
    print_table,
    rate_rows,
    rounds_of,
    run_cases,
    seconds_of,
    write_json,
)  # fmt: skip

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
}
ROLLOUT = 2048


def spaces_of(case: Case) -> tuple[Any, Any]:
    from gymnasium import spaces

    observations = spaces.Box(-np.inf, np.inf, (case.features,), np.float32)
    actions = spaces.Discrete(case.actions) if case.actions > 0 else spaces.Box(-1, 1, (-case.actions,), np.float32)
    return observations, actions


def model_of(case: Case) -> Any:
    """SB3's, with something to learn from."""
    import gymnasium
    import torch
    from stable_baselines3 import DQN, PPO
    from stable_baselines3.common.logger import configure

    class Nothing(gymnasium.Env[Any, Any]):
        observation_space, action_space = spaces_of(case)

        def reset(self, **_: Any) -> Any:
            return self.observation_space.sample(), {}

    kwargs: dict[str, Any] = {
        "policy_kwargs": {"net_arch": list(case.hidden)},
        "batch_size": case.batch,
        "device": "cpu",
        "seed": 0,
    }
    rng = np.random.default_rng(0)
    if case.algorithm == "DQN":
        model: Any = DQN("MlpPolicy", Nothing(), buffer_size=20_000, **kwargs)
        for _ in range(5000):
            seen, following = rng.normal(size=(2, 1, case.features)).astype(np.float32)
            model.replay_buffer.add(seen, following, rng.integers(0, 2, (1, 1)), rng.normal(size=1), rng.random(1) < 0.1, [{}])
    else:
        model = PPO("MlpPolicy", Nothing(), n_steps=ROLLOUT, n_epochs=1, **kwargs)
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
        if self.case.algorithm == "DQN":
            self.model.train(count, self.case.batch)
            return count
        for _ in range(count):
            self.model.train()
        return count * (ROLLOUT // self.case.batch)


class Learns(Contender):
    """A learner on the same policy."""

    def __init__(self, case: Case, dense: bool, extension: bool = True) -> None:
        from reactor_torch import dense as module

        self.model, self.case = model_of(case), case
        compiled = module._layers
        if not extension:
            module._layers = None  # type: ignore[assignment]
        self.learner = (self.q_learner if case.algorithm == "DQN" else self.ppo_learner)(dense)
        self.go(1)  # makes the buffers
        module._layers = compiled

    def q_learner(self, dense: bool) -> Any:
        from reactor_torch import Autograd, Dense, DQNLoss, FlatOptimizer, FlatParameters, Learner, layers_of

        def function(network: Any, flat: FlatParameters) -> Any:
            layers = layers_of(((f"q_net.{at}", one) for at, one in network.q_net.named_children()), network.features_dim)
            assert layers is not None
            return Dense(layers, flat) if dense else Autograd(network, flat)

        model = self.model
        flat = FlatParameters(model.q_net.named_parameters())
        target = FlatParameters(model.q_net_target.named_parameters(), learned=False)
        loss = DQNLoss(function(model.q_net, flat), function(model.q_net_target, target))
        return Learner(loss, FlatOptimizer(model.policy.optimizer, flat), model.max_grad_norm)

    def ppo_learner(self, dense: bool) -> Any:
        from reactor_torch import (
            AutogradActorCritic,
            Categoricals,
            DenseActorCritic,
            FlatOptimizer,
            FlatParameters,
            Gaussian,
            Learner,
            PPOLoss,
            layers_of,
        )  # fmt: skip

        policy = self.model.policy
        flat = FlatParameters(policy.named_parameters())
        seen: Any = AutogradActorCritic(policy.evaluate_actions, flat)
        if dense:
            towers: list[Any] = []
            for body, name, head in (("policy_net", "action_net", policy.action_net), ("value_net", "value_net", policy.value_net)):
                hidden = [(f"mlp_extractor.{body}.{at}", one) for at, one in getattr(policy.mlp_extractor, body).named_children()]
                towers.append(layers_of([*hidden, (name, head)], policy.features_dim))
            distribution = Categoricals([self.case.actions]) if self.case.actions > 0 else Gaussian(flat)
            seen = DenseActorCritic(towers[0], towers[1], distribution, flat)
        loss = PPOLoss(seen, 0.2, None, self.model.ent_coef, self.model.vf_coef)
        return Learner(loss, FlatOptimizer(policy.optimizer, flat), self.model.max_grad_norm)

    def go(self, count: int) -> float:
        self.learner.begin()
        return (self.q_updates if self.case.algorithm == "DQN" else self.epochs)(count)

    def q_updates(self, count: int) -> float:
        from reactor_torch import DQNBatch

        sample, batch, gamma = self.model.replay_buffer.sample, self.case.batch, self.model.gamma
        for _ in range(count):
            given = sample(batch)
            self.learner.update(
                DQNBatch(given.observations, given.actions, given.next_observations, given.dones, given.rewards, gamma)
            )
        return count

    def epochs(self, count: int) -> float:
        import torch

        from reactor_torch import PPOBatch, normalized

        buffer, batch = self.model.rollout_buffer, self.case.batch
        for _ in range(count):
            parts = [buffer.observations, buffer.actions, buffer.advantages, buffer.returns, buffer.log_probs, buffer.values]
            flat = [part.reshape(ROLLOUT, -1) for part in parts]
            rows = [part if at < 2 and part.shape[1] > 1 else part[:, 0] for at, part in enumerate(flat)]
            whole = PPOBatch(*(torch.from_numpy(part) for part in rows))
            epoch = whole[torch.from_numpy(np.random.permutation(ROLLOUT))]
            epoch.advantages = normalized(epoch.advantages, batch)
            for at in range(0, ROLLOUT, batch):
                self.learner.update(epoch[at : at + batch])
        return count * (ROLLOUT // batch)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    case = CASES[name]
    makers: dict[str, Callable[[], Contender]] = {
        OURS: partial(Learns, case, True), PLAIN: partial(Learns, case, True, False),
        AUTOGRAD: partial(Learns, case, False), SB3: partial(Theirs, case),
    }  # fmt: skip
    with threadpool_limits(1):
        figures = interleaved(chosen(makers, options), rounds=rounds_of(options), seconds=seconds_of(options, 0.35), warm_up=0.2)
    return figures.as_json(OURS)


def show(name: str, found: dict[str, Any]) -> None:
    print_table(name, ["learner", "an update", "ours is", "min-max"], rate_rows(found, OURS, per_item=True))


def main() -> None:
    options = arguments(__doc__.splitlines()[0], rounds=7).parse_args()
    if options.case is None:
        print_machine()
    cases = run_cases(__file__, options, list(CASES), measure, show=show)
    if cases is None:
        return
    write_json(options, "learner", cases)
    groups = {name: {one: 1e6 / rate["median"] for one, rate in found.get("rates", {}).items()} for name, found in cases.items()}
    bar_plot(options.output / "learner.png", "One minibatch update", groups, "us, logarithmic, shorter is better")


if __name__ == "__main__":
    main()
