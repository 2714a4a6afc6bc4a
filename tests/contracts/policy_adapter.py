"""Policies as the checks of ``test_policy.py`` ask them, and everybody who acts with them.

A policy by itself is a :class:`Bound` one: weights and observations lie in arrays, and it reads them there. Who acts with policies
is a function in :data:`USERS`, by the doors that everybody takes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from policy_cases import Agents, Array, Case, Gallery, MaskedGallery, Seen, policy_of
from stable_baselines3.common.policies import ActorCriticPolicy

from reactor_gymnasium import evaluate
from reactor_gymnasium.evaluation.asking import noise_of
from reactor_pettingzoo import MultiAgentRunner
from reactor_pettingzoo.learning import SyncIPPO
from reactor_pettingzoo.learning.joint_policy import JointPolicy
from reactor_rl.pickling import encode
from reactor_sb3.acting.behaviours import MASKS, Rollout, Turn
from reactor_sb3.acting.player import PlayConfig, Player
from reactor_sb3.acting.records import Observations
from reactor_sb3.streams import Purpose, stream, torch_generator
from reactor_torch import OneStream, Policy, Source, as_policy, parameter_record, tensors_of, torch_stream, write_parameters

Random = np.random.Generator
T = TypeVar("T")


def source_of(model: Any) -> Source:
    """The policy of a trainer."""
    found = as_policy(model)
    assert found is not None
    return found


def fit(policy: Policy, raw: Array) -> Array:
    """Actions as environments take them."""
    return raw if policy.fitting is None else policy.fitting(raw)


class Bound:
    """A policy that reads weights and observations where they lie.

    Args:
        policy: The policy.
        weights: Its weights.
        seen: Observations.
        masks: What is allowed, ``(steps, rows, choices)``, bool.

    Attributes:
        raw: The actions of the last round as the policy has them, if environments are given others.
        log_prob: Logarithms of the probabilities of its actions, ``(steps, rows)``, if there are any.
        values: The critic's values in it, likewise.
    """

    def __init__(self, policy: Policy, weights: Array, seen: Seen, masks: Array | None = None) -> None:
        steps, rows = self.shape = next(iter(seen.values())).shape[:2]
        starts = np.zeros((steps, rows), np.bool_)
        self.policy, self.weights = policy, weights
        self.bound = policy.bind(weights, seen, masks=masks, starts=starts, noting=True)
        self.raw: Array | None = None
        self.log_prob: Array | None = None
        self.values: Array | None = None

    def round(self, random: Random, between: Callable[[], Any] = lambda: None) -> Array:
        """Draw actions for all steps of episodes that begin, ``(steps, rows, *shape)``.

        Args:
            random: Whose numbers are drawn.
            between: Called before each step.
        """
        self.bound.state[...] = 0
        draw = self.bound.begin(OneStream(random))
        if self.policy.draws:
            draw = torch_stream(torch_generator(random))(draw)
        found = []
        for step in range(self.shape[0]):
            between()
            found.append(np.array(draw(step)))
        raw = np.array(found)
        self.raw = None if self.policy.fitting is None else raw
        self.log_prob, self.values = _known(lambda: self.bound.log_prob(raw)), _known(self.bound.values)
        return np.array([fit(self.policy, one) for one in raw])

    def modes(self) -> Array:
        """The best actions of all steps, ``(steps, rows, *shape)``."""
        self.bound.state[...] = 0
        return np.array([fit(self.policy, np.array(self.bound.mode(step))) for step in range(self.shape[0])])

    def outputs(self, step: int) -> Array:
        """What actions are chosen by, ``(rows, n)``."""
        return np.array(self.bound.outputs(step))


def _known(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except TypeError:
        return None


def acted(model: Any, seen: Seen, masks: Array | None, draws: Draws) -> Array:
    """What an actor of a trainer does, which begins with new episodes: ``(steps, rows, *shape)``."""
    module, behaviour = model.acting()
    state = tensors_of(module)
    weights: Array = np.zeros((), parameter_record(state))
    write_parameters(weights, state)
    steps, rows = next(iter(seen.values())).shape[:2]
    record = {one.name: np.zeros(((steps,) if one.per_step else ()) + (rows, *one.shape), one.dtype) for one in behaviour.fields}
    record |= {name: np.zeros((steps, rows), np.bool_) for name in ("dones", "timeouts")}
    record["rewards"] = np.zeros((steps, rows), np.float32)
    for name in record:
        if name.endswith(MASKS) and masks is not None:
            record[name][...] = masks.reshape(record[name].shape)
    bound, memory = behaviour.bind(weights, Rollout(record, seen, seen)), behaviour.memory(range(rows))
    random = np.random.default_rng(0 if draws is None else draws)
    turn = Turn(random, np.zeros(steps, np.float32), memory, 0, 1)
    act, end = (lambda step: bound.greedy(step, memory), lambda turn: None) if draws is None else (bound.begin(turn), bound.end)
    if behaviour.draws:
        own = torch_stream(torch_generator(random))
        act, end = own(act), own(end)
    found = np.array([np.array(act(step)) for step in range(steps)])
    end(turn)
    return found


# ---------------------------------------------------------------------- who acts

Draws = Random | int | None
"""Where actions are drawn from: a generator, for those that are given one; a seed; ``None`` for the best actions."""


def column(seen: Seen) -> Seen:
    """The only row, ``(steps, *shape)``."""
    return {key: part[:, 0] for key, part in seen.items()}


def by_actor(case: Case, model: Any, seen: Seen, masks: Array | None, draws: Draws, copies: int = 1) -> Array:
    """An actor, which has ``copies`` environments."""
    repeated = {key: np.repeat(part, copies, 1) for key, part in seen.items()}
    return acted(model, repeated, None if masks is None else np.repeat(masks, copies, 1), draws)


def by_player(case: Case, model: Any, seen: Seen, masks: Array | None, draws: Draws, copies: int = 1) -> Array:
    """Who evaluates while a trainer learns, one step after the other."""
    source, behaviour, steps = source_of(model), model.acting()[1], len(next(iter(seen.values())))
    env = MaskedGallery if case.masked else Gallery
    make = encode(partial(env, case.observed, case.actions, column(seen), None if masks is None else masks[:, 0]))
    layout, drawn = Observations(case.observed, case.observed), draws is not None
    assert not isinstance(draws, Random)
    weights = source.weights()
    plan = PlayConfig(make, layout, behaviour, draws or 0, every=1, episodes=1, steps=steps, drawn=drawn)
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
    assert isinstance(many.acting()[1], JointPolicy)
    (block,) = many.seats.blocks
    repeated = {block.keys[part]: np.repeat(rows, copies, 1) for part, rows in seen.items()}
    return acted(many, repeated, None if masks is None else np.repeat(masks, copies, 1), draws)[block.policy][:, :, 0]


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
