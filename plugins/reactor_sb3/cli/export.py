"""``python -m reactor_rl export MODEL.zip policy.h``: a trained policy as a C header, or as an ONNX model."""

from __future__ import annotations

import argparse
import os

from reactor_rl.plugin import UsageError
from reactor_sb3.exporting.export import export, loaded_policy, loaded_statistics

__all__ = ["main"]


def main(argv: list[str]) -> int:
    """Write a trained policy as a C header or an ONNX model."""
    parser = argparse.ArgumentParser(
        prog="python -m reactor_rl export",
        description="Writes the policy of a model as a C header that needs nothing but math.h, or as an ONNX model. The model is a "
        "file of save(), of Stable-Baselines3, sb3-contrib or a trainer of reactor_sb3. Parts of it are unpickled, which executes "
        "what is in them: export only what you trust.",
    )
    parser.add_argument("model", metavar="MODEL.zip", help="a file that model.save() has written")
    parser.add_argument("path", metavar="FILE", help="file to write: it ends in .h or in .onnx")
    parser.add_argument(
        "--normalize",
        metavar="STATISTICS",
        help="a file of VecNormalize.save(), by which observations are normalised; it is unpickled",
    )
    options = parser.parse_args(argv)
    try:
        normalize = None if options.normalize is None else loaded_statistics(options.normalize)
        export(loaded_policy(options.model), options.path, normalize=normalize)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        raise UsageError(str(error)) from error
    print(f"{options.path}: {os.path.getsize(options.path):,} bytes")
    return 0
