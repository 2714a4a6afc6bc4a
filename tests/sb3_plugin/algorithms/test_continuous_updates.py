"""Each update of SAC and TD3, begun from SB3's own weights and moments, ends with the weights of SB3's own ``train()``."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from continuous_models import CASES, ROWS, Learner, learn, model_of, replay
from stable_baselines3 import SAC
from torch import nn

pytestmark = pytest.mark.usefixtures("one_thread", "small_blocks")
UPDATES = 25
CLOSE = 1e-5


def load_state(ours: Any, theirs: Any) -> None:
    ours.set_parameters(deepcopy(theirs.get_parameters()))
    if isinstance(ours, SAC) and ours.log_ent_coef is not None:
        ours.log_ent_coef.data = theirs.log_ent_coef.data.clone()


def optimizers_of(model: Any) -> list[tuple[list[nn.Parameter], torch.optim.Optimizer]]:
    return [(group["params"], one.optimizer) for one in (model.actor, model.critic) for group in one.optimizer.param_groups]


def check_weights(ours: Any, theirs: Any, update: int) -> None:
    """All weights, but for those whose gradient is only rounding, which Adam divides by itself."""
    vague = {
        id(parameter): theirs_optimizer.state[parameter]["exp_avg_sq"].sqrt() < 1e-9
        for parameters, theirs_optimizer in optimizers_of(theirs)
        for parameter in parameters
        if "exp_avg_sq" in theirs_optimizer.state[parameter]
    }
    for (name, mine), wanted in zip(ours.policy.named_parameters(), theirs.policy.parameters(), strict=True):
        off = (mine - wanted).abs() > CLOSE
        if id(wanted) in vague:
            off &= ~vague[id(wanted)]
        assert not off.any(), (update, name, float((mine - wanted).abs().max()))
    for mine, wanted in zip(ours.policy.buffers(), theirs.policy.buffers(), strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-5, atol=CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "discounts"),
    [*((case, False) for case in CASES), *((case, True) for case in ("SAC", "TD3", "SAC, dict", "TD3, dict"))],
)
def test_each_update_is_that_of_sb3(case: str, discounts: bool) -> None:
    algorithm, kind, changed = CASES[case]
    theirs, ours = (model_of(algorithm, kind, **changed) for _ in range(2))
    learner = Learner(ours)
    assert learner.nets.compiled == (kind in ("box", "discrete") and "normalisation" not in case and "expln" not in case)
    generator = np.random.default_rng(0)
    updates, rows = (10, 8) if kind == "image" else (UPDATES, ROWS)
    for update in range(updates):
        given = replay(theirs, rows, generator, discounts)
        load_state(ours, theirs)
        theirs.replay_buffer.sample = lambda *_, given=given, **__: given
        before = theirs._n_updates
        torch.manual_seed(update)
        theirs.train(1, rows)
        torch.manual_seed(update)
        found = learn(learner, given, before)
        check_weights(ours, theirs, update)
        logged = theirs.logger.name_to_value
        for name, values in found.items():
            if len(values):
                assert values[0] == pytest.approx(logged[f"train/{name}"], rel=2e-5, abs=2e-6), (update, name)
        if algorithm == "sac" and theirs.log_ent_coef is not None:
            assert ours.log_ent_coef.item() == pytest.approx(theirs.log_ent_coef.item(), abs=1e-6)
