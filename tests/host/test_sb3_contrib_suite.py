"""sb3-contrib's own tests, with our trainers in the place of its algorithms.

They are in no package: set ``REACTOR_RL_SB3_CONTRIB_CHECKOUT`` to a checkout of its repository.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from suites import check, source_of, without

pytestmark = pytest.mark.timeout(900)

FILES = [
    f"tests/test_{name}.py"
    for name in (
        "cnn", "deterministic", "dict_env", "identity", "invalid_actions", "lstm", "run", "save_load", "train_eval_mode",
    )
]  # fmt: skip
SUBSTITUTES = {
    f"sb3_contrib.{module}:{name}": f"one_actor_contrib:HostSync{name}"
    for module, name in (
        ("crossq.crossq", "CrossQ"), ("ppo_mask.ppo_mask", "MaskablePPO"), ("qrdqn.qrdqn", "QRDQN"),
        ("ppo_recurrent.ppo_recurrent", "RecurrentPPO"), ("tqc.tqc", "TQC"),
    )
}  # fmt: skip
OTHERS = "not TRPO and not trpo and not ARS and not ars and not test_env and not test_child and not performance"

REFUSED: dict[str, str] = {}
"""Things that our trainers refuse by design, or keep elsewhere."""


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sb3-contrib's source."""
    return source_of("sb3-contrib", "REACTOR_RL_SB3_CONTRIB_CHECKOUT", tmp_path_factory.mktemp("contrib"))


def test_their_tests_pass(checkout: Path, tmp_path: Path) -> None:
    check(checkout, tmp_path, SUBSTITUTES, 50, "-k", OTHERS, *without(checkout, REFUSED), *FILES)
