"""Find settings of the user's modules that helper processes lack, because they import the modules anew.

``config.LEVEL = 7`` before a program is started reaches only the reactors in the caller's process. So the plain constants of the
caller's modules and classes are compared with those of a helper, right after it has imported the same modules, and before a reactor
is built. Only the modules that reactors need are looked at: those that their pickles name, and what these import.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import re
import sys
import sysconfig
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, is_dataclass
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

__all__ = ["ModuleSettings", "names_modules", "settings_of", "warn_caller", "what_differs"]

Namer = Callable[[bytes, Sequence[str]], Iterable[str]]

LONGEST, MOST, KEYS = 200, 64, 256
"""The longest text, the most items of a collection and the most names of a registry that are compared. What a user sets by hand is
shorter; what is longer is data, and would be sent to every worker at its start. Chosen.
"""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_namers: list[Namer] = []


def names_modules(namer: Namer) -> None:
    """Have a function say which modules a pickle needs without naming them.

    Args:
        namer: Called with the pickle and the names of the user's modules; gives some of these.
    """
    _namers.append(namer)


@dataclass(frozen=True)
class ModuleSettings:
    """Plain constants of the caller's modules, as helpers get them.

    Attributes:
        roots: The modules that reactors need.
        constants: By module, what its constants are, and those of its classes and of objects that only hold settings.
    """

    roots: tuple[str, ...] = ()
    constants: dict[str, dict[str, Any]] = field(default_factory=dict)

    def differing(self) -> list[tuple[str, str, Any, Any]]:
        """For a helper: import the modules, and list what is not as in the caller.

        Returns:
            Module, name, the caller's value and the value here (a :class:`_Missing` if there is no value).
        """
        for name in self.roots:
            with contextlib.suppress(Exception):  # which reactors will raise themselves, if they need it
                importlib.import_module(name)
        found = []
        for name, constants in self.constants.items():
            module = sys.modules.get(name)
            if module is not None:
                here = _constants(name, module)
                for attribute, value in constants.items():
                    other = here[attribute] if attribute in here else _look_up(module, attribute)
                    if not _same(value, other):
                        found.append((name, attribute, value, other))
        return found


@dataclass(frozen=True)
class _Keys:
    """The names under which a dict registers classes and functions."""

    names: frozenset[str]

    def __repr__(self) -> str:
        return f"a dict of {', '.join(sorted(self.names)) or 'nothing'}"


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


class _NotPlain:
    """Stands for what cannot be compared."""


def settings_of(pickles: Iterable[Any]) -> ModuleSettings:
    """The constants of the modules that some reactors need.

    Args:
        pickles: The reactors; what is no pickle counts for nothing.
    """
    users = _user_modules()
    if not users:
        return ModuleSettings()
    roots: set[str] = set()
    for data in pickles:
        if isinstance(data, bytes):
            words = {found.decode() for found in re.findall(rb"[A-Za-z_][\w.]*", data)}
            roots |= words & users.keys()
            for name in words & users.keys():
                functions = [value for word in words if isinstance(value := vars(users[name]).get(word), FunctionType)]
                roots.update(word for function in functions for word in _words(function.__code__) if word in users)
            for namer in _namers:
                roots.update(name for name in namer(data, tuple(users)) if name in users)
    reached = _reached(roots, users)
    return ModuleSettings(tuple(sorted(roots)), {name: _constants(name, users[name]) for name in sorted(reached)})


def what_differs(found: Sequence[tuple[str, str, Any, Any]]) -> str:
    """The words for what helpers have found; empty if it is nothing that anybody has set."""
    told: list[str] = []
    users = _user_modules() if found else {}
    for module, name, here, there in found:
        if not _changes_by_itself(module, name, here, users):
            line = f"{module}.{name} is {here!r} here and {there!r} there"
            if line not in told:
                told.append(line)
    if not told:
        return ""
    more = f", and {len(told) - 5} more" if len(told) > 5 else ""
    return (
        f"worker processes import modules anew, and do not have what was set in them here: {'; '.join(told[:5])}{more}. Pass it as "
        "an argument, or set it within the function that makes the environment"
    )


# ---------------------------------------------------------------------- modules

OURS = ("reactor_rl", "reactor_gymnasium", "reactor_sb3", "reactor_pettingzoo", "reactor_ray", "reactor_torch")
"""Our packages."""


def _user_modules() -> dict[str, ModuleType]:
    """The modules that were not installed, and are not ours, by name."""
    paths = sysconfig.get_paths()
    installed = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    within = tuple(f"{path}/" for path in installed)
    found = {}
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if type(module) is ModuleType else None
        if not isinstance(file, str) or name in ("__main__", "__mp_main__"):
            continue
        place = file.replace("\\", "/")
        if place.startswith(within) or "/site-packages/" in place or "/dist-packages/" in place:
            continue
        if name.partition(".")[0] not in OURS:
            found[name] = module
    return found


def _reached(roots: Iterable[str], users: dict[str, ModuleType]) -> set[str]:
    """The modules that are imported with these, or when their functions are called."""
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in users and name not in reached:
            reached.add(name)
            if "." in name:
                waiting.append(name.rpartition(".")[0])
            for value in list(vars(users[name]).values()):
                if isinstance(value, ModuleType):
                    waiting.append(value.__name__)
                elif isinstance(value, (type, FunctionType)):
                    waiting.append(str(value.__module__))
                    if isinstance(value, FunctionType):
                        waiting += [word for word in _words(value.__code__) if word in users]
    return reached


def _words(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _words(part)


# ---------------------------------------------------------------------- constants


def _constants(name: str, module: ModuleType) -> dict[str, Any]:
    found = {}
    for attribute, value in list(vars(module).items()):
        if attribute.startswith("_"):
            continue
        if isinstance(value, type) and value.__module__ == name:
            for own, constant in list(vars(value).items()):
                if not own.startswith("_") and (kept := _plain(constant)) is not _NotPlain:
                    found[f"{attribute}.{own}"] = kept
        elif isinstance(value, (SimpleNamespace, Namespace)) or (is_dataclass(value) and not isinstance(value, type)):
            for own, constant in list(getattr(value, "__dict__", {}).items()):
                if not own.startswith("_") and (kept := _plain(constant)) is not _NotPlain:
                    found[f"{attribute}.{own}"] = kept
        elif (kept := _plain(value)) is not _NotPlain:
            found[attribute] = kept
    return found


def _plain(value: Any, depth: int = 2) -> Any:
    """A value that can be compared, :class:`_NotPlain` for others."""
    kind = type(value)
    if kind in _PLAIN:
        return value if kind not in (str, bytes) or len(value) <= LONGEST else _NotPlain
    if kind not in (tuple, frozenset, list, set, dict) or not depth:
        return _NotPlain
    if kind is dict:
        named = 0 < len(value) <= KEYS and all(type(key) is str for key in value)
        if named and all(isinstance(one, (type, FunctionType)) for one in value.values()):
            return _Keys(frozenset(value))
        parts = [*value, *value.values()]
    else:
        parts = list(value)
    if len(parts) > MOST or any(_plain(part, depth - 1) is _NotPlain for part in parts):
        return _NotPlain
    return kind(value)


def _look_up(module: ModuleType, attribute: str) -> Any:
    """Look up the value of a name that is not among the plain constants."""
    value: Any = module
    for part in attribute.split("."):
        names = getattr(value, "__dict__", {})
        if part not in names:
            return _Missing()
        value = names[part]
    return _NotPlain


def _same(value: Any, other: Any) -> bool:
    if other is _NotPlain:
        return True  # nothing that can be compared
    if type(value) is not type(other):
        return isinstance(other, _Keys) and value == {}
    return bool(value == other) or repr(value) == repr(other)  # NaN


def _changes_by_itself(module: str, name: str, value: Any, modules: Iterable[str]) -> bool:
    """Whether these modules themselves change this, as they do a counter or a cache, or it is another one in each process."""
    name = re.escape(name.rpartition(".")[2])
    if any(re.search(rf"\b{name}\s*(?:[-+*/%|&^@]|//|\*\*|<<|>>)=", _source(one)) for one in modules):
        return True
    source = _source(module)
    for given in re.findall(rf"(?:^|;)[ \t]*{name}\s*(?::[^=\n]+)?=\s*([^;\n]*)", source, re.MULTILINE):
        if re.search(r"time|perf_counter|monotonic|now\(|today\(|getpid|uuid|rand|token_|id\(|tempfile|mkdtemp", given):
            return True
    changed = rf"\b{name}\s*(?:\[[^\n]*\]\s*=[^=]|\.(?:append|add|update|setdefault|extend|insert|pop|clear|remove)\()"
    return isinstance(value, (list, dict, set)) and re.search(changed, source) is not None


def _source(module: str) -> str:
    try:
        return inspect.getsource(sys.modules[module])
    except Exception:  # it has no source
        return ""


def warn_caller(message: str) -> None:
    """A ``RuntimeWarning`` at the line of the user's that has called these packages."""
    frame: Any = sys._getframe(1)
    level = 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)
