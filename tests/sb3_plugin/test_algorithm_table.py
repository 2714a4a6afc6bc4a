"""The table of algorithms is what there is: classes, their hosts, names and actions; and the pages show all of it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import gymnasium
import pytest
import sb3_contrib
import stable_baselines3
from stable_baselines3.common.base_class import BaseAlgorithm

import reactor_sb3
from reactor_sb3.algorithms.table import ALGORITHMS, Algorithm, named
from reactor_sb3.trainers.trainer import Trainer

ROOT = Path(__file__).parents[2]
each = pytest.mark.parametrize("row", ALGORITHMS.values(), ids=lambda row: str(row.key))
HOSTS = {
    f"{module.__name__}:{name}"
    for module in (stable_baselines3, sb3_contrib)
    for name, one in vars(module).items()
    if inspect.isclass(one) and issubclass(one, BaseAlgorithm)
}


def test_every_algorithm_of_both_hosts_has_a_row() -> None:
    assert {row.host for row in ALGORITHMS.values()} - {""} == HOSTS and len(HOSTS) == 13


def test_every_file_of_a_trainer_has_a_row() -> None:
    files = {path.stem for path in (ROOT / "plugins" / "reactor_sb3" / "algorithms").glob("sync_*.py")}
    assert files | {"pqn"} == {row.module for row in ALGORITHMS.values()}


@each
def test_a_row_is_of_its_class(row: Algorithm) -> None:
    assert issubclass(row.cls, Trainer) and row.cls.__name__ == row.name and named(row.key) is row
    assert row.host_cls is None or issubclass(row.cls, row.host_cls)
    assert getattr(reactor_sb3, row.name) is row.cls and row.name in reactor_sb3.__all__
    assert set(row.settings) <= set(inspect.signature(row.cls).parameters)


@each
def test_its_actions_are_those_that_it_takes(row: Algorithm) -> None:
    spaces = gymnasium.spaces
    made = {
        "Box": spaces.Box(-1, 1, (2,)), "Discrete": spaces.Discrete(3), "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
        "MultiBinary": spaces.MultiBinary(2),
    }  # fmt: skip
    for kind, space in made.items():

        class Nothing(gymnasium.Env[object, object]):
            observation_space, action_space = spaces.Box(-1, 1, (3,)), space

            def reset(self, *, seed: int | None = None, options: object = None) -> tuple[object, dict[str, object]]:
                super().reset(seed=seed)
                return self.observation_space.sample(), {}

            def action_masks(self) -> object:
                return [True] * 5

        if kind in row.actions:
            row.cls(row.policy, Nothing, n_actors=1, executor="inline").close()
        else:
            with pytest.raises((AssertionError, ValueError, TypeError, NotImplementedError), match=r"action|spaces"):
                row.cls(row.policy, Nothing, n_actors=1, executor="inline")


def test_a_name_that_there_is_not() -> None:
    with pytest.raises(KeyError, match="there is no algorithm 'sync_sarsa': it is one of sync_dqn, "):
        named("sync_sarsa")
    with pytest.raises(AttributeError, match="module 'reactor_sb3' has no attribute 'SyncSarsa'"):
        _ = reactor_sb3.SyncSarsa


def test_pages_have_a_line_for_each() -> None:
    page = (ROOT / "docs" / "guide" / "algorithms.md").read_text()
    lines = dict(re.findall(r"^\| `(Sync\w+|PQN)` \| (.*) \|$", page, re.MULTILINE))
    hosts = {"stable_baselines3": "SB3", "sb3_contrib": "sb3-contrib"}
    for name, row in ALGORITHMS.items():
        module, _, host = row.host.partition(":")
        was = f"{hosts[module]}'s `{host}`" if host else "-"
        assert lines.pop(name) == f"{was} | `{row.key}` | {', '.join(f'`{kind}`' for kind in row.actions)}"
    assert lines == {}
    reference = (ROOT / "docs" / "reference" / "stable-baselines3.md").read_text()
    assert [name for name in ALGORITHMS if f"autoclass:: reactor_sb3.{name}(" not in reference] == []
    switching = (ROOT / "docs" / "switch" / "sb3-trainers.md").read_text()
    assert [name for name, row in ALGORITHMS.items() if row.host and f"{name}(" not in switching] == []
