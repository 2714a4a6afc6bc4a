"""Is what was installed whole? ``python .ci/installed.py compiled`` or ``pure``, in an environment with the engine's dependencies.

Hosts are not needed: compiled modules are loaded from their files, past the packages that would import Gymnasium or torch.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import reactor_rl
from reactor_rl import Output, Program, Reactor, Timer, reaction

EXTENSIONS = {
    "_frames": "reactor_gymnasium/atari",
    "_kernels": "reactor_gymnasium/native",
    "_products": "reactor_torch",
}
PLACES: list[dict[str, Any]] = [
    {"executor": "inline"},
    {"executor": "threads", "workers": 2},
    {"executor": "processes", "workers": 2},
]


class Count(Reactor):
    beat = Timer(period=1)
    out = Output((), np.int64)

    def __init__(self, bank_index: int) -> None:
        self.n = bank_index

    @reaction(beat, effects=out)
    def count(self) -> None:
        self.n += 1
        self.out.set(self.n)


def counted(place: dict[str, Any]) -> tuple[int, int]:
    program = Program("counting")
    for member, name in zip(program.bank(Count, 2), ("a", "b"), strict=True):
        program.connect(member.out, program.output(name))
    with program.start(**place) as run:
        run.run(ticks=3)
        return int(run.a), int(run.b)


def files_of(name: str) -> list[Path]:
    """Where a compiled module is."""
    package, _, below = EXTENSIONS[name].partition("/")
    spec = importlib.util.find_spec(package)
    assert spec is not None and spec.submodule_search_locations is not None, package
    folder = Path(spec.submodule_search_locations[0], below)
    return [path for suffix in EXTENSION_SUFFIXES if (path := folder / f"{name}{suffix}").exists()]


def loaded(name: str) -> ModuleType:
    (path,) = files_of(name)
    spec = importlib.util.spec_from_file_location(name, path)
    assert isinstance(spec, ModuleSpec) and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def use_compiled() -> None:
    """Each module does what it is for, once."""
    screen = np.zeros((210, 160), np.uint8)
    kernel = loaded("_frames").Kernel(screen)
    kernel.restart()
    kernel.learn(np.full_like(screen, 7))
    assert kernel.see_first() and kernel.see_last()
    frame = np.zeros((84, 84), np.uint8)
    kernel.finish(frame)
    assert (frame == 7).all()

    assert loaded("_kernels").ACROBOT_WORK > 0

    if sys.platform != "win32":  # it is for GCC and clang
        products, values = loaded("_products"), np.zeros((2, 2), np.float32)
        weight, bias = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32), np.zeros(2, np.float32)
        observations = np.array([[[1.0, 2.0], [4.0, 3.0]]], np.float32)
        assert all(products.check(kind) for kind in products.kinds())
        layers = (("linear", 1, 2, 2, 0.0, weight, bias - 2, None, None, values, None),)
        network = products.Network(2, layers)
        network.run(observations[0])
        assert values.tolist() == [[0.0, 0.0], [2.0, 1.0]]
        network.observe(observations[:, ::-1].copy(), False, np.ones(2, np.int64))
        assert network.greedy(0).tolist() == [0, 0] and values.tolist() == [[2.0, 1.0], [0.0, 0.0]]


def main() -> None:
    wanted = sys.argv[1]
    for place in PLACES:
        assert counted(place) == (3, 4), place
    if wanted == "compiled":
        use_compiled()
        assert getattr(sys, "_is_gil_enabled", lambda: True)() is not free_threaded(), "an extension has switched the GIL on"
    else:
        assert wanted == "pure" and not any(files_of(name) for name in EXTENSIONS)
    where = Path(reactor_rl.__file__).parent.parent
    print(f"  {wanted:8} on {sys.version.split()[0]}{'t' if free_threaded() else ''}: whole, in {where}")


def free_threaded() -> bool:
    return "free-threading" in sys.version


if __name__ == "__main__":
    main()
