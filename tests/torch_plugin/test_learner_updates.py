"""One update is SB3's: begun from the weights and moments of its model, it ends with the weights of its own ``train``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from every_other import every_other
from torch import nn
from torch_plugin.sb3_models import (
    ACTIONS,
    WAYS,
    dqn,
    dqn_batch,
    dqn_learner,
    load_state,
    ppo,
    ppo_batch,
    ppo_learner,
    replay,
    rollout,
)

UPDATES = 25
CLOSE = 1e-5


def difference(ours: nn.Module, theirs: nn.Module) -> float:
    return max(float((a - b).detach().abs().max()) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


PPO_CASES: dict[str, Any] = {
    "as it comes": {},
    "values clipped, entropy": {"clip_range_vf": 0.2, "ent_coef": 0.05},
    "raw advantages, other weights": {"normalize_advantage": False, "vf_coef": 0.9, "max_grad_norm": 5.0, "learning_rate": 3e-3},
    "ReLU, unequal towers": {"policy_kwargs": {"activation_fn": nn.ReLU, "net_arch": {"pi": [32], "vf": [16, 8]}}},
    "weight decay": {"policy_kwargs": {"optimizer_kwargs": {"eps": 1e-6, "weight_decay": 0.01}}},
    "AdamW": {"policy_kwargs": {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"eps": 1e-5}}},
    "RMSprop": {"policy_kwargs": {"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": {"eps": 1e-5}}},
}


GSDE_CASES: dict[str, Any] = {
    "gSDE": {"use_sde": True, "ent_coef": 0.05},
    "gSDE, one width": {"use_sde": True, "policy_kwargs": {"full_std": False, "log_std_init": -0.5}},
}
PPO_KINDS = [(case, kind) for number, case in enumerate(PPO_CASES) for kind in (ACTIONS if number < 2 else ["discrete", "box"])]
PPO_KINDS += [(case, "box") for case in GSDE_CASES]
PPO_CASES |= GSDE_CASES


@pytest.mark.slow
@every_other(case_and_kind=PPO_KINDS, way=WAYS)
def test_ppo(case_and_kind: tuple[str, str], way: str) -> None:
    case, kind = case_and_kind
    theirs, ours = ppo(kind, **PPO_CASES[case]), ppo(kind, **PPO_CASES[case])
    learner = ppo_learner(ours, way)
    generator = np.random.default_rng(0)
    given: Any = None
    for update in range(UPDATES):
        if update % 10 == 0:  # ratios move away from 1 in between
            given = rollout(theirs, 64, generator)
        load_state(ours, theirs)
        learner.begin()
        theirs.rollout_buffer.get = lambda _, given=given: iter([given])  # type: ignore[method-assign]
        theirs.train()
        found = dict(zip(learner.statistics, learner.update(ppo_batch(ours, given)), strict=True))
        assert difference(ours.policy, theirs.policy) < CLOSE, update
        logged = theirs.logger.name_to_value
        for name, value in found.items():
            assert value == pytest.approx(logged[f"train/{name}"], rel=2e-4, abs=2e-6), (update, name)


DQN_CASES = {
    "as it comes": {},
    "soft gradients": {"max_grad_norm": 0.1, "learning_rate": 1e-3},
    "weight decay": {"policy_kwargs": {"optimizer_kwargs": {"weight_decay": 0.01}}},
    "tanh": {"policy_kwargs": {"activation_fn": nn.Tanh, "net_arch": [32]}},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("discounts", [False, True])
@pytest.mark.parametrize("case", DQN_CASES)
def test_dqn(case: str, discounts: bool, way: str) -> None:
    theirs, ours = dqn(**DQN_CASES[case]), dqn(**DQN_CASES[case])
    learner = dqn_learner(ours, way)
    generator = np.random.default_rng(0)
    for update in range(UPDATES):
        given = replay(64, generator, discounts)
        load_state(ours, theirs)
        learner.begin()
        assert theirs.replay_buffer is not None
        theirs.replay_buffer.sample = lambda *_, given=given, **__: given  # type: ignore[method-assign]
        theirs.train(1, 64)
        loss = learner.update(dqn_batch(ours, given))[0]
        assert difference(ours.policy, theirs.policy) < CLOSE, update
        assert loss == pytest.approx(theirs.logger.name_to_value["train/loss"], rel=1e-5)
