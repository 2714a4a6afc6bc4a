"""``python -m reactor_rl bench``: suites that work, fail, take too long or are interrupted, and the report of what was done."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import reactor_rl
from reactor_rl.cli.commands import UsageError, bench_command

pytest.importorskip("psutil")  # the benchmarks need it
ROOT = Path(__file__).parent.parent.parent
RATIO = {"median": 2.0, "min": 1.5, "max": 3.0}
RESULT = {
    "cases": {
        "ping-pong": {
            "rates": {"reactor_rl": RATIO, "xronos <1>": RATIO, "Ray": RATIO},
            "ratios": {"xronos <1>": RATIO, "Ray": {"median": 0.5, "min": 0.25, "max": 0.75}},
            "of_limit": {"median": 0.6, "min": 0.5, "max": 0.7},
            "skipped": {"SBX": "ModuleNotFoundError: No module named 'sbx'"},
        },
        "ring of 100": {"error": "took longer than 3 s"},
    }
}
WORKS = f'''"""A question & an answer?"""
import json, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
(folder / "engine.json").write_text({json.dumps(RESULT)!r})
'''


@pytest.fixture
def benchmarks(tmp_path: Path) -> Path:
    """The folder, with three suites that are no work: one works, one fails, one never ends."""
    folder = tmp_path / "benchmarks"
    shutil.copytree(ROOT / "benchmarks", folder, ignore=shutil.ignore_patterns("results", "__pycache__"))
    (folder / "results").mkdir()
    for name in ("papers.json", "engine.json", "vector_env.json", "wrappers.json", "atari.json", "training.json"):
        shutil.copy(ROOT / "benchmarks" / "results" / name, folder / "results")
    (folder / "engine.py").write_text(WORKS)
    (folder / "atari.py").write_text('"""Fails."""\nimport a_rival_that_is_missing\n')
    (folder / "learner.py").write_text('"""Never ends."""\nimport time\ntime.sleep(100)\n')
    return folder


def bench(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "reactor_rl", "bench", "--benchmarks", str(folder), *arguments]
    return subprocess.Popen(
        command, cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


class Page(HTMLParser):
    """Checks that what is opened is closed, and collects the text and what would be loaded from elsewhere."""

    VOID = ("meta", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.outside = "", ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.outside += "".join(
            value or "" for name, value in attrs if name in ("src", "href") and not (value or "").startswith("#")
        )
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.slow
def test_a_suite_that_fails_or_takes_too_long_is_shown_and_the_others_go_on(benchmarks: Path) -> None:
    process = bench(benchmarks, "--seconds", "7", "engine", "atari", "learner")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1, said
    assert re.search(r"^not done: atari, failed: .*No module named 'a_rival_that_is_missing'$", said, re.M)
    assert re.search(r"^not done: learner, over time: it was ended", said, re.M) and "not done: engine" not in said
    report = benchmarks.parent / "report"
    found = json.loads((report / "results.json").read_text())
    assert {name: run["status"] for name, run in found["suites"].items()} == {
        "learner": "over time",
        "engine": "done",
        "atari": "failed",
    }
    assert found["machine"]["cores"] >= 1 and "numpy" in found["machine"]["versions"] and {"before", "after"} == set(found["load"])
    assert [(one["case"], one["rival"], one["median"], one["min"], one["max"]) for one in found["ratios"]] == [
        ("ping-pong", "xronos <1>", 2.0, 1.5, 3.0), ("ping-pong", "Ray", 0.5, 0.25, 0.75),
    ]  # fmt: skip
    assert found["ratios"][1]["committed"]["median"] > 100  # what the repository has for the same case and rival
    assert [one["median"] for one in found["limits"]] == [0.6]
    assert [one["install"] for one in found["skipped"]] == ['pip install -c constraints.txt "sbx-rl"']
    assert {one["what"] for one in found["readme"]} == set(
        re.findall(r"^\| (\d+ .*?|PPO.*?|SAC.*?) \|", (ROOT / "README.md").read_text(), re.M)
    )
    assert all(one["claimed"] and one["here"] is None for one in found["readme"])  # their suites took no part
    assert any(one["source"] == "reactor model" and one["caveat"] for one in found["papers"])

    page = Page((report / "index.html").read_text())
    assert page.outside == ""  # it needs nothing else
    expected = (
        "A question & an answer?",
        "xronos <1>",
        "2.00x",
        "0.50x",
        "took longer than 3 s",
        "over time",
        "sbx-rl",
        "3.42x Ray",
        "0.60",
    )
    for shown in (*expected, "No module named 'a_rival_that_is_missing'"):
        assert shown in page.text, shown


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="no process groups")
def test_an_interrupted_run_leaves_a_report_of_what_was_done(benchmarks: Path) -> None:
    process = bench(benchmarks, "engine", "learner")
    assert process.stdout is not None
    while "Never ends" not in (line := process.stdout.readline()):
        assert line
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    found = json.loads((benchmarks.parent / "report" / "results.json").read_text())
    assert {name: run["status"] for name, run in found["suites"].items()} == {"engine": "done", "learner": "interrupted"}
    assert len(found["ratios"]) == 2


@pytest.mark.slow
def test_a_command_line_that_makes_no_sense_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="must name the folder benchmarks/ of a clone"):
        bench_command(["--benchmarks", str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reactor_rl, "__file__", str(tmp_path / "reactor_rl" / "__init__.py"))
    with pytest.raises(UsageError, match="run it in a clone of the repository"):
        bench_command([])
    for help_ in ("-h", "--help"):  # which says anywhere what it takes
        assert bench_command([help_, "--benchmarks", str(tmp_path)]) == bench_command([help_]) == 0
        said = capfd.readouterr().out
        assert said.count("--seconds SECONDS") == 4 and "In a clone of the repository" in said
    monkeypatch.chdir(ROOT / "tests")
    assert bench_command(["no_such_suite"]) == 2
    assert "there is no suite 'no_such_suite'" in capfd.readouterr().err


def test_suites_are_the_files_that_measure_and_quick_ones_have_the_cases_that_they_name() -> None:
    script = """
import json, suites
from common import RESULTS, wanted
quick = {}
for suite in suites.FIRST:
    cases = json.loads((RESULTS / f"{suite.name}.json").read_text())["cases"]
    quick[suite.name] = [[case for case in cases if wanted(case, part)] for part in suite.quick.split(",")]
print(json.dumps([[suite.name for suite in suites.SUITES], quick]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True, timeout=60
    )
    names, quick = json.loads(done.stdout)
    assert {"vector_env", "engine", "startup", "soak", "time_to_reward"} <= set(names)
    assert not {"common", "suites", "figures", "engine_rivals"} & set(names)
    assert all(all(found) for found in quick.values()), quick
    assert quick["multi_agent"] == [["junction, 4 agents x 1"]]  # and not the one with 16 copies


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer")
def test_a_contender_that_starts_too_late_is_left_out_of_a_case_that_has_little_time() -> None:
    script = """
import json, os, time
from common import Contender, interleaved
class Work(Contender):
    def __init__(self, seconds=0): time.sleep(seconds)
    def go(self, count): time.sleep(1e-3 * count); return count
builders = {"rival": Work, "slow": lambda: Work(60), "late": Work, "reactor_rl": Work}
os.environ["REACTOR_RL_CASE_ENDS"] = str(time.time() + 1)
found = interleaved(builders, rounds=9, seconds=0.01, warm_up=0.01)
print(json.dumps(found.as_json("reactor_rl")))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True, timeout=50
    )
    found = json.loads(done.stdout)
    assert list(found["ratios"]) == ["rival"] and len(found["rates"]["rival"]["all"]) == 1
    assert found["skipped"] == {"slow": "it did not start in time", "late": "no time left"}


def test_a_rival_that_fails_is_a_row_that_says_so() -> None:
    script = """
import json
from common import Contender, interleaved
class Work(Contender):
    def __init__(self, where=""): self.where, self.slices = where, 0
    def fail(self, where):
        if where == self.where: raise (SystemExit if where == "exit" else RuntimeError)(f"no {where}\\nmore")
    def go(self, count):
        self.slices += 1
        self.fail("warming")
        if self.slices == 3: self.fail("slice"); self.fail("exit")
        return count
    def close(self): self.fail("close")
def builds():
    raise RuntimeError("the server did not start")
def rivals(places): return {place: lambda place=place: Work(place) for place in places}
places = ("warming", "slice", "exit", "close")
found = {}
for rebuild in False, True:
    builders = {"server": builds, **rivals(places[:1] if rebuild else places), "reactor_rl": Work}
    found[rebuild] = interleaved(builders, rounds=3, seconds=0.01, fixed=4, rebuild=rebuild).as_json("reactor_rl")
try: interleaved({"reactor_rl": lambda: Work("slice"), "rival": Work}, rounds=3, seconds=0.01, fixed=4)
except RuntimeError as error: found["ours"] = str(error)
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True, timeout=50
    )
    found = json.loads(done.stdout)
    server, warming = "failed (RuntimeError: the server did not start)", "failed (RuntimeError: no warming)"
    assert found["false"]["skipped"] == {
        "server": server, "warming": warming, "slice": "failed (RuntimeError: no slice)", "exit": "failed (SystemExit: no exit)",
    }  # fmt: skip
    assert list(found["false"]["ratios"]) == ["close"] and len(found["false"]["rates"]["reactor_rl"]["all"]) == 3
    assert found["true"]["skipped"] == {"server": server, "warming": warming}
    assert found["ours"].startswith("no slice")


FATAL = '''"""Is there a rival that ends the process?"""
import os, time
from common import OURS, Contender, arguments, benchmark, compared

class Work(Contender):
    def go(self, count): time.sleep(1e-4 * count); return count

def fatal(): os._exit(1)

def measure(name, options):
    return compared({OURS: Work, "Ray": fatal}, options).as_json(OURS)

if __name__ == "__main__":
    options = arguments(__doc__).parse_args()
    benchmark(__file__, options, ["ping-pong"], measure, lambda name, found: None, "title")
'''


@pytest.mark.slow
def test_a_rival_that_ends_the_process_does_not_end_the_suite(benchmarks: Path) -> None:
    (benchmarks / "engine.py").write_text(FATAL)
    process = bench(benchmarks, "--quick", "--seconds", "40", "engine")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    (one,) = json.loads((benchmarks.parent / "report" / "results.json").read_text())["skipped"]
    assert (one["rival"], one["why"]) == ("rivals", "failed (with them the case ended with exit status 1)")
    assert "rivals: skipped, failed" in Page((benchmarks.parent / "report" / "index.html").read_text()).text
