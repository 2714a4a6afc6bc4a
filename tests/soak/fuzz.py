"""Random environments, infos and ways of running them: what ``ReactorVectorEnv`` gives is what ``SyncVectorEnv`` gives."""

from __future__ import annotations

import string
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import hypothesis.strategies as st
import numpy as np
from compare import assert_same, played, rollout
from envs import Samples
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import HealthCheck, Phase, given, seed, settings
from random_infos import an_info, drawn, schemas

from reactor_gymnasium import ReactorVectorEnv

# ---------------------------------------------------------------------- spaces

SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
INTEGERS = [np.dtype(kind + size) for kind in "iu" for size in ("1", "2", "4", "8")]
FLOATS = [np.dtype(name) for name in ("f2", "f4", "f8")]
BOUNDS = st.sampled_from([(-1.0, 1.0), (0.0, 0.0), (-np.inf, np.inf), (0.0, np.inf), (-np.inf, 2.5), (-1e3, 1e3)])


@st.composite
def boxes(draw: Any) -> spaces.Box:
    shape = draw(SHAPES)
    dtype = draw(st.sampled_from([*FLOATS, *INTEGERS, np.dtype(np.bool_)]))
    if dtype.kind == "b":
        return spaces.Box(0, 1, shape, dtype)
    if dtype.kind == "f":
        low, high = draw(BOUNDS)
        return spaces.Box(low, high, shape, dtype)
    low = 0 if dtype.kind == "u" else draw(st.integers(-100, 0))
    return spaces.Box(low, draw(st.integers(0, 100)), shape, dtype)


@st.composite
def discretes(draw: Any) -> Any:
    if draw(st.booleans()):
        return spaces.Discrete(
            draw(st.integers(1, 9)), start=draw(st.integers(-5, 5)), dtype=draw(st.sampled_from([np.int64, np.int32]))
        )
    counts = np.array(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    if len(counts) == 4 and draw(st.booleans()):
        counts = counts.reshape(2, 2)
    start = draw(st.none() | st.integers(0, 9).map(lambda first: np.full(counts.shape, first)))
    return spaces.MultiDiscrete(counts, dtype=draw(st.sampled_from([np.int64, np.int32, np.uint8])), start=start)


binaries = st.builds(spaces.MultiBinary, st.integers(1, 5) | st.lists(st.integers(1, 3), min_size=1, max_size=3))
texts = st.builds(
    lambda least, more, charset: spaces.Text(least + more, min_length=least, charset=charset),
    st.integers(0, 3), st.integers(1, 5), st.sampled_from([string.ascii_lowercase, "01", "\u00e4\u4f60x"]),
)  # fmt: skip
leaves = boxes() | discretes() | binaries | texts


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from(["a", "b", "z", "image", "_x"]), inner, max_size=3)
    return several.map(spaces.Tuple) | named.map(spaces.Dict) | several.map(spaces.OneOf)


fixed = st.recursive(leaves, nested, max_leaves=4)
"""Spaces whose samples are always as large as each other, so that they may lie in shared memory."""
graphs = st.builds(
    spaces.Graph, st.just(spaces.Box(-1, 1, (2,))) | st.just(spaces.Discrete(4)), st.none() | st.just(spaces.Discrete(3))
)
dynamic = st.builds(spaces.Sequence, leaves, stack=st.booleans()) | graphs
any_space = fixed | st.recursive(dynamic | leaves, nested, max_leaves=3)


def is_dynamic(space: Any) -> bool:
    """Whether samples of a space differ in size."""
    if isinstance(space, (spaces.Sequence, spaces.Graph)):
        return True
    inner = space.spaces.values() if isinstance(space, spaces.Dict) else getattr(space, "spaces", ())
    return any(map(is_dynamic, inner))


# ---------------------------------------------------------------------- environments

REWARDS = [0.5, 3, True, np.float32(0.1), np.array(0.25), np.int8(-4), -np.inf, np.nan, 1e300]


@dataclass(frozen=True)
class Spec:
    """What the environments of one example are.

    Attributes:
        observations: Space of the observations.
        actions: Space of the actions.
        infos: For each environment, infos of which every reset and step takes one.
        rewards: Of which every step takes one.
        ends: How many of 10 steps end an episode, by termination and by truncation.
    """

    observations: Any
    actions: Any
    infos: list[list[Any]]
    rewards: list[Any]
    ends: tuple[int, int]


class Drawn(Samples):
    """An environment that an example describes. What it does depends on the seed of its reset and on its actions."""

    def __init__(self, spec: Spec, index: int) -> None:
        super().__init__(spec.observations, spec.actions)
        self.spec, self.index = spec, index

    def info(self) -> Any:
        infos = self.spec.infos[self.index]
        return deepcopy(infos[int(self.np_random.integers(len(infos)))])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, _ = super().reset(seed=seed)
        return observation, self.info()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, *_ = super().step(action)
        reward = self.spec.rewards[int(self.np_random.integers(len(self.spec.rewards)))]
        terminated, truncated = (bool(self.np_random.integers(10) < end) for end in self.spec.ends)
        return observation, reward, terminated, np.bool_(truncated), {**self.info(), "last action": repr(action)}


@st.composite
def specs(draw: Any, num_envs: int) -> Spec:
    data = draw(st.data())
    schema, other = draw(schemas), draw(schemas)
    infos = [[an_info(data, schema, other) or {} for _ in range(draw(st.integers(1, 3)))] for _ in range(num_envs)]
    # Most values of one kind: otherwise nearly every example would end with what Gymnasium raises for arrays that do not fit.
    if draw(st.integers(0, 3)):
        infos = [[drawn(data, schema) for _ in of_one] for of_one in infos]
    rewards = draw(st.lists(st.sampled_from(REWARDS), min_size=1, max_size=4))
    return Spec(draw(any_space), draw(any_space), infos, rewards, draw(st.tuples(st.integers(0, 4), st.integers(0, 4))))


def outcome(make: Any, play: Any) -> Any:
    """What is played, or the type of what is raised instead."""
    try:
        return played(make(), play)
    except (Exception, Warning) as error:
        return type(error)


PLACES: list[dict[str, Any]] = [
    {"executor": "inline"},
    *({"executor": "threads", "workers": workers} for workers in (2, 3, 4)),
    {"executor": "threads", "workers": 3, "caller_works": False},
    *({"executor": "processes", "workers": workers} for workers in (2, 3)),
]
OFTEN = [5, 0, 6, 1, 0, 2, 3, 0, 4, 1, 2]
"""Places by how often they are taken: processes take the longest to start. Few examples take the first ones of a list."""


def fuzz(examples: int, start: int | None = None) -> Counter[str]:
    """Compare so many random examples.

    Args:
        examples: How many.
        start: Seed of the examples; ``None`` for the same ones every time.

    Returns:
        How many ran on each executor, in each mode, and how many raised.

    Raises:
        AssertionError: For an example, the smallest that was found, that is not as in ``SyncVectorEnv``.
    """
    counts: Counter[str] = Counter()

    @settings(
        max_examples=examples, deadline=None, derandomize=start is None, database=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )  # fmt: skip
    @given(
        data=st.data(), num_envs=st.integers(1, 6), place=st.sampled_from(OFTEN).map(PLACES.__getitem__),
        mode=st.sampled_from(list(AutoresetMode)), memory=st.booleans(), copy=st.booleans(), first=st.integers(0, 2**31),
    )  # fmt: skip
    def check(data: Any, num_envs: int, place: dict[str, Any], mode: AutoresetMode, memory: bool, copy: bool, first: int) -> None:
        spec = data.draw(specs(num_envs))
        env_fns = [partial(Drawn, spec, index) for index in range(num_envs)]
        common: dict[str, Any] = {"autoreset_mode": mode, "copy": copy}
        memory = memory and not is_dynamic(spec.observations)
        play = rollout(first, steps=9)
        theirs = outcome(partial(SyncVectorEnv, env_fns, **common), play)
        ours = outcome(partial(ReactorVectorEnv, env_fns, shared_memory=memory, **common, **place), play)
        assert_same(ours, theirs, "trace")
        raised = [f"raised {theirs.__name__}"] if isinstance(theirs, type) else []
        counts.update(["examples", place["executor"], mode.value, *raised])

    (check if start is None else seed(start)(check))()
    return counts
