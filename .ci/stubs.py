"""Writes the functions of ``_products.pyi`` from the signatures that the extension has; what is above them is written by hand.

``python .ci/stubs.py`` writes, and a test compares. Signatures are explained in ``_c/arguments.h``.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

STUB = Path(__file__).parent.parent / "plugins" / "reactor_torch" / "_products.pyi"
MARK = "# What follows is made of the signatures in _c, by .ci/stubs.py.\n"
WIDTH = 128
ARRAYS = {"": "_Floats", "panels": "_Floats", "mask": "_Masks"} | dict.fromkeys(("int64", "index", "split"), "_Integers")
NUMBERS = {"size": "int", "tuple": "tuple[npt.NDArray[Any], ...]"}


def argument(word: str) -> str:
    """``values?[r,n]`` as ``values: _Floats | None``."""
    found = re.fullmatch(r"(\w+)([?!]*)(?::(\w+))?(\[.*\])?", word)
    assert found, word
    name, marks, kind, shape = found.groups()
    python = ARRAYS[kind or ""] if shape and kind != "size" else NUMBERS.get(kind, kind)
    return f"{name}: {python}" + (" | None" if "?" in marks else "")


def function(name: str, signature: str, says: str) -> str:
    """One function of the stub."""
    given, _, returned = signature.partition(" : ")
    arguments = ", ".join([argument(word) for word in given.split() if word != ">"] + ["/"])
    line = f"def {name}({arguments}) -> {returned or None}:"
    if len(line) > WIDTH:
        rows = textwrap.wrap(arguments.replace(": ", ":_") + ",", WIDTH - 4)  # a name and its type stay together
        line = "\n".join(
            [f"def {name}(", *(f"    {row.replace(':_', ': ', 9)}" for row in rows), f") -> {returned or None}:  # fmt: skip"]
        )
    text = [
        f'"""{says.replace("`", "``")}',
        "",
        "::",
        "",
        *textwrap.wrap(signature, WIDTH - 8, initial_indent="    ", subsequent_indent="    "),
    ]
    return "\n".join([line, *(f"    {part}".rstrip() for part in [*text, '"""'])])


def stub(module: Any) -> str:
    """The whole stub: the part that is written by hand, and functions."""
    by_hand = STUB.read_text(encoding="utf-8").partition(MARK)[0]
    documented = [(name, one.__doc__ or "") for name, one in vars(module).items() if callable(one)]
    functions = [function(name, *text.split("\n\n")) for name, text in documented if "\n\n" in text]
    return by_hand + MARK + "".join(f"\n{one}\n" for one in functions)


if __name__ == "__main__":
    from reactor_torch import _products

    STUB.write_text(stub(_products), encoding="utf-8")
