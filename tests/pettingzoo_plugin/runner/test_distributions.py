"""Policies that return distributions or draw by themselves: from the very distribution, from streams of their own; late masks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from every_other import in_turn
from gymnasium import spaces
from places import PLACES
from runner_envs import FIVE, Herd, Junction, Residual, Still, by_sum, message, mlp, ran
from torch import distributions as D  # noqa: N812
from torch import nn

from reactor_pettingzoo import RandomPolicy

Array = npt.NDArray[Any]
Make = Callable[[int], Any]


class Returns(nn.Module):
    """Returns what is made for a number of rows."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.make, self.layer = make, nn.Linear(2, 1)

    def forward(self, seen: torch.Tensor) -> Any:
        return self.make(len(seen))


def drawn(space: spaces.Space[Any], make: Make, deterministic: bool = False) -> Array:
    report = ran(lambda: Still(space), {"all": Returns(make)}, 4, steps=4000, deterministic=deterministic)
    actions: Array = report.trajectories["actions.0"]
    return actions.reshape(-1, *(space.shape or ()))


def refused(space: spaces.Space[Any], make: Make, error: type[Exception], deterministic: bool = False) -> str:
    class Untouched(Still):
        def step(self, actions: Any) -> Any:
            raise AssertionError("a step was taken")

    with pytest.raises(error) as caught:
        ran(lambda: Untouched(space), {"all": Returns(make)}, 2, steps=8, deterministic=deterministic)
    return message(caught.value)


def box(size: int) -> spaces.Box:
    return spaces.Box(-50, 50, (size,), np.float64)


ONE = box(1)
TWO = box(2)
BITS, PAIR = spaces.MultiBinary(2), spaces.MultiDiscrete([3, 3], start=[0, 5])
TANH = [D.TanhTransform()]
CONTINUOUS: dict[str, tuple[spaces.Box, Make, Make, Any]] = {
    # The space; what is returned; what it is compared with, of many; the mode.
    "uniform": (ONE, lambda n: D.Uniform(torch.zeros(n, 1), 1.0), lambda n: D.Uniform(torch.zeros(n, 1), 1.0), None),
    "beta": (ONE, lambda n: D.Beta(torch.full((n, 1), 2.0), 6.0), lambda n: D.Beta(torch.full((n, 1), 2.0), 6.0), [1 / 6]),
    "log-normal": (
        ONE,
        lambda n: D.LogNormal(torch.zeros(n, 1), 0.5),
        lambda n: D.LogNormal(torch.zeros(n, 1), 0.5),
        [np.exp(-0.25)],
    ),
    "tanh": (
        ONE,
        lambda n: D.TransformedDistribution(D.Normal(torch.full((n, 1), 0.5), 0.7), TANH),
        lambda n: D.TransformedDistribution(D.Normal(torch.full((n, 1), 0.5), 0.7), TANH),
        [np.tanh(0.5)],
    ),
    "tanh of independent": (
        TWO,
        lambda n: D.TransformedDistribution(D.Independent(D.Normal(torch.full((n, 2), -0.5), 0.7), 1), TANH),
        lambda n: D.TransformedDistribution(D.Normal(torch.full((n, 2), -0.5), 0.7), TANH),
        [np.tanh(-0.5)] * 2,
    ),
    "independent beta": (
        TWO,
        lambda n: D.Independent(D.Beta(torch.full((n, 2), 3.0), 2.0), 1),
        lambda n: D.Beta(torch.full((n, 2), 3.0), 2.0),
        [2 / 3] * 2,
    ),
    "student": (ONE, lambda n: D.StudentT(5.0, torch.zeros(n, 1)), lambda n: D.StudentT(5.0, torch.zeros(n, 1)), [0]),
    "mixture": (
        ONE,
        lambda n: D.MixtureSameFamily(
            D.Categorical(torch.ones(n, 2)), D.Independent(D.Normal(torch.tensor([[-2.0], [2.0]]).expand(n, 2, 1), 0.1), 1)
        ),
        lambda n: D.Normal((torch.arange(n) % 2 * 4.0 - 2)[:, None], 0.1),
        None,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTINUOUS)
def test_it_is_drawn_from_the_very_distribution(name: str) -> None:
    space, make, same, _ = CONTINUOUS[name]
    actions = drawn(space, make)
    torch.manual_seed(0)
    expected = same(len(actions)).sample().numpy()
    grid = np.quantile(expected, np.linspace(0.02, 0.98, 25))
    for at in range(actions.shape[1]):
        shares = [(values[:, at, None] <= grid).mean(0) for values in (actions, expected)]
        assert np.abs(shares[0] - shares[1]).max() < 0.025  # 8,000 of each: less than 1 in 50,000 by chance (Kolmogorov, Smirnov)
    assert len(np.unique(actions[:, 0])) > 0.98 * len(actions)


@in_turn("name", CONTINUOUS, kept=3)
def test_the_mode_is_taken_or_named_as_missing(name: str) -> None:
    space, make, _, mode = CONTINUOUS[name]
    if mode is None:
        said = refused(space, make, TypeError, deterministic=True)
        assert "no mode" in said and "deterministic=False" in said and "'all'" in said
    else:
        assert np.allclose(drawn(space, make, deterministic=True), mode, atol=1e-6)


@pytest.mark.slow
def test_correlated_ones() -> None:
    covariance = torch.tensor([[1.0, 0.9], [0.9, 1.0]])
    make = lambda n: D.MultivariateNormal(torch.ones(n, 2), covariance.expand(n, 2, 2))  # noqa: E731
    actions = drawn(TWO, make)
    assert abs(np.corrcoef(actions.T)[0, 1] - 0.9) < 0.02 and np.allclose(actions.mean(0), 1, atol=0.06)
    assert np.array_equal(drawn(TWO, make, deterministic=True), np.ones((8000, 2)))


CHANCES = torch.tensor([0.2, 0.1, 0.7])
DISCRETE: dict[str, tuple[spaces.Space[Any], Make, Array, Any]] = {
    # The space; what is returned; of each component the chance of each number; the mode.
    "bits": (BITS, lambda n: D.Bernoulli(torch.tensor([0.1, 0.9]).expand(n, 2)), np.array([[0.9, 0.1], [0.1, 0.9]]), [0, 1]),
    "independent bits": (
        BITS,
        lambda n: D.Independent(D.Bernoulli(torch.tensor([0.1, 0.9]).expand(n, 2)), 1),
        np.array([[0.9, 0.1], [0.1, 0.9]]),
        [0, 1],
    ),
    "one of two bits": (
        BITS,
        lambda n: D.OneHotCategorical(torch.tensor([0.3, 0.7]).expand(n, 2)),
        np.array([[0.7, 0.3], [0.3, 0.7]]),
        [0, 1],
    ),
    "components": (PAIR, lambda n: D.Independent(D.Categorical(CHANCES.expand(n, 2, 3)), 1), CHANCES.expand(2, 3).numpy(), [2, 7]),
    "loose components": (PAIR, lambda n: D.Categorical(CHANCES.expand(n, 2, 3)), CHANCES.expand(2, 3).numpy(), [2, 7]),
    "one-hot": (spaces.Discrete(3, start=4), lambda n: D.OneHotCategorical(CHANCES.expand(n, 3)), CHANCES[None].numpy(), 6),
    "independent of none": (
        spaces.Discrete(3),
        lambda n: D.Independent(D.Categorical(CHANCES.expand(n, 3)), 0),
        CHANCES[None].numpy(),
        2,
    ),
    "coin": (spaces.Discrete(2, start=1), lambda n: D.Bernoulli(torch.full((n,), 0.5)), np.array([[0.5, 0.5]]), 1),
    "counts": (spaces.Discrete(3), lambda n: D.Binomial(2, torch.full((n,), 0.5)), np.array([[0.25, 0.5, 0.25]]), 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DISCRETE)
def test_whole_numbers(name: str) -> None:
    space, make, chances, mode = DISCRETE[name]
    start: Any = getattr(space, "start", 0)
    actions = (drawn(space, make) - start).reshape(-1, len(chances))
    for component, expected in zip(actions.T, chances, strict=True):
        assert np.allclose(np.bincount(component, minlength=len(expected)) / len(component), expected, atol=0.025)
    assert (drawn(space, make, deterministic=True) == mode).all()


def test_what_is_no_action_is_refused_before_a_step() -> None:
    class Unsaid(D.Distribution):
        def __init__(self, rows: int) -> None:
            super().__init__(torch.Size([rows, 1]), validate_args=False)

    for deterministic in (False, True):
        said = refused(FIVE, lambda n: D.Normal(torch.zeros(n), 1.0), TypeError, deterministic)
        assert "Categorical" in said and "Normal" in said and "Discrete(5)" in said
        assert "Bernoulli" in refused(BITS, lambda n: D.Normal(torch.full((n, 2), 0.5), 1.0), TypeError, deterministic)
        said = refused(FIVE, lambda n: D.Binomial(2, torch.full((n, 5), 0.5)), ValueError, deterministic)
        assert "(4, 5)" in said and "(4,)" in said
        assert "(4, 2)" in refused(ONE, lambda n: D.Laplace(torch.zeros(n, 2), 1.0), ValueError, deterministic)
    assert "sample()" in refused(ONE, Unsaid, TypeError) and "no mode" in refused(ONE, Unsaid, TypeError, True)


def test_a_class_that_draws_in_its_own_way() -> None:
    class Rounded(D.Normal):
        def sample(self, sample_shape: Any = ()) -> torch.Tensor:
            return super().sample(sample_shape).round()

    actions = drawn(ONE, lambda n: Rounded(torch.zeros(n, 1), 3.0))
    assert np.array_equal(actions, np.rint(actions)) and actions.std() > 2


# ---------------------------------------------------------------------- policies that draw by themselves


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(6, 5)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return self.layer(seen) + torch.randn(len(seen), 5)  # type: ignore[no-any-return]


class Mixed(Noisy):
    """Returns a distribution that draws itself, too."""

    def forward(self, seen: torch.Tensor) -> Any:
        return D.Binomial(4, logits=super().forward(seen)[:, 0])


def by_numpy(seen: Any) -> Any:
    return np.random.randint(0, 5, len(seen))


def by_torch(seen: Any) -> Any:
    return torch.randint(0, 5, (len(seen),))


@pytest.mark.slow
@in_turn("policy", [Noisy(), Mixed(), by_numpy, by_torch], ids=["module", "distribution", "numpy", "torch"], kept=2)
def test_the_same_draws_wherever_it_runs(policy: Any) -> None:
    """A seed says them all; no generator of the caller's is moved, and none of theirs moves the draws."""
    np.random.normal()  # the generator keeps the other number of a pair
    torch.randn(1)
    before = np.random.get_state(), torch.get_rng_state()
    prints = set()
    for place in PLACES:
        for _ in range(2):
            report = ran(Junction, {"all": policy}, 5, 1, steps=300, record=False, deterministic=False, **place)
            prints.add(report.fingerprint)
            assert torch.equal(before[1], torch.get_rng_state())
            for one, other in zip(before[0], np.random.get_state(), strict=True):
                assert np.array_equal(one, other)
    assert len(prints) == 1
    other = ran(Junction, {"all": policy}, 5, 2, steps=300, record=False, deterministic=False)
    assert other.fingerprint not in prints


def test_each_policy_and_tick_has_draws_of_its_own() -> None:
    """Another policy, or what it draws, changes nothing; nor does an environment that draws from the same generators."""

    class Draws(Junction):
        def step(self, actions: Any) -> Any:
            np.random.random(3), torch.randn(5)
            return super().step(actions)

    policies: dict[str, Any] = {"car_0": Noisy(), "car_1": by_numpy, "car_2": by_torch}
    one, other, third = (
        ran(env, policies | {"car_2": last}, 3, 1, steps=400).trajectories["actions.0"]
        for env, last in ((Junction, by_torch), (Draws, by_torch), (Junction, by_sum))
    )
    assert np.array_equal(one, other)
    assert np.array_equal(one[..., 1], third[..., 1]) and not np.array_equal(one[..., 2], third[..., 2])
    for at in (1, 2):
        values, counts = np.unique(one[1:, 0, at], return_counts=True)
        assert len(values) == 5 and counts.max() < 0.4 * counts.sum()
    assert (one[..., 1] == one[..., 2]).mean() < 0.4  # the two generators do not draw the same numbers


# ---------------------------------------------------------------------- masks that come later


class Later(Herd):
    """Masks in infos, of some agents and from some step on."""

    def __init__(self, begins: int, agents: tuple[str, ...], **settings: Any) -> None:
        self.begins, self.masked = begins, agents
        self.t = 0
        super().__init__("info", **settings)

    def _mask(self, agent: str) -> Any:
        there = agent in self.masked and self.t >= self.begins
        return super()._mask(agent) if there else np.ones(self.actions[agent].n, np.int8)  # type: ignore[attr-defined]

    def _info(self, agent: str) -> dict[str, Any]:
        return super()._info(agent) if agent in self.masked and self.t >= self.begins else {}


def of_few(seen: Any, masks: Any = None) -> Any:
    """Acts illegally unless it is told what is legal."""
    return by_sum(seen) if masks is None else np.where(masks[range(len(seen)), by_sum(seen)], by_sum(seen), masks.argmax(1))


LATER = {
    "of who joins": (0, ("late",)),
    "from a step on": (2, ("ant", "bee", "cat", "late")),
    "of one, from a step on": (1, ("bee",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LATER)
@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("policy", ["network", "module", "random", "function"])
def test_masks_that_come_later(kind: str, drawn: bool, policy: str) -> None:
    """The environment refuses illegal actions."""
    given = {"network": mlp(0, 4, 5), "module": Residual(0, 4, 5), "random": RandomPolicy(), "function": of_few}[policy]
    make = partial(Later, *LATER[kind])
    reports = [ran(make, {"all": given}, 4, steps=240, deterministic=not drawn, **place) for place in (PLACES[0], PLACES[2])]
    assert reports[0].fingerprint == reports[1].fingerprint
    found = reports[0].trajectories
    legal = np.take_along_axis(found["masks.0"], found["actions.0"][..., None], -1)[..., 0]
    assert legal[found["acted"]].all() and not found["masks.0"][found["acted"]].all()
    # One who has none may do anything.
    free = ran(partial(Later, 0, ()), {"all": given}, 4, steps=240, deterministic=not drawn)
    assert "masks.0" not in free.trajectories


@pytest.mark.parametrize("mask", [np.ones(4, np.int8), np.ones((1, 5), np.int8), 1, "legal", ["a"] * 5])
def test_masks_that_are_none(mask: Any) -> None:
    class Wrong(Later):
        def _info(self, agent: str) -> dict[str, Any]:
            return {"action_mask": mask} if self.t == 2 else {}

    with pytest.raises(ValueError, match="mask") as caught:
        ran(lambda: Wrong(0, ()), {"all": of_few}, 2, steps=40)
    assert "'ant'" in message(caught.value) or "'bee'" in message(caught.value) or "'cat'" in message(caught.value)
    assert "environment 0" in message(caught.value)
