"""The algorithms against plain versions of them: updates, returns, target networks, and rates of exploration."""

from __future__ import annotations

from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn
from trainers import INLINE, AfterRounds, Toy, new, same_draws

from reactor_sb3 import PQN, SyncDQN
from reactor_sb3.streams import Purpose, stream
from reactor_sb3.trainers.on_policy import Rollouts
from reactor_torch import Update

pytestmark = pytest.mark.usefixtures("small_blocks")

# ---------------------------------------------------------------------- what is learned


def descended(parameters: list[Any], loss: Any, rate: float, most: float) -> list[Any]:
    """Parameters after one step of gradient descent with clipped gradients."""
    gradients = torch.autograd.grad(loss, parameters)
    norm = torch.sqrt(sum((part**2).sum() for part in gradients))  # type: ignore[arg-type]
    scale = min(1.0, most / (float(norm) + 1e-6))
    return [(parameter - rate * scale * part).detach() for parameter, part in zip(parameters, gradients, strict=True)]


def close(found: Any, expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other, rtol=1e-5, atol=1e-6)


SGD = {"net_arch": [32], "optimizer_class": torch.optim.SGD}


@pytest.mark.slow
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("loss", ["huber", "mse"])
def test_a_step_of_dqn(loss: Any, double_q: bool, n_steps: int) -> None:
    model = new(
        "dqn", Toy, loss=loss, double_q=double_q, n_steps=n_steps, policy_kwargs=SGD, learning_rate=0.05, gamma=0.9,
        max_grad_norm=0.5,
    )  # fmt: skip
    with model:
        model.learn(320)
    with same_draws(model, stream(7, Purpose.REPLAY)):
        batch = model.replay_buffer.sample(64)
    net, target, every = deepcopy(model.q_net), model.q_net_target, torch.arange(64)
    with torch.no_grad():
        for parameter in target.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
        assert (target(batch.next_observations).argmax(1) != net(batch.next_observations).argmax(1)).sum() > 5
        following = target(batch.next_observations)
        best = (net(batch.next_observations) if double_q else following).argmax(1)
        discounts = 0.9 if n_steps == 1 else batch.discounts.flatten()
        wanted = batch.rewards.flatten() + discounts * (1 - batch.dones.flatten()) * following[every, best]
    wrong = net(batch.observations)[every, batch.actions.flatten().long()] - wanted
    far = wrong.abs()
    values = wrong**2 if loss == "mse" else torch.where(far < 1, 0.5 * wrong**2, far - 0.5)
    expected = descended(list(net.parameters()), values.mean(), 0.05, 0.5)

    updates = model.n_updates
    with same_draws(model, stream(7, Purpose.REPLAY)):
        model.train(1, 64)
    close(model.q_net.parameters(), expected)
    assert model.n_updates == updates + 1
    assert model.logger.name_to_value["train/loss"] == pytest.approx(float(values.detach().mean()), rel=1e-4)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_an_optimiser_of_your_own(optimizer: Any) -> None:
    """In one call for all parameters or one by one: the same updates."""
    model = new("dqn", policy_kwargs={"net_arch": [32], "optimizer_class": optimizer}, learning_rate=0.01)
    with model:
        model.learn(256)
    other = deepcopy(model.policy)
    with same_draws(model, stream(7, Purpose.REPLAY)):
        model.train(3, 16)
    with same_draws(model, stream(7, Purpose.REPLAY)):
        batches = [model.replay_buffer.sample(16) for _ in range(3)]
    for batch in batches:
        with torch.no_grad():
            wanted = batch.rewards + model.gamma * (1 - batch.dones) * other.q_net_target(batch.next_observations).amax(1, True)
        found = other.q_net(batch.observations).gather(1, batch.actions)
        other.optimizer.zero_grad()
        torch.nn.functional.smooth_l1_loss(found, wanted).backward()
        torch.nn.utils.clip_grad_norm_(other.parameters(), model.max_grad_norm)
        other.optimizer.step()
    close(model.q_net.parameters(), [parameter.detach() for parameter in other.q_net.parameters()])


def drift(model: Any) -> None:
    """In the place of a round's gradient steps, which then are the same here and in SB3: all parameters grow."""
    with torch.no_grad():
        for parameter in model.q_net.parameters():
            parameter += model.gradient_steps / 8


class DriftingDQN(DQN):
    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        drift(self)


class DriftingSyncDQN(SyncDQN):
    def update(self, batch: Any) -> Update:
        if self.update_in_round == 0:
            drift(self)
        yield from ()
        return {}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The number of environments used is greater")  # SB3's, about an interval of 1
@pytest.mark.parametrize("tau", [1.0, 0.25, 0.005])
@pytest.mark.parametrize(
    ("interval", "n_envs", "train_freq"),
    [(1, 4, 8), (4, 4, 16), (6, 4, 8), (7, 2, 3), (64, 4, 8), (100, 4, 8), (100, 1, 30), (10, 3, 1), (10_000, 4, 8)],
)
def test_target_updates_are_sb3s(interval: int, n_envs: int, train_freq: int, tau: float) -> None:
    """As often as SB3's, in the same order with the gradient steps: the target network is the same after every round."""
    arguments: dict[str, Any] = {
        "target_update_interval": interval, "tau": tau, "train_freq": train_freq, "gradient_steps": 3, "learning_starts": 8,
        "buffer_size": 4000, "policy_kwargs": {"net_arch": [4]}, "seed": 0,
    }  # fmt: skip
    total = 10 * n_envs * train_freq
    theirs = DriftingDQN("MlpPolicy", DummyVecEnv([partial(gymnasium.make, "CartPole-v1")] * n_envs), device="cpu", **arguments)
    ours = DriftingSyncDQN("MlpPolicy", "CartPole-v1", n_actors=n_envs, executor="inline", **arguments)
    ours.policy.load_state_dict(theirs.policy.state_dict())
    seen = []
    for model in (theirs, ours):
        # SB3 ends a rollout before the gradient steps, we after them; target networks are updated before both.
        watch = AfterRounds(lambda model: deepcopy(list(model.q_net_target.parameters())))
        model.learn(total, callback=watch)
        seen.append(watch.found)
    ours.close()
    assert len(seen[0]) == len(seen[1]) == 10
    for then, now in zip(*seen, strict=True):
        for expected, found in zip(then, now, strict=True):
            assert torch.equal(found, expected)
    assert all(torch.equal(*pair) for pair in zip(ours.q_net.parameters(), theirs.q_net.parameters(), strict=True))
    if interval < 100:
        assert not torch.equal(seen[0][0][0], seen[0][-1][0])


class Recorded(PQN):
    """Keeps its rounds, with the weights that it had before it learned from each."""

    def round(self, transitions: Any, infos: Any) -> Update:
        self.rounds = [*getattr(self, "rounds", []), (transitions.copy(), deepcopy(self.q_net))]
        return super().round(transitions, infos)


def returns_of(model: PQN, transitions: Any) -> Any:
    """Returns of a round, ``(steps, envs)``."""
    batch = model.batch(Rollouts(model.session.layout, transitions, model.device))
    return batch.returns.reshape(model.rollout_steps, model.n_envs)


@pytest.mark.parametrize("q_lambda", [0.0, 0.65, 1.0])
def test_returns_of_pqn(q_lambda: float) -> None:
    """Against the definition: every n-step return by itself, with weights (1 - lambda) * lambda ** (n - 1)."""
    gamma = 0.9
    model = Recorded(
        "MlpPolicy", Toy, n_actors=2, envs_per_actor=2, n_steps=32, q_lambda=q_lambda, gamma=gamma, seed=0, executor="inline"
    )
    with model:
        model.learn(3 * 32 * 4)
    ends = [0, 0]
    for rounds, net in model.rounds:
        model.q_net.load_state_dict(net.state_dict())
        found = returns_of(model, rounds).numpy()
        for number in range(4):
            part = rounds[number // 2]
            rewards, dones, timeouts, nexts = (
                part[name][:, number % 2] for name in ("rewards", "dones", "timeouts", "next_observations")
            )
            with torch.no_grad():
                values = net(torch.from_numpy(nexts.copy())).amax(1).numpy() * ~(dones & ~timeouts)
            ends = [ends[0] + (dones & ~timeouts).sum(), ends[1] + timeouts.sum()]
            for t in range(32):
                last = next((u for u in range(t, 32) if dones[u]), 31)
                wanted, discounted = 0.0, 0.0
                for n in range(1, last - t + 2):
                    discounted += gamma ** (n - 1) * rewards[t + n - 1]
                    weight = q_lambda ** (n - 1) * (1 if t + n - 1 == last else 1 - q_lambda)
                    wanted += weight * (discounted + gamma**n * values[t + n - 1])
                assert found[t, number] == pytest.approx(wanted, rel=1e-4, abs=1e-4)
    assert min(ends) > 5


@pytest.mark.parametrize(
    ("activation", "gradients", "max_grad_norm"),
    [(nn.ReLU, "compiled", 0.5), (nn.Tanh, "compiled", 50.0), (nn.ELU, "autograd", 0.5), (nn.ELU, "autograd", 50.0)],
)
def test_an_update_of_pqn(activation: Any, gradients: str, max_grad_norm: float) -> None:
    model = Recorded(
        "MlpPolicy", Toy, learning_rate=0.05, n_steps=16, n_minibatches=1, n_epochs=1, max_grad_norm=max_grad_norm,
        policy_kwargs={**SGD, "activation_fn": activation}, n_actors=2, seed=0, executor="inline",
    )  # fmt: skip
    assert f"gradients={gradients!r}" in repr(model)
    with model:
        model.learn(64)
    assert len(model.rounds) == 2
    for (rounds, net), after in zip(model.rounds, [model.rounds[1][1], model.q_net], strict=True):
        now = deepcopy(model.q_net.state_dict())
        model.q_net.load_state_dict(net.state_dict())
        returns = returns_of(model, rounds)
        model.q_net.load_state_dict(now)
        wrong = [
            net(torch.from_numpy(rounds["observations"][actor, step])).flatten()[rounds["actions"][actor, step, 0]]
            - returns[step, actor]
            for actor in range(2)
            for step in range(16)
        ]
        close(after.parameters(), descended(list(net.parameters()), 0.5 * (torch.stack(wrong) ** 2).mean(), 0.05, max_grad_norm))


# ---------------------------------------------------------------------- exploration


class Rates(BaseCallback):
    """What the coming round is to explore with, and what SB3 has explored with at each step."""

    def _on_training_start(self) -> None:
        self.coming: list[float] = []
        self.used: list[float] = []

    def _on_rollout_start(self) -> None:
        if isinstance(self.model, SyncDQN):
            self.coming += self.model.exploration_rates().tolist()

    def _on_step(self) -> bool:
        self.used.append(self.model.exploration_rate)  # type: ignore[attr-defined]
        return True


def test_exploration_rates_are_sb3s() -> None:
    arguments: dict[str, Any] = {
        "learning_starts": 80, "exploration_fraction": 0.5, "exploration_initial_eps": 0.9, "exploration_final_eps": 0.1, "seed": 0,
    }  # fmt: skip
    with new("dqn", **arguments) as model:
        model.learn(640, callback=(ours := Rates()))
    other = DQN("MlpPolicy", DummyVecEnv([partial(gymnasium.make, "CartPole-v1")] * 4), gradient_steps=0, device="cpu", **arguments)
    other.learn(640, callback=(theirs := Rates()))
    assert len(ours.coming) == len(theirs.used) == 160
    expected = [1.0] * 20 + theirs.used[20:]
    assert ours.coming == pytest.approx(expected, rel=1e-5)
    assert model.exploration_rate == pytest.approx(other.exploration_rate)


class RatesOfPqn(BaseCallback):
    """What each round explores and learns with."""

    def _on_training_start(self) -> None:
        self.exploring: list[float] = []
        self.learning: list[float] = []

    def _on_rollout_start(self) -> None:
        assert isinstance(self.model, PQN)
        self.exploring += self.model.exploration_rates().tolist()

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.learning.append(self.model.policy.optimizer.param_groups[0]["lr"])


@pytest.mark.parametrize("total", [5 * 32, 5 * 32 - 10])  # whole rounds are taken; CleanRL would leave the last one out
def test_rates_of_pqn_are_cleanrls(total: int) -> None:
    """Of exploration: by all steps of the training, the present one included. Of learning: by the rounds before this one."""
    with PQN(
        "MlpPolicy", "CartPole-v1", n_steps=8, exploration_initial_eps=0.8, exploration_final_eps=0.2, seed=0, **INLINE
    ) as model:
        model.learn(total, callback=(rates := RatesOfPqn()))
    slope = (0.2 - 0.8) / (0.5 * total)
    assert rates.exploring == pytest.approx([max(slope * step + 0.8, 0.2) for step in range(4, 164, 4)], rel=1e-6)
    assert rates.learning == pytest.approx([2.5e-4 * (1 - 32 * (iteration - 1) / total) for iteration in range(1, 6)])
    assert model.exploration_rate == pytest.approx(0.2)


@pytest.mark.parametrize("pipeline", [0, 1])
def test_every_round_of_pqn_is_learned_from(pipeline: int) -> None:
    """Also the only one of a call of ``learn()``, and the one that was under way when counting begins anew."""
    with new("pqn", pipeline=pipeline) as model:
        before = model.fingerprint()
        model.learn(64)
        assert (model.fingerprint() == before) == (pipeline == 1)  # then it is still under way
        watch = AfterRounds(lambda model: (model.fingerprint(), model.policy.optimizer.param_groups[0]["lr"]))
        model.learn(64 * 4, callback=watch)
    weights, rates = zip(*watch.found, strict=True)
    assert len({before, *weights}) == 5
    parts = [4, 4, 3, 2] if pipeline else [4, 3, 2, 1]
    assert rates == pytest.approx([2.5e-4 * part / 4 for part in parts])


@pytest.mark.slow
def test_epsilon_spread() -> None:
    """Actor i of n explores with epsilon ** (1 + spread * i / (n - 1)); where it does not, it is greedy."""
    arguments: dict[str, Any] = {"exploration_initial_eps": 0.6, "exploration_final_eps": 0.6}
    with new(
        "dqn", partial(Toy, length=50), n_actors=3, epsilon_spread=3.0, gradient_steps=0, learning_starts=0, rollout_steps=100,
        buffer_size=9000, **arguments,
    ) as model:  # fmt: skip
        model.learn(6000)
        buffer = model.replay_buffer
        for actor, rate in enumerate([0.6, 0.6**2.5, 0.6**4]):
            greedy, _ = model.predict(buffer.observations[:2000, actor], deterministic=True)
            other = (buffer.actions[:2000, actor, 0] != greedy).mean()
            assert other == pytest.approx(rate * 2 / 3, abs=4 * np.sqrt(rate / 2000)), actor
