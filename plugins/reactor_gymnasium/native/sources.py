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
    "mujoco_env.py": ("77e8205c380d8e0d",),
    "ant_v4.py": ("a27201f0fe071608",),
    "ant_v5.py": ("03be9596a1fbc171",),
    "half_cheetah_v4.py": ("4810409fe42f8d2d",),
    "half_cheetah_v5.py": ("c6520e364985f471",),
    "hopper_v4.py": ("2148f81627c28abf",),
    "hopper_v5.py": ("daa2951970f5f558",),
    "humanoid_v4.py": ("7e309f094c6bfc26",),
    "humanoid_v5.py": ("53792f8fd48efbee",),
    "humanoidstandup_v4.py": ("4ddefc45628ead5d",),
    "humanoidstandup_v5.py": ("ff0524040964ebd6",),
    "inverted_double_pendulum_v4.py": ("43d80146560c39b8",),
    "inverted_double_pendulum_v5.py": ("a4ce6cadb4daf557",),
    "inverted_pendulum_v4.py": ("201ae53714cd8e89",),
    "inverted_pendulum_v5.py": ("860e8436475689a4",),
    "pusher_v5.py": ("e51893fd93ab0e72",),
    "reacher_v4.py": ("a06022f166ef32bb",),
    "reacher_v5.py": ("be2f75d48b6b19e6",),
    "swimmer_v4.py": ("b8698696c7ec5ac7",),
    "swimmer_v5.py": ("5bdb513ea955bc2e",),
    "walker2d_v4.py": ("bc4b14f1c27d1584",),
    "walker2d_v5.py": ("10219f0e6b5208d6",),
}
"""By name of a file the first 16 digits of its sha256, of Gymnasium 1.4."""
