"""Watch the Python code that a kernel stands for: functions, what their code refers to, attributes of classes.

A user may replace a function, its code (as IPython's ``%autoreload`` does), a constant that it refers to, a function that it calls,
or an attribute of its class. All these are found once, by the names that the code mentions. They are checked before each step of a
kernel: by C where it was compiled.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
import sys
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from importlib import import_module
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from reactor_rl.plugin import compiled_module

__all__ = ["Watch", "Watched"]

Namespace = dict[str, Any]

_kernels = compiled_module("reactor_gymnasium.native._kernels")  # else Python looks

MUTABLE = (list, dict, set)
"""Constants of these types are compared with copies."""
SPECIAL = ("__getattribute__", "__getattr__", "__setattr__")
"""Methods that decide what any attribute is."""
NOT_CALLED = frozenset({"render", "logger", "super", "type", "isinstance", "__class__"})
"""Names that the code mentions, and that are not called where a kernel steps, or that are the language's own."""
PARTS = ("__code__", "__defaults__", "__kwdefaults__")


class Watched(NamedTuple):
    """The parts to watch for one class.

    Attributes:
        module: Its module.
        owner: Its name.
        methods: Its methods.
        helpers: Modules and names, or classes and names, of what these call.
        sources: Further modules whose functions are looked into; ``None`` to look into no function at all.
    """

    module: str
    owner: str
    methods: tuple[str, ...]
    helpers: tuple[tuple[str, str], ...] = ()
    sources: tuple[str, ...] | None = None

    def parts(self) -> Iterator[tuple[type | ModuleType, str]]:
        """Of each method and helper the class or module that may have it, and its name there."""
        owner = getattr(import_module(self.module), self.owner)
        yield from ((owner, name) for name in self.methods)
        for where, path in self.helpers:
            *classes, name = path.split(".")
            home: Any = sys.modules[where]
            for one in classes:
                home = vars(home)[one]
            yield home, name


class _Entry(NamedTuple):
    """An attribute of a class or module: its value, ``None`` if it has none, and a copy where it can be changed."""

    namespace: Namespace
    name: str
    value: Any
    copy: Any
    module: str


class Watch:
    """The code on which the work of several classes depends, as it is now.

    Args:
        *kinds: The classes.

    Attributes:
        look: The quick way to ask :meth:`same`, which may say no where yes is right.
    """

    def __init__(self, *kinds: Watched) -> None:
        self._entries: dict[tuple[int, str], _Entry] = {}
        self._absent: dict[tuple[int, str], _Entry] = {}  # names whose values would be seen if there were any
        self._functions: dict[int, tuple[FunctionType, tuple[Any, ...], str]] = {}
        self._found: list[tuple[FunctionType, str, str]] = []  # each with where it was found
        self._orders: dict[int, tuple[type, tuple[type, ...], str]] = {}
        for kind in kinds:
            _Search(self, kind)
        self.look = self._looking()

    def same(self, objects: list[Any], kind: type) -> bool:
        """Whether all is as it was.

        Args:
            objects: Each is still to be of the very class ``kind``.
            kind: The class.
        """
        return self.look(objects, kind) or (all(type(one) is kind for one in objects) and self.changed() is None)

    def changed(self) -> str | None:
        """Complain of what is not as it was; ``None`` if all is."""
        if self.look([], object):
            return None
        for entry in (*self._entries.values(), *self._absent.values()):
            value = entry.namespace.get(entry.name)
            if value is not entry.value or (entry.copy is not None and value != entry.copy):
                return f"somebody has changed {entry.name} of {entry.module}"
        for function, parts, module in self._functions.values():
            if not all(one is other for one, other in zip(_parts(function), parts, strict=True)):
                return f"somebody has changed {function.__name__} of {module}"
        for cls, order, module in self._orders.values():
            if cls.__mro__ is not order:
                return f"somebody has changed the bases of {cls.__name__} of {module}"
        self.look = self._looking()  # something has changed that is of no account, as the number of a module's names
        return None

    def strange(self) -> str | None:
        """Complain of a function whose code is not that of its file, where the file exists; return ``None`` if all match."""
        for function, name, module in self._found:
            file = getattr(sys.modules.get(module), "__file__", None)
            codes = _codes_of(str(file))
            if codes is not None and function.__code__ not in codes.get(name, ()):
                return f"somebody has changed {name} of {module}"
        return None

    def _looking(self) -> Any:
        """The quick way to look at all of it: a function of objects and their class."""
        entries = [*self._entries.values()]
        values = tuple((entry.namespace, entry.name, entry.value) for entry in entries)
        copies = tuple((entry.namespace, entry.name, entry.copy) for entry in entries if entry.copy is not None)
        sizes = tuple({id(entry.namespace): (entry.namespace, len(entry.namespace)) for entry in self._absent.values()}.values())
        functions = tuple((function, *parts) for function, parts, _ in self._functions.values())
        orders = tuple((cls, order) for cls, order, _ in self._orders.values())
        getters = _getters()
        if _kernels is not None and getters is not None:
            return _kernels.Watch(values, copies, sizes, functions, orders, getters).same
        gets = [(namespace.get, name) for namespace, name, _ in values]
        expected = [value for _, _, value in values]
        bodies, codes = [function for function, *_ in functions], [tuple(parts) for _, *parts in functions]

        def look(objects: list[Any], kind: type) -> bool:
            return (
                [get(name) for get, name in gets] == expected
                and [(body.__code__, body.__defaults__, body.__kwdefaults__) for body in bodies] == codes
                and all(len(namespace) == size for namespace, size in sizes)
                and all(namespace.get(name) == copy for namespace, name, copy in copies)
                and all(cls.__mro__ is order for cls, order in orders)
                and all(type(one) is kind for one in objects)
            )

        return look


class _Search:
    """Finds what a class's methods depend on, and adds it to a watch."""

    def __init__(self, watch: Watch, kind: Watched) -> None:
        self._watch, self._kind = watch, kind
        self._owner: type = getattr(import_module(kind.module), kind.owner)
        self._family = {kind.module, *(kind.sources or ()), "gymnasium.core"}
        for home, name in kind.parts():
            if isinstance(home, type):
                self._attribute(home, name)
            else:
                self._global(vars(home), name, home.__name__, self._owner)
        for cls in _classes(self._owner) if kind.sources is not None else ():
            for name in SPECIAL:
                self._of_class(cls, name, self._owner)

    def _attribute(self, owner: type, name: str) -> None:
        """A name that a class or one of its bases may have."""
        classes = _classes(owner)
        if self._kind.sources is not None:
            self._watch._orders.setdefault(id(owner), (owner, owner.__mro__, owner.__module__))
        for cls in classes:
            self._of_class(cls, name, owner)
            functions = [*_functions_of(_namespace(cls).get(name))]
            if functions and not any("super" in function.__code__.co_names for function in functions):
                break  # what it overrides is not called

    def _of_class(self, cls: type, name: str, owner: type) -> None:
        self._note(_namespace(cls), name, cls.__module__, f"{cls.__qualname__}.{name}", owner)

    def _global(self, namespace: Namespace, name: str, module: str, owner: type) -> None:
        self._note(namespace, name, module, name, owner)

    def _note(self, namespace: Namespace, name: str, module: str, qualname: str, owner: type) -> None:
        key, watch = (id(namespace), name), self._watch
        if key in watch._entries or key in watch._absent:
            return
        if name not in namespace:
            watch._absent[key] = _Entry(namespace, name, None, None, module)
            return
        value = namespace[name]
        copy = deepcopy(value) if type(value) in MUTABLE else None
        watch._entries[key] = _Entry(namespace, name, value, copy, module)
        if name in NOT_CALLED:
            return
        for function in _functions_of(value):
            self._function(function, module, qualname, owner)

    def _function(self, function: FunctionType, module: str, qualname: str, owner: type) -> None:
        watch = self._watch
        if id(function) in watch._functions:
            return
        watch._functions[id(function)] = function, _parts(function), module
        known = module in self._family
        if known:
            home = function.__module__ if function.__module__ in self._family else module  # where it was imported from
            watch._found.append((function, function.__name__ if home != module else qualname, home))
        if self._kind.sources is None or not known:
            return
        defaults: Namespace = function.__kwdefaults__ or {}  # which can be changed
        for name in defaults:
            self._global(defaults, name, module, owner)
        names, globals_ = _names_of(function.__code__), function.__globals__
        for name in sorted(names - NOT_CALLED):
            if name in globals_:
                self._global(globals_, name, function.__module__, owner)
                value = globals_[name]
                if isinstance(value, ModuleType):
                    for attribute in sorted(names & vars(value).keys()):
                        self._global(vars(value), attribute, value.__name__, owner)
            elif name in vars(builtins) and not _is_error(vars(builtins)[name]):
                self._global(globals_, name, function.__module__, owner)  # which would hide that
                self._global(vars(builtins), name, "builtins", owner)
            self._attribute(owner, name)


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseException)


def _classes(owner: type) -> list[type]:
    """A class and its bases, but for Python's own."""
    return [cls for cls in owner.__mro__ if cls.__module__ not in ("builtins", "typing", "abc")]


def _namespace(cls: type) -> Namespace:
    """The very dict of a class's attributes, of which ``vars()`` is a view."""
    (found,) = gc.get_referents(vars(cls))
    assert type(found) is dict
    return found


def _functions_of(value: Any) -> Iterator[FunctionType]:
    candidates = (value.fget, value.fset) if isinstance(value, property) else (getattr(value, "__func__", value),)
    yield from (function for function in candidates if isinstance(function, FunctionType))


def _parts(function: FunctionType) -> tuple[Any, ...]:
    return tuple([getattr(function, part) for part in PARTS])


def _names_of(code: CodeType) -> set[str]:
    """Names of globals and attributes that code mentions."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*map(_names_of, inner))


@cache
def _codes_of(file: str) -> dict[str, list[CodeType]] | None:
    """The code of each function of a file, by qualified name; ``None`` if there is no such file."""
    try:
        with open(file, "rb") as source:
            whole = compile(source.read(), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None
    found: dict[str, list[CodeType]] = {}
    inside: list[CodeType] = [whole]
    while inside:
        for constant in inside.pop().co_consts:
            if isinstance(constant, CodeType):
                found.setdefault(constant.co_qualname, []).append(constant)
                inside.append(constant)
    return found


@cache
def _getters() -> tuple[int, ...] | None:
    """Addresses of CPython's functions that give the parts of a function; ``None`` where Python lacks them."""
    try:
        names: Sequence[str] = ("PyFunction_GetCode", "PyFunction_GetDefaults", "PyFunction_GetKwDefaults")
        addresses = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in names]
    except AttributeError:
        return None
    return tuple([address or 0 for address in addresses]) if all(addresses) else None
