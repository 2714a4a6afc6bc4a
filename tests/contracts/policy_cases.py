"""Policies, the spaces that they act in, and what somebody has changed about them. A new kind is a new :class:`Case`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from pettingzoo import ParallelEnv
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn
from torch.distributions import Categorical, Distribution, Independent, Normal

from reactor_sb3 import PQN, SyncCrossQ, SyncDQN, SyncMaskablePPO, SyncPPO, SyncQRDQN, SyncRecurrentPPO, SyncSAC, SyncTD3, SyncTQC
from reactor_sb3.algorithms.sync_ars import SyncARS

Array = npt.NDArray[Any]
Seen = dict[str, Array]
"""Observations by key, ``(steps, rows, *shape)``; an observation that is an array has the key ``""``."""

VECTOR = spaces.Box(-3, 3, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (1, 36, 36), np.uint8)
ONE_HOT = spaces.Discrete(5)
KEYED = spaces.Dict(kind=spaces.Discrete(3), vector=VECTOR)
CHOICE, CHOICES, BITS = spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(3)
PARTS = spaces.Dict(bits=BITS, level=spaces.Box(-3, 3, (1,), np.int32), table=spaces.Box(-9, 9, (2, 2), np.float64), vector=VECTOR)
BOX = spaces.Box(np.array([-1.3, 0], np.float32), np.array([0.7, 2.1], np.float32))
ACTIONS: dict[str, spaces.Space[Any]] = {"choice": CHOICE, "choices": CHOICES, "bits": BITS, "box": BOX}

ALL = ("actor", "player", "evaluate", "runner", "joint")
"""Who asks policies for actions. ``joint`` is the actor of many agents."""
_BY_LIBRARY = ALL[:-1]


# ---------------------------------------------------------------------- environments that show what they are told to


def shown(seen: Seen, step: int, copy: bool = True) -> Any:
    """The observation of a step, of ``(steps, *shape)``."""
    parts = {key: np.array(part[step]) if part.ndim > 1 else part[step] for key, part in seen.items()}
    return parts.get("", parts)


class Gallery(gymnasium.Env[Any, Any]):
    """Shows observations one after the other, each once; its episode ends with the last one.

    Args:
        observed: The space of observations.
        actions: The space of actions.
        seen: What it shows, ``(steps, *shape)``; nothing if it is only looked at.
        masks: What it allows, ``(steps, choices)``.
    """

    episodes: list[list[Any]] = []
    """The actions of all episodes of all of them; whoever plays them empties it before."""

    def __init__(self, observed: Any, actions: Any, seen: Seen | None = None, masks: Array | None = None) -> None:
        self.observation_space, self.action_space, self.seen, self.masks = observed, actions, seen, masks

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t, self.taken = 0, []
        self.episodes.append(self.taken)
        assert self.seen is not None
        self.steps = len(next(iter(self.seen.values())))
        return shown(self.seen, 0), {}

    def step(self, action: Any) -> Any:
        assert self.seen is not None
        self.taken.append(np.array(action))
        self.t += 1
        return shown(self.seen, self.t % self.steps), 0.0, False, self.t == self.steps, {}


class MaskedGallery(Gallery):
    """One that says which choices are allowed."""

    def action_masks(self) -> Any:
        return np.ones(sum(choices_of(self.action_space)), np.bool_) if self.masks is None else self.masks[self.t % len(self.masks)]


class Agents(ParallelEnv):
    """The same for one agent."""

    metadata = {"name": "agents"}
    possible_agents = ["it"]

    def __init__(self, observed: Any, actions: Any, seen: Seen, masks: Array | None = None) -> None:
        self.observed, self.actions, self.seen, self.masks = observed, actions, seen, masks

    def observation_space(self, agent: str) -> Any:
        return self.observed

    def action_space(self, agent: str) -> Any:
        return self.actions

    def _told(self) -> tuple[Any, Any]:
        step = self.t % len(next(iter(self.seen.values())))
        info = {} if self.masks is None else {"action_mask": self.masks[step].astype(np.int8)}
        return {"it": shown(self.seen, step)}, {"it": info}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.t = ["it"], 0
        return self._told()

    def step(self, actions: Any) -> Any:
        self.t += 1
        seen, infos = self._told()
        return seen, {"it": 0.0}, {"it": False}, {"it": False}, infos

    def close(self) -> None:
        """Nothing to end."""


def choices_of(space: Any) -> list[int]:
    """Among how many is chosen, for each choice of an action."""
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(space.n)
    return [int(space.n)] if isinstance(space, spaces.Discrete) else space.nvec.tolist()


# ---------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Case:
    """A policy: how it is made, and the spaces that it acts in.

    Attributes:
        make: A class of trainers, or a function that makes a module of torch for the spaces.
        actions: The space of actions.
        observed: The space of observations.
        kind: The policy that the trainer makes.
        network: Arguments of the policy.
        more: Arguments of the trainer.
        touch: What somebody has done to the policy after it was made.
        plain: Whether it is what its library has written, of layers that are evaluated without torch.
        draws: Whether its actions are drawn.
        users: Who acts with it. The first one stands for all, where one does.
    """

    make: Callable[..., Any]
    actions: Any
    observed: Any = field(default_factory=lambda: VECTOR)
    kind: Any = "MlpPolicy"
    network: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    touch: Callable[[Any], None] | None = None
    plain: bool = True
    draws: bool = True
    users: tuple[str, ...] = _BY_LIBRARY

    @property
    def masked(self) -> bool:
        """Whether it is told which choices are allowed."""
        return self.make is SyncMaskablePPO

    @property
    def remembers(self) -> bool:
        """Whether an answer depends on earlier observations."""
        return self.make is SyncRecurrentPPO

    @property
    def judged(self) -> bool:
        """Whether what learns wants to know the probabilities of its actions, and values."""
        return self.make in (SyncPPO, SyncMaskablePPO, SyncRecurrentPPO)

    @property
    def touched(self) -> bool:
        """Whether somebody has changed it."""
        return self.touch is not None or not isinstance(self.kind, str)

    @property
    def exported(self) -> bool:
        """Whether there is a trainer whose observations are one array: nothing else is exported."""
        return self.trainer and not isinstance(self.observed, spaces.Dict)

    @property
    def trainer(self) -> bool:
        """Whether there is a trainer, whose policy it is."""
        return isinstance(self.make, type) and not issubclass(self.make, nn.Module)

    def made(self) -> Any:
        """A trainer, or a module, with weights that make it choose this and that."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            if not self.trainer:
                made = self.make(self.observed, self.actions)
            else:
                env = partial(MaskedGallery if self.masked else Gallery, self.observed, self.actions)
                network = self.small() | self.network
                made = self.make(
                    self.kind, env, n_actors=1, seed=0, policy_kwargs=network, executor="inline", device="cpu", **self.more
                )
                if hasattr(made, "exploration_rate"):
                    made.exploration_rate = 0.0
            disturb(module := policy_of(made))
            if self.touch is not None:
                self.touch(module)
        return made

    def small(self) -> dict[str, Any]:
        """Arguments for a small network."""
        if "Cnn" in str(self.kind):
            return {"net_arch": [8], "features_extractor_kwargs": {"features_dim": 8}}
        found: dict[str, Any] = {"net_arch": [16, 16]}
        return found | ({"lstm_hidden_size": 8} if self.remembers else {})

    def seen(self, steps: int, rows: int, seed: int = 1) -> Seen:
        """Observations of its space."""
        random = np.random.default_rng(seed)

        def drawn(space: Any) -> Array:
            shape = (steps, rows, *space.shape)
            if isinstance(space, spaces.Discrete):
                return random.integers(space.n, size=shape)
            if isinstance(space, spaces.MultiBinary):
                return random.integers(2, size=shape, dtype=np.int8)
            if space.dtype == np.uint8:
                return random.integers(256, size=shape, dtype=np.uint8)
            return random.uniform(-3, 3, shape).astype(space.dtype)

        parts = dict(self.observed.spaces) if isinstance(self.observed, spaces.Dict) else {"": self.observed}
        return {key: drawn(space) for key, space in parts.items()}

    def masks(self, steps: int, rows: int, seed: int = 2) -> Array | None:
        """Masks for these, if it is told any: of each choice one thing at least is allowed."""
        if not self.masked:
            return None
        random, sizes = np.random.default_rng(seed), choices_of(self.actions)
        parts = []
        for size in sizes:
            part = random.random((steps, rows, size)) < 0.5
            np.put_along_axis(part, random.integers(size, size=(steps, rows, 1)), True, -1)
            parts.append(part)
        return np.concatenate(parts, -1)


def disturb(module: nn.Module) -> None:
    """Move weights, which SB3 makes so small that all actions are as likely, and buffers, which layers normalise by.

    Those of convolutions, whose sums are long, by less: else what is left of large numbers says more of rounding than of policies.
    """
    with torch.no_grad():
        for one in module.parameters():
            far = 0.3 if one.dim() < 3 else 0.3 * min(1.0, (512 / one[0].numel()) ** 0.5)
            one.add_(far * torch.randn(one.shape))
        for one in module.buffers():
            if one.is_floating_point():
                one.add_(0.3 * torch.rand(one.shape))


def policy_of(made: Any) -> Any:
    """The policy of a trainer, or the module itself."""
    return made if isinstance(made, nn.Module) else made.policy


# ---------------------------------------------------------------------- what somebody has changed


def backwards(module: nn.Module, given: Any, found: torch.Tensor) -> torch.Tensor:
    """A hook that turns round what a module gives."""
    return found.flip(-1)


class Backwards:
    """A ``forward`` for a linear layer, which gives it the other way round."""

    def __init__(self, layer: nn.Linear) -> None:
        self.layer = layer

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(given, self.layer.weight, self.layer.bias).flip(-1)


def hooked(path: str) -> Callable[[Any], None]:
    """Hang a hook onto a part of a policy."""
    return lambda policy: policy.get_submodule(path).register_forward_hook(backwards) and None


def replaced(path: str) -> Callable[[Any], None]:
    """Give a linear layer of a policy another ``forward``."""

    def touch(policy: Any) -> None:
        layer = policy.get_submodule(path)
        layer.forward = Backwards(layer)

    return touch


def saturate(path: str) -> Callable[[Any], None]:
    """Let a policy say the largest of each number: only weights are others."""

    def touch(policy: Any) -> None:
        with torch.no_grad():
            policy.get_submodule(path).bias.add_(40)

    return touch


class OwnFeatures(ActorCriticPolicy):
    """Which looks at observations in a way of its own."""

    def extract_features(self, obs: Any, features_extractor: Any = None) -> Any:
        return super().extract_features(obs, features_extractor).flip(-1)  # type: ignore[union-attr]


class OwnPrediction(ActorCriticPolicy):
    """Whose best actions are others."""

    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        found = super()._predict(observation, deterministic)
        return 2 - found if deterministic else found


class OwnMasked(MaskableActorCriticPolicy):
    """Which looks at observations in a way of its own."""

    def extract_features(self, obs: Any, features_extractor: Any = None) -> Any:
        return super().extract_features(obs, features_extractor).flip(-1)


# ---------------------------------------------------------------------- modules of torch


def scores(observed: Any, actions: Any) -> nn.Module:
    """Scores of actions."""
    return nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, int(actions.n)))


def numbers(observed: Any, actions: Any) -> nn.Module:
    """Actions of a ``Box``."""
    return nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))


class Choosing(nn.Module):
    """Returns a distribution of choices."""

    def __init__(self, observed: Any, actions: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(3, int(actions.n))

    def forward(self, observations: torch.Tensor) -> Distribution:
        return Categorical(logits=self.layer(observations))


class Spread(nn.Module):
    """Returns a distribution of numbers."""

    def __init__(self, observed: Any, actions: Any) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, observations: torch.Tensor) -> Distribution:
        mean = self.layer(observations)
        return Independent(Normal(mean, torch.full_like(mean, 0.5)), 1)


# ---------------------------------------------------------------------- cases

ELU: dict[str, Any] = {"activation_fn": nn.ELU}
_Q = {"draws": False}
_QUANTILES = {"n_quantiles": 5}
_NOISY: dict[str, Any] = {"use_sde": True, "sde_sample_freq": 4}
CASES: dict[str, Case] = {
    **{
        f"ppo {of}, {seen}": Case(SyncPPO, ACTIONS[of], users=ALL, **how)
        for seen, how in {
            "dense": {},
            "image": {"observed": IMAGE, "kind": "CnnPolicy"},
            "dict": {"observed": KEYED, "kind": "MultiInputPolicy", "plain": False},
            "parts": {"observed": PARTS, "kind": "MultiInputPolicy"},
            "elu": {"network": ELU, "plain": False},
        }.items()
        for of in ACTIONS
    },
    "ppo choice, one-hot": Case(SyncPPO, CHOICE, ONE_HOT, users=ALL),
    "ppo box, apart": Case(
        SyncPPO, BOX, IMAGE, "CnnPolicy", {"share_features_extractor": False}, plain=False, users=ALL
    ),
    "masked choice": Case(SyncMaskablePPO, CHOICE, users=ALL),
    "masked choices": Case(SyncMaskablePPO, CHOICES, users=ALL),
    "masked bits": Case(SyncMaskablePPO, BITS, users=ALL[:3]),
    "masked choices, elu": Case(SyncMaskablePPO, CHOICES, network=ELU, plain=False, users=ALL),
    "gsde": Case(SyncPPO, BOX, more=_NOISY),
    "gsde, elu": Case(SyncPPO, BOX, network=ELU, more=_NOISY, plain=False),
    "gsde, sac": Case(SyncSAC, BOX, more=_NOISY),
    "gsde, sac, elu": Case(SyncSAC, BOX, network=ELU, more=_NOISY, plain=False),
    "gsde, tqc": Case(SyncTQC, BOX, network=_QUANTILES, more=_NOISY),
    "gsde, crossq": Case(SyncCrossQ, BOX, more=_NOISY),
    "sac, gsde of each step": Case(
        SyncSAC, BOX, network={"use_expln": True, "log_std_init": 0.1, "clip_mean": 0.1}, more=_NOISY | {"sde_sample_freq": 1}
    ),
    "lstm choice": Case(SyncRecurrentPPO, CHOICE, kind="MlpLstmPolicy", users=_BY_LIBRARY[:-1]),
    "lstm box": Case(SyncRecurrentPPO, BOX, kind="MlpLstmPolicy", users=_BY_LIBRARY[:-1]),
    "lstm choice, elu": Case(
        SyncRecurrentPPO, CHOICE, kind="MlpLstmPolicy", network=ELU, plain=False, users=_BY_LIBRARY[:-1]
    ),
    "dqn": Case(SyncDQN, CHOICE, **_Q),
    "dqn, image": Case(SyncDQN, CHOICE, IMAGE, "CnnPolicy", **_Q),
    "dqn, one-hot": Case(SyncDQN, CHOICE, ONE_HOT, **_Q),
    "dqn, parts": Case(SyncDQN, CHOICE, PARTS, "MultiInputPolicy", {"net_arch": [32]}, **_Q),
    "dqn, elu": Case(SyncDQN, CHOICE, network=ELU, plain=False, **_Q),
    "pqn": Case(PQN, CHOICE, network={"net_arch": [16]}, users=ALL[:2], **_Q),
    "qrdqn": Case(SyncQRDQN, CHOICE, network=_QUANTILES, **_Q),
    "sac": Case(SyncSAC, BOX),
    "sac, parts": Case(SyncSAC, BOX, PARTS, "MultiInputPolicy"),
    "sac, elu": Case(SyncSAC, BOX, network=ELU, plain=False),
    "tqc": Case(SyncTQC, BOX, network=_QUANTILES),
    "crossq": Case(SyncCrossQ, BOX),
    "td3": Case(SyncTD3, BOX, **_Q),
    "td3, parts": Case(SyncTD3, BOX, PARTS, "MultiInputPolicy", **_Q),
    "td3, elu": Case(SyncTD3, BOX, network=ELU, plain=False, **_Q),
    "ars box": Case(SyncARS, BOX, **_Q),
    "ars choice": Case(SyncARS, CHOICE, **_Q),
    "ars, elu": Case(SyncARS, BOX, network=ELU, plain=False, **_Q),
    "sac at its bounds": Case(SyncSAC, BOX, touch=saturate("actor.mu")),
    "td3 at its bounds": Case(SyncTD3, BOX, touch=saturate("actor.mu.4"), **_Q),
}  # fmt: skip

_MODULES = ("evaluate", "runner")
CASES |= {
    "module of scores": Case(scores, CHOICE, users=_MODULES),
    "module of scores from 2": Case(scores, spaces.Discrete(3, start=2), users=_MODULES),
    "module of numbers": Case(numbers, BOX, draws=False, users=_MODULES),
    "module, choosing": Case(Choosing, CHOICE, plain=False, users=("runner",)),
    "module, spread": Case(Spread, BOX, plain=False, users=("runner",)),
}

TOUCHED = {
    "ppo choice, dense": {
        "hook": hooked("action_net"),
        "hook of features": hooked("features_extractor"),
        "forward": replaced("mlp_extractor.policy_net.0"),
    },
    "dqn, parts": {"hook of a part": hooked("q_net.features_extractor.extractors.table")},
    "ppo choice, image": {"hook": hooked("action_net")},
    "masked choices": {"hook": hooked("action_net")},
    "gsde": {"forward": replaced("action_net")},
    "lstm choice": {"hook": hooked("action_net")},
    "dqn": {"hook": hooked("q_net.q_net.0"), "hook of all": hooked("q_net"), "forward": replaced("q_net.q_net.2")},
    "qrdqn": {"hook": hooked("quantile_net.quantile_net.4")},
    "sac": {"hook": hooked("actor.mu"), "hook of all": hooked("actor")},
    "tqc": {"forward": replaced("actor.mu")},
    "crossq": {"hook": hooked("actor.mu")},
    "td3": {"hook": hooked("actor.mu.0"), "hook of all": hooked("actor")},
    "module of scores": {"hook": hooked("0")},
}
"""What somebody has done to a policy, by the name of the untouched one."""
CASES |= {
    f"{name}: {what}": replace(CASES[name], touch=touch, plain=False)
    for name, touches in TOUCHED.items()
    for what, touch in touches.items()
}
CASES |= {
    "ppo choice: own features": replace(CASES["ppo choice, dense"], kind=OwnFeatures, plain=False),
    "ppo choice: own prediction": replace(CASES["ppo choice, dense"], kind=OwnPrediction, plain=False),
    "masked choice: own features": replace(CASES["masked choice"], kind=OwnMasked, plain=False, users=_BY_LIBRARY),
}


@cache
def made(name: str) -> Any:
    """The trainer or module of a case. Nobody changes it."""
    return CASES[name].made()
