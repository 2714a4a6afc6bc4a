"""The numbers among trainers' arguments: each that makes no sense is refused by its name, when the trainer is made."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any, get_args

import numpy as np
import pytest
from contrib_trainers import EVERY, every, make, make_any
from stable_baselines3.common.utils import LinearSchedule
from trainers import ALGORITHMS, hints_of, new

from reactor_sb3 import PQN, SyncDQN, SyncPPO
from reactor_sb3.plain import plain

_ELSEWHERE = {"verbose", "pipeline", "nodes"}
"""Of several kinds, or of no account."""


def numbers_of(algorithm: str) -> list[str]:
    """Names of a trainer's arguments that are numbers."""
    hints = hints_of(EVERY[algorithm])
    kinds = {name: {hint, *get_args(hint)} for name, hint in hints.items()}
    found = [name for name, of in kinds.items() if of & {int, float} and name not in _ELSEWHERE]
    assert {"seed", "n_actors", "learning_rate", "timeout"} <= set(found) and len(found) > 20
    return found


@pytest.mark.parametrize("algorithm", sorted(EVERY))
def test_what_is_no_number_is_refused(algorithm: str) -> None:
    for name in numbers_of(algorithm):
        for value in (math.nan, "x", [3], (), {}, 1j, np.zeros(2), np.float32("nan")):
            with pytest.raises((ValueError, TypeError), match=rf"\b{name}\b"):
                make_any(algorithm, **{name: value})


@pytest.mark.slow
@pytest.mark.timeout(300)
@every
def test_every_number_works_or_is_refused_by_its_name(algorithm: str) -> None:
    tried = refused = 0
    for name in numbers_of(algorithm):
        for value in (0, -1, 1.5, math.inf):
            changed: dict[str, Any] = {"n_actors": 2, name: value}
            if name == "learning_starts":
                changed["buffer_size"] = 100
            tried += 1
            model, said = None, ""
            try:
                model = make_any(algorithm, **changed)
            except ValueError as error:
                said = str(error)
            if model is None:
                assert re.search(rf"\b{name}\b", said), (name, value, said)
                refused += 1
            elif name not in ("workers", "restarts", "timeout", "watch_every"):  # of what is made, not of what is computed
                with model:
                    model.learn(72)
    assert 2 * refused > tried > refused


ZEROS: list[tuple[str, str, Any]] = [
    ("td3", "policy_delay", "a whole number from 1 on"),
    ("crossq", "policy_delay", "a whole number from 1 on"),
    ("sac", "target_update_interval", "a whole number from 1 on"),
    ("tqc", "target_update_interval", "a whole number from 1 on"),
    ("recurrent_ppo", "batch_size", "a whole number from 1 on"),
    ("dqn", "exploration_fraction", "a number above 0"),
    ("ppo", "clip_range", "a number above 0, or a function of what remains of the training"),
    ("dqn", "train_freq", 'a whole number from 1 on, or a pair of one and "step"'),
]


@pytest.mark.parametrize(("algorithm", "name", "said"), ZEROS)
def test_zeros(algorithm: str, name: str, said: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be {re.escape(said)}, got 0$"):
        make_any(algorithm, **{name: 0})


@pytest.mark.parametrize(
    ("algorithm", "kwargs", "said"),
    [
        ("sac", {"n_critics": 0}, r"n_critics must be a whole number from 1 on, got 0 \(in policy_kwargs\)"),
        ("qrdqn", {"n_quantiles": 0}, "n_quantiles must be a whole number from 1 on, got 0"),
        ("recurrent_ppo", {"lstm_hidden_size": -3}, "lstm_hidden_size must be a whole number from 1 on, got -3"),
        ("ppo", {"net_arch": {"pi": [8, 0], "vf": [8]}}, "net_arch must be a whole number from 1 on, got 0 for a layer"),
        ("dqn", {"net_arch": [2.5]}, "net_arch must be a whole number from 1 on, got 2.5"),
    ],
)
def test_numbers_of_networks(algorithm: str, kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make_any(algorithm, policy_kwargs=kwargs)


@pytest.mark.parametrize("dropped", [5, 7, -1])
def test_not_all_quantiles_can_be_dropped(dropped: int) -> None:
    with pytest.raises(ValueError, match=rf"top_quantiles_to_drop_per_net must be a whole number from 0 .*got {dropped}"):
        make("tqc", top_quantiles_to_drop_per_net=dropped)
    make("tqc", top_quantiles_to_drop_per_net=4)


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [
        ("dqn", {"gradient_steps": 0}), ("dqn", {"gradient_steps": -1}), ("dqn", {"learning_starts": 0}), ("dqn", {"tau": 0.0}),
        ("dqn", {"exploration_fraction": 1.5}), ("dqn", {"learning_starts": 8.0}), ("dqn", {"max_grad_norm": math.inf}),
        ("sac", {"ent_coef": "auto_0.1"}), ("sac", {"ent_coef": 0.0}), ("sac", {"target_entropy": -3}), ("sac", {"gamma": 1}),
        ("td3", {"target_noise_clip": math.inf}), ("td3", {"target_policy_noise": 0}), ("pqn", {"exploration_fraction": 0}),
        ("ppo", {"target_kl": None}), ("ppo", {"clip_range": LinearSchedule(0.2, 0.0, 1.0)}), ("ppo", {"clip_range_vf": 0.2}),
        ("ppo", {"ent_coef": -0.01}), ("ppo", {"learning_rate": 0}), ("ppo", {"stats_window_size": 0}),
        ("ppo", {"max_grad_norm": None}),
    ],
)  # fmt: skip
def test_what_sb3_takes_is_taken(algorithm: str, given: dict[str, Any]) -> None:
    with new(algorithm, n_actors=2, **given) as model:
        model.learn(72)


@pytest.mark.parametrize("seed", [-1, 2**32, 10**30, 1.5, "3", True])
def test_seeds_that_numpy_does_not_take(seed: Any) -> None:
    with pytest.raises(ValueError, match=r"seed must be a whole number from 0 to 4294967295, got"):
        new("pqn", seed=seed)


@pytest.mark.parametrize("interval", [0, 0.5, "x", math.nan])
def test_intervals_of_logs(interval: Any) -> None:
    with new("pqn") as model, pytest.raises(ValueError, match="log_interval must be a whole number from 1 on, or None"):
        model.learn(64, log_interval=interval)


@pytest.mark.parametrize("steps", [math.nan, "64", None, [64]])
def test_steps_that_are_no_number(steps: Any) -> None:
    with new("pqn") as model:
        with pytest.raises(ValueError, match="total_timesteps must be a number, got"):
            model.learn(steps)
        assert model.learn(np.int64(64)).num_timesteps == model.learn(np.float32(64)).num_timesteps == 64


def test_names_of_an_algorithm_of_your_own_mean_what_it_says() -> None:
    from reactor_sb3.plugin import keeps_arguments

    class Mine(PQN):
        @keeps_arguments
        def __init__(self, policy: Any, env: Any, tau: float = 5.0, n_steps: int = 8, **more: Any) -> None:
            super().__init__(policy, env, n_steps=n_steps)

    assert Mine("MlpPolicy", "CartPole-v1", tau=np.float32(7)).arguments["gamma"] == 0.99
    with pytest.raises(ValueError, match="n_steps must be a whole number from 1 on, got 0"):
        Mine("MlpPolicy", "CartPole-v1", n_steps=0)


def test_numbers_of_numpys_become_pythons() -> None:
    mean = np.arange(3.0)
    model = SyncPPO(
        "MlpPolicy", "CartPole-v1", np.float32(0.5), n_steps=np.array(16), batch_size=np.uint8(8), n_actors=np.int64(2),
        seed=np.int16(3), normalize_advantage=np.bool_(False),
        policy_kwargs={"net_arch": np.array([8, 8]), "log_std_init": np.float64(-1)},
    )  # fmt: skip
    given = {name: model.arguments[name] for name in ("learning_rate", "n_steps", "batch_size", "n_actors", "seed")}
    assert given == {"learning_rate": 0.5, "n_steps": 16, "batch_size": 8, "n_actors": 2, "seed": 3}
    assert {type(value) for value in given.values()} == {int, float}
    assert model.arguments["normalize_advantage"] is False
    assert model.arguments["policy_kwargs"] == {"net_arch": [8, 8], "log_std_init": -1.0}
    nested = {"a": [np.int8(1), (np.float32(0.5), np.str_("x"))], "mean": mean, np.int64(3): np.longdouble(2)}
    assert plain(nested)["mean"] is mean  # an array is one
    assert plain({**nested, "mean": None}) == {"a": [1, (0.5, "x")], "mean": None, 3: 2.0}
    assert [type(part) for part in (plain(np.longdouble(2)), plain(np.str_("x")), plain(np.bool_(1)))] == [float, str, bool]


def test_whole_numbers_may_be_floats() -> None:
    assert SyncDQN("MlpPolicy", "CartPole-v1", learning_starts=1e3, buffer_size=1e4).buffer_size == 10_000  # type: ignore[arg-type]
    assert set(ALGORITHMS) < set(EVERY)
    assert "n_steps" in inspect.signature(SyncPPO).parameters
