"""Each update of SAC and TD3, begun from SB3's own weights and moments, ends with the weights of SB3's own ``train()``."""

from __future__ import annotations

import contextlib
import math
import pickle
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.logger import configure
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import nn

from reactor_sb3.learning.entropy import FixedEntropy, LearnedEntropy
from reactor_sb3.learning.sac_learner import SACLearner
from reactor_sb3.learning.td3_learner import TD3Learner
from reactor_torch import SACBatch, TD3Batch

UPDATES, ROWS = 100, 32
CLOSE = 1e-5
ACTIONS = spaces.Box(-1, 1, (2,), np.float32)
SPACES: dict[str, tuple[str, spaces.Space[Any]]] = {
    "box": ("MlpPolicy", spaces.Box(-np.inf, np.inf, (5,), np.float32)),
    "discrete": ("MlpPolicy", spaces.Discrete(4)),
    "image": ("CnnPolicy", spaces.Box(0, 255, (1, 36, 36), np.uint8)),
    "dict": (
        "MultiInputPolicy",
        spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Discrete(3)}),
    ),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Nothing(gymnasium.Env[Any, Any]):
    """Spaces; nobody steps it."""

    def __init__(self, observed: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observed, ACTIONS

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}


class Normalising(FlattenExtractor):
    """Observations with the mean and the deviation of a batch."""

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(space)
        self.flatten = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(self.features_dim))


class NormalisingCritics(SACPolicy):
    """Of which the critics alone normalise their observations."""

    def make_critic(self, features_extractor: Any = None) -> Any:
        return super().make_critic(Normalising(self.observation_space).to(self.device))


class Mixing(BaseFeaturesExtractor):
    """A layer of its own for a dict."""

    def __init__(self, space: spaces.Dict) -> None:
        super().__init__(space, 6)
        self.layer = nn.Linear(6, 6)

    def forward(self, observations: Any) -> torch.Tensor:
        return torch.tanh(self.layer(torch.cat([part.flatten(1) for part in observations.values()], 1)))


def model_of(algorithm: str, kind: str = "box", **changed: Any) -> Any:
    """SB3's, in the state in which its ``train`` is called."""
    usual, observed = SPACES[kind]
    policy = changed.pop("policy", usual)
    network: dict[str, Any] = {"net_arch": [24, 16], **changed.pop("policy_kwargs", {})}
    if kind == "image":
        network["features_extractor_kwargs"] = {"features_dim": 16}
    if kind == "dict":
        network.setdefault("features_extractor_class", Mixing)
    made: Any = {"sac": SAC, "td3": TD3}[algorithm]
    model = made(
        policy, Nothing(observed), **{"buffer_size": 10, "seed": 1, "device": "cpu", "policy_kwargs": network, **changed}
    )  # fmt: skip
    model.set_logger(configure(None, []))
    return model


def observations_of(space: spaces.Space[Any], rows: int, generator: np.random.Generator) -> Any:
    """As a replay buffer gives them."""
    if isinstance(space, spaces.Dict):
        return {key: observations_of(one, rows, generator) for key, one in space.items()}
    if isinstance(space, spaces.Discrete):
        return torch.from_numpy(generator.integers(0, int(space.n), (rows, 1)))
    assert isinstance(space, spaces.Box)
    if space.dtype == np.uint8:
        return torch.from_numpy(generator.integers(0, 256, (rows, *space.shape)).astype(np.uint8))
    return torch.from_numpy(generator.normal(size=(rows, *space.shape)).astype(np.float32))


def replay(model: Any, rows: int, generator: np.random.Generator, discounts: bool = False) -> ReplayBufferSamples:
    """What a replay buffer might give."""
    columns = torch.from_numpy(generator.normal(size=(2, rows, 1)).astype(np.float32))
    return ReplayBufferSamples(
        observations_of(model.observation_space, rows, generator),
        torch.from_numpy(generator.uniform(-1, 1, (rows, *ACTIONS.shape)).astype(np.float32)),
        observations_of(model.observation_space, rows, generator),
        (columns[0] > 1).float(), 3 * columns[1],
        torch.from_numpy(generator.uniform(0.9, 1, (rows, 1)).astype(np.float32)) if discounts else None,
    )  # fmt: skip


def learner_of(model: Any, split: bool = False) -> Any:
    if isinstance(model, TD3):
        return TD3Learner(model.policy, split)
    learned = model.ent_coef_optimizer is not None
    entropy: Any = (
        LearnedEntropy(model.log_ent_coef, model.ent_coef_optimizer, model.target_entropy)
        if learned
        else FixedEntropy(float(model.ent_coef_tensor))
    )
    return SACLearner(model.policy, entropy, split)


def batch_of(model: Any, learner: Any, given: ReplayBufferSamples) -> Any:
    """With noise that torch's generator gives in the order in which SB3 draws it."""
    seen, shape = learner.observations, given.actions.shape
    parts = (
        seen(given.observations), given.actions, seen(given.next_observations), given.dones, given.rewards,
        model.gamma if given.discounts is None else given.discounts,
    )  # fmt: skip
    if isinstance(model, SAC):
        return SACBatch(*parts, torch.randn(shape), torch.randn(shape))
    limit = model.target_noise_clip
    return TD3Batch(*parts, torch.empty(shape).normal_(0, model.target_policy_noise).clamp_(-limit, limit))


def learn(model: Any, learner: Any, given: ReplayBufferSamples, before: int) -> dict[str, Any]:
    learner.begin_round()
    batches = [batch_of(model, learner, given)]
    if isinstance(model, SAC):
        return learner.learn(batches, model.tau, model.target_update_interval)
    return learner.learn(batches, model.tau, model.policy_delay, before)


def load_state(ours: Any, theirs: Any) -> None:
    ours.set_parameters(deepcopy(theirs.get_parameters()))
    if isinstance(ours, SAC) and ours.log_ent_coef is not None:
        ours.log_ent_coef.data = theirs.log_ent_coef.data.clone()


def optimizers_of(model: Any) -> list[tuple[list[nn.Parameter], torch.optim.Optimizer]]:
    return [(group["params"], one.optimizer) for one in (model.actor, model.critic) for group in one.optimizer.param_groups]


def check_weights(ours: Any, theirs: Any, update: int) -> None:
    """All weights, but for those whose gradient is only rounding, which Adam divides by itself."""
    vague = {
        id(parameter): theirs_optimizer.state[parameter]["exp_avg_sq"].sqrt() < 1e-9
        for parameters, theirs_optimizer in optimizers_of(theirs)
        for parameter in parameters
        if "exp_avg_sq" in theirs_optimizer.state[parameter]
    }
    for (name, mine), wanted in zip(ours.policy.named_parameters(), theirs.policy.parameters(), strict=True):
        off = (mine - wanted).abs() > CLOSE
        if id(wanted) in vague:
            off &= ~vague[id(wanted)]
        assert not off.any(), (update, name, float((mine - wanted).abs().max()))
    for mine, wanted in zip(ours.policy.buffers(), theirs.policy.buffers(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=CLOSE)


CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "SAC": ("sac", "box", {}),
    "SAC, auto_0.1": ("sac", "box", {"ent_coef": "auto_0.1", "target_entropy": -0.5}),
    "SAC, fixed": ("sac", "box", {"ent_coef": 0.2, "learning_rate": 1e-3}),
    "TD3": ("td3", "box", {}),
    "TD3, no delay": ("td3", "box", {"policy_delay": 1}),
    "TD3, delay 3": ("td3", "box", {"policy_delay": 3, "target_policy_noise": 0.4, "target_noise_clip": 0.3}),
    **{
        f"{algorithm.upper()}, {kind}{', shared' * shared}": (
            algorithm, kind, {"policy_kwargs": {"share_features_extractor": shared}},
        )
        for algorithm in ("sac", "td3")
        for kind in ("image", "dict")
        for shared in (False, True)
    },
    "SAC, dict, SB3's extractor": ("sac", "dict", {"policy_kwargs": {"features_extractor_class": CombinedExtractor}}),
    "SAC, one of many": ("sac", "discrete", {}),
    "TD3, one of many": ("td3", "discrete", {"policy_delay": 1}),
    "SAC, batch normalisation": ("sac", "box", {"policy": NormalisingCritics}),
    "TD3, batch normalisation": ("td3", "box", {"policy_kwargs": {"features_extractor_class": Normalising}, "policy_delay": 1}),
    "TD3, RMSprop, shared": (
        "td3", "dict",
        {"policy_kwargs": {"share_features_extractor": True, "optimizer_class": torch.optim.RMSprop}, "policy_delay": 1},
    ),
    "SAC, AdamW": (
        "sac", "box", {"policy_kwargs": {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.1}}},
    ),
    "SAC, tanh, no hidden layers": ("sac", "box", {"policy_kwargs": {"activation_fn": nn.Tanh, "net_arch": {"pi": [], "qf": [9]}}}),
    **{
        f"{algorithm.upper()}, {count} critics": (algorithm, "box", {"policy_kwargs": {"n_critics": count}})
        for algorithm in ("sac", "td3")
        for count in (1, 3)
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "discounts"),
    [*((case, False) for case in CASES), *((case, True) for case in ("SAC", "TD3", "SAC, dict", "TD3, dict"))],
)
def test_each_update_is_that_of_sb3(case: str, discounts: bool) -> None:
    algorithm, kind, changed = CASES[case]
    theirs, ours = (model_of(algorithm, kind, **changed) for _ in range(2))
    learner = learner_of(ours)
    assert learner.dense == (kind in ("box", "discrete") and "normalisation" not in case)
    generator = np.random.default_rng(0)
    updates, rows = (10, 8) if kind == "image" else (UPDATES, ROWS)
    for update in range(updates):
        given = replay(theirs, rows, generator, discounts)
        load_state(ours, theirs)
        theirs.replay_buffer.sample = lambda *_, given=given, **__: given
        before = theirs._n_updates
        torch.manual_seed(update)
        theirs.train(1, rows)
        torch.manual_seed(update)
        found = learn(ours, learner, given, before)
        check_weights(ours, theirs, update)
        logged = theirs.logger.name_to_value
        for name, values in found.items():
            if len(values):
                assert values[0] == pytest.approx(logged[f"train/{name}"], rel=2e-5, abs=2e-6), (update, name)
        if algorithm == "sac" and theirs.log_ent_coef is not None:
            assert ours.log_ent_coef.item() == pytest.approx(theirs.log_ent_coef.item(), abs=1e-6)


@pytest.mark.parametrize("interval", [1, 2, 3])
def test_how_often_targets_move(interval: int) -> None:
    """As in SB3's ``train()``, which counts the updates of a call from 0."""
    theirs, ours = (model_of("sac", target_update_interval=interval, tau=0.3) for _ in range(2))
    learner, generator = learner_of(ours), np.random.default_rng(0)
    given = iter([replay(theirs, ROWS, generator) for _ in range(4)])
    theirs.replay_buffer.sample = lambda *_, **__: next(given)
    torch.manual_seed(0)
    theirs.train(4, ROWS)
    generator = np.random.default_rng(0)
    torch.manual_seed(0)
    learner.begin_round()
    batches = (batch_of(ours, learner, replay(ours, ROWS, generator)) for _ in range(4))
    moved: list[bool] = []
    last = [one.clone() for one in ours.critic_target.parameters()]
    found = learner.learn(watched(batches, ours.critic_target, last, moved), ours.tau, interval)
    assert len(found["critic_loss"]) == len(found["ent_coef_loss"]) == 4
    assert moved == [number % interval == 0 for number in range(3)]
    for mine, wanted in zip(ours.critic_target.parameters(), theirs.critic_target.parameters(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=0, atol=1e-4)


def watched(batches: Any, module: nn.Module, last: list[torch.Tensor], moved: list[bool]) -> Iterator[Any]:
    """The same batches; whether a module has other weights than before the last one is noted down."""
    for number, batch in enumerate(batches):
        now = [one.clone() for one in module.parameters()]
        if number:
            moved.append(not all(map(torch.equal, now, last)))
        last[:] = now
        yield batch


@pytest.mark.parametrize("kind", ["box", "dict"])
@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_apart(algorithm: str, kind: str) -> None:
    """With ``split`` the critics learn as ever, and the actor from the critics as they were before."""
    changed = {"policy_delay": 1} if algorithm == "td3" else {}
    models = {name: model_of(algorithm, kind, **changed) for name in ("usual", "split", "before")}
    for group in models["before"].critic.optimizer.param_groups:
        group["lr"] = 0.0  # so that its actor sees the critics as they were
    given = replay(models["usual"], ROWS, np.random.default_rng(0))
    found = {}
    for name, model in models.items():
        learner = learner_of(model, split=name == "split")
        torch.manual_seed(0)
        found[name] = learn(model, learner, given, 0)
    usual, split, before = models.values()
    assert all(map(torch.equal, split.critic.parameters(), usual.critic.parameters()))
    assert all(map(torch.equal, split.actor.parameters(), before.actor.parameters()))
    assert not all(map(torch.equal, split.actor.parameters(), usual.actor.parameters()))
    assert found["split"]["critic_loss"] == found["usual"]["critic_loss"]
    assert found["split"]["actor_loss"] == found["before"]["actor_loss"] != found["usual"]["actor_loss"]


@pytest.mark.parametrize("split", [False, True])
def test_what_is_asked_for_at_the_same_time(split: bool) -> None:
    model = model_of("td3", policy_delay=2)
    learner = learner_of(model, split)
    learner.begin_round()
    batches = [batch_of(model, learner, replay(model, ROWS, np.random.default_rng(0))) for _ in range(2)]
    updates, asked, statistics = learner.updates(batches, 0.01, 2, 0), [], None
    with contextlib.suppress(StopIteration):
        while tasks := updates.send(statistics):
            asked.append([task.loss for task in tasks])
            statistics = tuple(learner.gradients(task.loss, task.batch) for task in tasks)
    assert asked == ([[0], [0, 1]] if split else [[0], [0], [1]])


@pytest.mark.parametrize("case", ["SAC", "SAC, dict, shared", "TD3", "TD3, dict, shared"])
def test_losses_made_again(case: str) -> None:
    """From what travels, with the weights that it follows, they give the same gradients."""
    algorithm, kind, changed = CASES[case]
    model = model_of(algorithm, kind, **changed)
    learner, generator = learner_of(model), np.random.default_rng(0)
    learn(model, learner, replay(model, ROWS, generator), 1)  # whose last actions have a graph
    losses, module = pickle.loads(pickle.dumps(learner.loss_maker()))()
    assert not (module.critic_target.training or getattr(module, "actor_target", module.critic_target).training)
    learn(model, learner, replay(model, ROWS, generator), 1)
    batch = batch_of(model, learner, replay(model, ROWS, generator))
    for mine, other in zip(learner.losses, losses, strict=True):
        for name in mine.moving:
            setattr(other, name, getattr(mine, name))
        for source, flat in zip((mine.flat, *mine.follows), (other.flat, *other.follows), strict=True):
            flat.data.copy_(source.data)
        assert np.array_equal(mine.gradients(batch), other.gradients(batch))
        assert torch.equal(mine.flat.gradients, other.flat.gradients)


class OwnLogProb(Actor):
    def action_log_prob(self, obs: Any) -> Any:
        return super().action_log_prob(obs)


class OwnPolicy(SACPolicy):
    """Whose actor has an own way to say how likely its actions are."""

    def make_actor(self, features_extractor: Any = None) -> Any:
        return OwnLogProb(**self._update_features_extractor(self.actor_kwargs, features_extractor))


def test_what_is_refused() -> None:
    normalising = {"policy_kwargs": {"features_extractor_class": Normalising}}
    with pytest.raises(ValueError, match=r"'features_extractor.flatten.1' is batch normalisation"):
        learner_of(model_of("sac", **normalising))
    with pytest.raises(ValueError, match=r"split=True .* 'actor.features_extractor.flatten.1'"):
        learner_of(model_of("td3", **normalising), split=True)
    with pytest.raises(ValueError, match=r"StateDependentNoiseDistribution: the noise .* use_sde=False"):
        learner_of(model_of("sac", use_sde=True))
    policy, observed = OwnPolicy, SPACES["box"][1]
    with pytest.raises(ValueError, match=r"OwnLogProb .* override its get_action_dist_params"):
        learner_of(SAC(policy, Nothing(observed), buffer_size=10, device="cpu"))


@pytest.mark.parametrize("algorithm", ["sac", "td3"])
def test_a_spoilt_weight_is_seen_in_the_losses(algorithm: str) -> None:
    model = model_of(algorithm, policy_delay=1) if algorithm == "td3" else model_of(algorithm)
    learner, generator = learner_of(model), np.random.default_rng(0)
    assert all(np.isfinite(values).all() for values in learn(model, learner, replay(model, ROWS, generator), 0).values())
    with torch.no_grad():
        next(model.actor.parameters())[0, 0] = math.nan
    assert any(np.isnan(values).any() for values in learn(model, learner, replay(model, ROWS, generator), 1).values())
