"""Compiles ``_frames.c`` into the wheel, or beside its source for an editable install.

Without a compiler or Python's headers the package is installed all the same and makes its frames through OpenCV;
``REACTOR_RL_NO_EXTENSION=1`` asks for that.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("plugins", "reactor_gymnasium", "_frames.c")
# A multiplication and an addition must not become one: frames would differ in their last bit.
FLAGS = ["/O2", "/fp:precise"] if os.name == "nt" else ["-O3", "-g0", "-ffp-contract=off"]


class CustomBuildHook(BuildHookInterface[Any]):
    """Hatchling calls this when it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling what there is."""
        self.folder = Path(tempfile.mkdtemp())
        package = Path(self.root) / SOURCE.parent
        if version == "editable":
            for old in (*package.glob("_frames*.so"), *package.glob("_frames*.pyd")):
                old.unlink()  # nobody wants one of an older source
        if os.environ.get("REACTOR_RL_NO_EXTENSION", "0") not in ("", "0"):
            return
        try:
            built = self.compile()
        except (Exception, SystemExit) as error:
            self.app.display_warning(f"{SOURCE.name} was not compiled, frames will be made through OpenCV: {error!r}")
            return
        if version == "editable":
            shutil.copy(built, package)
            return
        build_data["force_include"][str(built)] = f"reactor_gymnasium/{built.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made on the way."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def compile(self) -> Path:
        """Compile the extension. Returns where it is."""
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        if sys.implementation.name != "cpython":
            raise NotImplementedError("it is for CPython")
        extension = Extension("_frames", [str(Path(self.root) / SOURCE)], extra_compile_args=FLAGS, py_limited_api=True)
        command = build_ext(Distribution({"ext_modules": [extension]}))
        command.build_lib, command.build_temp = str(self.folder), str(self.folder / "objects")
        command.ensure_finalized()
        command.run()
        return Path(command.get_outputs()[0])
