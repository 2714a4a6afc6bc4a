"""``python -m reactor_rl`` as a user runs it: in a process of its own, in a directory with modules of theirs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import reactor_rl
from reactor_rl import __main__ as cli_main
from reactor_rl.cli.commands import UsageError, load_target
from reactor_rl.cli.doctor import round_trips

pytestmark = pytest.mark.timeout(120)

MODULE = '''
import os
import numpy as np
from reactor_rl import Input, Output, Program, Reactor, Timer, reaction

class Count(Reactor):
    beat = Timer(period=1)
    out = Output((), np.float64)
    def __init__(self, bank_index, step=1, pid=False):
        self.n, self.step, self.pid = bank_index, step, pid
    @reaction(beat, effects=out)
    def count(self):
        self.n += self.step
        self.out.set(os.getpid() if self.pid else self.n)

class Total(Reactor):
    inp = Input()
    out = Output((), np.float64)
    @reaction(inp, effects=out)
    def add(self):
        self.out.set(self.inp.value.sum())

def good(n=3, step=1, pid=False):
    """A program that counts."""
    program = Program("counting")
    counts, total = program.bank(Count, n, step=step, pid=pid), program.add(Total)
    program.connect(counts.out, total.inp.rows)
    program.connect(total.out, program.output("total"))
    return program

def bad():
    return good(pid=True)

def loop():
    program = good()
    one, other = program.add(Total, name="one"), program.add(Total, name="other")
    program.connect(one.out, other.inp)
    program.connect(other.out, one.inp)
    return program

def broken():
    raise LookupError("no such environment")

def number():
    return 3

class Traced:
    def trace(self, path):
        raise AssertionError("this is for those who run it themselves")

class Driven:
    closed = 0
    def __init__(self, name):
        self.name = name
    def draw(self, path):
        return f"drawn {self.name} {path}"
    def trace(self, path, *, ticks, executor, workers):
        open(path, "w").write(f"{ticks} {executor} {workers}")
    def fingerprint(self, *, executor, workers, ticks):
        return f"{self.name}-{ticks}"
    def close(self):
        print("closed")
'''


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "needs.py").write_text("import a_module_that_nobody_has\n")
    return tmp_path


def run(here: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(reactor_rl.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, "-m", "reactor_rl", *argv],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.slow
def test_help_lists_every_command_with_a_line(here):
    found = run(here, "--help")
    assert found.returncode == 0
    assert found.stdout.startswith(f"reactor_rl {reactor_rl.__version__}\n") and "--version" in found.stdout
    for name in ("draw", "trace", "verify", "doctor"):
        assert re.search(rf"^  {name} +[A-Z]\w+ ", found.stdout, re.MULTILINE)


def test_the_version(here):
    assert run(here, "--version").stdout.split() == ["reactor_rl", reactor_rl.__version__]


@pytest.mark.slow
def test_plugins_add_commands_and_a_broken_one_is_listed_with_its_reason(here):
    (here / "plug.py").write_text(
        'def main(argv):\n    """Says hello.\n\n    At length."""\n    print("hello", *argv)\n    return 7\n'
    )
    info = here / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[reactor_rl.commands]\nhello = plug:main\nother = needs:main\ndraw = plug:main\n")
    listed = run(here, "--help").stdout
    assert re.search(r"^  hello +Says hello\.$", listed, re.MULTILINE)
    assert re.search(r"^  other +\(unavailable: ModuleNotFoundError.*a_module_that_nobody_has", listed, re.MULTILINE)
    assert listed.count("\n  draw ") == 1  # a plugin does not replace the engine's own
    called = run(here, "hello", "a", "--b")
    assert (called.returncode, called.stdout) == (7, "hello a --b\n")
    refused = run(here, "other")
    assert refused.returncode == 2
    assert "a_module_that_nobody_has" in refused.stderr
    assert "flowchart" in run(here, "draw", "mine:good").stdout


@pytest.mark.slow
def test_draw_prints_or_writes(here):
    printed = run(here, "draw", "mine:good", "2")
    assert printed.returncode == 0
    assert "count ×2" in printed.stdout  # noqa: RUF001
    written = run(here, "draw", "mine:good", "n=4", "-o", "p.svg", "--workers", "2")
    assert written.stdout == "wrote p.svg\n"
    text = (here / "p.svg").read_text(encoding="utf-8")
    ET.fromstring(text)
    assert "count ×4" in text  # noqa: RUF001
    assert "worker 1" in text


def test_draw_asks_what_is_no_program(here):
    found = run(here, "draw", "mine:Driven", "name=x", "-o", "there.svg")
    assert found.returncode == 0
    assert found.stdout.splitlines() == ["closed", "wrote there.svg"]


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "rows"), [("inline", 1), ("threads", 2), ("processes", 2)])
def test_trace_writes_a_timeline(here, executor, rows):
    found = run(here, "trace", "mine:good", "-o", "t.json", "--ticks", "6", "--executor", executor, "--workers", "2")
    assert found.returncode == 0, found.stderr
    assert "24 reactions" in found.stdout
    events = json.loads((here / "t.json").read_text())["traceEvents"]
    assert sum(e.get("cat") == "reaction" for e in events) == 24
    assert len({e["tid"] for e in events if e["ph"] == "X"}) == rows


@pytest.mark.slow
def test_trace_asks_what_is_no_program(here):
    assert run(here, "trace", "mine:Driven", "x", "-o", "t.json", "--ticks", "6", "--workers", "2").returncode == 0
    assert (here / "t.json").read_text() == "6 auto 2"


@pytest.mark.slow
def test_verify_tells_good_from_bad(here):
    good = run(here, "verify", "mine:good", "n=2", "step=0.5", "--ticks", "8", "--workers", "1,2")
    assert good.returncode == 0, good.stderr
    assert good.stdout.startswith("mine:good n=2 step=0.5\n")
    assert "the same for all 5 after 8 ticks" in good.stdout
    bad = run(here, "verify", "mine:bad", "--ticks", "8", "--workers", "2")
    assert bad.returncode == 1
    assert bad.stdout.count("DIFFERS") == 1


@pytest.mark.slow
def test_verify_without_a_target_verifies_what_plugins_register(here):
    info = here / "plug-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[reactor_rl.verify]\nz-good = mine:good\nz-host = needs:target\n")
    found = run(here, "verify", "--ticks", "2", "--executors", "inline", "--workers", "2")
    assert "z-good (mine:good)\n  inline" in found.stdout
    assert "z-host (needs:target)\n  skipped: ModuleNotFoundError" in found.stdout
    by_name = run(here, "verify", "z-good", "n=2", "--ticks", "3", "--executors", "inline,threads", "--workers", "2")
    assert by_name.returncode == 0, by_name.stderr
    assert by_name.stdout.startswith("z-good n=2\n  inline")
    assert run(here, "draw", "z-good").stdout == run(here, "draw", "mine:good").stdout
    unknown = run(here, "verify", "z-bad")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "or is one of" in unknown.stderr and "z-good" in unknown.stderr


@pytest.mark.slow
def test_doctor_measures_and_reports(here):
    found = run(here, "doctor")
    assert found.returncode == 0, found.stderr
    for label in ("Python", "cores", "memory", "start methods", "libraries", "channel, spinning", "channel, parked"):
        assert re.search(rf"^{label} +\S", found.stdout, re.MULTILINE)
    assert found.stdout.count("us for a round trip") == 2


@pytest.mark.slow
def test_a_round_trip_is_timed():
    seconds, signal = round_trips(0.0)
    assert 0 < signal < seconds < 1


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "usage"),
        (["nonsense"], "unknown command 'nonsense'"),
        (["draw"], "TARGET"),
        (["draw", "mine"], "MODULE:FACTORY"),
        (["draw", "nowhere:good"], "cannot import 'nowhere'"),
        (["draw", "needs:good"], "a_module_that_nobody_has"),
        (["draw", "mine:nothing"], "has no 'nothing'"),
        (["draw", "mine:MODULE"], "has no 'MODULE'"),
        (["draw", "mine:good", "banana=1"], "banana"),
        (["draw", "mine:broken"], "LookupError: no such environment"),
        (["draw", "mine:number"], "must make a Program or an object with draw()"),
        (["draw", "mine:good", "-o", "p.png"], "p.png"),
        (["draw", "mine:good", "-o", "nowhere/p.svg"], "nowhere"),
        (["draw", "mine:good", "--workers", "0"], "integer >= 1"),
        (["draw", "mine:loop", "--workers", "2"], "wait for each other"),
        (["trace", "mine:number"], "must make a Program, or an object that runs by itself"),
        (["trace", "mine:Traced"], "with it.trace(path)"),
        (["trace", "mine:good", "-o", "nowhere/t.json"], "nowhere"),
        (["trace", "mine:good", "--ticks", "-3"], "--ticks"),
        (["verify", "mine:number"], "a target must make a Program"),
        (["verify", "mine:broken"], "LookupError"),
        (["verify", "mine:good", "--executors", "ray"], "ray"),
        (["verify", "mine:good", "--workers", "two"], "two"),
        (["doctor", "--bogus"], "--bogus"),
    ],
)
def test_errors_of_use_are_one_line_and_exit_2(here, argv, says, monkeypatch, capfd):
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(here))
    for name in ("mine", "needs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    try:
        status = cli_main.main(argv)
    except SystemExit as ended:  # argparse's
        status = ended.code
    found = capfd.readouterr()
    assert status == 2, found.out + found.err
    assert says in found.err
    assert "Traceback" not in found.err
    assert not [path for path in here.iterdir() if path.suffix in (".svg", ".png", ".json")]


def test_arguments_are_literals_or_strings(monkeypatch, here):
    monkeypatch.syspath_prepend(str(here))
    (here / "echoing.py").write_text("def echo(*args, **kwargs):\n    return args, kwargs\n")
    args, kwargs = load_target("echoing:echo", ["CartPole-v1", "3", "n=[1, 2]", "id=ALE/Pong-v5", "flag=True", "x=", "a-b=1"])()
    assert args == ("CartPole-v1", 3, "a-b=1")
    assert kwargs == {"n": [1, 2], "id": "ALE/Pong-v5", "flag": True, "x": ""}
    with pytest.raises(UsageError, match="not a target"):
        load_target(":echo")


def test_main_returns_its_status(capsys):
    assert cli_main.main(["--help"]) == 0
    assert "doctor" in capsys.readouterr().out
    assert cli_main.main([]) == 2
