"""Sources that the kernels were written from.

A kernel is used only where each of its sources is known. After a new release of Gymnasium whose file differs, the kernel is
compared with it, the tests of ``tests/gymnasium_plugin/native`` are run with it, and its digest is added.
"""

__all__ = ["KNOWN"]

KNOWN: dict[str, tuple[str, ...]] = {
    "cartpole.py": ("8c034275500ff9c6",),
    "pendulum.py": ("f349a2160b54fce7",),
    "mountain_car.py": ("37ab120a8e931da6",),
    "continuous_mountain_car.py": ("3ad16d3f27bfb867",),
    "acrobot.py": ("4ea2699f41516c61",),
    "utils.py": (
        "5077e47a6ef0e49a",
        "3739667fe0ded696",
    ),
    "frozen_lake.py": ("d640d8289c7046eb",),
    "cliffwalking.py": ("24f48ac450a39935",),
    "taxi.py": ("63c51638c652f31b",),
    "blackjack.py": ("8774358584c30a76",),
}
"""By name of a file the first 16 digits of its sha256, of Gymnasium 1.4."""
