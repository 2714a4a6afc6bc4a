"""Builds a source distribution, from it a wheel with a compiler and one without, and installs both for every CPython there is.

Needs hatchling and setuptools here. What cannot be tried, for want of a compiler, of a Python or of a network, is named in a line.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PURE = "py3-none-any"
VERSIONS = ("3.11", "3.12", "3.13")
DEPENDENCIES = ("numpy", "cloudpickle", "threadpoolctl")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def build(kind: str, source: Path, into: Path, **variables: str) -> Path:
    """Build one distribution with what is installed here. Returns its file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    done = subprocess.run(command, cwd=source, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = into.iterdir()
    return found


def tag_of(wheel: Path) -> str:
    return wheel.stem.split("-", 2)[2]


def compiled_in(names: list[str]) -> set[str]:
    return {Path(name).name.partition(".")[0] for name in names if name.endswith((".so", ".pyd"))}


def check_source(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    assert not compiled_in(names) and sum(name.endswith(".c") and "/plugins/" in name for name in names) == 3, names


def check_wheel(wheel: Path, wanted: str) -> None:
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag, modules = {
        "compiled": (f"cp311-abi3-{platform}", {"_frames", "_kernels", "_products"}),
        "pure": (PURE, set[str]()),
    }[wanted]
    names = zipfile.ZipFile(wheel).namelist()
    assert tag_of(wheel) == tag, (wheel, tag)
    assert compiled_in(names) == modules, (wheel, names)
    sources = [name for name in names if name.endswith((".c", ".h"))]  # of some, headers of policies are made; users include one
    public = ("reactor_torch/", "reactor_gymnasium/include/")
    assert sources and all(name.startswith(public) and name.endswith(".h") for name in sources), sources
    packages = 1 + len([*(ROOT / "plugins").glob("reactor_*/__init__.py")])
    assert sum(name.endswith("/py.typed") for name in names) == packages, names


def interpreter(version: str) -> str | None:
    """An interpreter of a version: this one, one on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    beside = [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python"))]
    for found in (sys.executable, shutil.which(f"python{version}"), *beside):
        asked = "import sys; print(*sys.version_info[:2], sep='.')"
        if found and subprocess.run([found, "-c", asked], capture_output=True, text=True, check=False).stdout.strip() == version:
            return found
    return None


def fetched(version: str, into: Path) -> bool:
    """Whether what the engine needs could be had for a version of Python."""
    constraints = str(ROOT / "constraints.txt")
    command = [*PIP, "install", "--target", str(into), "--python-version", version, "--only-binary", ":all:", "-c", constraints]
    return subprocess.run([*command, *DEPENDENCIES], capture_output=True, check=False).returncode == 0


def install(wheel: Path, version: str, into: Path) -> None:
    """As for somebody who has this version of Python: pip refuses a wheel whose tag does not fit."""
    command = [*PIP, "install", "--target", str(into), "--python-version", version, "--only-binary", ":all:", "--no-deps"]
    subprocess.run([*command, str(wheel)], check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        sdist = build("sdist", ROOT, work / "sdist")
        with tarfile.open(sdist) as archive:
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(work / "source")
        (source,) = (work / "source").iterdir()
        check_source(sdist)
        wheels = {
            "compiled": build("wheel", source, work / "compiled"),
            "pure": build("wheel", source, work / "pure", CC="no-such-compiler"),
        }
        if tag_of(wheels["compiled"]) == PURE:
            del wheels["compiled"]
            print("  compiled skipped: there is no C compiler here, or Python's headers are missing")
        for wanted, wheel in wheels.items():
            check_wheel(wheel, wanted)
        print("built", sdist.name, *(wheel.name for wheel in wheels.values()))
        for version in VERSIONS:
            python, dependencies = interpreter(version), work / f"dependencies-{version}"
            if python is None:
                print(f"  {version} skipped: there is no such Python here")
                continue
            if not fetched(version, dependencies):
                print(f"  {version} skipped: {', '.join(DEPENDENCIES)} cannot be fetched")
                continue
            for wanted, wheel in wheels.items():
                site = work / f"{wanted}-{version}"
                install(wheel, version, site)
                path = os.pathsep.join(map(str, (site, dependencies)))
                check = [python, "-P", str(ROOT / ".ci" / "installed.py"), wanted]
                subprocess.run(check, cwd=work, env={**os.environ, "PYTHONPATH": path}, check=True)


if __name__ == "__main__":
    main()
