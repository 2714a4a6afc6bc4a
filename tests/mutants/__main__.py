"""Delete statements of the runtime one by one, and count what the simulation and fast tests notice.

``python -m tests.mutants --sample 60 --seed 0`` deletes 60; ``--only recovery.py`` says of which files, ``--seconds`` how long at
most. With ``--merge`` the verdicts are added to those in ``benchmarks/results/mutants.json``, and the sample is of the others. A
verdict is kept for as long as the statement is there, whatever else changes: without ``--merge`` all begin again.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "benchmarks")]

from choosing import Statement, in_turn, of_tree  # noqa: E402
from equivalent import EQUIVALENT  # noqa: E402
from judging import SURVIVED, UNREACHED, copy_of, judge, reached  # noqa: E402
from recording import print_machine, write_json  # noqa: E402

MISSED = (SURVIVED, UNREACHED)
RESULTS = ROOT / "benchmarks" / "results"
Verdicts = dict[str, dict[str, str]]
"""By file and name of the statement: who has noticed that it is missing."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=60, help="how many statements (60)")
    parser.add_argument("--seed", type=int, default=0, help="which ones (0)")
    parser.add_argument("--only", default="", help="of files whose path has this in it")
    parser.add_argument("--survivors", action="store_true", help="judge those again that have survived, not new ones")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin with no other one after so many seconds")
    parser.add_argument("--merge", action="store_true", help="add the verdicts to those of earlier runs")
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder of the result file")
    parser.set_defaults(quick=False)
    options = parser.parse_args()
    print_machine()
    found = of_tree(ROOT)
    verdicts = _before(options.output / "mutants.json", found) if options.merge else {}
    begins = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was judged until then is written
    try:
        with copy_of(ROOT) as copy:
            known = reached(copy, found)
            print(f"without a mutant all is well after {time.monotonic() - begins:.0f} s, {len(known.seconds)} judges", flush=True)
            for statement in _chosen(found, verdicts, options):
                if time.monotonic() - begins > options.seconds:
                    break
                began = time.monotonic()
                verdict = judge(copy, statement, known)
                verdicts.setdefault(statement.file, {})[statement.name] = verdict
                print(
                    f"{verdict:40} {time.monotonic() - began:5.1f} s  {statement.file}:{statement.line}  {statement.name}",
                    flush=True,
                )
    finally:
        if any(verdicts.values()):
            cases = table(found, verdicts)
            left = [_said(one) for one in found if verdicts.get(one.file, {}).get(one.name) in MISSED]
            print(json.dumps(cases["all"]))
            write_json(options, "mutants", cases, survivors=left, verdicts=verdicts)
    return 0


def _chosen(found: list[Statement], verdicts: Verdicts, options: argparse.Namespace) -> list[Statement]:
    judged = {(file, name): verdict for file, names in verdicts.items() for name, verdict in names.items()}
    chosen = [
        one
        for one in in_turn(found, options.seed)
        if options.only in one.file
        and one.name not in EQUIVALENT.get(one.file, ())
        and judged.get((one.file, one.name)) in (MISSED if options.survivors else (None,))
    ]
    return chosen[: options.sample]


def _before(file: Path, found: list[Statement]) -> Verdicts:
    """Return verdicts of earlier runs on statements that are still there."""
    before: Verdicts = json.loads(file.read_text())["verdicts"] if file.exists() else {}
    still: Verdicts = {}
    for one in found:
        verdict = before.get(one.file, {}).get(one.name)
        if verdict is not None and one.name not in EQUIVALENT.get(one.file, ()):
            still.setdefault(one.file, {})[one.name] = verdict
    return still


def table(found: list[Statement], verdicts: Verdicts) -> dict[str, Any]:
    """Return figures by file, and of all: how many statements there are, were judged, were noticed, and by whom."""
    whole = Counter(one.file for one in found)
    cases: dict[str, Any] = {}
    for file in whole:
        by = Counter(verdicts.get(file, {}).values())
        missed = {name: by.pop(name, 0) for name in MISSED}
        survived = sum(missed.values())
        cases[file] = {
            "statements": whole[file], "equivalent": len(EQUIVALENT.get(file, ())), "judged": by.total() + survived,
            "noticed": by.total(), "survived": survived, "not_run": missed[UNREACHED], "by": dict(sorted(by.items())),
        }  # fmt: skip
    numbers = ("statements", "equivalent", "judged", "noticed", "survived", "not_run")
    said = sum((Counter(case["by"]) for case in cases.values()), Counter())
    total: dict[str, Any] = {name: sum(case[name] for case in cases.values()) for name in numbers}
    total["by"] = dict(said.most_common())
    total["share"] = round(total["noticed"] / total["judged"], 4)
    return {"all": total} | {file: case for file, case in cases.items() if case["judged"]}


def _said(one: Statement) -> str:
    return f"{one.file}:{one.line}: {one.name}"


if __name__ == "__main__":
    sys.exit(main())
