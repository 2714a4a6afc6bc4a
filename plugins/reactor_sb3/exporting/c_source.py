"""Functions of the extension's C source, as text for a header: what an exported policy computes is written down once.

Nothing here knows in which file of ``reactor_torch`` a function stands. Macros are expanded by their portable definitions, so that
the text is plain C, which C++ takes as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import reactor_torch

__all__ = ["functions_of", "maximum"]

_FUNCTION = re.compile(
    r"^(?P<comment>/\*(?:(?!\*/).)*\*/\n)?"
    r"(?P<head>[A-Za-z][\w \*]*)\n"
    r"(?:NAME\((?P<ours>\w+)\)|(?P<plain>\w+))\((?P<arguments>[^{;]*?)\)(?: /\*[^\n]*\*/)?\n"
    r"\{\n(?P<body>.*?)^\}\n",
    re.MULTILINE | re.DOTALL,
)
_UNION = re.compile(r"^typedef union \{\n(?P<body>.*?)^\} (?P<name>\w+);\n", re.MULTILINE | re.DOTALL)
_PORTABLE = re.compile(r"^#define NAME\(x\) x##_portable\n(?P<macros>(?:#define .*\n)+)", re.MULTILINE)
_MACRO = re.compile(r"^#define (\w+)(?:\(([\w, ]+)\))? (.+)$", re.MULTILINE)
_WORDS = re.compile(r"\b[A-Za-z_]\w*")
_ATOM = re.compile(r"-?[\w.]+(?:e-\d+f)?|\w+\[\w+\]")
_QUALIFIERS = ("ATTRIBUTE", "TARGET", "INLINE", "static")
_COMMENT = re.compile(r" ?/\*.*?\*/", re.DOTALL)
_CALL = re.compile(r"\bNAME\((\w+)\)|\b(\w+)(?=\()")
_NOT_CPP = {"new": "added", "near": "close", "far": "beyond"}
"""Names in C that are words of C++, or macros of Windows."""


class _CFunction(NamedTuple):
    """A function or a type: its comment, its type, its arguments and its body; of a type the body alone."""

    name: str
    comment: str
    returns: str
    arguments: str
    body: str

    def text(self, prefix: str, names: Mapping[str, str]) -> str:
        """In a header whose names begin with ``prefix_``."""
        if not self.returns:
            return f"typedef union {{\n{self.body}}} {prefix}_{self.name};\n"
        code = f"static inline {self.returns}\nNAME({self.name})({self.arguments})\n{{\n{self.body}}}\n"
        code = re.sub(r"\bRESTRICT ", "", code)
        code = re.sub(r"(\w+) (\w+) = \{\.(\w+) = (.*?)\};", r"\1 \2;\n    \2.\3 = \4;", code)  # C++ knows it from C++20 on
        code = _CALL.sub(lambda found: names.get(found[1] or found[2], found[0]), _expanded(code, _source().macros))
        types = {name: f"{prefix}_{name}" for name in names if not _source().functions[name].returns}
        return self.comment + _WORDS.sub(lambda found: (types | _NOT_CPP).get(found[0], found[0]), code)

    def needs(self) -> list[str]:
        """Names of what may be other functions and types, in the order in which it comes to them."""
        called = [found[1] or found[2] for found in _CALL.finditer(self.body)]
        types = [
            word for word in _WORDS.findall(self.body) if word in _source().functions and not _source().functions[word].returns
        ]
        return types + called


class _Source(NamedTuple):
    functions: Mapping[str, _CFunction]
    macros: Mapping[str, tuple[tuple[str, ...], str]]


@cache
def _source() -> _Source:
    functions: dict[str, _CFunction] = {}
    macros: dict[str, tuple[tuple[str, ...], str]] = {}
    for path in sorted(Path(reactor_torch.__file__).parent.rglob("*.h")):
        text = path.read_text()
        for found in _FUNCTION.finditer(text):
            name = found["ours"] or found["plain"]
            returns = " ".join(word for word in found["head"].split() if word not in _QUALIFIERS)
            functions[name] = _CFunction(name, found["comment"] or "", returns, found["arguments"], _COMMENT.sub("", found["body"]))
        for found in _UNION.finditer(text):
            functions[found["name"]] = _CFunction(found["name"], "", "", "", found["body"])
        if portable := _PORTABLE.search(text):
            for name, parameters, body in _MACRO.findall(portable["macros"]):
                macros[name] = (tuple(parameters.split(", ")) if parameters else (), body)
    return _Source(functions, macros)


def functions_of(names: Iterable[str], prefix: str) -> str:
    """Functions of the extension, and all that they call, in an order in which C can read them.

    Args:
        names: Of functions.
        prefix: All of them are called ``prefix_name``.

    Raises:
        FileNotFoundError: If the C source is not installed.
    """
    functions, wanted = _source().functions, dict[str, _CFunction]()

    def want(name: str) -> None:
        function = functions.get(name)
        if function is None:
            raise FileNotFoundError(f"reactor_torch has no C source of {name}(), of which headers are made: install it again")
        for inner in function.needs():
            if inner in functions and inner not in wanted:
                want(inner)
        wanted.setdefault(name, function)

    for name in names:
        want(name)
    renamed = {name: f"{prefix}_{name}" for name in wanted}
    return "\n".join(function.text(prefix, renamed) for function in wanted.values())


def maximum(first: str, second: str) -> str:
    """The larger one of two expressions, as the extension has it: the second one where they cannot be compared."""
    return _expanded(f"MAX({first}, {second})", _source().macros)


def _expanded(code: str, macros: Mapping[str, tuple[tuple[str, ...], str]]) -> str:
    """C code, in which these macros are replaced by what they stand for."""
    out, at = [], 0
    for found in _WORDS.finditer(code):
        if found.start() < at or found[0] not in macros:
            continue
        parameters, body = macros[found[0]]
        out.append(code[at : found.start()])
        at = found.end()
        if parameters:
            given, at = _arguments(code, at)
            body = _filled(body, dict(zip(parameters, (_expanded(one, macros) for one in given), strict=True)))
        out.append(body)
    return "".join(out) + code[at:]


def _arguments(code: str, at: int) -> tuple[list[str], int]:
    """Arguments in the parentheses at a place, and where these end."""
    depth, begin, found = 0, at + 1, []
    for place in range(at, len(code)):
        if code[place] == "(":
            depth += 1
        elif code[place] == ")":
            depth -= 1
        if depth == 0 or (depth == 1 and code[place] == ","):
            found.append(code[begin:place].strip())
            begin = place + 1
        if depth == 0:
            break
    return found, begin


def _filled(body: str, given: Mapping[str, str]) -> str:
    """A macro's body with its arguments; one that is a name or a number needs no parentheses."""
    for name, one in given.items():
        if _ATOM.fullmatch(one):
            body = re.sub(rf"(?<!\w)\({name}\)", one, body)
    return _WORDS.sub(lambda found: given.get(found[0], found[0]), body)
