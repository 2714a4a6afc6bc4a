"""A C header has the very bits of the actor, whoever compiles it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from exported import asked, compiled, read, run
from gymnasium import spaces
from policy_cases import CASES

DENSE = [name for name, case in CASES.items() if case.exported and case.plain and case.kind != "CnnPolicy"]
COMPILERS = [
    ("gcc", "-std=c99", "-O2"),
    ("gcc", "-O3", "-mfma"),  # GNU's C: it may make one operation of a product and a sum, if nobody forbids that
    ("gcc", "-O3", "-march=native", "-flto"),
    ("g++", "-std=c++17", "-O2", "-mfma"),
    ("clang", "-std=c99", "-O2"),
    ("clang", "-O3", "-march=native"),
    ("clang++", "-std=c++17", "-O2", "-mfma"),
]


@pytest.mark.parametrize("name", DENSE)
def test_outputs_have_the_actors_bits(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with case.made() as model:
        wanted, greedy = asked(case, model), read(model)
    outputs, actions = run(compiled(tmp_path, {"policy": greedy}), "policy", greedy, wanted.seen, wanted.masks)
    assert outputs.tobytes() == wanted.outputs.tobytes()
    np.testing.assert_array_equal(actions, wanted.actions)
    assert len(np.unique(actions, axis=0)) > 1 or "bounds" in name


@pytest.mark.slow
@pytest.mark.parametrize("how", COMPILERS, ids=" ".join)
def test_whoever_compiles_it(how: tuple[str, ...], tmp_path: Path) -> None:
    policies, wanted = {}, {}
    stretched = spaces.Box(np.float32(-0.9), np.float32(2.1), (2,))  # a product and a sum that could be made one operation
    cases = {
        "lstm": CASES["lstm box"],
        "crossq": replace(CASES["crossq"], actions=stretched),
        "one_hot": CASES["ppo choice, one-hot"],
    }
    for name, case in cases.items():
        with case.made() as model:
            policies[name], wanted[name] = read(model), asked(case, model)
    library, plainly = compiled(tmp_path, policies, *how), compiled(tmp_path, policies)
    for name, greedy in policies.items():
        outputs, actions = run(library, name, greedy, wanted[name].seen, None)
        assert outputs.tobytes() == wanted[name].outputs.tobytes()
        assert actions.tobytes() == run(plainly, name, greedy, wanted[name].seen, None)[1].tobytes()
