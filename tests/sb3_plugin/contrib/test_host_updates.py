"""Updates that begin from sb3-contrib's state end with sb3-contrib's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from contrib_trainers import CONTINUOUS, CONTRIB, ToyOf, make
from trainers import SPACES, same_draws

from reactor_sb3.streams import Purpose, stream


def close(ours: Any, theirs: Any) -> None:
    """Weights and buffers are the same but for rounding."""
    state = theirs.policy.state_dict()
    for name, one in ours.policy.state_dict().items():
        torch.testing.assert_close(one, state[name], rtol=1e-5, atol=1e-5, msg=lambda said, name=name: f"{name}: {said}")


OFF_POLICY = sorted(name for name, row in CONTRIB.items() if "gradient_steps" in row.arguments)
CASES: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in OFF_POLICY]
CASES += [(name, {"n_steps": 3, "ent_coef": 0.1}) for name in CONTINUOUS]
CASES += [("tqc", {"env": "image"}), ("tqc", {"env": "dict"}), ("tqc", {"target_update_interval": 2})]
CASES += [("qrdqn", {"n_steps": 3, "max_grad_norm": 0.1}), ("qrdqn", {"env": "image"}), ("qrdqn", {"env": "dict"})]


@pytest.mark.filterwarnings("ignore:`n_steps:UserWarning")  # SB3's, about loading
@pytest.mark.parametrize(("algorithm", "changed"), CASES, ids=str)
def test_off_policy(algorithm: str, changed: dict[str, Any], tmp_path: Path) -> None:
    kind = changed.get("env")
    given = {**changed, "env": ToyOf(algorithm, SPACES[kind][1])} if kind else changed
    policy = CONTRIB[algorithm].policies[kind] if kind else None
    with make(algorithm, policy=policy, learning_rate=1e-3, **given) as ours:
        ours.learn(320)
        ours.save(tmp_path / "model")
        theirs = CONTRIB[algorithm].host.load(tmp_path / "model", device="cpu")
        theirs.replay_buffer, theirs._logger = ours.replay_buffer, ours.logger
        close(ours, theirs)
        before = ours.fingerprint()
        for train in (ours.train, theirs.train):
            with same_draws(ours, stream(7, Purpose.REPLAY)):
                torch.manual_seed(3)
                train(7, 16)
        assert ours.fingerprint() != before
        close(ours, theirs)
        assert ours._n_updates == theirs._n_updates
