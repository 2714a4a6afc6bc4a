"""What a run of the benchmarks found, as one HTML page that needs nothing else, and as results.json for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import charts
from tables import FRONT, against
from tabulated import digits

HERE = Path(__file__).parent
COMMITTED = HERE / "results"
PACKAGES = {
    "ale_py": "ale-py", "stable_baselines3": "stable-baselines3", "sbx": "sbx-rl", "mujoco": "gymnasium[mujoco]",
    "pygame": "pygame-ce", "cv2": "opencv-python-headless",
}  # fmt: skip
"""Distributions that are called otherwise than what is imported."""
HOW = (
    "A ratio says how many times as fast ours is as a rival on the same work, both timed in turn. It is the median of the rounds; "
    "the line runs from the lowest to the highest. Right of 1 ours is faster, left of it the rival."
)
PAPERS = (
    "What others published, on their machines and with their code, beside this run where it has the like. They are not of a kind: "
    "read the last column."
)
QUICK = "A quick run: short slices, few rounds, few cases. It shows the order of things; do not quote its figures."


@dataclass
class Run:
    """How a suite went.

    Attributes:
        name: Of the suite.
        question: What it asks.
        status: ``done``, ``failed``, ``over time`` or ``interrupted``.
        why: Of anything but ``done``.
        seconds: How long it took.
        files: What it may have written.
    """

    name: str
    question: str
    status: str
    why: str
    seconds: float
    files: list[Path]

    def as_json(self) -> dict[str, Any]:
        """All of it, with what it has written by the names of the files."""
        results = {path.stem: json.loads(path.read_text()) for path in self.files if path.exists()}
        said = {"question": self.question, "status": self.status, "why": self.why, "seconds": round(self.seconds, 1)}
        return {**said, "results": results}


def write(folder: Path, state: Mapping[str, Any], runs: list[Run]) -> None:
    """Write ``results.json`` and ``index.html``.

    Args:
        folder: Where to.
        state: The machine, its load before and after, when it began and ended, and whether it was a quick run.
        runs: What was done.
    """
    suites = {run.name: run.as_json() for run in runs}
    content = {**state, "suites": suites, "ratios": [], "limits": [], "skipped": [], "papers": []}
    for suite, file, case, found in cases_of(suites):
        where = {"suite": suite, "file": file, "case": case}
        for rival, ratio in found.get("ratios", {}).items():
            content["ratios"].append({**where, "rival": rival, **ratio, "committed": committed(file, case, rival)})
        if limit := limit_of(found):
            content["limits"].append({**where, **limit})
        for rival, why in found.get("skipped", {}).items():
            content["skipped"].append({**where, "rival": rival, "why": why, "install": install(why)})
    content["papers"] = list(papers(content["ratios"]))
    content["readme"] = list(readme(suites))
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "index.html").write_text(page(content))


def cases_of(suites: Mapping[str, Any]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Suite, file, name and figures of each case that has any."""
    for suite, run in suites.items():
        for file, result in run["results"].items():
            for case, found in result["cases"].items():
                if isinstance(found, dict):
                    yield suite, file, case, found


def committed(file: str, case: str, rival: str) -> dict[str, float] | None:
    """The same ratio in the repository, on the machine that its file names."""
    path = COMMITTED / f"{file}.json"
    found = json.loads(path.read_text())["cases"].get(case, {}) if path.exists() else {}
    ratio = found.get("ratios", {}).get(rival) if isinstance(found, dict) else None
    return dict(ratio) if ratio else None


def limit_of(found: Mapping[str, Any]) -> dict[str, float] | None:
    """The share of cores x the bare loop that ours reaches, if the case knows."""
    limit = found.get("of_limit", found.get("of_the_limit"))
    if isinstance(limit, float):
        return {"median": limit, "min": limit, "max": limit}
    if isinstance(limit, dict) and "median" not in limit:
        limit = next((one for name, one in limit.items() if "," not in name), None)
    return limit


def install(why: str) -> str | None:
    """The command that installs what a rival lacks, if it is that which is missing."""
    missing = re.search(r"No module named '(\w+)", why)
    return f'pip install -c constraints.txt "{PACKAGES.get(missing[1], missing[1])}"' if missing else None


def papers(ratios: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What others published, with the figure of this run beside it where there is one."""
    published = json.loads((COMMITTED / "papers.json").read_text())
    for name, found in published["cases"].items():
        beside = [one for one in ratios if [one["file"], one["case"], one["rival"]] == found.get("beside")]
        source = published["sources"][found["source"]]
        yield {"what": name, **found, "where": source["where"], "machine": source["machine"], "ours": beside[0] if beside else None}


def readme(suites: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What the README claims, and what this run says to it."""
    here = {(file, case): found for _, file, case, found in cases_of(suites)}
    for what, file, case, _, rivals in FRONT:
        claimed = json.loads((COMMITTED / f"{file}.json").read_text())["cases"][case]
        for rival in filter(None, rivals):
            yield {
                "what": what,
                "rival": rival,
                "claimed": against(claimed, rival),
                "here": against(here.get((file, case), {}), rival),
            }


# ---------------------------------------------------------------------- the page


def page(content: Mapping[str, Any]) -> str:
    """The HTML page."""
    machine = content["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    facts = [
        ("machine", f"{machine['cores']} cores, {machine['cpu']}, {machine['memory_gb']} GB"),
        ("system", f"{machine['system']}, Python {machine['python']}"),
        ("versions", versions),
        ("began", content["began"]),
        ("ended", content.get("ended", "not yet, or it was interrupted")),
        *((f"load {when}", _load(content["load"].get(when))) for when in ("before", "after")),
    ]
    notes = [QUICK] if content["quick"] else []
    if (content["load"]["before"]["taken"] or 0) > 0.1:
        notes.append("Other programs were busy when this began: ratios wander, and rates are not those of a quiet machine.")
    body = [
        "<h1>reactor_rl, measured here</h1>",
        f"<p>{HOW}</p>",
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        "<dl>",
        *(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts),
        "</dl>",
        _overview(content),
        _readme(content["readme"]),
        *(_suite(name, run, content) for name, run in content["suites"].items()),
        _papers(content["papers"]),
    ]
    template = (HERE / "reporting.html").read_text()
    return template.replace("<!-- body -->", "\n".join(body))


def _load(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "unknown"
    taken = "unknown" if found["taken"] is None else f"{found['taken']:.0%}"
    return f"average {found['average']}, share of the cores that others took {taken}"


def _overview(content: Mapping[str, Any]) -> str:
    rows = []
    for name, run in content["suites"].items():
        ratios = sum(one["suite"] == name for one in content["ratios"])
        status = run["status"] + (f": {run['why']}" if run["why"] else "")
        rows.append([f'<a href="#{escape(name)}">{escape(name)}</a>', escape(status), f"{run['seconds']:.0f} s", str(ratios)])
    return _table(["suite", "", "took", "ratios"], rows)


def _readme(found: list[Mapping[str, Any]]) -> str:
    rows = [
        [escape(one["what"].replace("`", "")), escape(one["rival"]), _spread(one["claimed"]), _spread(one["here"])] for one in found
    ]
    table = _table(["", "beside", "in the README", "this run"], rows)
    return f'<section id="readme"><h2>What the README claims</h2>{table}</section>'


def _suite(name: str, run: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    parts = [f'<section id="{escape(name)}"><h2>{escape(name)}</h2><p>{_code(run["question"])}</p>']
    if run["status"] != "done":
        hint = f" <code>{escape(command)}</code>" if (command := install(run["why"])) else ""
        said = f"{escape(run['status'])}: {escape(run['why'])}.{hint} What it printed is in logs/{escape(name)}.txt."
        parts.append(f'<p class="note">{said}</p>')
    parts.append('<div class="cases">')
    for suite, file, case, found in cases_of({name: run}):
        parts.append(_case(file, case, found, [one for one in content["skipped"] if (one["suite"], one["case"]) == (suite, case)]))
    return "\n".join([*parts, "</div></section>"])


def _case(file: str, case: str, found: Mapping[str, Any], skipped: list[Mapping[str, Any]]) -> str:
    parts = [f"<article><h3>{escape(case)}</h3>"]
    if "error" in found:
        parts.append(f'<p class="note">{escape(found["error"])}</p>')
    parts.append(charts.ratios(found.get("ratios", {})))
    if limit := limit_of(found):
        parts.append(charts.limit(limit))
    if rates := found.get("rates"):
        rows = []
        for one, rate in rates.items():
            ratio, before = found.get("ratios", {}).get(one), committed(file, case, one)
            rows.append([escape(one), f"{digits(rate['median'])}", _spread(ratio), _spread(before)])
        parts.append(_details("figures", _table(["", "a second", "ours is", "in the repository"], rows)))
    for key, group in found.items():
        if key not in ("rates", "ratios") and isinstance(group, dict) and group and all(_is_figure(one) for one in group.values()):
            rows = [
                [escape(one), digits(figure["median"]), f"{digits(figure['min'])} to {digits(figure['max'])}"]
                for one, figure in group.items()
            ]
            parts.append(_details(key.replace("_", " "), _table(["", "median", "lowest to highest"], rows)))
    numbers = [[escape(key.replace("_", " ")), digits(value)] for key, value in found.items() if type(value) in (int, float)]
    if numbers:
        parts.append(_details("more", _table(["", ""], numbers)))
    for one in skipped:
        command = f"<br><code>{escape(one['install'])}</code>" if one["install"] else ""
        parts.append(f'<p class="skipped">{escape(one["rival"])}: skipped, {escape(one["why"])}{command}</p>')
    return "\n".join([*parts, "</article>"])


def _papers(found: list[Mapping[str, Any]]) -> str:
    rows = []
    for one in found:
        value = f"{digits(one['value'])}x {one['against']}" if one["unit"] == "x" else f"{one['value']:,} {one['unit']}"
        rows.append([escape(one["what"]), escape(value), _spread(one["ours"]), escape(one["caveat"])])
    machines = "; ".join(dict.fromkeys(f"{one['where']}: {one['machine']}" for one in found))
    table = _table(["", "published", "this run", "what to know of it"], rows)
    return f'<section id="papers"><h2>The papers\' figures</h2><p>{PAPERS} {escape(machines)}.</p>{table}</section>'


def _code(text: str) -> str:
    """A line of a docstring."""
    return re.sub(r"``(.+?)``", r"<code>\1</code>", escape(text))


def _is_figure(value: object) -> bool:
    return isinstance(value, dict) and {"median", "min", "max"} <= set(value)


def _spread(ratio: Mapping[str, float] | None) -> str:
    return f"{digits(ratio['median'])}x ({digits(ratio['min'])} to {digits(ratio['max'])})" if ratio else "-"


def _details(title: str, inner: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def _table(head: list[str], rows: list[list[str]]) -> str:
    top = "".join(f"<th>{cell}</th>" for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'
