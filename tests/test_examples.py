"""Every example runs from top to bottom, as a user would run it, and prints what it promises."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

SHORTER = {
    "connect_four_selfplay.py": ["--steps", "45056"],
    "evaluate_policy.py": ["--timesteps", "2048", "--episodes", "20"],
    "her_fetch_reach.py": ["--steps", "1000"],
    "her_maze.py": ["--steps", "4000"],
    "maskable_connect_four.py": ["--steps", "10752"],
    "multi_agent_inference.py": ["--episodes", "16"],
    "paper_blackjack.py": ["--rounds", "10"],
    "pettingzoo_ppo.py": ["--steps", "6144"],
    "ppo_atari.py": ["--steps", "256"],
    "ppo_mujoco.py": ["--steps", "1024"],
    "pqn_atari.py": ["--steps", "1024"],
    "ray_sync_dqn.py": ["--timesteps", "800"],
    "simple_spread_ippo.py": ["--steps", "4096"],
    "recurrent_cartpole.py": ["--steps", "11264"],
    "sac_mujoco.py": ["--steps", "1024", "--update-to-data", "0.25"],
    "rllib_ppo.py": ["--iterations", "1"],
    "td3_pendulum.py": ["--steps", "2000"],
    "sweep_ppo.py": ["--timesteps", "1024", "--trials", "3", "--seeds", "1"],
    "tournament.py": ["--episodes", "8"],
}
EXAMPLES = Path(__file__).parent.parent / "examples"
PROMISES = {
    "connect_four_selfplay.py": "against random moves it gets",
    "simple_spread_ippo.py": "return of all agents before training -",
    "step_a_robot.py": "the same bits: True",
    "vector_env.py": "the same on one worker and on two: True",
    "evaluate_policy.py": "CartPole-v1: 20 episodes",
    "evolution.py": "the same inline: True",
    "her_fetch_reach.py": "steps: mean return of 5 episodes",
    "her_maze.py": "steps: there in",
    "rllib_ppo.py": "steps: mean return of an episode",
    "sb3_ppo_cartpole.py": "the same weights as on DummyVecEnv: True",
    "sync_dqn_cartpole.py": "mean return of 20 episodes after",
    "pqn_atari.py": "1,024 steps, weights",
    "ppo_atari.py": "256 steps, weights",
    "ppo_mujoco.py": "1,024 steps, weights",
    "sac_mujoco.py": "704 steps: mean return of 3 episodes",
    "td3_pendulum.py": "mean return of 5 episodes after 0 steps: -13",
    "ppo_cartpole.py": "mean return of 10 episodes after",
    "paper_blackjack.py": "batch 2000:",
    "maskable_connect_four.py": "10,240 steps: mean return of 50 games",
    "multi_agent_inference.py": "networks: mean return of an agent -4",
    "pettingzoo_ppo.py": "return of an agent before training -36",
    "sweep_ppo.py": "the best: trial",
    "tournament.py": "the best: finishing",
    "ray_sync_dqn.py": "the same weights",
    "recurrent_cartpole.py": "10,240 steps: mean return of 10 episodes",
}


def imports_of(path: Path) -> set[str]:
    """Modules that a file imports before it does anything."""
    found = set()
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.ImportFrom):
            found.add(str(statement.module))
        elif isinstance(statement, ast.Import):
            found |= {alias.name for alias in statement.names}
    return found


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISES)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", sorted(PROMISES))
def test_example(name: str, tmp_path: Path, run_script: Callable[..., tuple[int, str]]) -> None:
    for imported in imports_of(EXAMPLES / name):
        pytest.importorskip(imported, exc_type=ImportError)  # our own say so themselves where a library is missing
    status, said = run_script(EXAMPLES / name, tmp_path, *SHORTER.get(name, []))
    assert status == 0, said[-6000:]
    assert PROMISES[name] in said
    assert "Traceback" not in said


CLEANRL = {
    "dqn.py": ["--total-timesteps", "800", "--learning-starts", "400"],
    "ppo.py": ["--total-timesteps", "512", "--num-steps", "32"],
    "ppo_atari.py": ["--total-timesteps", "64", "--num-envs", "2", "--num-steps", "16"],
    "pqn.py": ["--total-timesteps", "512", "--num-steps", "32"],
}
MARK = re.compile(r"^(?P<indent> *)\S.*  # was: (?P<before>.*)$", re.MULTILINE)


def test_every_script_in_the_manner_of_cleanrl_is_run() -> None:
    assert {path.name for path in (EXAMPLES / "cleanrl").glob("*.py")} == set(CLEANRL)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", sorted(CLEANRL))
def test_marked_lines_are_all_that_differs(name: str, tmp_path: Path, run_script: Callable[..., tuple[int, str]]) -> None:
    """With the marked lines put back, a script runs on the host's own environments, and ends with the same weights."""
    for imported in imports_of(EXAMPLES / "cleanrl" / name):
        pytest.importorskip(imported, exc_type=ImportError)
    ours = (EXAMPLES / "cleanrl" / name).read_text()
    before, marks = MARK.subn(r"\g<indent>\g<before>", ours)
    assert marks >= 1 and "reactor" not in re.sub(r'""".*?"""', "", before, flags=re.DOTALL)
    ended = []
    for kind, text in (("ours", ours), ("before", before)):
        script = tmp_path / f"{kind}.py"
        script.write_text(text)
        status, said = run_script(script, tmp_path, *CLEANRL[name])
        assert status == 0, said[-6000:]
        ended += re.findall(r"[\d,]+ steps, \d+ \w+, weights [0-9a-f]{16}$", said, re.MULTILINE)
    assert len(ended) == 2 and ended[0] == ended[1]
