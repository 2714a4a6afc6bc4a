"""What every package of ours does as libraries do: a version, a logger that is silent until somebody listens."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest

import reactor_rl
from reactor_rl import Output, Program, Reactor, Timer, reaction
from reactor_rl.plugin import compiled_module

PACKAGES = {
    "reactor_rl": "numpy",
    "reactor_gymnasium": "gymnasium",
    "reactor_torch": "torch",
    "reactor_sb3": "stable_baselines3",
    "reactor_pettingzoo": "pettingzoo",
    "reactor_ray": "reactor_rl",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_the_version_and_a_logger(package: str) -> None:
    pytest.importorskip(PACKAGES[package])
    module = import_module(package)
    assert module.__version__ == reactor_rl.__version__ and "__version__" in module.__all__
    # Without it Python prints warnings of a library that nobody has asked for.
    assert any(isinstance(handler, logging.NullHandler) for handler in logging.getLogger(package).handlers)


class Count(Reactor):
    beat = Timer(period=1)
    out = Output((), np.int64)

    @reaction(beat, effects=out)
    def count(self):
        self.out.set(1)


def test_who_listens_hears_what_was_started(caplog: pytest.LogCaptureFixture) -> None:
    program = Program("counting")
    program.connect(program.add(Count).out, program.output("n"))
    with caplog.at_level(logging.INFO, "reactor_rl"), program.start(workers=1):
        pass
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("reactor_rl.program", "INFO")
    assert record.getMessage().startswith("started Run('counting', reactors=1, executor='inline', workers=1")


def test_who_listens_hears_what_is_not_compiled(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "reactor_rl"):
        assert compiled_module("reactor_rl._no_such_extension") is None
    assert "reactor_rl._no_such_extension was not compiled" in caplog.text


LISTENING = "import logging; logging.basicConfig(level=logging.INFO, format='%(name)s %(levelname)s');"
MAKING = "from reactor_gymnasium import make_vec; make_vec('CartPole-v1', num_envs=2, workers=1).close()"


@pytest.mark.parametrize(
    ("code", "told"),
    [(MAKING, []), (LISTENING + MAKING, ["reactor_gymnasium.vector.sharded INFO", "reactor_rl.program INFO"])],
    ids=["silent", "listening"],
)
def test_nothing_is_printed_that_nobody_asked_for(code: str, told: list[str]) -> None:
    pytest.importorskip("gymnasium")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert sorted(set(done.stderr.splitlines())) == told


def test_helpers_wait_for_no_needless_imports() -> None:
    code = "import sys, reactor_rl; print(sys.modules.keys() & {'http.client', 'ssl', 'xml', 'gymnasium', 'torch', 'ray'})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "set()\n"
