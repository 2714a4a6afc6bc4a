"""Watch the Python code that a kernel stands for: functions, what their code refers to, attributes of classes.

A user may replace a function, its code (as IPython's ``%autoreload`` does), a constant that it refers to, a function that it calls,
or an attribute of its class. The functions are those of a :class:`reactor_rl.plugin.Code`; all that they mention is noted once, and
checked before each step of a kernel: by C where it was compiled.
"""

from __future__ import annotations

import builtins
import ctypes
import gc
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from reactor_rl.plugin import Code, compiled_module

__all__ = ["CodeWatch", "watch_of"]

Namespace = dict[str, Any]

_kernels = compiled_module("reactor_gymnasium.native._kernels")  # else Python looks

MUTABLE = (list, dict, set)
"""Constants of these types are compared with copies."""
SPECIAL = frozenset({"__getattribute__", "__getattr__", "__setattr__"})
"""Methods that decide what any attribute is."""
PARTS = ("__code__", "__defaults__", "__kwdefaults__")


class _Entry(NamedTuple):
    """An attribute of a class or module: its value, ``None`` if it has none, and a copy where it can be changed."""

    namespace: Namespace
    name: str
    value: Any
    copy: Any
    module: str


class CodeWatch:
    """The code on which the work of several classes depends, as it is now.

    Args:
        *codes: All that their methods come to.
        called: The same of classes of which only methods are watched, and nothing that these mention.

    Attributes:
        look: The quick way to ask :meth:`same`, which may say no where yes is right.
    """

    def __init__(self, *codes: Code, called: tuple[Code, ...] = ()) -> None:
        self._entries: dict[tuple[int, str], _Entry] = {}
        self._absent: dict[tuple[int, str], _Entry] = {}  # names whose values would be seen if there were any
        self._functions: dict[int, tuple[FunctionType, tuple[Any, ...], str]] = {}
        self._orders: dict[int, tuple[type, tuple[type, ...], str]] = {}
        for code in codes:
            self._orders[id(code.kind)] = code.kind, code.kind.__mro__, code.kind.__module__
            for owner, name, _ in code.places.values():
                self._note(_namespace(owner), name, _module(owner))
            for name in sorted(code.names | SPECIAL):
                self._note_attribute(code.kind, name)
            for function in code.functions.values():
                self._note_function(function)
                self._note_names(function)
        for code in called:
            for name in sorted(code.methods):
                self._note_attribute(code.kind, name)
            for owner, name, _ in code.places.values():
                if isinstance(owner, type):
                    self._note(_namespace(owner), name, owner.__module__)
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

    # ------------------------------------------------------------------ what is noted

    def _note(self, namespace: Namespace, name: str, module: str) -> None:
        """A name of a class or a module, and its value, if there is one."""
        key = id(namespace), name
        if key in self._entries or key in self._absent:
            return
        if name not in namespace:
            self._absent[key] = _Entry(namespace, name, None, None, module)
            return
        value = namespace[name]
        self._entries[key] = _Entry(namespace, name, value, deepcopy(value) if type(value) in MUTABLE else None, module)
        for function in _functions_of(value):
            self._note_function(function)

    def _note_attribute(self, kind: type, name: str) -> None:
        """A name that a class or one of its bases may have."""
        for cls in kind.__mro__:
            if cls.__module__ not in ("builtins", "typing", "abc"):
                self._note(_namespace(cls), name, cls.__module__)
                if name in vars(cls):
                    break  # what it overrides is not called, but by super(), which has a place of its own

    def _note_function(self, function: FunctionType) -> None:
        self._functions.setdefault(id(function), (function, _parts(function), function.__module__))

    def _note_names(self, function: FunctionType) -> None:
        """All globals that code mentions, of any package, and of modules among these what it mentions of them."""
        defaults: Namespace = function.__kwdefaults__ or {}  # which can be changed
        for name in defaults:
            self._note(defaults, name, function.__module__)
        names, globals_ = _names_of(function.__code__), function.__globals__
        for name in sorted(names):
            if name in globals_ or name in vars(builtins):
                self._note(globals_, name, function.__module__)  # which would hide what is built in
            value = globals_.get(name)
            if isinstance(value, ModuleType):
                for part in sorted(names & vars(value).keys()):
                    self._note(vars(value), part, value.__name__)
            elif name in vars(builtins) and name not in globals_:
                self._note(vars(builtins), name, "builtins")


@cache
def watch_of(*codes: Code, called: tuple[Code, ...] = ()) -> CodeWatch:
    """Watch what some classes come to, from the first call on."""
    return CodeWatch(*codes, called=called)


def _namespace(owner: type | ModuleType) -> Namespace:
    """The very dict of the attributes, of which ``vars()`` of a class is a view."""
    if isinstance(owner, ModuleType):
        return vars(owner)
    (found,) = gc.get_referents(vars(owner))
    assert type(found) is dict
    return found


def _module(owner: type | ModuleType) -> str:
    return owner.__module__ if isinstance(owner, type) else owner.__name__


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
def _getters() -> tuple[int, ...] | None:
    """Addresses of CPython's functions that give the parts of a function; ``None`` where Python lacks them."""
    try:
        names: Sequence[str] = ("PyFunction_GetCode", "PyFunction_GetDefaults", "PyFunction_GetKwDefaults")
        addresses = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in names]
    except AttributeError:
        return None
    return tuple([address or 0 for address in addresses]) if all(addresses) else None
