"""Compiles the extensions into the wheel, or beside their sources for an editable install.

Without a compiler or Python's headers the package is installed all the same and does without them, in more time;
``REACTOR_RL_NO_EXTENSION=1`` asks for that.

One wheel serves every CPython from 3.11 on, because the extensions keep to its limited API. Free-threaded builds have no such API:
there a wheel is for one version.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Source(NamedTuple):
    """One extension.

    Attributes:
        package: Where it belongs, in ``plugins``.
        name: Of the module.
        file: The C file that includes all others, in the package.
        flags: For the compiler.
        without: What happens if it is not compiled.
    """

    package: str
    name: str
    file: str
    flags: list[str]
    without: str


WINDOWS = os.name == "nt"
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
MACROS = [("Py_GIL_DISABLED", "1")] if FREE_THREADED else [("Py_LIMITED_API", "0x030b0000")]  # 3.11: the first with buffers
SOURCES = [
    # A multiplication and an addition must not become one: frames would differ in their last bit.
    Source(
        "reactor_gymnasium/atari",
        "_frames",
        "_frames.c",
        ["/O2", "/fp:precise"] if WINDOWS else ["-O3", "-g0", "-ffp-contract=off"],
        "frames will be made through OpenCV",
    ),
    # Likewise: a float of Gymnasium's own environments would differ in its last bit.
    Source(
        "reactor_gymnasium/native",
        "_kernels",
        "_kernels.c",
        ["/O2", "/fp:precise"] if WINDOWS else ["-O3", "-g0", "-ffp-contract=off"],
        "Gymnasium's own environments will be stepped in Python",
    ),
    # Nothing but what is written as fused may be: all kinds of processors have to give the same bits.
    Source(
        "reactor_torch",
        "_products",
        "_c/module.c",
        ["/O2", "/clang:-ffp-contract=off", "/clang:-fno-trapping-math"]
        if WINDOWS
        else ["-O3", "-g0", "-ffp-contract=off", "-fno-trapping-math"],
        "torch will compute networks",
    ),
]


def tag() -> str:
    """Python, its binary interface and the platform that a wheel with extensions is for."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if not FREE_THREADED:
        return f"cp311-abi3-{platform}"
    version = f"cp{sys.version_info.major}{sys.version_info.minor}"
    return f"{version}-{version}t-{platform}"


class CustomBuildHook(BuildHookInterface[Any]):
    """Hatchling calls this when it builds a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and tell hatchling what there is."""
        self.folder = Path(tempfile.mkdtemp())
        for source in SOURCES:
            package = Path(self.root, "plugins", source.package)
            if version == "editable":
                for old in (*package.glob(f"{source.name}*.so"), *package.glob(f"{source.name}*.pyd")):
                    old.unlink()  # nobody wants one of an older source
            if os.environ.get("REACTOR_RL_NO_EXTENSION", "0") not in ("", "0"):
                continue
            try:
                built = self.compile(source)
            except (Exception, SystemExit) as error:
                self.app.display_warning(f"{source.name} was not compiled, {source.without}: {error!r}")
                continue
            if version == "editable":
                shutil.copy(built, package)
                continue
            build_data["force_include"][str(built)] = f"{source.package}/{built.name}"
            build_data["pure_python"] = False
            build_data["tag"] = tag()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made on the way."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def compile(self, source: Source) -> Path:
        """Compile an extension. Returns where it is."""
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext

        if sys.implementation.name != "cpython":
            raise NotImplementedError("it is for CPython")
        path = Path(self.root, "plugins", source.package, source.file)
        libraries = [] if WINDOWS else ["m"]
        extension = Extension(
            source.name,
            [str(path)],
            define_macros=MACROS,
            libraries=libraries,
            extra_compile_args=source.flags,
            py_limited_api=not FREE_THREADED,
        )

        class Build(build_ext):
            """On Windows by clang-cl, which takes MSVC's place, where a source needs what MSVC has not."""

            def build_extensions(self) -> None:
                if any(flag.startswith("/clang:") for flag in source.flags):
                    self.compiler.initialize()
                    self.compiler.cc = shutil.which("clang-cl") or "clang-cl"
                super().build_extensions()

        command = Build(Distribution({"ext_modules": [extension]}))
        command.build_lib, command.build_temp = str(self.folder), str(self.folder / "objects")
        command.ensure_finalized()
        command.run()
        return Path(command.get_outputs()[0])
