"""Everybody who plays policies plays every kind of them alike: what they are shown, what they may answer, who they are."""

from __future__ import annotations

import enum
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from played import BITS, BOX, CHOICE, CHOICES, MANY, MODELS, PLAYERS, SEEN, Many, by_runner, model_of, normalized, return_of, spoil
from runner_envs import Herd
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize
from torch import nn

from reactor_pettingzoo import MultiAgentRunner, RandomPolicy, evaluate, tournament
from reactor_pettingzoo.learning import SyncIPPO
from reactor_pettingzoo.runner.asking import GroupPolicy, asked
from reactor_pettingzoo.runner.policies import PolicyPart

pytestmark = pytest.mark.usefixtures("one_thread")

REMEMBERS = "the policy 'all' is a RecurrentPPO, which remembers"


# ---------------------------------------------------------------------- what they are shown


@in_turn("name", MODELS)
def test_models_are_shown_what_they_learned_from(name: str) -> None:
    """As a loop shows it: normalised by the statistics of now, which stay as they are."""
    model = model_of(name, normalized)
    statistics = model.get_vec_normalize_env()
    before = statistics.obs_rms.mean.copy(), statistics.obs_rms.count
    expected = return_of(model, statistics.normalize_obs)
    assert abs(expected - return_of(model)) > 1e-2
    for player, play in PLAYERS.items():
        if name == "recurrent ppo" and player != "evaluate":
            with pytest.raises(TypeError, match=REMEMBERS):
                play(model, MODELS[name][1])
        else:
            assert np.allclose(play(model, MODELS[name][1]), expected, atol=1e-3), player
    assert np.array_equal(before[0], statistics.obs_rms.mean) and before[1] == statistics.obs_rms.count


class Halved(VecNormalize):
    """Another way to normalise."""

    def normalize_obs(self, obs: Any) -> Any:
        return super().normalize_obs(obs) * 0.5


def twice(env: Any) -> Any:
    outer = VecNormalize(normalized(env))
    outer.obs_rms.mean[:], outer.obs_rms.var[:] = [0.5, 0.2, -0.3], [0.1, 0.2, 0.3]  # type: ignore[union-attr]
    return outer


def halved(env: Any) -> Any:
    made = Halved(env)
    made.obs_rms.mean[:], made.obs_rms.var[:] = [401, -300, 30], [2, 9, 400]  # type: ignore[union-attr]
    return made


@pytest.mark.parametrize("wrapped", [twice, halved])
@in_turn("player", PLAYERS, kept=2)
def test_however_often_they_were_normalised(wrapped: Any, player: str) -> None:
    model = model_of("ppo", wrapped)

    def shown(seen: Any) -> Any:
        wrappers, env = [], model.get_env()
        while hasattr(env, "venv"):
            wrappers.append(env)
            env = env.venv
        for one in reversed(wrappers):
            seen = one.normalize_obs(seen) if isinstance(one, VecNormalize) else seen
        return seen

    assert set(np.round(PLAYERS[player](model, CHOICE), 3)) == {round(return_of(model, shown), 3)}


def test_rewards_alone_may_be_normalised() -> None:
    model = model_of("ppo", partial(VecNormalize, norm_obs=False))
    assert by_runner(model, CHOICE) == pytest.approx([return_of(model)] * 4)


def test_a_runner_keeps_the_statistics_of_its_policies() -> None:
    """Weights and statistics are those of the moment when it was made; who is asked later takes the later ones."""
    model = model_of("ppo continuous", normalized)
    statistics = model.get_vec_normalize_env()
    expected = return_of(model, statistics.normalize_obs)
    with MultiAgentRunner(partial(Many, BOX), {"all": model}, executor="inline") as runner:
        statistics.obs_rms.mean[:] = 0
        assert list(runner.run(episodes=1, seed=0).episodes[0].returns.values()) == pytest.approx([expected] * 2, abs=1e-3)
    later = return_of(model, statistics.normalize_obs)
    assert abs(later - expected) > 1e-2 and by_runner(model, BOX) == pytest.approx([later] * 4, abs=1e-3)


class Told(Many):
    """Observations with a mask and two parts, one of which is normalised."""

    def observation_space(self, agent: Any) -> Any:
        return spaces.Dict(action_mask=spaces.MultiBinary(4), far=SEEN, near=spaces.Box(-1, 1, (1,), np.float32))

    def _told(self, returned: Any) -> Any:
        mask = np.array([self.t % 2, 1, 1, 0], np.int8)
        return {agent: {"action_mask": mask, "far": far, "near": np.zeros(1, np.float32)} for agent, far in returned.items()}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        seen, infos = super().reset(seed, options)
        return self._told(seen), infos

    def step(self, actions: Any) -> Any:
        seen, *rest = super().step(actions)
        return self._told(seen), *rest


@pytest.mark.parametrize("player", ["runner", "evaluate"])
def test_parts_of_observations_are_normalised(player: str) -> None:
    """The mask and the others stay as they are, and masks are obeyed."""
    from gymnasium import Env

    class Parts(Env[Any, Any]):
        observation_space, action_space = Told().observation_space("a"), CHOICE

        def reset(self, **_: Any) -> Any: ...

    env = VecNormalize(DummyVecEnv([Parts]), norm_obs_keys=["far"])
    env.obs_rms["far"].mean[:] = [401, -300, 30]  # type: ignore[index]
    env.obs_rms["far"].var[:] = [2, 9, 400]  # type: ignore[index]
    model = PPO("MultiInputPolicy", env, seed=0, device="cpu")
    game = Told()
    seen, _ = game.reset()
    while game.agents:
        actions = {}
        for agent, parts in seen.items():
            shown = env.normalize_obs({key: part[None] for key, part in parts.items()})
            tensors, _ = model.policy.obs_to_tensor(shown)  # type: ignore[arg-type]
            with torch.no_grad():
                logits = model.policy.get_distribution(tensors).distribution.logits[0].numpy()
            actions[agent] = int(np.where(parts["action_mask"], logits, -np.inf).argmax())
        seen, *_ = game.step(actions)
    if player == "runner":
        with MultiAgentRunner(Told, {"all": model}, executor="inline") as runner:
            found = dict(runner.run(episodes=1, seed=0).episodes[0].returns)
    else:
        infos = evaluate({"all": model}, Told, 1, executor="inline").infos
        found = {agent: infos[f"return.{agent}"][0] for agent in game.possible_agents}
    assert found == pytest.approx(game.totals)


@in_turn("player", PLAYERS, kept=2)
def test_what_cannot_be_shown_is_refused(player: str) -> None:
    stacked = model_of("ppo", lambda env: VecFrameStack(VecNormalize(env), 2))
    with pytest.raises(ValueError, match=r"trained to observe .* environments are wrapped in VecFrameStack"):
        PLAYERS[player](stacked, CHOICE)
    stacked.policy.observation_space = SEEN  # as of an environment that stacks frames itself
    stacked.get_env().venv.obs_rms.mean = np.zeros(1)
    with pytest.raises(ValueError, match=r"the VecNormalize of PPO normalises observations of the shapes \(1,\)"):
        PLAYERS[player](stacked, CHOICE)


# ---------------------------------------------------------------------- what they answer


@pytest.mark.parametrize("deterministic", [True, False])
@in_turn("name", MODELS, kept=1)
def test_spoilt_models_are_not_played(name: str, deterministic: bool) -> None:
    model = model_of(name)
    spoil(model.policy)
    for player, play in PLAYERS.items():
        if name == "recurrent ppo" and player != "evaluate":
            continue
        named = type(model).__name__ if player == "evaluate" else "all"
        with pytest.raises(ValueError, match="finite numbers") as error:
            play(model, MODELS[name][1], deterministic=deterministic)
        assert named in str(error.value) or type(model.policy).__name__ in str(error.value), player


class Constant(nn.Module):
    """The same answer to everything."""

    def __init__(self, *numbers: float) -> None:
        super().__init__()
        self.numbers = torch.tensor(numbers)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.numbers.expand(len(seen), -1)


WIDTHS = [(CHOICE, 4), (BOX, 2), (spaces.Box(-np.inf, np.inf, (2,), np.float32), 2), (CHOICES, 5), (BITS, 3)]


@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize(("space", "width"), WIDTHS, ids=[str(space) for space, _ in WIDTHS])
def test_answers_that_are_not_finite_are_refused(space: spaces.Space[Any], width: int, number: float) -> None:
    dense = nn.Sequential(nn.Linear(3, width))
    spoil(dense, number)

    def function(seen: Any) -> Any:
        return np.full((len(seen), *(space.shape or ())), number, np.float32)

    for player, play in PLAYERS.items():
        modules = [dense, Constant(*[number] * width)] if player != "evaluate" or space.shape == () or width == 2 else []
        for policy in (*modules, function):
            with pytest.raises(ValueError, match=r"policy .*not finite numbers"):
                play(policy, space)


@in_turn("player", PLAYERS, kept=2)
def test_scores_may_forbid_actions(player: str) -> None:
    """As -inf does; only if nothing is left it is no answer."""
    assert np.allclose(PLAYERS[player](Constant(-np.inf, 0.0, -np.inf, -1.0), CHOICE), 12.6)
    with pytest.raises(ValueError, match="finite numbers"):
        PLAYERS[player](Constant(*[-np.inf] * 4), CHOICE)


class Direction(nn.Module):
    """NaN for observations of zeros, such as stand for agents that are not there."""

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return (seen / seen.norm(dim=1, keepdim=True)).repeat(1, 2)[:, :5]


def test_of_those_who_are_not_there_nothing_is_asked() -> None:
    with MultiAgentRunner(Herd, {"all": Direction()}, num_envs=2, executor="inline") as runner:
        assert len(runner.run(episodes=4, seed=0).episodes) == 4
    assert len(evaluate({"all": Direction()}, Herd, 2, executor="inline")) == 2


def test_the_agent_and_the_observation_are_named() -> None:
    class Blind(Many):
        def step(self, actions: Any) -> Any:
            seen, *rest = super().step(actions)
            seen["b"] = np.full(3, np.nan, np.float32)
            return seen, *rest

    with pytest.raises(ValueError, match=r"the policy 'all' answered .* for agent 'b' of environment 0, which observes \[\[nan"):
        with MultiAgentRunner(Blind, {"all": nn.Sequential(nn.Linear(3, 4))}, executor="inline") as runner:
            runner.run(10, seed=0)


# ---------------------------------------------------------------------- who they are


class Color(enum.Enum):
    """Two agents."""

    RED = 1
    BLUE = 2


IDS: list[tuple[Any, Any]] = [
    (0, 1),
    ((0, "x"), (1, "y")),
    (Color.RED, Color.BLUE),
    (0, "0"),
    (np.int64(3), np.int64(4)),
    (None, 1.5),
]


@in_turn("ids", IDS, kept=2, ids=str)
def test_agents_whose_ids_are_no_strings(ids: tuple[Any, Any]) -> None:
    env_fn = partial(Many, CHOICE, ids)
    policies = dict(zip(ids, (lambda seen: np.ones(len(seen), int), lambda seen: np.full(len(seen), 2)), strict=True))
    with MultiAgentRunner(env_fn, policies, num_envs=2, executor="inline") as runner:
        report = runner.run(episodes=2, seed=0)
    assert [one.mean for one in report.returns.values()] == pytest.approx([12.6, 25.2]) and str(ids[0]) in str(report)
    assert evaluate(policies, env_fn, 1, executor="inline").mean == pytest.approx(12.6 + 25.2)
    found = tournament(env_fn, policies, episodes=1, executor="inline", workers=1)
    assert found.names == ids and str(ids[1]) in str(found) and found.payoffs[0, 1, 1] == pytest.approx(25.2)
    with MultiAgentRunner(env_fn, dict.fromkeys(ids, RandomPolicy()), num_envs=2, executor="inline") as runner:
        assert len(runner.run(episodes=2, seed=0).episodes) == 2


@pytest.mark.slow
def test_policies_of_numbered_agents_that_have_learned() -> None:
    env_fn = partial(Many, CHOICE, (0, 1))
    with SyncIPPO("MlpPolicy", env_fn, n_steps=8, batch_size=8, n_actors=1, executor="inline", seed=0) as model:
        assert set(model.policies) == {"0", "1"}
        total = evaluate(model.policies, env_fn, 1, executor="inline").mean
        assert evaluate(model.policies, env_fn, 1, executor="inline", policy_of=model.policy_of).mean == total
        with MultiAgentRunner(env_fn, model.policies, executor="inline") as runner:
            assert sum(runner.run(episodes=1, seed=0).episodes[0].returns.values()) == total


# ---------------------------------------------------------------------- what they do


OTHERS: list[spaces.Space[Any]] = [
    spaces.Tuple([CHOICE, CHOICE]), spaces.Dict(x=CHOICE), spaces.Text(3), spaces.Sequence(CHOICE), spaces.Graph(BOX, None),
]  # fmt: skip


@pytest.mark.parametrize("player", MANY)
@pytest.mark.parametrize("space", OTHERS, ids=lambda space: type(space).__name__)
def test_actions_that_are_no_arrays_are_refused(space: spaces.Space[Any], player: str) -> None:
    with pytest.raises(TypeError, match="agent 'a' acts in ") as error:
        PLAYERS[player](RandomPolicy(), space)
    assert str(space) in str(error.value)


INF = np.inf
WIDE = [
    spaces.Box(-INF, INF, (2,), np.float32), spaces.Box(0, INF, (2,), np.float64), spaces.Box(-INF, 3, (1,), np.float32),
    spaces.Box(np.array([-INF, 0, -INF, -1], np.float32), np.array([INF, INF, 5, 1], np.float32)),
    spaces.Box(-1e7, 1e7, (2,), np.float32), spaces.Box(-INF, INF, (2,), np.int64), spaces.Box(-INF, 5, (2,), np.int64),
    spaces.Box(0, INF, (2,), np.int32), spaces.Box(-128, 127, (2,), np.int8), spaces.Box(-INF, INF, (2,), np.float16),
]  # fmt: skip


def at_random(space: spaces.Space[Any]) -> GroupPolicy:
    group: Any = SimpleNamespace(action_space=space)
    return asked(["all"], [PolicyPart(RandomPolicy())], group, 1, greedy=True, own=nullcontext())


@in_turn("space", WIDE, kept=4, ids=str)
def test_random_actions_without_bounds(space: spaces.Box) -> None:
    """As the space samples them, each number by itself."""
    policy = at_random(space)
    noise = np.random.default_rng(0).random((4000, policy.width))
    noise[0] = 0
    drawn = policy(None, noise)
    assert all(one in space for one in drawn)
    space.seed(0)
    sampled = np.array([space.sample() for _ in range(2000)], np.float64)
    scale = sampled.std(0) + 1e-9
    assert np.allclose(drawn.mean(0), sampled.mean(0), atol=0.12 * scale.max()) and np.allclose(drawn.std(0), scale, rtol=0.12)
    if drawn.shape[1] > 1:
        assert np.abs(np.corrcoef(drawn.T.astype(np.float64)) - np.eye(drawn.shape[1])).max() < 0.08


def test_random_choices_that_masks_allow() -> None:
    """Of several at once, one after the other; where nothing is allowed, anything will do."""
    masks = np.broadcast_to(np.array([0, 1, 1, 1, 0]), (500, 5))
    drawn = at_random(CHOICES)(masks, np.random.default_rng(0).random((500, 2)))
    assert set(drawn[:, 0].tolist()) == {1, 2} and set(drawn[:, 1].tolist()) == {0}
    drawn = at_random(CHOICES)(np.zeros((500, 5)), np.random.default_rng(0).random((500, 2)))
    assert not drawn.any()


# ---------------------------------------------------------------------- numbers that make no sense


@pytest.mark.parametrize("player", PLAYERS)
@pytest.mark.parametrize("seed", [-1, 1.5, "1", True, np.float64(2)], ids=repr)
def test_seeds_that_make_no_sense_are_refused(seed: Any, player: str) -> None:
    with pytest.raises(ValueError, match="seed"):
        PLAYERS[player](RandomPolicy() if player in MANY else lambda seen: np.ones(len(seen), int), CHOICE, seed=seed)


def test_numbers_of_numpy() -> None:
    assert by_runner(RandomPolicy(), CHOICE, seed=np.int64(3), num_envs=np.int32(2)) == by_runner(RandomPolicy(), CHOICE, seed=3)
    number: Any = np.uint8(2)
    found = tournament(Many, {"x": RandomPolicy()}, episodes=number, num_envs=number, seed=number, executor="inline", workers=1)
    same = tournament(Many, {"x": RandomPolicy()}, episodes=2, num_envs=2, seed=2, executor="inline", workers=1)
    assert found.fingerprint == same.fingerprint and type(found.seed) is int
    with MultiAgentRunner(Many, RandomPolicy(), executor="inline") as runner:
        assert runner.run(np.int64(5), seed=1).steps == 5  # type: ignore[arg-type]
        for name, call in (
            ("steps", lambda: runner.run(2.5)), ("episodes", lambda: runner.run(episodes=0)),  # type: ignore[arg-type]
            ("seed", lambda: runner.run(5, seed=2**63)), ("seed", lambda: runner.render("x.gif", seed=-1)),
            ("steps", lambda: runner.render("x.gif", steps=0)),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=f"`{name}` must be"):
                call()
