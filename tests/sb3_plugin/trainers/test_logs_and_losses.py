"""Every dump of a log is a row, and nothing that is not finite is learned without a word: for every trainer."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contrib_trainers import CONTRIB
from contrib_trainers import make as make_contrib
from every_other import in_turn
from stable_baselines3.common.callbacks import BaseCallback, LogEveryNTimesteps
from stable_baselines3.common.logger import configure
from trainers import ALGORITHMS, BOX, CHOICE, CONTINUOUS, INLINE, ROWS, STEPWISE, Toy

ON_POLICY = sorted(name for name, row in ROWS.items() if row.kind == "on-policy")


class Once(Toy):
    """One of its environments pays a reward, or shows something, in its fourth step."""

    reward, shown = 1.0, 0.0

    def step(self, action: Any) -> Any:
        seen, reward, terminated, truncated, info = super().step(action)
        if self.t == 4:
            return np.full_like(seen, self.shown), self.reward, terminated, truncated, info
        return seen, reward, terminated, truncated, info

    def action_masks(self) -> Any:
        return np.ones(3, np.bool_)


class OnceOf:
    """Makes them."""

    def __init__(self, algorithm: str, reward: float = 1.0, shown: float = 0.0) -> None:
        self.algorithm, self.reward, self.shown = algorithm, reward, shown

    def __call__(self) -> Once:
        env = Once(BOX, BOX if self.algorithm in CONTINUOUS else CHOICE, rate=0.0)
        env.reward, env.shown = self.reward, self.shown
        return env


def made(algorithm: str, env: Any, **changed: Any) -> Any:
    if algorithm in CONTRIB:
        return make_contrib(algorithm, env, **{"n_actors": 2, **changed})
    cls, arguments = ALGORITHMS[algorithm]
    arguments = {name: value for name, value in arguments.items() if name != "action_noise"}
    return cls("MlpPolicy", env, **{"n_actors": 2, "seed": 0, **INLINE, **arguments, **changed})


class Records(BaseCallback):
    """Records the number of steps, and may fail."""

    def __init__(self, fails_at: int = 10**9) -> None:
        super().__init__()
        self.fails_at = fails_at

    def _on_step(self) -> bool:
        self.logger.record("mine/steps", self.num_timesteps)
        if self.num_timesteps > self.fails_at:
            raise KeyError("as it should")
        return True


def rows(folder: Path) -> list[tuple[str, str]]:
    with open(folder / "progress.csv") as file:
        return [(row["time/total_timesteps"], row["mine/steps"]) for row in csv.DictReader(file)]


@in_turn("algorithm", STEPWISE, kept=2)
def test_every_dump_is_a_row(algorithm: str, tmp_path: Path) -> None:
    with made(algorithm, OnceOf(algorithm)) as model:
        model.set_logger(configure(str(tmp_path), ["csv"]))
        steps = 4 * model.rollout_steps * model.n_envs
        model.learn(steps, callback=[Records(), LogEveryNTimesteps(4)], log_interval=None)
        every = [(str(at), str(at)) for at in range(4, steps + 1, 4)]
        assert rows(tmp_path) == every
        with pytest.raises(KeyError, match="as it should"):
            model.learn(steps, callback=[Records(fails_at=9), LogEveryNTimesteps(4)], log_interval=None)
        assert rows(tmp_path) == [*every, ("4", "4"), ("8", "8")]
        model.dump_logs()  # outside of learn()
        assert len(rows(tmp_path)) == len(every) + 3
        model.logger.close()


@in_turn("algorithm", ON_POLICY, kept=2)
@pytest.mark.parametrize("pipeline", [0, 1])
def test_rewards_that_spoil_everything(algorithm: str, pipeline: int) -> None:
    with made(algorithm, OnceOf(algorithm, reward=1e30), pipeline=pipeline) as model:
        said = r"^(value_)?loss is (nan|inf) in update 1, .*: environment 0 returned the reward 1e\+30 at step 3 of this round"
        with pytest.raises(ValueError, match=said):
            model.learn(96)


@in_turn("algorithm", ON_POLICY, kept=2)
def test_observations_that_spoil_everything(algorithm: str) -> None:
    with made(algorithm, OnceOf(algorithm, shown=float("inf"))) as model:
        with pytest.raises(ValueError, match="environment 0 returned an observation that is not finite, before step 4 of this"):
            model.learn(96)


@in_turn("algorithm", [*sorted(ALGORITHMS), *sorted(CONTRIB)], kept=2)
def test_a_training_ends_with_numbers(algorithm: str) -> None:
    """Weights that the last update has spoilt are no result."""
    with (
        made(algorithm, OnceOf(algorithm), max_grad_norm=1e30)
        if algorithm == "dqn"
        else made(algorithm, OnceOf(algorithm)) as model
    ):
        model.lr_schedule = lambda _: 1e38
        with pytest.raises(ValueError, match=r"not finite|NaN|is (nan|inf) in update"):
            model.learn(256)


@pytest.mark.parametrize(
    ("name", "value"),
    [("gamma", np.nan), ("gae_lambda", np.float32("inf")), ("ent_coef", float("-inf")), ("policy_kwargs", {"a": {"b": np.nan}})],
)
def test_arguments_that_are_not_finite(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name}.* must be a (finite number|number from 0 to 1), got "):
        made("ppo", OnceOf("ppo"), **{name: value})
    made("ppo", OnceOf("ppo"), max_grad_norm=float("inf"))
