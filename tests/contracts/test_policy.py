"""What every policy has to do, whoever acts with it."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from policy_adapter import STREAMS, USERS, Bound, by_actor, fit, source_of
from policy_cases import ALL, CASES, Array, Backwards, Case, Seen, backwards, choices_of, made, policy_of, shown
from torch import nn
from torch.distributions import Bernoulli, Categorical, Distribution, Independent

from reactor_torch import SquashedGaussian, kernels

STEPS, ROWS = 4, 5
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-5}
"""How far numbers may be from torch's, which promises no last bits."""

pytestmark = pytest.mark.usefixtures("one_thread")

# ---------------------------------------------------------------------- what does not hold yet

NOISE = {
    ("evaluate", "gsde"): "a matrix is drawn for each step",
    ("player", "gsde"): "its rounds have one step, and a matrix is drawn for each",
    ("player", "choice, dense: hook"): "it asks for torch's stream before the noise, and an actor after it",
    ("player", "choice, dense: forward"): "likewise",
    ("player", "choice, image: hook"): "likewise",
    ("player", "masked choices: hook"): "likewise",
}
"""Who draws other actions than an actor with the same generator, in cases whose names begin or end so, and why."""
ITSELF = (
    "lstm choice, elu", "sac, elu", "ppo choice, dense: hook of features", "lstm choice: hook", "sac: hook", "sac: hook of all",
    "tqc: forward", "crossq: hook", "ppo choice: own features", "ppo choice: own prediction", "masked choice: own features",
)  # fmt: skip
"""Policies that draw by themselves, from torch's generator, which ``evaluate`` and the runner seed for each step."""
NOISE |= {("runner", name): "likewise, for each tick" for name in ("gsde, elu", "gsde: forward", "gsde, sac, elu")}
SAME_NOISE = ("ppo bits", "at its bounds")
"""Cases in whose names this is: of a uniform number a bit is the same, and noise changes nothing beyond a bound."""


def draws_otherwise(name: str, user: str) -> str | None:
    """Why somebody draws other actions than an actor with the same generator."""
    if not CASES[name].draws or any(part in name for part in SAME_NOISE):
        return None
    if user in ("evaluate", "runner") and name in ITSELF:
        return "it seeds torch's generator for each step"
    return next((why for (who, part), why in NOISE.items() if who == user and (name.startswith(part) or name.endswith(part))), None)


# ---------------------------------------------------------------------- rows

TRAINED = [name for name, case in CASES.items() if case.trainer]
PLAIN = [name for name in TRAINED if CASES[name].plain]
MASKED = [name for name in TRAINED if CASES[name].masked]
JUDGED = [name for name in TRAINED if CASES[name].judged]
DRAWN = [name for name, case in CASES.items() if case.draws and not case.touched]


Test = TypeVar("Test", bound=Callable[..., Any])


def _spread(
    parameters: Any,
    found: Sequence[tuple[str, ...]],
    kept: int,
    why: Callable[..., str | None] = lambda *one: None,
    dear: Callable[..., bool] = lambda *one: False,
) -> Callable[[Test], Test]:
    """Parametrizes a test: ``kept`` are in the default set, spread over all, other ones for each test.

    Args:
        parameters: Of the test.
        found: Their values.
        kept: How many.
        why: From values to why it fails today, if it does.
        dear: From values to whether it takes so long that it is ``slow`` in any case.
    """
    cheap = [number for number, one in enumerate(found) if not dear(*one)]
    assert 0 < kept < len(cheap), len(cheap)

    def decorate(test: Test) -> Test:
        first = zlib.crc32(test.__name__.encode())
        chosen = {cheap[(first + len(cheap) * number // kept) % len(cheap)] for number in range(kept)}
        every = []
        for number, one in enumerate(found):
            reason = why(*one)
            marks: list[Any] = [pytest.mark.slow] * (number not in chosen)
            if reason is not None:
                marks.append(pytest.mark.xfail(strict=True, reason=reason, raises=(AssertionError, ValueError)))
            every.append(pytest.param(*one, marks=marks, id="-".join(one)))
        decorated: Test = pytest.mark.parametrize(parameters, every)(test)
        return decorated

    return decorate


def cases(names: Sequence[str], kept: int, dear: Callable[[str], bool] = lambda name: False) -> Callable[[Test], Test]:
    """A test for each of them; ``kept`` are in the default set."""
    return _spread("name", [(name,) for name in names], kept, dear=dear)


def users(
    names: Sequence[str],
    kept: int,
    which: Sequence[str] = ALL,
    why: Callable[[str, str], str | None] = lambda name, user: None,
) -> Callable[[Test], Test]:
    """A test for each of them and everybody who acts with it.

    Args:
        names: The cases.
        kept: How many are in the default set.
        which: Users that are tried.
        why: From a case and a user to why it fails today, if it does.
    """
    pairs = [(name, user) for name in names for user in CASES[name].users if user in which]
    return _spread(("name", "user"), pairs, kept, why, tries_out)


def images(name: str) -> bool:
    """Whether convolutions take their time."""
    return "Cnn" in str(CASES[name].kind)


def tries_out(name: str, user: str) -> bool:
    """Whether it takes time to try a policy out, as ``evaluate`` does with torch's; or there are convolutions."""
    return images(name) or (user == "evaluate" and (not CASES[name].plain or CASES[name].remembers))


def bound(name: str, steps: int = STEPS, rows: int = ROWS) -> tuple[Bound, Seen, Array | None]:
    """The policy of a case with its weights, what it sees, and masks."""
    case, source = CASES[name], source_of(made(name))
    seen, masks = case.seen(steps, rows), case.masks(steps, rows)
    return Bound(source.policy, source.weights(), seen, masks), seen, masks


def same_bits(found: Any, expected: Any) -> None:
    """Arrays, to the last bit; their types, too."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes(), np.argwhere(found != expected)[:3]


def in_space(case: Case, actions: Array) -> None:
    """All are in the space."""
    assert all(map(case.actions.contains, actions.reshape(-1, *case.actions.shape))), actions.max((0, 1))


def same_numbers(found: Any, expected: Any, exact: bool = False) -> None:
    """Actions: choices are the same, and numbers are close."""
    if exact or np.asarray(expected).dtype.kind in "iub":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, **CLOSE)


# ---------------------------------------------------------------------- (1) the best actions


def predicted(case: Case, model: Any, seen: Seen, masks: Array | None) -> Array:
    """What the library says, ``(steps, rows, *shape)``."""
    module: Any = policy_of(model)
    if not case.trainer:
        with torch.no_grad():
            given = module(torch.from_numpy(seen[""]))
        given = given.mode if isinstance(given, Distribution) else given
        if isinstance(case.actions, spaces.Box):
            return np.clip(given.numpy(), case.actions.low, case.actions.high)
        return (given.argmax(-1) if given.is_floating_point() else given).numpy() + int(case.actions.start)
    state, found = None, []
    for step in range(len(next(iter(seen.values())))):
        more: dict[str, Any] = {} if masks is None else {"action_masks": masks[step]}
        if case.remembers:
            more = {"state": state, "episode_start": np.full(next(iter(seen.values())).shape[1], step == 0)}
        actions, state = module.predict(shown(seen, step), deterministic=True, **more)
        found.append(actions)
    return np.array(found)


@cases(list(CASES), 24)
def test_its_best_actions_are_what_the_library_predicts(name: str) -> None:
    case, model = CASES[name], made(name)
    steps, rows = (STEPS, ROWS) if case.trainer else (STEPS * ROWS, 1)
    seen, masks = case.seen(steps, rows), case.masks(steps, rows)
    found, expected = USERS[case.users[0]](case, model, seen, masks, None), predicted(case, model, seen, masks)
    assert found.shape == expected.shape
    same_numbers(found, expected)
    assert len(np.unique(expected.reshape(steps * rows, -1), axis=0)) > 1 or name.endswith("bounds")  # else little is said


# ---------------------------------------------------------------------- (2) probabilities and values


def judged(case: Case, model: Any, seen: Seen, raw: Array, masks: Array | None) -> tuple[Array, Array]:
    """What the library says of actions: values and logarithms of their probabilities, ``(steps, rows)``."""
    policy: Any = policy_of(model)
    steps, rows = raw.shape[:2]

    def flat(part: Array) -> Array:  # rows are sequences
        return np.ascontiguousarray(part.swapaxes(0, 1)).reshape(steps * rows, *part.shape[2:])

    observations = {key: flat(part) for key, part in seen.items()}
    tensors, _ = policy.obs_to_tensor(observations.get("", observations))
    actions = torch.from_numpy(flat(raw))
    actions = actions.long() if isinstance(case.actions, spaces.Discrete) else actions.float()
    more: dict[str, Any] = {} if masks is None else {"action_masks": flat(masks)}
    if case.remembers:
        zeros = torch.zeros(policy.lstm_actor.num_layers, rows, policy.lstm_actor.hidden_size)
        starts = torch.zeros(rows, steps)
        starts[:, 0] = 1
        more = {"lstm_states": type("States", (), {"pi": (zeros, zeros), "vf": (zeros, zeros)}), "episode_starts": starts.flatten()}
    policy.set_training_mode(False)
    with torch.no_grad():
        values, log_prob, _ = policy.evaluate_actions(tensors, actions, **more)
    return values.reshape(rows, steps).T.numpy(), log_prob.reshape(rows, steps).T.numpy()


@cases(JUDGED, 10)
def test_probabilities_and_values_are_the_librarys(name: str) -> None:
    policy, seen, masks = bound(name)
    actions = policy.round(np.random.default_rng(3))
    raw = actions if policy.raw is None else policy.raw
    values, log_prob = judged(CASES[name], made(name), seen, raw, masks)
    np.testing.assert_allclose(policy.log_prob, log_prob, **CLOSE)
    np.testing.assert_allclose(policy.values, values, **CLOSE)
    assert log_prob.std() > 0.01 and values.std() > 0.01


def by_torch(policy: Bound, raw: Array) -> Array:
    """Logarithms of the probabilities of drawn actions by torch's distributions, ``(steps, rows)``."""
    policy.bound.state[...] = 0
    outputs = torch.from_numpy(np.array([policy.outputs(step) for step in range(len(raw))]))
    weights = {name: torch.from_numpy(policy.weights[name]) for name in policy.weights.dtype.names or ()}
    rows = raw.reshape(outputs.shape[0] * outputs.shape[1], -1)
    found = policy.policy.distribution.by_torch(outputs.flatten(0, 1), weights)  # type: ignore[union-attr]
    parts = [rows[:, at] for at in range(len(found))] if isinstance(found[0], Categorical) else [rows.astype(np.float32)]
    each = [one.log_prob(torch.from_numpy(part)) for one, part in zip(found, parts, strict=True)]
    return torch.stack(each).sum(0).reshape(outputs.shape[:2]).numpy()  # type: ignore[no-any-return]


@cases([name for name in PLAIN if CASES[name].draws and not name.endswith("bounds")], 10)
def test_probabilities_are_those_of_torchs_distributions(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, *_ = bound(name)
    actions = policy.round(np.random.default_rng(3))
    raw = actions if policy.raw is None else policy.raw
    found, expected = policy.log_prob, by_torch(policy, raw)
    assert found is not None
    inner: Any = (
        np.abs(raw).max(-1) < 0.99 if policy.policy.squashed else np.ones(found.shape, np.bool_)
    )  # else tanh has no inverse
    near = 1e-3 if policy.policy.squashed else 1e-5  # SB3 adds 1e-6 to the slope of tanh
    assert inner.sum() > 4
    np.testing.assert_allclose(found[inner], expected[inner], rtol=near, atol=near)
    policy.bound.state[...] = 0
    outputs = np.array([policy.outputs(step) for step in range(len(raw))])
    monkeypatch.setattr(kernels, "compiled", None)  # who has no extension
    again = policy.policy.distribution.log_prob(outputs, raw, policy.weights)  # type: ignore[union-attr]
    np.testing.assert_allclose(again[inner], expected[inner], rtol=near, atol=near)


def test_squashed_actions_are_the_same_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to rounding, with log_std beyond both bounds, too."""
    outputs, noise = np.random.default_rng(3).normal(0, 8, (2, 50, 6)).astype(np.float32)
    distribution, found = SquashedGaussian((3,), low=-5.0), []
    for compiled in (kernels.compiled, None):
        monkeypatch.setattr(kernels, "compiled", compiled)
        found.append([np.array(distribution.mode(outputs)), np.array(distribution.drawing(50)(outputs, noise[:, :3]))])
    np.testing.assert_allclose(*found, atol=1e-6)
    assert np.abs(found[0][0] - found[0][1]).max() > 0.5 and (outputs[:, 3:] > 2).any() and (outputs[:, 3:] < -5).any()


# ---------------------------------------------------------------------- (3) drawn actions

COUNT = 20_000
CHANCE = 1e-4
"""How seldom a test that counts fails by chance; its seeds are fixed, but other processors may have other bits."""


def distributions_of(case: Case, model: Any, seen: Seen, masks: Array | None) -> list[Any]:
    """The library's for one observation, of each choice or of all numbers."""
    policy: Any = policy_of(model)
    policy.train(False)
    with torch.no_grad():
        if not case.trainer:
            found = policy(torch.from_numpy(seen[""][0]))
            return [Categorical(logits=found) if isinstance(found, torch.Tensor) else found]
        tensors, _ = policy.obs_to_tensor(shown(seen, 0))
        if hasattr(policy, "actor"):
            mean, log_std, more = policy.actor.get_action_dist_params(tensors)
            return [policy.actor.action_dist.proba_distribution(mean, log_std, **more).distribution]
        if case.remembers:
            zeros = torch.zeros(1, 1, policy.lstm_actor.hidden_size)
            found, _ = policy.get_distribution(tensors, (zeros, zeros), torch.ones(1))
        else:
            found = policy.get_distribution(tensors, **({} if masks is None else {"action_masks": masks[0]}))
    parts = getattr(found, "distributions", None) or found.distribution
    return parts if isinstance(parts, list) else [parts]


def cells_of(case: Case, model: Any, seen: Seen, masks: Array | None, actions: Array) -> tuple[Array, Array]:
    """In which cell each action is, and how likely each cell is: cells of all numbers of an action together."""
    parts: list[tuple[Array, Array]] = []  # of each number of an action
    of_each = distributions_of(case, model, seen, masks)
    flat = actions.reshape(len(actions), -1)
    if isinstance(case.actions, spaces.Box):
        squashed = case.trainer and policy_of(model).squash_output
        given = of_each[0].base_dist if isinstance(of_each[0], Independent) else of_each[0]
        for at, (mean, std) in enumerate(zip(given.mean.flatten(), given.stddev.flatten(), strict=True)):
            low, high = case.actions.low[at], case.actions.high[at]
            shares = torch.arange(1, 8) / 8
            edges = mean + std * torch.special.ndtri(shares)
            if squashed:
                edges = low + 0.5 * (edges.tanh() + 1) * (high - low)
            inner = (edges > low) & (edges < high)  # what lies beyond is clipped
            ends = torch.cat([torch.zeros(1), shares[inner], torch.ones(1)]).numpy()
            parts.append((np.searchsorted(edges[inner].numpy(), flat[:, at], "right"), np.diff(ends)))
    elif isinstance(of_each[0], Bernoulli):
        parts = [(flat[:, at], np.array([1 - one, one])) for at, one in enumerate(of_each[0].probs.flatten().tolist())]
    else:
        start = int(getattr(case.actions, "start", 0)) if isinstance(case.actions, spaces.Discrete) else 0
        parts = [(flat[:, at] - start, one.probs.flatten().numpy()) for at, one in enumerate(of_each)]
    cell, likely = np.zeros(len(actions), np.int64), np.ones(1)
    for of_part, shares in parts:
        cell = cell * len(shares) + of_part.astype(np.int64)
        likely = np.outer(likely, shares).ravel()
    return cell, likely


def as_likely(case: Case, model: Any, seen: Seen, masks: Array | None, actions: Array) -> None:
    """A chi-square test of actions for one observation."""
    cell, likely = cells_of(case, model, seen, masks, actions)
    found, expected = np.bincount(cell, minlength=len(likely)), likely * len(actions) / likely.sum()
    assert not found[expected < 1e-6].any()  # what is forbidden
    some = expected > 5
    assert found[~some].sum() < 30
    square = float((np.square(found - expected)[some] / expected[some]).sum())
    half, freedom = torch.tensor([square, float(some.sum() - 1)], dtype=torch.float64) / 2
    chance = float(torch.special.gammaincc(freedom, half))  # of a square that is larger
    assert some.sum() > 1 and chance > CHANCE, (chance, found, expected)


def test_what_is_drawn_otherwise_is_noticed() -> None:
    """Of 20,000 actions one in 30 is another one."""
    case, model = CASES["ppo choice, dense"], made("ppo choice, dense")
    seen = case.seen(1, 1)
    actions = by_actor(case, model, seen, None, 1, COUNT)[0]
    as_likely(case, model, seen, None, actions)
    actions[::30] = 0
    with pytest.raises(AssertionError):
        as_likely(case, model, seen, None, actions)


def drawn(name: str, user: str, count: int = COUNT) -> None:
    """Draw so many actions for one observation, and count them."""
    case, model = CASES[name], made(name)
    held = case.remembers or name.startswith("gsde")  # of what is drawn at one step, another one depends
    steps = 1000 if user == "evaluate" else 1 if held else 20
    one, masks = case.seen(1, 1), case.masks(1, 1)
    seen = {key: np.repeat(part, steps, 0) for key, part in one.items()}
    masked = None if masks is None else np.repeat(masks, steps, 0)
    actions = USERS[user](case, model, seen, masked, 1, count // steps)
    as_likely(case, model, one, masks, actions.reshape(count, *actions.shape[2:]))


@cases([name for name in DRAWN if CASES[name].users[0] == "actor"], 9, images)
def test_drawn_actions_are_as_likely_as_the_library_says(name: str) -> None:
    drawn(name, "actor")


OTHERS = [name for name in DRAWN if name.endswith(", dense") or name.startswith(("masked", "module")) or name in ("sac", "gsde")]


@users(OTHERS, 2, ("joint", "evaluate", "runner"))
def test_so_are_those_of_others(name: str, user: str) -> None:
    drawn(name, user, COUNT // 4)


@cases([name for name, case in CASES.items() if case.trainer and not case.draws], 6)
def test_what_draws_nothing_acts_best(name: str) -> None:
    policy, *_ = bound(name)
    same_bits(policy.round(np.random.default_rng(3)), policy.modes())


# ---------------------------------------------------------------------- (4) the same numbers, the same actions


@cases(TRAINED, 14)
def test_twice_the_same_whatever_else_is_drawn(name: str) -> None:
    found: list[Any] = []
    states: list[torch.Tensor] = []

    def between() -> None:
        torch.rand(5 * len(found)), np.random.random(5 * len(found))
        states.append(torch.random.get_rng_state())

    for _ in range(2):
        policy, *_ = bound(name)
        actions = policy.round(np.random.default_rng(7), between)
        assert torch.equal(states[-1], torch.random.get_rng_state())  # nobody else's numbers are drawn
        found.append([actions, policy.raw, policy.log_prob, policy.values])
    for one, other in zip(*found, strict=True):
        if one is not None:
            same_bits(one, other)
    if CASES[name].draws and not name.endswith("bounds"):
        other = bound(name)[0].round(np.random.default_rng(8))
        assert other.tobytes() != found[0][0].tobytes()


@users(list(CASES), 5, ALL[1:])
def test_so_it_is_for_all_who_act(name: str, user: str) -> None:
    case, model = CASES[name], made(name)
    seen, masks = case.seen(24, 1), case.masks(24, 1)
    first = USERS[user](case, model, seen, masks, 3)
    in_space(case, first)
    torch.rand(5), np.random.random(5)
    before = torch.random.get_rng_state(), np.random.get_state(legacy=False)["state"]
    same_bits(USERS[user](case, model, seen, masks, 3), first)
    if user != "joint":  # a trainer of its own is made there
        assert torch.equal(before[0], torch.random.get_rng_state())
        np.testing.assert_equal(np.random.get_state(legacy=False)["state"], before[1])
    if case.draws and not name.endswith("bounds"):
        assert USERS[user](case, model, seen, masks, 4).tobytes() != first.tobytes()


# ---------------------------------------------------------------------- (5) rows


@cases(TRAINED, 16)
def test_a_row_is_answered_as_if_it_was_alone(name: str) -> None:
    """To the last bit where the extension answers; torch promises none."""
    case, among = CASES[name], 64
    policy, seen, masks = bound(name, 2, among)
    best, exact = policy.modes(), case.plain
    policy.round(np.random.default_rng(3))
    for row in (0, 37, among - 1):
        part = None if masks is None else masks[:, row : row + 1]
        alone = Bound(policy.policy, policy.weights, {key: np.array(one[:, row : row + 1]) for key, one in seen.items()}, part)
        same_numbers(alone.modes()[:, 0], best[:, row])
        alone.round(np.random.default_rng(3))
        for step in (1, 0) if not case.remembers else ():
            found, expected = alone.outputs(step)[0], policy.outputs(step)[row]
            same_bits(found, expected) if exact else np.testing.assert_allclose(found, expected, **CLOSE)
        if alone.values is not None and policy.values is not None:
            found, expected = alone.values[:, 0], policy.values[:, row]
            same_bits(np.array(found), np.array(expected)) if exact else np.testing.assert_allclose(found, expected, **CLOSE)


# ---------------------------------------------------------------------- (6) a value that travels


@cases(TRAINED, 14)
def test_it_travels_without_weights_and_acts_the_same(name: str) -> None:
    case, source = CASES[name], source_of(made(name))
    sent = pickle.dumps(source.policy)
    weights, (seen, masks) = source.weights(), (case.seen(STEPS, ROWS), case.masks(STEPS, ROWS))
    some = [part for part in source.module.state_dict().values() if part.is_floating_point() and part.numel() > 8]
    assert some and not any(part.cpu().numpy().ravel()[:8].tobytes() in sent for part in some)
    here, there = (Bound(policy, weights, seen, masks) for policy in (source.policy, pickle.loads(sent)))
    same_bits(here.round(np.random.default_rng(3)), there.round(np.random.default_rng(3)))
    for one, other in ((here.raw, there.raw), (here.log_prob, there.log_prob), (here.values, there.values)):
        if one is not None:
            same_bits(one, other)


VALUES = [name for name in PLAIN if not CASES[name].touched]


@cases(VALUES, 8)
def test_what_the_extension_evaluates_is_compared_as_a_value(name: str) -> None:
    policy = source_of(made(name)).policy
    assert policy == pickle.loads(pickle.dumps(policy))
    same = [other for other in VALUES if other != name and policy == source_of(made(other)).policy]
    alike = {"sac": ["tqc"], "tqc": ["sac"], "gsde, sac": ["gsde, tqc"], "gsde, tqc": ["gsde, sac"]}
    assert same == alike.get(name, [])  # which act alike, and learn otherwise


# ---------------------------------------------------------------------- (7) weights are read where they lie


@cases([name for name in TRAINED if not name.endswith("bounds")], 14)
def test_weights_that_are_overwritten_are_seen(name: str) -> None:
    case, source = CASES[name], source_of(made(name))
    seen, masks, weights = case.seen(STEPS, ROWS), case.masks(STEPS, ROWS), source.weights()
    other = weights.copy()
    random = np.random.default_rng(5)
    for field in other.dtype.names or ():
        if other[field].dtype.kind == "f":
            other[field][...] += np.abs(random.normal(size=other[field].shape)) * 0.5  # variances stay positive
    here, there = Bound(source.policy, weights.copy(), seen, masks), Bound(source.policy, other, seen, masks)
    before, expected = here.round(np.random.default_rng(3)), there.round(np.random.default_rng(3))
    outputs = here.outputs(1)
    here.weights[...] = other
    same_numbers(here.round(np.random.default_rng(3)), expected, exact=case.plain)
    assert not np.array_equal(here.outputs(1), outputs)
    for one, its in ((here.log_prob, there.log_prob), (here.values, there.values)):
        if one is not None:
            np.testing.assert_allclose(one, its, **CLOSE)
    same_numbers(here.modes(), there.modes(), exact=case.plain)
    assert not np.array_equal(before, expected) or not case.draws


# ---------------------------------------------------------------------- (8) masks


@users(MASKED, 5)
def test_nothing_forbidden_is_done(name: str, user: str) -> None:
    case, model, steps = CASES[name], made(name), 40
    seen, masks = case.seen(steps, 1), case.masks(steps, 1)
    assert masks is not None
    for draws in (None, 1):
        actions = USERS[user](case, model, seen, masks, draws)[:, 0].reshape(steps, -1)
        begins = np.cumsum([0, *choices_of(case.actions)[:-1]])
        assert masks[:, 0][np.arange(steps)[:, None], begins + actions].all()


@users(MASKED, 5)
@pytest.mark.parametrize("draws", [None, 1], ids=["best", "drawn"])
def test_masks_that_forbid_everything_are_an_error(name: str, user: str, draws: int | None) -> None:
    """Of one choice."""
    case, model = CASES[name], made(name)
    seen, masks = case.seen(STEPS, 1), case.masks(STEPS, 1)
    assert masks is not None
    masks[2, 0, -choices_of(case.actions)[-1] :] = False
    if user == "runner":  # there, an agent that has no legal action only waits: the first choice stands for all
        assert np.ravel(USERS[user](case, model, seen, masks, draws)[2])[-1] == 0
        return
    with pytest.raises(ValueError, match="forbid"):
        USERS[user](case, model, seen, masks, draws)


# ---------------------------------------------------------------------- (9) actions fit


@cases(TRAINED, 14)
def test_actions_are_in_their_space(name: str) -> None:
    policy, *_ = bound(name, 16, 8)
    space = CASES[name].actions
    actions = policy.round(np.random.default_rng(3))
    assert actions.dtype == space.dtype or CASES[name].masked
    for one in (actions, policy.modes()):
        assert all(map(space.contains, one.reshape(-1, *space.shape)))
    if policy.raw is not None:
        same_bits(np.array([fit(policy.policy, one) for one in policy.raw]), actions)


@cases([name for name in TRAINED if isinstance(CASES[name].actions, spaces.Box)], 8)
def test_whatever_a_policy_says_fits(name: str) -> None:
    policy, squashed = source_of(made(name)).policy, policy_of(made(name)).squash_output
    space = CASES[name].actions
    said = [-1, np.nextafter(np.float32(-1), np.float32(0)), -0.3, 0, 0.5, np.nextafter(np.float32(1), np.float32(0)), 1]
    said = said if squashed else [-np.inf, -1e30, *said, 1e30, np.inf]
    raw = np.array(list(product(said, said)), np.float32)
    found = fit(policy, raw)
    assert all(map(space.contains, found))
    expected = space.low + 0.5 * (raw.astype(np.float64) + 1) * (space.high - space.low) if squashed else raw
    np.testing.assert_allclose(found, np.clip(expected, space.low, space.high), rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------------- (10) all who act


@users([name for name in CASES if len(CASES[name].users) > 1], 20, ALL[1:])
def test_all_who_act_take_the_same_best_actions(name: str, user: str) -> None:
    """To the last bit, where no torch is asked."""
    case, model = CASES[name], made(name)
    seen, masks = case.seen(24, 1), case.masks(24, 1)
    found, expected = (USERS[one](case, model, seen, masks, None) for one in (user, case.users[0]))
    in_space(case, found)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    same_numbers(found, expected, exact=case.plain or user in ("player", "joint"))


@users(TRAINED, 12, ALL[1:], draws_otherwise)
def test_all_who_act_draw_the_same_actions_from_the_same_noise(name: str, user: str) -> None:
    """An actor is given the generator that the other one has for its first row."""
    case, model = CASES[name], made(name)
    seen, masks = case.seen(24, 1), case.masks(24, 1)
    found = USERS[user](case, model, seen, masks, 5)
    expected = by_actor(case, model, seen, masks, STREAMS[user](5))
    same_numbers(found, expected, exact=case.plain)


# ---------------------------------------------------------------------- (11) what somebody has changed


@cases(TRAINED, 16)
def test_it_is_asked_without_torch_exactly_if_nobody_has_changed_it(name: str) -> None:
    assert (source_of(made(name)).why_torch is None) == CASES[name].plain


@contextmanager
def hook(module: Any, layer: Any) -> Iterator[str]:
    handle = layer.register_forward_hook(backwards)
    yield "hook"
    handle.remove()


@contextmanager
def hook_before(module: Any, layer: Any) -> Iterator[str]:
    handle = layer.register_forward_pre_hook(lambda module, given: None)
    yield "hook"
    handle.remove()


@contextmanager
def hook_of_all(module: Any, layer: Any) -> Iterator[str]:
    handle = module.register_forward_hook(lambda module, given, found: None)
    yield "hook"
    handle.remove()


@contextmanager
def forward_of_a_layer(module: Any, layer: Any) -> Iterator[str]:
    layer.forward = Backwards(layer)
    yield "forward"
    del layer.forward


@contextmanager
def forward_of_all(module: Any, layer: Any) -> Iterator[str]:
    module.forward = type(module).forward.__get__(module)
    yield "forward"
    del module.forward


def method(named: str) -> Callable[[Any, Any], Any]:
    @contextmanager
    def touch(module: Any, layer: Any) -> Iterator[str]:
        before = type(module)

        def own(self: Any, *given: Any, **more: Any) -> Any:
            return getattr(before, named)(self, *given, **more)

        module.__class__ = type("Own", (before,), {named: own, "__module__": __name__})
        yield named
        module.__class__ = before

    return touch


TOUCHES: dict[str, Callable[[Any, Any], Any]] = {
    "hook": hook, "hook before": hook_before, "hook of all": hook_of_all, "forward of a layer": forward_of_a_layer,
    "forward of all": forward_of_all, "forward": method("forward"), "extract_features": method("extract_features"),
}  # fmt: skip


def touched(name: str, touch: str) -> tuple[str, str | None]:
    """A word for what somebody has changed of a policy, and why torch evaluates it then."""
    model = made(name)
    module = source_of(model).module
    last = [part for part in module.modules() if type(part) is nn.Linear][-1]
    with TOUCHES[touch](module, last) as named:
        found = source_of(model).why_torch
    assert source_of(model).why_torch is None  # whoever takes it back has not changed anything
    return named, found


@_spread(("name", "touch"), list(product(PLAIN, TOUCHES)), 24)
def test_a_change_is_noticed(name: str, touch: str) -> None:
    assert touched(name, touch)[1] is not None


@_spread(("name", "touch"), list(product(["ppo choice, dense", "lstm box", "dqn", "sac"], TOUCHES)), 4)
def test_a_sentence_names_it(name: str, touch: str) -> None:
    named, found = touched(name, touch)
    assert named in (found or "")
