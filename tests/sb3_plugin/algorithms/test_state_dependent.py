"""``SyncPPO`` with gSDE: SB3's rollouts and updates, by dense layers without torch; other policies with gSDE go through torch."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from every_other import in_turn
from test_sync_ppo import ACTIONS, check_round, new, sb3_with, watched
from torch import nn
from trainers import BOX, SPACES, Toy

from reactor_sb3.acting.behaviours import Rollout, Turn
from reactor_sb3.acting.forwards import copied
from reactor_torch import GaussianByRow, parameter_record, write_parameters

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "as it comes": (partial(Toy, BOX, ACTIONS["box"]), {}),
    "drawn anew": (partial(Toy, BOX, ACTIONS["box"]), {"sde_sample_freq": 4, "ent_coef": 0.05}),
    "matrices as actions": (partial(Toy, BOX, ACTIONS["matrix"]), {"sde_sample_freq": 3}),
    "one width": (
        partial(Toy, BOX, ACTIONS["box"]),
        {"policy_kwargs": {"full_std": False, "log_std_init": -1, "activation_fn": nn.ReLU, "net_arch": [16]}, "ent_coef": 0.01},
    ),
    "numbers as observations": (partial(Toy, SPACES["discrete"][1], ACTIONS["box"]), {"sde_sample_freq": 1}),
}  # fmt: skip
BY_TORCH: dict[str, dict[str, Any]] = {
    "squashed": {"squash_output": True},
    "expln": {"use_expln": True},
    "ELU": {"activation_fn": nn.ELU},
    "no layers": {"net_arch": []},
}


@pytest.mark.parametrize("name", CASES)
def test_what_actors_compute(name: str) -> None:
    env, given = CASES[name]
    with new(env, use_sde=True, n_steps=32, n_actors=2, envs_per_actor=3, **given) as model:
        assert type(model.acting()[1].policy.distribution) is GaussianByRow
        before = copied(model.policy, {})
        model.learn(1)
        check_round(model, before)


@pytest.mark.filterwarnings("ignore:You have specified a mini-batch size")
@in_turn("name", CASES, kept=2)
def test_updates_are_those_of_sb3(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given the rollout and the order, SB3's own ``train()`` ends with the same weights and logs the same."""
    env, given = CASES[name]
    model = watched(env, use_sde=True, **given)
    assert repr(model).endswith("gradients='compiled')")
    for number in (0, 1):
        other, found = sb3_with(model, number), model.rounds[number]
        monkeypatch.setattr(np.random, "permutation", found["stream"].permutation)
        other.train()
        monkeypatch.undo()
        for key, weights in other.policy.state_dict().items():
            torch.testing.assert_close(found["after"].state_dict()[key], weights, rtol=1e-5, atol=1e-5)
        for key, value in other.logger.name_to_value.items():
            assert found["told"][key] == pytest.approx(value, rel=1e-3, abs=1e-5), key


def test_the_noise_is_drawn_anew() -> None:
    """Until then it is the same function of observations, another one in each environment."""
    model = new(
        partial(Toy, BOX, ACTIONS["box"]), use_sde=True, sde_sample_freq=2, policy_kwargs={"log_std_init": -1, "net_arch": [16]}
    )
    module, policy = model.acting()
    state = module.state_dict()
    weights = np.zeros((), parameter_record(state))
    write_parameters(weights, state)
    steps, envs = 4, 50
    BOX.seed(2)
    rows = {"": np.broadcast_to(BOX.sample(), (steps, envs, *(BOX.shape or ()))).copy()}
    record = {field.name: np.zeros((steps, envs, *field.shape), field.dtype) for field in policy.fields}
    record |= {
        "rewards": np.zeros((steps, envs), np.float32),
        **{key: np.zeros((steps, envs), bool) for key in ("dones", "timeouts")},
    }
    bound = policy.bind(weights, Rollout(record, rows, rows))
    act = bound.begin(Turn(np.random.default_rng(1), np.ones(3, np.float32), None, index=0, actors=1))
    for step in range(steps):
        act(step)
    drawn = record["policy_actions"]
    assert np.array_equal(drawn[0], drawn[1]) and np.array_equal(drawn[2], drawn[3])
    assert len({*drawn[0, :, 0].tolist(), *drawn[2, :, 0].tolist()}) == 2 * envs


@pytest.mark.parametrize("name", BY_TORCH)
def test_others_go_through_torch(name: str) -> None:
    with new(partial(Toy, BOX, ACTIONS["box"]), use_sde=True, policy_kwargs={"net_arch": [16], **BY_TORCH[name]}) as model:
        assert model.acting()[1].policy.distribution is None and "gradients='autograd', why=" in repr(model)
        model.learn(1)
        assert model.n_updates == 2
