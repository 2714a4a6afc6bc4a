"""Trainings of dense networks and first weights have one fingerprint, whatever code the extension, torch, MKL and numpy use.

It is that of every x86-64 with FMA.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reactor_torch import kernels

products = pytest.importorskip("reactor_torch._products")

TESTS = Path(__file__).parent.parent
WANTED = {
    "SAC": "b560f334e3ba62b8",
    "SAC, gSDE": "00d751244d8a8939",
    "TD3": "e45112c6cf6407ce",
    "DQN": "19a54d0ac632b7a0",
    "PQN": "6a7e6c944859f0c2",
    "DQN, images": "38a48fddf9e833a7",
    "PPO, images": "0a7bee136fa6f8db",
    "QR-DQN": "e39851b8df6024fd",
    "TQC": "468af99b5295502d",
    "CrossQ": "173b5e4e002cd48f",
    "RecurrentPPO": "822982e50de9c457",
    "MaskablePPO, discrete": "006903ff51ce0eb3",
    "MaskablePPO, multi-discrete": "0b288b0755f87471",
    "MaskablePPO, multi-binary": "99582e9cb5dee8b7",
    "PPO, discrete": "c84c123602a2da09",
    "PPO, multi-discrete": "4344b9ab6229c539",
    "PPO, multi-binary": "a11cdbfbfa33a93a",
    "PPO, box": "ff7bc662f1cf9207",
    "PPO, gSDE": "cef291d2259a828b",
    "A2C": "e4df8ccd0181713e",
    "first weights, a2c": "1d0379a34787fcf4",
    "first weights, ars": "33935e28a6bb201b",
    "first weights, crossq": "0008946e7e4e2fbe",
    "first weights, ddpg": "14ee0152f730a96f",
    "first weights, dqn": "84c6b077d1f43c70",
    "first weights, ippo": "76c26f0b12c29c1d",
    "first weights, maskable_ppo": "62af66b1e42eac43",
    "first weights, ppo": "1d0379a34787fcf4",
    "first weights, pqn": "7553341c96cbf183",
    "first weights, qrdqn": "1069dd0f64fecc4a",
    "first weights, recurrent_ppo": "31d5142c73f3e98c",
    "first weights, sac": "7a9f70e8321891b8",
    "first weights, td3": "b6d09a77f38d976f",
    "first weights, tqc": "d425956851694aaa",
    "first weights, trpo": "1d0379a34787fcf4",
    "first weights, images": "822b16164e5919f0",
}
"""They change where a loss, an optimiser or the order of a sum does: CHANGELOG says so then."""


def fingerprints(**variables: str) -> dict[str, str]:
    path = os.pathsep.join([*sys.path, str(TESTS)])
    command = [sys.executable, str(TESTS / "torch_plugin" / "any_processor.py")]
    environment = os.environ | {"PYTHONPATH": path} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.skipif(kernels.compiled is None, reason="torch computes dense layers here")
def test_the_fingerprint_of_this_processor() -> None:
    assert fingerprints() == WANTED


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("kind", "torch_s"), [(kind, ["default", "avx2"][at % 2]) for at, kind in enumerate(products.kinds())])
def test_the_fingerprint_of_any_other(kind: str, torch_s: str) -> None:
    """With numpy's code for few processors, too."""
    few = {"NPY_DISABLE_CPU_FEATURES": "AVX2 FMA3"} if torch_s == "default" else {}
    assert fingerprints(REACTOR_RL_ISA=kind, ATEN_CPU_CAPABILITY=torch_s, MKL_CBWR="COMPATIBLE", **few) == WANTED
