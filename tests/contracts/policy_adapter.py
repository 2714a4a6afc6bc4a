"""The policies of today, as the checks of ``test_policy.py`` ask them: the one place that names today's classes.

A policy by itself is a :class:`Bound` one: weights and observations lie in arrays, and it reads them there. Who acts with policies
is a function in :data:`USERS`, by the doors that everybody takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from policy_cases import Agents, Array, Case, Gallery, MaskedGallery, Seen, policy_of
from stable_baselines3.common.policies import ActorCriticPolicy

from reactor_gymnasium import evaluate
from reactor_gymnasium.evaluation.asking import noise_of
from reactor_pettingzoo import MultiAgentRunner
from reactor_pettingzoo.learning import SyncIPPO
from reactor_pettingzoo.learning.joint_policy import JointPolicy
from reactor_rl.pickling import encode
from reactor_sb3.acting.actor_critic import MASKS, BoundSampledPolicy
from reactor_sb3.acting.epsilon_greedy import BoundEpsilonGreedy
from reactor_sb3.acting.player import PlayConfig, Player
from reactor_sb3.acting.policy import Rollout, Turn, act_alike
from reactor_sb3.acting.records import Observations
from reactor_sb3.acting.recurrent import RecurrentPolicy
from reactor_sb3.acting.squashed import BoundSquashedPolicy
from reactor_sb3.streams import Purpose, stream, torch_generator
from reactor_torch import TorchForward, parameter_record, torch_stream, write_parameters

Random = np.random.Generator


class Source(NamedTuple):
    """A policy without weights, and the module that has them."""

    policy: Any
    module: Any

    def weights(self) -> Array:
        """Its weights and buffers now, as arrays by name."""
        state = self.module.state_dict()
        record: Array = np.zeros((), parameter_record(state))
        write_parameters(record, state)
        return record


def source_of(model: Any) -> Source:
    """The policy of a trainer."""
    module, policy = model.acting()
    return Source(policy, module)


alike = act_alike
"""Whether two policies without weights are the same."""


def reason(policy: Any) -> str | None:
    """Why torch evaluates it, and not the extension; ``None`` if the extension does."""
    networks = getattr(policy, "networks", None) or getattr(policy, "q_net", None) or getattr(policy, "actor", None)
    return (networks.why or None) if isinstance(networks, TorchForward) else None


def fit(policy: Any, raw: Array) -> Array:
    """Actions as environments take them."""
    return raw if (bounds := getattr(policy, "bounds", None)) is None else bounds(raw)


class Bound:
    """A policy that reads weights and observations where they lie.

    Args:
        policy: The policy.
        weights: Its weights.
        seen: Observations.
        masks: What is allowed, ``(steps, rows, choices)``, bool.
    """

    def __init__(self, policy: Any, weights: Array, seen: Seen, masks: Array | None = None) -> None:
        steps, rows = self.shape = next(iter(seen.values())).shape[:2]
        if isinstance(policy, RecurrentPolicy):
            policy = replace(policy, steps=steps, sequence=steps)  # a round has whole sequences
        record = {one.name: np.zeros(((steps,) if one.per_step else ()) + (rows, *one.shape), one.dtype) for one in policy.fields}
        record |= {"rewards": np.zeros((steps, rows), np.float32)} | {
            name: np.zeros((steps, rows), np.bool_) for name in ("dones", "timeouts")
        }
        for name in record:
            if name.endswith(MASKS) and masks is not None:
                record[name][...] = masks.reshape(record[name].shape)
        self.policy, self.weights, self.seen = policy, weights, seen
        self.rollout = Rollout(record, seen, seen)
        self.bound = policy.bind(weights, self.rollout)
        self.memory = policy.memory(range(rows))

    def round(self, random: Random, between: Callable[[], Any] = lambda: None) -> Array:
        """Draw actions for all steps, ``(steps, rows, *shape)``.

        Args:
            random: Whose numbers are drawn.
            between: Called before each step.
        """
        turn = Turn(random, np.zeros(self.shape[0], np.float32), self.memory, 0, 1)
        act, end = self.bound.begin(turn), self.bound.end
        if self.policy.draws:
            own = torch_stream(torch_generator(random))
            act, end = own(act), own(end)
        found = []
        for step in range(self.shape[0]):
            between()
            found.append(np.array(act(step)))
        end(turn)
        return np.array(found)

    @property
    def raw(self) -> Array | None:
        """The actions of the last round as the policy has them, if environments are given others."""
        return self.rollout.get("policy_actions")

    @property
    def log_prob(self) -> Array | None:
        """Logarithms of the probabilities of its actions, ``(steps, rows)``, if the algorithm wants to know them."""
        return self.rollout.get("log_probs")

    @property
    def values(self) -> Array | None:
        """The critic's values in it, likewise."""
        return self.rollout.get("values")

    def modes(self) -> Array:
        """The best actions of all steps, ``(steps, rows, *shape)``."""
        return np.array([np.array(self.bound.greedy(step, self.memory)) for step in range(self.shape[0])])

    def outputs(self, step: int) -> Array:
        """What actions are chosen by, ``(rows, n)``; of a policy that remembers, its best actions."""
        match self.bound:
            case BoundSampledPolicy():
                found = self.bound.outputs(step)
            case BoundEpsilonGreedy():
                found = self.policy.q_net.bind(self.weights, self.seen)(step)
            case BoundSquashedPolicy():
                found = self.bound.actor.predict(step)
            case _:
                found = self.bound.greedy(step, self.policy.memory(range(self.shape[1])))
        return np.array(found)


# ---------------------------------------------------------------------- who acts

Draws = Random | int | None
"""Where actions are drawn from: a generator, for those that are given one; a seed; ``None`` for the best actions."""


def column(seen: Seen) -> Seen:
    """The only row, ``(steps, *shape)``."""
    return {key: part[:, 0] for key, part in seen.items()}


def by_actor(case: Case, model: Any, seen: Seen, masks: Array | None, draws: Draws, copies: int = 1) -> Array:
    """An actor, which has ``copies`` environments."""
    source = source_of(model)
    repeated = {key: np.repeat(part, copies, 1) for key, part in seen.items()}
    bound = Bound(source.policy, source.weights(), repeated, None if masks is None else np.repeat(masks, copies, 1))
    return _actions(bound, draws)


def _actions(bound: Bound, draws: Draws) -> Array:
    if draws is not None:
        return bound.round(np.random.default_rng(draws))
    if not bound.policy.draws:
        return bound.modes()
    with torch_stream(torch_generator(np.random.default_rng(0))):
        return bound.modes()


def by_player(case: Case, model: Any, seen: Seen, masks: Array | None, draws: Draws, copies: int = 1) -> Array:
    """Who evaluates while a trainer learns, one step after the other."""
    source, steps = source_of(model), len(next(iter(seen.values())))
    env = MaskedGallery if case.masked else Gallery
    make = encode(partial(env, case.observed, case.actions, column(seen), None if masks is None else masks[:, 0]))
    layout, drawn = Observations(case.observed, case.observed), draws is not None
    assert not isinstance(draws, Random)
    weights = source.weights()
    plan = PlayConfig(make, layout, source.policy, draws or 0, every=1, episodes=1, steps=steps, drawn=drawn)
    player = Player(plan, Purpose.EVALUATION, weights.dtype)
    try:
        player.begin(0, weights)
        Gallery.episodes.clear()
        player.play(steps, 1)
    finally:
        player.close()
    return _taken(steps, copies)


def by_evaluate(case: Case, model: Any, seen: Seen, masks: Array | None, draws: Draws, copies: int = 1) -> Array:
    """``evaluate``: as many episodes as there are copies."""
    steps = len(next(iter(seen.values())))
    env = MaskedGallery if case.masked else Gallery
    make = partial(env, case.observed, case.actions, column(seen), None if masks is None else masks[:, 0])
    assert not isinstance(draws, Random)
    Gallery.episodes.clear()
    evaluate(
        model, make, copies, seed=draws or 0, num_envs=copies, batch_size=1, executor="inline", deterministic=draws is None,
        progress_bar=False,
    )  # fmt: skip
    return _taken(steps, copies)


def by_runner(case: Case, model: Any, seen: Seen, masks: Array | None, draws: Draws, copies: int = 1) -> Array:
    """``MultiAgentRunner``."""
    steps = len(next(iter(seen.values())))
    make = partial(Agents, case.observed, case.actions, column(seen), None if masks is None else masks[:, 0])
    assert not isinstance(draws, Random)
    with MultiAgentRunner(make, model, num_envs=copies, executor="inline", deterministic=draws is None) as runner:
        report = runner.run(steps * copies, seed=draws or 0, record=True, progress_bar=False)
    return report.trajectories["actions.0"][:, :, 0]


def by_joint(case: Case, model: Any, seen: Seen, masks: Array | None, draws: Draws, copies: int = 1) -> Array:
    """An actor of many agents."""
    make = partial(Agents, case.observed, case.actions, column(seen), None if masks is None else masks[:, 0])
    network = case.small() | case.network
    many = SyncIPPO(case.kind, make, n_actors=1, seed=0, policy_kwargs=network, executor="inline", **case.more)
    (own,) = many.policy.agents.values()
    assert isinstance(own, ActorCriticPolicy)
    own.load_state_dict(policy_of(model).state_dict())
    if case.touch is not None:
        case.touch(own)
    source = source_of(many)
    assert isinstance(source.policy, JointPolicy)
    (block,) = many.seats.blocks
    repeated = {block.keys[part]: np.repeat(rows, copies, 1) for part, rows in seen.items()}
    bound = Bound(source.policy, source.weights(), repeated, None if masks is None else np.repeat(masks, copies, 1))
    return _actions(bound, draws)[block.policy][:, :, 0]


def _taken(steps: int, copies: int) -> Array:
    """The actions of the last whole episodes; environments are tried out before."""
    whole = [taken for taken in Gallery.episodes if len(taken) == steps]
    return np.stack([np.array(taken) for taken in whole[-copies:]], 1)


USERS: dict[str, Callable[..., Array]] = {
    "actor": by_actor, "player": by_player, "evaluate": by_evaluate, "runner": by_runner, "joint": by_joint,
}  # fmt: skip
"""From a case, its model, observations of one row, masks, where actions are drawn from and how many rows see the same
to actions ``(steps, copies, *shape)``."""

STREAMS: dict[str, Callable[[int], Random]] = {
    "actor": np.random.default_rng,
    "player": lambda seed: stream(seed, Purpose.EVALUATION, 0),
    "evaluate": lambda seed: noise_of(seed, 0),
    "runner": lambda seed: np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(0, 0)))),
    "joint": np.random.default_rng,
}
"""From a seed to the generator that the first row of a user draws from."""
