"""What may act for agents: networks alone and stacked, distributions, SB3 models, functions; best actions and drawn ones."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from pettingzoo.classic.tictactoe import tictactoe
from runner_envs import BOX, FIVE, Alone, Herd, Residual, Still, by_sum, first_legal, message, mlp, ran
from sb3_contrib import QRDQN
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.policies import ActorCriticPolicy
from torch import nn

from reactor_pettingzoo import MultiAgentRunner, RandomPolicy, evaluate
from reactor_pettingzoo.agents import probe_agents
from reactor_pettingzoo.runner.policies import part_of
from reactor_torch import as_policy

Array = npt.NDArray[Any]
STEPS = 4000
LOGITS = torch.tensor([0.0, 1.0, -1.0, 0.5, 2.0])


def actions_of(policy: Any, action_space: spaces.Space[Any] = FIVE, mask: tuple[int, ...] = (), **settings: Any) -> Array:
    """What two agents in each of two copies do again and again, ``(ticks, 4, ...)``, where they always see the same."""
    report = ran(partial(Still, action_space, mask), {"all": policy}, 2, steps=STEPS, **{"deterministic": False} | settings)
    actions = report.trajectories["actions.0"]
    assert actions.dtype == (action_space.dtype or np.int64)
    return actions.reshape(STEPS // 2, 4, *actions.shape[3:])


def is_drawn_from(actions: Array, expected: Array) -> None:
    """Every row is drawn with the expected probabilities, each by itself."""
    for row in actions.T:
        counts = np.bincount(row, minlength=len(expected))
        legal = expected > 0
        assert not counts[~legal].any()
        chi_square = ((counts - len(row) * expected)[legal] ** 2 / (len(row) * expected[legal])).sum()
        assert chi_square < 30  # of four degrees of freedom: less than 1e-5 by chance
    independent = (expected**2).sum()
    for one in range(4):
        assert abs((actions[1:, one] == actions[:-1, one]).mean() - independent) < 0.06
        for other in range(one):
            assert abs((actions[:, one] == actions[:, other]).mean() - independent) < 0.06


class Scores(nn.Module):
    """Always the same scores, or a distribution with them."""

    def __init__(self, kind: str = "scores", scores: torch.Tensor = LOGITS) -> None:
        super().__init__()
        self.kind, self.scores = kind, scores

    def forward(self, x: torch.Tensor) -> Any:
        scores = self.scores.expand(len(x), *self.scores.shape)
        match self.kind:
            case "logits":
                return torch.distributions.Categorical(logits=scores)
            case "probabilities":
                return torch.distributions.Categorical(probs=scores.softmax(1))
            case "bits":
                return torch.distributions.Bernoulli(logits=scores)
            case "normal":
                return torch.distributions.Normal(scores, 0.5)
            case "independent":
                return torch.distributions.Independent(torch.distributions.Normal(scores, 0.5), 1)
            case "list":
                return scores.tolist()
        return scores


def always(scores: torch.Tensor = LOGITS, *, last: nn.Module | None = None) -> nn.Sequential:
    """A network that can be stacked, with the same scores whatever it sees."""
    network = mlp(0, 4, len(scores), 8)
    nn.init.zeros_(network[-1].weight)
    network[-1].bias.data[:] = scores
    return nn.Sequential(network, last) if last else network


SCORING = {
    "stacked": always(),
    "stacked softmax": always(last=nn.Softmax(-1)),
    "stacked log-softmax": always(last=nn.LogSoftmax(-1)),
    "module": Scores(),
    "logits": Scores("logits"),
    "probabilities": Scores("probabilities"),
}


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("policy", SCORING.values(), ids=SCORING)
def test_actions_are_drawn_by_their_scores(policy: nn.Module, masked: bool) -> None:
    mask = (1, 0, 1, 1, 0) if masked else ()
    weights = LOGITS.exp().numpy() * (mask or 1)
    is_drawn_from(actions_of(policy, mask=mask), weights / weights.sum())


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("policy", SCORING.values(), ids=SCORING)
def test_the_best_action_is_taken(policy: nn.Module, masked: bool) -> None:
    actions = actions_of(policy, mask=(1, 0, 1, 1, 0) if masked else (), deterministic=True)
    assert (actions == (3 if masked else 4)).all()


@pytest.mark.slow
def test_actions_that_begin_elsewhere() -> None:
    space = spaces.Discrete(5, start=-3)
    for policy in (always(), Scores()):
        assert (actions_of(policy, space, deterministic=True) == 1).all()
        assert set(actions_of(policy, space).flat) == {-3, -2, -1, 0, 1}
        assert set(actions_of(policy, space, (0, 1, 1, 0, 0)).flat) == {-2, -1}


@pytest.mark.slow
@in_turn("policy", [Scores("", torch.tensor([5.0, -5.0])), Scores("normal", torch.tensor([5.0, -5.0]))], kept=1)
def test_continuous_actions_are_clipped(policy: nn.Module) -> None:
    space = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32))
    assert np.array_equal(np.unique(actions_of(policy, space).reshape(-1, 2), axis=0), [[1, -2]])


@pytest.mark.slow
def test_several_choices_at_once() -> None:
    space = spaces.MultiDiscrete([2, 3], start=[0, 5])
    scores = torch.tensor([0.0, 1.0, 0.0, 2.0, 1.0])
    assert np.array_equal(np.unique(actions_of(Scores("", scores), space, deterministic=True).reshape(-1, 2), axis=0), [[1, 6]])
    drawn = actions_of(Scores("", scores), space)
    assert np.allclose((drawn[..., 0] == 1).mean(0), 0.731, atol=0.05)
    assert np.allclose((drawn[..., 1] == 6).mean(0), 0.665, atol=0.05)


@pytest.mark.slow
@in_turn("kind", ["", "bits"], kept=1)
def test_bits(kind: str) -> None:
    scores = torch.tensor([2.0, -1.0, 0.1])
    space = spaces.MultiBinary(3)
    assert np.array_equal(
        np.unique(actions_of(Scores(kind, scores), space, deterministic=True).reshape(-1, 3), axis=0), [[1, 0, 1]]
    )
    assert np.allclose(actions_of(Scores(kind, scores), space).mean(0), scores.sigmoid(), atol=0.05)


@in_turn(
    "space",
    [
        spaces.Discrete(4, start=2),
        spaces.MultiDiscrete([2, 3]),
        spaces.MultiDiscrete([[2, 3], [4, 5]]),
        spaces.MultiBinary(4),
        spaces.MultiBinary((2, 3)),
        spaces.Box(np.array([-1, 5], np.float32), np.array([1, 6], np.float32)),
        spaces.Box(-1, 1, (), np.float32),
        spaces.Box(0, 9, (2, 2), np.int64),
        spaces.Box(-np.inf, np.inf, (3,), np.float64),
    ],
    ids=str,
    kept=3,
)
def test_random_actions_of_every_kind(space: spaces.Space[Any]) -> None:
    actions = actions_of(RandomPolicy(), space)
    assert all(space.contains(np.asarray(action)) for action in actions.reshape(-1, *actions.shape[2:]))
    numbers = actions.reshape(len(actions), -1).astype(float)
    assert (np.abs(np.corrcoef(numbers.T) - np.eye(numbers.shape[1])) < 0.12).all()
    if isinstance(space, spaces.Box) and space.is_bounded():
        low, high = (np.broadcast_to(bound, (4, *space.shape)).reshape(-1).astype(float) for bound in (space.low, space.high))
        if space.dtype == np.int64:
            assert {*numbers.flat} == set(range(10))
        assert np.allclose(numbers.mean(0), (low + high) / 2, atol=0.06 * (high - low).max())
        assert (np.ptp(numbers, 0) > 0.97 * (high - low)).all()


@pytest.mark.slow
def test_random_actions_are_all_as_likely() -> None:
    is_drawn_from(actions_of(RandomPolicy()), np.full(5, 0.2))
    is_drawn_from(actions_of(RandomPolicy(), mask=(1, 0, 0, 1, 1)), np.array([1, 0, 0, 1, 1]) / 3)
    assert len(np.unique(actions_of(RandomPolicy(), deterministic=True))) == 5  # which has no best one


# ---------------------------------------------------------------------- stacked networks


def by_torch(network: nn.Module, space: spaces.Space[Any] = BOX, actions: spaces.Space[Any] = FIVE) -> bool:
    source = as_policy(network, space, actions)
    assert source is not None
    return not source.policy.by_row


def test_networks_of_different_shapes_side_by_side() -> None:
    """Each agent's actions are those of its own network, whichever are stacked together."""
    networks = {"ant": mlp(0, 4, 5), "bee": mlp(1, 4, 5, 7), "cat": mlp(2, 4, 5, activation=nn.Sigmoid), "late": mlp(3, 4, 5)}
    with MultiAgentRunner(Herd, networks, num_envs=2, executor="inline") as runner:
        dot = runner.draw(format="dot")
        found = runner.run(steps=60, seed=0, record=True, progress_bar=False).trajectories
    assert all(f"policies[{names}]" in dot for names in ("ant, late", "bee", "cat"))
    for row, (agent, network) in enumerate(networks.items()):
        assert found["agents.0"][row] == agent
        acted = found["acted"][..., row]
        with torch.inference_mode():
            expected = network(torch.from_numpy(found["observations.0"][..., row, :][acted])).numpy().argmax(1)
        assert len(expected) > 5 and np.array_equal(found["actions.0"][..., row][acted], expected)


def test_whole_numbers_are_what_a_network_may_see() -> None:
    """Boards are whole numbers: networks that are stacked and others take them alike."""
    stacked = mlp(0, 18, 9)
    alone = nn.Sequential(nn.Flatten(), *list(stacked)[1:], nn.Hardtanh(-99, 99))
    assert by_torch(alone, spaces.Box(0, 1, (3, 3, 2), np.int8), spaces.Discrete(9))
    one, other = (ran(tictactoe.env, dict.fromkeys(["player_1", "player_2"], network), steps=60) for network in (stacked, alone))
    assert one.episodes == other.episodes
    for name, array in one.trajectories.items():
        assert np.array_equal(array, other.trajectories[name]), name


# ---------------------------------------------------------------------- Stable-Baselines3


class Trained(Alone):
    """Something that a model can be made for."""

    def __init__(self, action_space: spaces.Space[Any] = FIVE, observation_space: spaces.Space[Any] = BOX) -> None:
        self.action_space, self.observation_space = action_space, observation_space


SMALL = spaces.Box(np.array([-0.01, -3], np.float32), np.array([0.02, 5], np.float32))


def made_by(algorithm: Any, env: gymnasium.Env[Any, Any], policy: str = "MlpPolicy", **settings: Any) -> Any:
    few = {"buffer_size": 10} if algorithm in (DQN, SAC, TD3) else {}
    model = algorithm(policy, env, device="cpu", seed=3, **few, **settings)
    if hasattr(model.policy, "action_net"):
        nn.init.normal_(model.policy.action_net.weight)  # else all actions are alike
    return model


@pytest.mark.parametrize("algorithm", [PPO, DQN])
def test_models_act_for_agents_whose_actions_begin_elsewhere(algorithm: Any) -> None:
    """SB3 counts actions from 0."""
    model = made_by(algorithm, Trained())
    found = ran(partial(Herd, actions=spaces.Discrete(5, start=-3)), {"all": model}, steps=60).trajectories
    seen, done = (found[name][found["acted"]] for name in ("observations.0", "actions.0"))
    expected, _ = model.predict(seen, deterministic=True)
    assert np.array_equal(done, expected - 3) and np.ptp(done) > 0
    with pytest.raises(ValueError, match=r"for the actions Discrete\(5\), and its agents .* have Discrete\(6, start=-3\)"):
        ran(partial(Herd, actions=spaces.Discrete(6, start=-3)), {"all": model}, steps=1)


@pytest.mark.slow
def test_models_of_different_agents_draw_different_actions() -> None:
    space = spaces.Box(-1, 1, (1,), np.float32)
    for algorithm in (PPO, SAC):
        model = made_by(algorithm, Trained(space))
        found = ran(partial(Still, space), {"one": model, "two": model}, 2, steps=400, deterministic=False)
        rows = found.trajectories["actions.0"].reshape(200, 4).T
        assert (np.abs(np.corrcoef(rows) - np.eye(4)) < 0.3).all()


@pytest.mark.slow
def test_models_that_draw_side_by_side_do_not_disturb_each_other() -> None:
    """SAC draws from torch's global generator, of which threads have but one."""
    space = spaces.Box(-1, 1, (2,), np.float32)
    model = made_by(SAC, Trained(space))
    policies: dict[str, Any] = dict.fromkeys(Herd.possible_agents, model)
    env_fn = partial(Herd, actions=space)
    expected = ran(env_fn, policies, 4, steps=400, deterministic=False)
    before = torch.get_rng_state()
    for place in ({"executor": "threads", "workers": 2}, {"executor": "threads", "workers": 4}):
        found = ran(env_fn, policies, 4, steps=400, deterministic=False, **place)
        assert found.fingerprint == expected.fingerprint
    assert torch.equal(torch.get_rng_state(), before)


def test_plain_models_are_evaluated_together() -> None:
    """Those of one kind, and each for its agents."""
    for algorithm, actions in ((PPO, FIVE), (DQN, FIVE), (PPO, SMALL), (SAC, SMALL)):
        (group,) = probe_agents(partial(Herd, actions=actions)).groups
        one, other = (part_of("all", made_by(algorithm, Trained(actions)), group) for _ in range(2))
        assert one.goes_with(other) and one.weights.tobytes() == other.weights.tobytes()
        wide = made_by(algorithm, Trained(actions), policy_kwargs={"net_arch": [5]})
        assert not one.goes_with(part_of("all", wide, group)) and not one.goes_with(part_of("all", RandomPolicy(), group))


@pytest.mark.parametrize("seen_space", [BOX, spaces.Box(0, 255, (36, 37, 3), np.uint8)], ids=["numbers", "images"])
@pytest.mark.parametrize("whole", [True, False], ids=["sees the mask", "sees none"])
def test_models_respect_masks(whole: bool, seen_space: spaces.Box) -> None:
    env_fn = partial(Herd, "observation", observations=seen_space)
    space = env_fn().observation_space("ant") if whole else seen_space
    model = made_by(PPO, Trained(FIVE, space), "MultiInputPolicy" if whole else "MlpPolicy")
    found = ran(env_fn, {"all": model}, steps=60).trajectories
    acted = found["acted"]
    seen: Any = found["observations.0"][acted]
    masks = found["masks.0"][acted]
    seen = {"observation": seen, "action_mask": masks} if whole else seen
    with torch.inference_mode():
        logits = model.policy.get_distribution(model.policy.obs_to_tensor(seen)[0]).distribution.logits.numpy()
    assert np.array_equal(found["actions.0"][acted], np.where(masks, logits, -np.inf).argmax(1))
    assert not np.array_equal(logits.argmax(1), found["actions.0"][acted])


def test_quantiles_of_what_is_forbidden_do_not_count() -> None:
    model = made_by(QRDQN, Trained(FIVE), policy_kwargs={"net_arch": [8], "n_quantiles": 3}, buffer_size=10)
    found = ran(partial(Herd, "info"), {"all": model}, steps=60).trajectories
    seen, masks, done = (found[name][found["acted"]] for name in ("observations.0", "masks.0", "actions.0"))
    with torch.inference_mode():
        values = model.quantile_net(torch.from_numpy(seen)).mean(1).numpy()
    assert np.array_equal(done, np.where(masks, values, -np.inf).argmax(1)) and (done != values.argmax(1)).any()


def test_who_draws_by_itself_cannot_be_told_what_is_forbidden() -> None:
    class Own(ActorCriticPolicy):
        def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
            return super()._predict(observation, deterministic)

    model = PPO(Own, Trained(), device="cpu", policy_kwargs={"net_arch": [8]})
    with pytest.raises(TypeError, match="'all' draws its actions in a way of its own"):
        ran(partial(Herd, "info"), {"all": model}, steps=6)


# ---------------------------------------------------------------------- functions


def test_functions_are_asked_once_a_tick_for_every_row() -> None:
    class Counting:
        def __call__(self, observations: Array, masks: Array) -> Any:
            assert observations.shape == (12, 4) and observations.dtype == np.float32
            assert masks.shape == (12, 5) and masks.dtype == np.int8
            return torch.from_numpy(first_legal(observations, masks))

    with MultiAgentRunner(partial(Herd, "observation"), {"all": Counting()}, num_envs=3, executor="inline") as runner:
        assert runner.run(steps=30, progress_bar=False).steps == 30


def test_what_a_policy_sees_begins_with_a_cache_line() -> None:
    """The last bits of what it multiplies that with depend on where it begins."""
    kept: list[Array] = []  # for what is freed would be where the next one begins

    def checking(observations: Array) -> Array:
        kept.append(observations)
        assert observations.ctypes.data % 64 == 0
        assert len({one.ctypes.data for one in kept}) == len(kept)  # they are the policy's to keep
        return by_sum(observations)

    for num_envs in (1, 2, 3):
        ran(Herd, {"all": checking}, num_envs, steps=20)


def test_a_policy_that_sees_a_dict() -> None:
    space = spaces.Dict(near=spaces.Box(-9, 9, (2,), np.float32), far=spaces.Box(0, 9, (1,), np.int64))

    class Seeing(Herd):
        def observation_space(self, agent: str) -> Any:
            return space

        def _observe(self, agent: str) -> Any:
            return {"near": np.array([1, self.t], np.float32), "far": np.array([self.t % 5])}

    def far(observations: Any) -> Any:
        assert observations.keys() == space.keys()
        return observations["far"][:, 0]

    class Net(nn.Module):
        def forward(self, x: Any) -> torch.Tensor:
            return nn.functional.one_hot(x["far"][:, 0].long(), 5) + 0 * x["near"][:, :1]

    for policy in (far, Net()):
        found = ran(Seeing, {"all": policy}, steps=60).trajectories
        acted = found["acted"]
        assert np.array_equal(found["actions.0"][acted], found["observations.0.far"][acted][:, 0])
        assert np.array_equal(found["observations.0.near"][acted][:, 1] % 5, found["actions.0"][acted])


def test_what_is_told_to_nobody_changes_nothing() -> None:
    """Answers for rows that are empty may be anything: they are not recorded, and neither are those for other policies' rows."""

    def unsound(observations: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.clip(observations[:, :1] / np.abs(observations).max(1, keepdims=True), -1, 1)

    env_fn = partial(Herd, actions=spaces.Box(-1, 1, (1,), np.float32))
    names = {"ant": "x", "bee": "y", "cat": "x", "late": "y"}
    found = ran(env_fn, {"x": unsound, "y": unsound}, steps=60, policy_of=names.__getitem__).trajectories
    assert not found["actions.0"][~found["acted"]].any()
    assert np.isfinite(found["actions.0"]).all()


# ---------------------------------------------------------------------- mistakes


def fails(policy: Any, action_space: spaces.Space[Any] = FIVE, masks: str = "") -> str:
    with MultiAgentRunner(partial(Herd, masks, action_space), {"all": policy}, num_envs=3, executor="inline") as runner:
        with pytest.raises((ValueError, TypeError)) as caught:
            runner.run(steps=60, seed=0, progress_bar=False)
        return message(caught.value)


@pytest.mark.parametrize("reader", ["runner", "evaluate"])
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (["x"], "actions of type <U1; expected are whole numbers"),
        ([None], "actions of type object; expected are whole numbers"),
        ([1j], "actions of type complex128; expected are whole numbers"),
        ([[1], [1, 2]], r"\[\[1\], \[1, 2\]\].* observations; expected is an array of shape"),
    ],
)
def test_answers_that_are_no_numbers_are_refused(reader: str, answer: Any, words: str) -> None:
    def answers(seen: Any) -> Any:
        return answer if len(answer) > 1 else answer * len(seen)

    if reader == "runner":
        told = fails(answers)
    else:
        with pytest.raises(ValueError, match="the policy") as caught:
            evaluate({"all": answers}, partial(Herd, "", FIVE), episodes=1, seed=0, workers=1)
        told = message(caught.value)
    assert re.search(f"the policy 'all' returned {words}", told)


def test_wrong_answers_are_refused() -> None:
    def last_is_wrong(observations: Any) -> Any:
        return np.where(np.arange(len(observations)) == 5, 5, 0)  # the second agent of environment 1 is the sixth row

    assert "'all' returned values of shape (12, 7) for 12 observations of (12, 5)" in fails(Residual(0, 4, 7))
    assert "returned actions of shape (1,) for 12 observations; expected is (12,)" in fails(lambda seen: np.zeros(1, int))
    assert "returned actions of shape (12, 1)" in fails(lambda seen: np.zeros((12, 1), int))
    assert "'all' returned actions of type float64; expected are whole numbers" in fails(lambda seen: np.zeros(12))
    assert "'all' returned list, not a tensor or a distribution" in fails(Scores("list"))
    text = fails(last_is_wrong)
    assert "(all) chose the action 5 for agent 'bee' of environment 1, which has Discrete(5)" in text
    assert "policies[all]" in text and "tag (0, 0)" in text
    assert "chose the action -1 for agent 'ant' of environment 0" in fails(lambda seen: np.full(12, -1))
    text = fails(lambda seen, masks: np.argmin(masks, 1), masks="observation")
    assert "chose the action 0 for agent 'ant' of environment 0" in text and "the action mask [0, 1, 1, 0, 1]" in text
    box = spaces.Box(-1, 1, (2,), np.float32)
    assert "chose the action [nan nan] for agent 'ant'" in fails(lambda seen: np.full((12, 2), np.nan), box)
    assert "chose the action [2. 2.] for agent 'ant'" in fails(lambda seen: np.full((12, 2), 2.0), box)


@pytest.mark.parametrize("actions", [7, 3])
def test_a_stacked_network_with_the_wrong_number_of_actions(actions: int) -> None:
    with pytest.raises(ValueError, match=rf"'all'.* {actions}\b"):
        ran(Herd, {"all": mlp(0, 4, actions)}, steps=60)


def test_a_network_for_other_observations() -> None:
    with MultiAgentRunner(Herd, {"all": mlp(0, 3, 5)}, executor="inline") as runner:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied") as caught:
            runner.run(steps=3, progress_bar=False)
    assert "policies[all]" in message(caught.value)


def test_an_exception_of_a_policy() -> None:
    def raises(observations: Any) -> Any:
        raise ZeroDivisionError("no idea")

    for place in ({"executor": "inline"}, {"executor": "threads", "workers": 2}):
        with MultiAgentRunner(Herd, {"all": raises}, num_envs=3, **place) as runner:  # type: ignore[arg-type]
            with pytest.raises(ZeroDivisionError, match="no idea"):
                runner.run(steps=3, progress_bar=False)


def test_models_for_other_spaces_are_refused() -> None:
    narrow = spaces.Box(-1, 1, (3,), np.float32)
    with pytest.raises(ValueError, match=r"the policy 'x' was trained to observe .* and its agents ant, bee, cat, ... observe"):
        MultiAgentRunner(Herd, {"x": made_by(PPO, Trained(FIVE, narrow))}, executor="inline")
    with pytest.raises(ValueError, match=r"the policy 'x' was trained for the actions Discrete\(4\), and its agents"):
        MultiAgentRunner(Herd, {"x": made_by(PPO, Trained(spaces.Discrete(4)))}, executor="inline")


def test_a_random_policy_says_what_it_is() -> None:
    assert repr(RandomPolicy()) == "RandomPolicy()"
    assert by_sum(np.zeros((2, 4))).shape == (2,)


@pytest.mark.slow
def test_a_softmax_at_the_end_of_what_is_not_stacked() -> None:
    """Probabilities are drawn from as they are, whether or not a network can be stacked."""
    (group,) = probe_agents(Still).groups
    network = nn.Sequential(mlp(0, *(group.space.shape or ()), 5), nn.Hardtanh(-99, 99), nn.Softmax(-1))
    assert by_torch(network, group.space)
    with torch.inference_mode():
        is_drawn_from(actions_of(network), network(torch.from_numpy(Still().sight[None]))[0].numpy())


def test_a_softmax_that_gives_actions_is_kept() -> None:
    network = nn.Sequential(nn.Linear(4, 2), nn.Softmax(-1))
    found = ran(partial(Herd, actions=spaces.Box(0, 1, (2,), np.float32)), {"all": network}, steps=30).trajectories
    assert np.allclose(found["actions.0"][found["acted"]].sum(-1), 1, atol=1e-6)


def test_weights_travel_from_the_cpu() -> None:
    (group,) = probe_agents(Herd).groups
    with pytest.raises(NotImplementedError, match="meta"):  # what lies elsewhere is moved, which from there is not possible
        part_of("all", mlp(0, 4, 5).to("meta"), group)
