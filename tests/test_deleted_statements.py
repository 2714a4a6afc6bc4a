"""Statements are deleted as they should be, and those that count as equivalent are still there."""

from __future__ import annotations

import ast
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("mutants are judged on Linux", allow_module_level=True)

ROOT = Path(__file__).parent.parent
MUTANTS = ROOT / "tests" / "mutants"
sys.path.insert(0, str(MUTANTS))

import judging  # noqa: E402
from choosing import in_turn, of_tree, statements, without  # noqa: E402
from equivalent import EQUIVALENT  # noqa: E402
from judging import Copy, judge  # noqa: E402
from reached import FUTURE, Reached, mark  # noqa: E402

SAMPLE = '''
"""A module."""
import os

LIMIT: int = 3


class Counter:
    """Counts."""

    step = 1

    def __init__(self) -> None:
        """Begin."""
        self.n: int
        self.n = 0; self.name = "é"

    def count(self, by):
        import sys
        global LIMIT
        for _ in range(by):
            if by > LIMIT: continue
            self.n += self.step
            self.n += self.step
        def inner():
            return (
                self.n,
                by,
            )
        warnings.warn("counted")
        return inner()
'''
NAMES = [
    "Counter.__init__: self.n = 0",
    'Counter.__init__: self.name = "é"',
    "Counter.count: continue",
    "Counter.count: self.n += self.step",
    "Counter.count: self.n += self.step (2)",
    "Counter.count.inner: return ( self.n, by, )",
    "Counter.count: return inner()",
]


def test_each_statement_of_a_function_may_be_deleted() -> None:
    found = statements(SAMPLE)
    assert [one.name for one in found] == NAMES
    whole = ast.dump(ast.parse(SAMPLE))
    for one in found:
        shorter = without(SAMPLE, one)
        assert "pass" in shorter and ast.dump(ast.parse(shorter)) != whole
        left = [other.name for other in statements(shorter)]
        assert left == [name for name in NAMES if name != one.name] or one.name == NAMES[3]
    assert '"é"' in without(SAMPLE, found[0]) and "self.n = 0" in without(SAMPLE, found[1])


def test_the_order_is_that_of_the_seed() -> None:
    found = of_tree(ROOT, "channel.py")
    assert {one.file for one in found} == {"reactor_rl/runtime/channel.py"}
    assert in_turn(found, 1) == in_turn(found[::-1], 1) != in_turn(found, 2)
    assert len({one.name for one in found}) == len(found)


def test_what_counts_as_equivalent_is_there_and_has_a_reason() -> None:
    for file, names in EQUIVALENT.items():
        assert names.keys() <= {one.name for one in statements((ROOT / file).read_text())}, file
    assert all(reason for names in EQUIVALENT.values() for reason in names.values())


def test_who_runs_a_statement_is_told_by_the_statements(tmp_path: Path) -> None:
    source = f"{FUTURE}\n{SAMPLE}"
    found = statements(source, "sample.py")
    (tmp_path / "sample.py").write_text(mark(source, dict(enumerate(found))))
    (tmp_path / "hits").write_bytes(bytes(len(found)))
    look = "import sys; sys.path.append(sys.argv[1]); import sample; sample.Counter()"
    environment = os.environ | {"REACTOR_RL_HITS": str(tmp_path / "hits")}
    subprocess.run([sys.executable, "-c", look, str(MUTANTS)], cwd=tmp_path, env=environment, timeout=30, check=True)
    assert [bool(byte) for byte in (tmp_path / "hits").read_bytes()] == [True, True, False, False, False, False, False]
    notes = tmp_path / "notes"
    notes.write_text('["", 0.0, [3]]\n["slow", 2.0, [0, 1]]\n["quick", 0.1, [1]]\n')
    known = Reached()
    known.read(notes, found)
    known.note("simulation", 9.0, [0], found)
    assert [known.tests(one) for one in found[:4]] == [["slow"], ["quick", "slow"], [], ["quick", "slow"]]
    assert [known.simulated(one) for one in found[:2]] == [True, False]


def test_a_mutant_is_there_for_as_long_as_it_is_judged(tmp_path: Path) -> None:
    path = tmp_path / "tree" / "module.py"
    path.parent.mkdir()
    path.write_text("def f():\n    return 1\n")
    copy, (one,) = Copy(path.parent), statements(path.read_text(), "module.py")
    look = [sys.executable, "-S", "-c", "import module; assert module.f() is None"]
    with copy.without(one):
        assert copy.run(look, 1)[0]
    assert path.read_text() == "def f():\n    return 1\n" and not copy.run(look, 1)[0]


def test_a_judge_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "PATIENCE", 0.4)
    (tmp_path / "tree").mkdir()
    apart = (
        "import subprocess, time; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid, flush=True); time.sleep(60)"
    )
    well, said = Copy(tmp_path / "tree").run([sys.executable, "-S", "-c", apart], 0.0)
    assert not well and "it hangs" in said
    status, end = Path(f"/proc/{said.split()[0]}/stat"), time.monotonic() + 5
    with contextlib.suppress(FileNotFoundError):  # whoever has taken it over takes it away
        while status.read_text().split(")")[1].split()[0] != "Z":
            assert time.monotonic() < end
            time.sleep(0.01)


def test_the_verdict_is_who_fails_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def f():\n    return 1\n"
    (one,) = statements(source, "module.py")
    known = Reached()
    assert judge(Copy(Path()), one, known) == "not run"
    for name, seconds in (("simulation", 1.0), ("tests/test_a.py::test[one two]", 2.0), ("tests/test_b.py::test", 3.0)):
        known.note(name, seconds, [0], [one])
    failing: list[str] = []

    def run(self: Copy, command: list[str], seconds: float) -> tuple[bool, str]:
        for name in [*command]:
            if name in failing:
                failing.remove(name)
                return False, f"...\nFAILED {name} - assert False\n"
        return True, ""

    monkeypatch.setattr(Copy, "run", run)
    monkeypatch.setattr(Copy, "without", lambda self, statement: contextlib.nullcontext())
    assert judge(Copy(Path()), one, known) == "survived"
    failing += ["tests/test_a.py::test[one two]"]  # once: by chance
    assert judge(Copy(Path()), one, known) == "survived" and not failing
    failing += ["tests/test_a.py::test[one two]", "tests/test_b.py::test", "tests/test_b.py::test"]
    assert judge(Copy(Path()), one, known) == "tests/test_b.py"
    failing += ["tests/mutants/simulated.py"]
    assert judge(Copy(Path()), one, known) == "simulation"
