"""Numbers in prose that look measured. The rule is in CONTRIBUTING.md, under "How figures are taken"; this file is that rule.

A ratio (1.43x, 3 times, twice as fast), a number with a unit of time, memory, speed or share (us, ms, seconds, MB, steps/s, %), a
number with a decimal point, and a table's cell that holds nothing but a number are figures. A figure stands in a place that a
script fills, or it is no figure: a setting, a limit or a size that somebody chose is written as code, and a version follows the
name of what it is a version of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

NUMBER = r"\d[\d,]*(?:\.\d+)?"
UNIT = (
    r"(?:ns|us|µs|ms|s|secs?|seconds?|min|minutes?|hours?|days?|kB|KB|MB|GB|TB|[KMGT]iB|[kMG]?Hz|fps|FPS"
    r"|(?:nano|micro|milli)seconds?|(?:kilo|mega|giga)bytes?|percent|per cent)"
)
WORD = r"(?:two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|fifty|a hundred|a thousand)"
COMPARED = r"(?:as\s+(?:fast|slow|quick|long|much|many)|faster|slower|quicker|longer)"
LOOKS_MEASURED = re.compile(
    rf"""
      (?<![\w.]){NUMBER}\s?%                                      # 30 %
    | (?<![\w.]){NUMBER}x\b                                       # 1.43x
    | (?<![\w.]){NUMBER}\s+times\b                                # 9 times
    | \bfactor\s+(?:of\s+)?{NUMBER}(?!\w)|(?<![\w.]){NUMBER}[\s-]?fold\b  # a factor of 9, 9-fold
    | (?<![\w.]){NUMBER}[\s-]?{UNIT}\b                            # 12 ms
    | (?<![\w.]){NUMBER}(?:\s+[\w-]+){{1,6}}?\s*(?:/\s?s\b|(?:a|per|each|every)\s+second\b)  # 900 steps/s, 900 steps a second
    | (?<![\w.])\d[\d,]*\.\d+(?![\w.])                            # 0.43
    | \b(?:twice|half|{WORD}\s+times)\s+{COMPARED.replace("|long|much|many", "")}            # twice as fast
    """,
    re.VERBOSE,
)
BARE_CELL = re.compile(rf"\s*\**\s*[~<>]?\s*{NUMBER}\s*\**\s*")
RATE_IN_CODE = re.compile(rf"{NUMBER}(?:x|\s*times|\s+\w+/s)")
"""What nobody sets: code is no place for it either."""

VERSIONS = re.compile(
    r"\b(?:C?Python|PyPy|Gymnasium|Stable-Baselines3|SB3|PettingZoo|SuperSuit|EnvPool|ale_py|ale-py|ALE|MuJoCo|torch|PyTorch|[Nn]um[Pp]y|"
    r"Numba|Ray|RLlib|TorchRL|Tianshou|LeRobot|SBX|JAX|CUDA|Linux|glibc|macOS|Sphinx|MyST|OpenCV|arXiv|arXiv:|reactor_rl|version)"
    r"\s+\d+(?:\.\d+)+(?:(?:,|\s+to|\s+and|\s+or)\s+\d+(?:\.\d+)+)*"
)
PROSE_DIRECTIVES = (
    "note",
    "warning",
    "tip",
    "important",
    "hint",
    "caution",
    "attention",
    "seealso",
    "admonition",
    "figure",
    "dropdown",
)

FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})([^\n]*)\n(.*?)^[ \t]*\2[`~]*[ \t]*$", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
CODE = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n\s*\n).)+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"(?<=\])\([^)\s]*\)|<?https?://[^\s)>]+>?|^\[[^\]]+\]:.*$", re.MULTILINE)


def measured(text: str) -> Iterator[tuple[int, str]]:
    """The numbers of a page that look measured and stand in no place of a script.

    Args:
        text: Markdown, from which the places have been taken.

    Yields:
        Line, from 1, and what stands there.
    """
    found = []
    text = FENCE.sub(_code_block, text)
    text = COMMENT.sub(_blank, text)
    found += [(match.start(), match[0]) for match in CODE.finditer(text) if RATE_IN_CODE.fullmatch(match[2].strip())]
    text = VERSIONS.sub(_blank, LINK.sub(_blank, CODE.sub(_blank, text)))
    found += [(match.start(), match[0]) for match in LOOKS_MEASURED.finditer(text)]
    at = 0
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("|"):
            found += [(at, cell.strip()) for cell in line.strip().strip("|").split("|") if BARE_CELL.fullmatch(cell)]
        at += len(line)
    yield from sorted({(text.count("\n", 0, place) + 1, " ".join(said.split())) for place, said in found})


def _blank(match: re.Match[str]) -> str:
    """Nothing to be found in it, and as long and as many lines as before."""
    return re.sub(r"[^\n]", "·", match[0])


def _code_block(match: re.Match[str]) -> str:
    """A directive that holds prose is prose; every other block is code."""
    if re.match(rf"\{{({'|'.join(PROSE_DIRECTIVES)})\}}", match[3].strip()):
        return re.sub(r"[`~]{3,}", "", match[0])
    return _blank(match)
