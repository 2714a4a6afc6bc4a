"""One table of odd environments for everybody who reads a PettingZoo step: all say the same of each, or refuse it alike."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import odd_envs as odd
import pytest
from gymnasium import spaces
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from runner_envs import message, ran

from reactor_pettingzoo import MultiAgentRunner, ParallelVectorEnv, RandomPolicy, evaluate, tournament
from reactor_pettingzoo.agents import probe_agents
from reactor_pettingzoo.learning import SyncIPPO
from reactor_pettingzoo.learning.seated_unit import JointMaker
from reactor_pettingzoo.learning.seats import seats_of
from reactor_rl import ProgramError


@dataclass
class Reading:
    """The first episode: the return of each agent that took part, its steps where they are told, and whether it was terminated."""

    returns: dict[Any, float]
    lengths: dict[Any, int] = field(default_factory=dict)
    terminated: bool | None = None


def acts(observations: Any, masks: Any = None) -> Any:
    """The last legal action, the same for all rows without masks."""
    if masks is None:
        return np.ones(len(observations), np.int64)
    return masks.shape[1] - 1 - np.asarray(masks)[:, ::-1].argmax(1)


def acts_in_parts(nvec: Any, observations: Any, masks: Any = None) -> Any:
    """The last legal choice of each part."""
    if masks is None:
        return np.ones((len(observations), len(nvec)), np.int64)
    return np.stack([acts(observations, part) for part in np.split(np.asarray(masks), np.cumsum(nvec)[:-1], 1)], 1)


def policy_for(env_fn: Any) -> Any:
    space = env_fn().actions if hasattr(env_fn, "actions") else None
    if isinstance(space, spaces.MultiDiscrete):
        return partial(acts_in_parts, space.nvec)
    start = int(getattr(space, "start", 0))
    return lambda observations, masks=None: acts(observations, masks) + start


def by_runner(env_fn: Any) -> Reading:
    episode = ran(env_fn, policy_for(env_fn), 2, episodes=2).episodes[0]
    return Reading(dict(episode.returns), dict(episode.lengths))


def by_evaluation(env_fn: Any) -> Reading:
    report = evaluate(policy_for(env_fn), env_fn, episodes=2, executor="inline", max_steps=40)
    returns = {name.removeprefix("return."): float(totals[0]) for name, totals in report.infos.items()}
    agents = {str(agent): agent for agent in probe_agents(env_fn).agents}
    assert sum(returns.values()) == report.returns[0]
    return Reading({agents[name]: total for name, total in returns.items()}, {}, bool(report.terminated[0]))


def by_trainer(env_fn: Any) -> Reading:
    specs = probe_agents(env_fn)
    env = JointMaker(env_fn, seats_of(specs, dict.fromkeys(specs.agents, "all")))()
    lengths = dict.fromkeys(specs.agents, 0)
    env.reset(seed=0)
    for _ in range(40):
        for agent, there in zip(specs.agents, env.unit.columns["acting"].tolist(), strict=True):
            lengths[agent] += there
        _, _, terminated, truncated, info = env.step({"all": np.zeros(env.action_space["all"].shape, np.int64)})
        if terminated or truncated:
            told = info["episode"]
            there = {agent: told[str(agent)] for agent in specs.agents if str(agent) in told}
            return Reading(there, {agent: lengths[agent] for agent in there}, terminated)
    raise AssertionError("no end in 40 steps")


def by_vector_env(env_fn: Any) -> Reading:
    with ParallelVectorEnv(env_fn, 1, executor="inline", autoreset_mode="Disabled") as envs:
        _, infos = envs.reset(seed=0)
        returns: dict[Any, float] = {}
        lengths: dict[Any, int] = {}
        padded = infos.get("padded", np.zeros(len(envs.agents), bool))
        acting = {agent for agent, nobody in zip(envs.agents, padded, strict=True) if not nobody}
        actions: Any = np.zeros((len(envs.agents), *envs.single_action_space.shape), np.int64)
        for _ in range(40):
            _, rewards, terminations, truncations, infos = envs.step(actions + envs.single_action_space.start)
            now = infos.get("padded", np.zeros(len(envs.agents), bool))
            for row, agent in enumerate(envs.agents):
                if now[row]:
                    assert not rewards[row]
                else:
                    returns[agent] = returns.get(agent, 0.0) + float(rewards[row])
                    lengths[agent] = lengths.get(agent, 0) + int(agent in acting)
            acting = {agent for row, agent in enumerate(envs.agents) if not (now[row] or terminations[row] or truncations[row])}
            if (terminations | truncations).all():
                return Reading(returns, lengths)
    raise AssertionError("no end in 40 steps")


READERS: dict[str, Callable[[Any], Reading]] = {
    "runner": by_runner, "evaluation": by_evaluation, "trainer": by_trainer, "vector": by_vector_env,
}  # fmt: skip
IN_TURNS = {name: reader for name, reader in READERS.items() if name != "vector"}
PLAIN = {"ant": 4.0, "bee": 8.0}
ARRAY: Any = lambda names: np.array(list(names))  # noqa: E731


def every(change: Any) -> Any:
    """All that a step and a reset return, changed."""
    return odd.returned_by(lambda *parts: tuple(map(change, parts)), lambda *parts: tuple(map(change, parts)))


PLAYED: dict[str, tuple[Any, dict[Any, float], dict[Any, int] | None, bool]] = {
    # The environment, the returns, the lengths where they are not four steps each, and whether the episode was terminated.
    "plain": (odd.Plain, PLAIN, None, False),
    "numbers as ids": (odd.Numbered, {7: 4.0, 2: 8.0}, {7: 4, 2: 4}, False),
    "known after a reset": (odd.Late, PLAIN, None, False),
    "not listed": (odd.Unlisted, PLAIN, None, False),
    "listed in a set": (odd.OfASet, PLAIN, None, False),
    "in another order": (odd.Shuffled, PLAIN, None, False),
    "an array of agents": (odd.named_by(ARRAY), PLAIN, None, False),
    "a tuple of agents": (odd.named_by(tuple), PLAIN, None, False),
    "a set of agents": (odd.named_by(set), PLAIN, None, False),
    "a dict of agents": (odd.named_by(dict.fromkeys), PLAIN, None, False),
    "never there": (odd.Absent, {"ant": 4.0}, {"ant": 4}, False),
    "joins": (odd.Joining, {"ant": 4.0, "bee": 6.0}, {"ant": 4, "bee": 2}, False),
    "dies, and is paid": (odd.Leaving, {"ant": 2.0, "bee": 8.0}, {"ant": 2, "bee": 4}, False),
    "dies unseen": (odd.Unseen, {"ant": 2.0, "bee": 8.0}, {"ant": 2, "bee": 4}, True),
    "cut off, and won": (odd.CutAndWon, {"ant": 2.0, "bee": 8.0}, {"ant": 2, "bee": 4}, True),
    "won, and cut off": (odd.WonAndCut, {"ant": 2.0, "bee": 8.0}, {"ant": 2, "bee": 4}, False),
    "all have ended and stay": (odd.Lingering, PLAIN, None, False),
    "a reset without options": (odd.Older, PLAIN, None, False),
    "lists of parts": (odd.returned_by(lambda *parts: list(parts), lambda *parts: list(parts)), PLAIN, None, False),
    "generators of parts": (odd.returned_by(lambda *parts: iter(parts), lambda *parts: iter(parts)), PLAIN, None, False),
    "no infos": (odd.returned_by(lambda *parts: (*parts[:4], None), lambda seen, _: (seen, None)), PLAIN, None, False),
    "infos of nobody": (odd.returned_by(lambda *parts: (*parts[:4], {})), PLAIN, None, False),
    "infos of None": (odd.returned_by(lambda *parts: (*parts[:4], dict.fromkeys(parts[0]))), PLAIN, None, False),
    "dicts of another class": (every(odd.Frozen), PLAIN, None, False),
    "mappings": (every(odd.CHAINED), PLAIN, None, False),
    "ordered dicts": (every(odd.ORDERED), PLAIN, None, False),
    "flags by default": (
        odd.returned_by(lambda seen, paid, *rest: (seen, odd.DEFAULTS(paid), *map(odd.DEFAULTS, rest[:2]), rest[2])),
        PLAIN, None, False,
    ),
    "flags of others": (
        odd.returned_by(lambda seen, paid, ends, cuts, infos: (
            odd.extra(seen, np.zeros(7)), odd.extra(paid, 50.0), odd.extra(ends, True), odd.extra(cuts, True),
            odd.extra(infos, {"x": 1}),
        )), PLAIN, None, False,
    ),
    "flags of numbers": (
        odd.returned_by(lambda seen, paid, ends, cuts, infos: (
            seen, paid, {a: int(one) for a, one in ends.items()}, {a: np.bool_(one) for a, one in cuts.items()}, infos
        )), PLAIN, None, False,
    ),
    "rewards of arrays": (odd.paid_by(lambda paid: np.array([paid], np.float32)), PLAIN, None, False),
    "rewards of 0-d arrays": (odd.paid_by(np.array), PLAIN, None, False),
    "rewards of lists": (odd.paid_by(lambda paid: [[paid]]), PLAIN, None, False),
    "rewards of another type": (odd.paid_by(np.float16), PLAIN, None, False),
    "rewards of whole numbers": (odd.paid_by(int), PLAIN, None, False),
}  # fmt: skip


def cells(table: Iterable[str], readers: Iterable[str] = READERS) -> Any:
    """Each row of a table for each reader; in the default set each row is read by one of them, in turn."""
    who = list(readers)
    cases = [
        pytest.param(name, reader, id=f"{name}-{reader}", marks=() if (number + at) % len(who) == 0 else pytest.mark.slow)
        for number, name in enumerate(table)
        for at, reader in enumerate(who)
    ]
    return pytest.mark.parametrize(("name", "reader"), cases)


@cells(PLAYED)
def test_all_read_the_same(name: str, reader: str) -> None:
    env_fn, returns, lengths, terminated = PLAYED[name]
    found = READERS[reader](env_fn)
    assert found.returns == returns
    assert not found.lengths or found.lengths == (lengths or dict.fromkeys(returns, 4))
    assert found.terminated in (None, terminated)


def _delete(part: str) -> Any:
    at = ("observations", "rewards", "terminations", "truncations").index(part)
    return odd.in_step(2, lambda env, *parts: parts[at].pop("bee"))


def _agents(change: Any) -> Any:
    return odd.in_step(2, lambda env, *parts: setattr(env, "agents", change(env.agents)))


class Returning(odd.Leaving):
    def told(self, there: list[Any]) -> list[Any]:
        found = odd.Plain.told(self, there)
        if self.t == 3:
            found[0]["ant"] = self.seen("ant")
            self.agents = ["ant", "bee"]
        return found


class Forgotten(odd.Plain):
    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seen, infos = super().reset()
        return {"ant": seen["ant"]}, infos


REFUSED: dict[str, tuple[Any, tuple[str, ...]]] = {
    # The environment, and what every refusal says.
    "an observation is missing": (_delete("observations"), ("observation", "for agent 'bee'")),
    "a first observation is missing": (Forgotten, ("observation", "for agent 'bee'")),
    "an observation is None": (odd.in_step(2, lambda env, seen, *_: seen.update(bee=None)), ("observation", "for agent 'bee'")),
    "a reward is missing": (_delete("rewards"), ("returned no reward for agent 'bee'",)),
    "a flag is missing": (_delete("terminations"), ("returned no termination for agent 'bee'",)),
    "the other flag is missing": (_delete("truncations"), ("returned no truncation for agent 'bee'",)),
    "rewards of several numbers": (odd.paid_by(lambda paid: np.array([paid, 1])), ("the reward of agent 'ant' must be a number",)),
    "flags of several": (
        odd.returned_by(lambda seen, paid, ends, *rest: (seen, paid, dict.fromkeys(ends, np.array([True, False])), *rest)),
        ("the flags of agent 'ant' must be True or False",),
    ),
    "rewards of text": (odd.paid_by(str), ("the reward of agent 'ant' must be a number",)),
    "rewards of None": (odd.paid_by(lambda paid: None), ("the reward of agent 'ant' must be a number",)),
    "leaves without an end": (_agents(lambda names: ["ant"]), ("agent 'bee' left env.agents without being terminated",)),
    "comes back": (Returning, ("agent 'ant' came back within an episode",)),
    "stays": (odd.in_step(2, lambda env, _1, _2, ends, *_: ends.update(bee=True)), ("agent 'bee' was terminated", "left it in")),
    "a stranger": (_agents(lambda names: [*names, "eel"]), ("agent 'eel' joined", "possible_agents")),
    "twice": (_agents(lambda names: [*names, "bee"]), ("agent 'bee' is more than once in env.agents",)),
    "agents are None": (_agents(lambda names: None), ("env.agents must be a list of agents, got None",)),
    "agents are an iterator": (_agents(iter), ("env.agents must be a list of agents, got <list_iterator",)),
    "nobody at first": (type("Nobody", (odd.Absent,), {"first": lambda self: []}), ("no agents after reset()",)),
    "a reset of observations": (odd.returned_by(None, lambda seen, _: seen), ("reset() must return (observations, infos)",)),
    "a reset of nothing": (odd.returned_by(None, lambda *_: None), ("reset() must return (observations, infos)", "None")),
    "a reset of three": (odd.returned_by(None, lambda seen, _: (seen, {}, {})), ("reset() must return", "3 values")),
    "a step of four": (
        odd.returned_by(lambda seen, paid, ends, _, infos: (seen, paid, ends, infos)), ("step() must return", "returned 4 values")
    ),
    "a step of nothing": (odd.returned_by(lambda *_: None), ("step() must return", "returned None")),
    "rewards in a list": (
        odd.returned_by(lambda seen, paid, *rest: (seen, [1.0, 2.0], *rest)), ("the rewards of step() must be a dict by agent",)
    ),
    "observations that are a generator": (
        odd.returned_by(lambda seen, *rest: (iter(seen), *rest)), ("the observations of step() must be a dict by agent",)
    ),
    "infos in a list": (odd.returned_by(lambda *parts: (*parts[:4], [{}])), ("the infos of step() must be a dict by agent",)),
    "an info in a list": (
        odd.returned_by(lambda *parts: (*parts[:4], {"bee": [1]})), ("the info of agent 'bee' must be a dict, got [1]",)
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")
@cells(REFUSED)
def test_all_refuse_the_same(name: str, reader: str) -> None:
    env_fn, words = REFUSED[name]
    with pytest.raises((ValueError, RuntimeError)) as caught:
        READERS[reader](env_fn)
    for word in words:
        assert word in message(caught.value)


class Grown(odd.Plain):
    def seen(self, agent: Any) -> Any:
        return np.zeros(3 if agent == "bee" and self.t == 2 else 2, np.float32)


@pytest.mark.parametrize("reader", IN_TURNS)
def test_an_observation_of_another_shape_names_its_agent(reader: str) -> None:
    with pytest.raises(ValueError, match=r"has shape \(3,\), its space says \(2,\)") as caught:
        READERS[reader](Grown)
    assert "agent 'bee'" in message(caught.value)


@pytest.mark.filterwarnings("ignore:.* raised .*:UserWarning")
def test_who_shows_a_last_observation_needs_it_where_an_agent_was_cut_off() -> None:
    """A learner goes on from it. Nobody else is told of it."""

    class Cut(odd.Unseen):
        def ends(self, agent: Any) -> tuple[bool, bool]:
            return super().ends(agent)[::-1]  # type: ignore[return-value]

    for reader in (by_runner, by_evaluation):
        assert reader(Cut).returns == {"ant": 2.0, "bee": 8.0}
    for reader in (by_trainer, by_vector_env):
        with pytest.raises((ValueError, RuntimeError), match="no observation"):
            reader(Cut)


# ---------------------------------------------------------------------- what is allowed

TWO = spaces.MultiDiscrete([2, 3])
MASKS: dict[str, Any] = {
    "numbers": odd.masked(lambda t: np.array([0, t % 2, 1], np.int8)),
    "truths": odd.masked(lambda t: np.array([t % 2 == 0, False, True])),
    "fractions": odd.masked(lambda t: np.array([0, 0, 0.5])),
    "large numbers": odd.masked(lambda t: np.array([0, 256, 0], np.int16)),
    "negative numbers": odd.masked(lambda t: np.array([0, -1, 0])),
    "a list": odd.masked(lambda t: [0, True, 0]),
    "objects": odd.masked(lambda t: np.array([False, 0, 1], object)),
    "in observations": odd.masked(lambda t: np.array([0, 0.25, 0], np.float32), "observation"),
    "zeros of one who waits": odd.masked(lambda t: np.array([0, 0, t % 2], np.int8)),
    "zeros of one who waits, in observations": odd.masked(lambda t: np.zeros(3, np.int8), "observation"),
    "choices that do not count from 0": odd.masked(lambda t: [0, 0, 1], actions=spaces.Discrete(3, start=5)),
    "zeros that do not count from 0": odd.masked(lambda t: [0, 0, 0], actions=spaces.Discrete(3, start=5)),
    "of parts, in a row": odd.masked(lambda t: np.array([1, 0, 0, 0, 1], np.int8), actions=TWO),
    "of parts": odd.masked(lambda t: (np.array([0, 1]), np.array([0, 0.5, 0])), actions=TWO),
    "of parts, in observations": odd.masked(lambda t: np.array([0, 1, 0, 1, 0], np.int8), "observation", TWO),
    "of parts of equal size": odd.masked(lambda t: np.eye(2, dtype=bool), actions=spaces.MultiDiscrete([2, 2])),
    "a part of zeros": odd.masked(lambda t: [[0, 0], [0, 1, 0]], actions=TWO),
}
LATER = {
    "later": odd.masked(lambda t: np.array([0, 0, 1]), begins=1),
    "of parts, later": odd.masked(lambda t: (np.array([0, 1]), np.array([0, 1, 0])), actions=TWO, begins=2),
}


@cells(MASKS, IN_TURNS)
def test_all_are_allowed_the_same(name: str, reader: str) -> None:
    """The environments refuse what they forbid."""
    found = READERS[reader](MASKS[name])
    assert found.returns == PLAIN


@cells(LATER, ["runner", "evaluation"])
def test_masks_that_come_later(name: str, reader: str) -> None:
    assert READERS[reader](LATER[name]).returns == PLAIN
    with pytest.raises(ValueError, match=r"agent '(ant|bee)' has an 'action_mask' in its info, where no agent had one after reset"):
        by_trainer(LATER[name])


ONES = np.ones(3)
WRONG_MASKS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "NaN": (odd.masked(lambda t: np.array([0, np.nan, 1])), ("the action mask of agent 'bee' has NaN",)),
    "too short": (odd.masked(lambda t: ONES[:2]), ("the action mask of agent 'bee' has shape (2,)",)),
    "too long, in observations": (
        odd.masked(lambda t: np.ones(4), "observation"), ("the action mask of agent 'bee' has shape (4,)",)
    ),
    "of two axes": (odd.masked(lambda t: ONES[None]), ("the action mask of agent 'bee' has shape (1, 3)",)),
    "one number": (odd.masked(lambda t: 1), ("the action mask of agent 'bee' has shape ()",)),
    "text": (odd.masked(lambda t: "legal"), ("the action mask of agent 'bee'",)),
    "a set": (odd.masked(lambda t: {1, 2}), ("the action mask of agent 'bee'",)),
    "of parts of other lengths": (
        odd.masked(lambda t: ([1, 1, 1], [1, 1]), actions=TWO), ("the action mask of agent 'bee'", "[2, 3]")
    ),
    "missing": (odd.masked(lambda t: ONES if t < 2 else None), ("no 'action_mask'", "agent 'bee'")),
    "more than there is room for": (
        odd.masked(lambda t: np.ones(5000), actions=spaces.Discrete(5000), begins=1),
        ("action mask", "agent 'ant'", "give one in each info"),
    ),
    "of a Box": (
        odd.masked(lambda t: ONES, actions=spaces.Box(-1, 1, (3,), np.float32)), ("'action_mask'", "'ant'", "can be masked")
    ),
    "of a MultiBinary": (
        odd.masked(lambda t: ONES, "observation", spaces.MultiBinary(3)), ("'action_mask'", "'ant'", "can be masked")
    ),
}  # fmt: skip


@cells(WRONG_MASKS, IN_TURNS)
def test_masks_that_are_none(name: str, reader: str) -> None:
    env_fn, words = WRONG_MASKS[name]
    with pytest.raises((ValueError, TypeError)) as caught:
        READERS[reader](env_fn)
    for word in words:
        assert word in message(caught.value)


# ---------------------------------------------------------------------- turns

TURNS: dict[str, tuple[Any, dict[str, float]]] = {
    "turns": (odd.Turns, {"ant": 2.0, "bee": 2.0}),
    "last() is another one": (odd.LastDoubles, {"ant": 4.0, "bee": 4.0}),
    "rewards are in last() alone": (odd.InLastAlone, {"ant": 2.0, "bee": 2.0}),
    "last() says nothing": (odd.Unaccumulated, {"ant": 2.0, "bee": 2.0}),
    "arrays, and no infos": (odd.ArraysInTurns, {"ant": 2.0, "bee": 2.0}),
}


def by_hand(env: Any) -> dict[str, float]:
    """What a loop with ``last()`` is told."""
    env.reset(seed=0)
    paid = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        _, reward, ended, cut, _ = env.last()
        paid[agent] += float(reward)
        env.step(None if ended or cut else 1)
    return paid


@cells(TURNS, IN_TURNS)
def test_turns_are_paid_what_last_says(name: str, reader: str) -> None:
    env_fn, returns = TURNS[name]
    assert name == "last() says nothing" or by_hand(env_fn()) == returns
    found = READERS[reader](env_fn)
    assert found.returns == returns and (found.lengths or {"ant": 2}) in ({"ant": 2, "bee": 2}, {"ant": 2})
    assert found.terminated in (None, True)


@pytest.mark.parametrize("reader", IN_TURNS)
def test_turns_in_which_nothing_is_allowed(reader: str) -> None:
    with pytest.raises(ValueError, match="agent 'bee' has no legal action") as caught:
        READERS[reader](odd.NoMove)
    assert reader == "trainer" or "environment 0" in message(caught.value)


@pytest.mark.parametrize("reader", IN_TURNS)
def test_last_and_rewards_that_disagree(reader: str) -> None:
    with pytest.raises(ValueError, match=r"last\(\) tells agent 'bee' that it was paid"):
        READERS[reader](odd.Disagreeing)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["of parts", "zeros of one who waits"])
def test_what_is_learned_is_allowed(name: str) -> None:
    """Actions are drawn, and the best ones taken."""
    with SyncIPPO(
        "MlpPolicy", MASKS[name], n_steps=16, batch_size=16, n_epochs=1, n_actors=1, seed=0, executor="inline", evaluate_every=1,
        evaluate_episodes=1,
    ) as model:  # fmt: skip
        model.learn(32)
        assert [float(one["bee"]) for one in model.ep_info_buffer] == [8.0] * 8  # type: ignore[union-attr]
        assert evaluate(model.policies, MASKS[name], episodes=1, executor="inline").mean == 12


def holding(lock: Any) -> Any:
    def make() -> Any:
        env = odd.Plain()
        vars(env)["lock"] = lock
        return env

    return make


TAKERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "vector": ("env_fn of ParallelVectorEnv", lambda env_fn: ParallelVectorEnv(env_fn, 2, executor="inline")),
    "runner": ("env_fn of MultiAgentRunner", lambda env_fn: MultiAgentRunner(env_fn, RandomPolicy(), executor="inline")),
    "evaluation": ("env_fn of evaluate", lambda env_fn: evaluate(RandomPolicy(), env_fn, episodes=1, executor="inline")),
    "tournament": (
        "env_fn of tournament", lambda env_fn: tournament(env_fn, {"a": RandomPolicy()}, episodes=1, executor="inline")
    ),
    "trainer": ("env of SyncIPPO", lambda env_fn: SyncIPPO("MlpPolicy", env_fn, executor="inline")),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKERS)
def test_what_cannot_be_pickled_is_named_as_the_user_knows_it(name: str) -> None:
    named, make = TAKERS[name]
    with pytest.raises(ProgramError, match=rf"^{named} cannot be pickled .*make what it needs, inside of it"):
        make(holding(threading.Lock()))


@pytest.mark.parametrize("reader", ["runner", "evaluation"])
def test_an_action_that_is_none_names_the_agent(reader: str) -> None:
    play = {
        "runner": lambda policy: ran(odd.Plain, policy, 1, steps=4),
        "evaluation": lambda policy: evaluate(policy, odd.Plain, episodes=1, executor="inline"),
    }[reader]
    with pytest.raises(ValueError, match=r"actions? .*0\.5|whole numbers"):
        play(lambda observations: np.full(len(observations), 0.5))
    for answer in (7, -1):
        with pytest.raises(ValueError, match=rf"chose the action {answer}.*agent 'ant'"):
            play(lambda observations, answer=answer: np.full(len(observations), answer))


def test_a_side_that_did_not_play_has_no_payoff() -> None:
    """Half of the episodes are the ant's alone."""

    class Sometimes(odd.Plain):
        episodes = 0

        def first(self) -> list[Any]:
            self.episodes += 1
            return ["ant", "bee"][: 2 - self.episodes % 2]

        def paid(self, agent: Any) -> Any:
            return 2.5

    found = tournament(Sometimes, {"a": RandomPolicy()}, episodes=4, seed=0, executor="inline")
    assert found.payoffs.ravel().tolist() == [10, 10]


def test_rows_of_nobody_can_be_left_out_of_statistics() -> None:
    """Padded rows end with the episode, so that a learner sees a boundary there."""
    counted: list[float] = []
    with ParallelVectorEnv(odd.Leaving, 1, executor="inline") as envs:
        statistics = RecordEpisodeStatistics(envs)
        statistics.reset(seed=0)
        for _ in range(8):
            infos = statistics.step(np.zeros(2, int))[4]
            if "episode" in infos:
                nobody = infos.get("final_info", {}).get("padded", np.zeros(2, bool))
                counted += infos["episode"]["r"][infos["_episode"] & ~nobody].tolist()
    assert counted == [2.0, 8.0, 2.0, 8.0]
