"""Whether an object computes what the library wrote that its class is from: only then may a fast form stand in for it.

What methods come to is found in the code itself. From some methods on, the roots, every method, function and constant is looked up
that the code names. So nobody lists helpers, and whatever else a class has may be changed.

There are two questions. A fast form of a class, whatever its release, asks :func:`reason`: is this object one of that class, with
nothing of its own among what the roots come to? A fast form that was written from the source of one release asks
:func:`unmodified`: are these still the functions that it was written from? Their :func:`fingerprint` says so.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Container, Iterable, Iterator
from functools import cached_property
from operator import attrgetter, call, is_
from types import CodeType, FunctionType, ModuleType
from typing import Any

__all__ = ["Code", "Watch", "code_of", "fingerprint", "library_class", "reason", "unmodified"]

_NOT_FOLLOWED = frozenset({"__init__", "render", "_render_gui", "_render_text", "render_mode", "close", "spec", "metadata"})
"""Methods and settings that make an object, draw it, or describe it."""
_IMPLICIT = frozenset({"__call__", "__getattr__", "__getattribute__"})
"""Methods that run without being named."""
_EVERYBODYS = frozenset({"abc", "builtins", "math", "numpy", "torch", "typing"})
"""Packages whose functions are taken for what they are, where they are not roots themselves."""
_PLAIN = (int, float, str, bool, bytes, type(None))
_RUN = attrgetter("__code__", "__defaults__", "__kwdefaults__")


class Code:
    """All that some methods of a class come to.

    Attributes:
        functions: By qualified name every function that they may run, of the packages that the class and its bases are from,
            without decorators.
        values: By qualified name the plain constants that they read.
        names: Their own and all that they read or call: attributes of anything, and globals.
        methods: Those of them that are methods of the class.
        places: By qualified name where each part was found: a class or a module, the name there, and what it stood for.
        owners: By name the class where methods and other attributes were found.
        kind: The class.
        packages: Those whose functions are followed.
    """

    def __init__(self, kind: type, roots: Iterable[str], calls: Iterable[str] = ()) -> None:
        self.functions: dict[str, FunctionType] = {}
        self.values: dict[str, Any] = {}
        self.names: set[str] = set(_IMPLICIT)
        self.methods: set[str] = set()
        self.places: dict[str, tuple[type | ModuleType, str, Any]] = {}
        self.owners: dict[str, type] = {}
        self.kind, self._seen, self._due = kind, set[tuple[int, str]](), list[FunctionType]()
        self.packages = {_package(base.__module__) for base in kind.__mro__} - _EVERYBODYS
        self._roots, self._left_alone = frozenset(roots), _NOT_FOLLOWED.union(calls)
        for root in sorted(self._roots):
            self._see_method(root)
        while self._due:
            self._follow(self._due.pop())

    @cached_property
    def fingerprint(self) -> str:
        """See :func:`fingerprint`."""
        text = hashlib.sha256()
        for name, function in sorted(self.functions.items()):
            text.update(f"{name.rpartition('.')[2]}={_canonical(_tree(function))};".encode())
            defaults = (*(function.__defaults__ or ()), *(value for _, value in sorted((function.__kwdefaults__ or {}).items())))
            text.update(repr([value for value in defaults if _is_plain(value)]).encode())  # they may have been computed
        for name, value in sorted(self.values.items()):
            text.update(f"{name.rpartition('.')[2]}={value!r};".encode())
        return text.hexdigest()[:12]

    @cached_property
    def _watch(self) -> Watch:
        return Watch([self])

    @cached_property
    def _foreign(self) -> str | None:
        """Which of the functions is not where it was written."""
        placed = [(where, value) for where, (_, _, value) in self.places.items() if where in self.functions]  # decorated ones, too
        for where, function in (*placed, *self.functions.items()):
            if not isinstance(function, FunctionType):
                continue
            home = function.__globals__
            own = _package(str(home.get("__name__"))) in (*self.packages, *_EVERYBODYS, "contextlib", "functools")
            if not own or function.__code__.co_filename != home.get("__file__", function.__code__.co_filename):
                return f"somebody has replaced {where}"
        return None

    def changed(self) -> str | None:
        """Say which part somebody has changed, before this was made or since; ``None`` if nobody has."""
        return self._foreign or self._watch.changed()

    @cached_property
    def written(self) -> frozenset[str]:
        """Attributes of ``self`` that they assign or delete."""
        nodes = (node for function in self.functions.values() for node in ast.walk(_tree(function)))
        return frozenset(
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del)
            if isinstance(node.value, ast.Name) and node.value.id == "self"
        )

    def _follow(self, function: FunctionType) -> None:
        module = inspect.getmodule(function)
        home = {} if module is None else vars(module)
        for code in _codes(function.__code__):
            names = set(code.co_names)
            self.names |= names - self._left_alone
            for name in sorted(names):
                self._see_method(name)
                value = home.get(name)
                if isinstance(value, ModuleType):
                    if _package(value.__name__) not in _EVERYBODYS and not value.__name__.endswith("logger"):
                        for part in sorted(names & vars(value).keys()):
                            if not isinstance(vars(value)[part], ModuleType):
                                self._see(value, part)
                elif module is not None and name in home:
                    if isinstance(value, FunctionType) and (owner := inspect.getmodule(value)) and value.__name__ in vars(owner):
                        self._see(owner, value.__name__)
                    self._see(module, name)
            if "super" in names:  # runs the same method further up, too
                for name in sorted(names | {function.__name__}):
                    self._see_method(name, all_of_them=True)

    def _see_method(self, name: str, all_of_them: bool = False) -> None:
        for owner in self.kind.__mro__[:-1]:
            if name in vars(owner) and (name in self._roots or _package(owner.__module__) in self.packages):
                if name not in self._left_alone:
                    self.owners.setdefault(name, owner)
                self._see(owner, name)
                if not all_of_them:
                    return

    def _see(self, home: type | ModuleType, name: str) -> None:
        """Take note of what a class or a module has under a name, and look into it later."""
        if (id(home), name) in self._seen or name in self._left_alone:
            return
        self._seen.add((id(home), name))
        value = vars(home)[name]
        where = f"{home.__module__}.{home.__qualname__}.{name}" if isinstance(home, type) else f"{home.__name__}.{name}"
        while where in self.places:  # two classes of the same name
            where += "'"
        self.places[where] = home, name, value
        value = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "__func__", None) or value)
        if isinstance(home, type) and callable(value):
            self.methods.add(name)
            self.names.add(name)
        if isinstance(value, FunctionType):
            if isinstance(home, type) or _package(value.__module__) in self.packages:
                self.functions[where] = value
            if _package(value.__module__) in self.packages:
                self._due.append(value)
        elif _is_plain(value) and name != "__file__":  # where a module is installed says nothing of its code
            self.values[where] = value


class Watch:
    """Notices whoever changes any of what methods of classes come to.

    Args:
        codes: What they come to; what is there now counts as unchanged.
    """

    def __init__(self, codes: Iterable[Code]) -> None:
        self._codes = list(codes)
        self._places: dict[str, tuple[type | ModuleType, str, Any]] = {}
        self._functions: dict[str, FunctionType] = {}
        for code in self._codes:
            self._places |= code.places
            self._functions |= code.functions
        # Bound methods of the dicts and lists beside each other, so that `changed` is a few `map`s in C: it is asked before each
        # step.
        self._getters = [vars(home).get for home, _, _ in self._places.values()]
        self._names = [name for _, name, _ in self._places.values()]
        self._values = [value for _, _, value in self._places.values()]
        self._run = [*map(_RUN, self._functions.values())]
        self._classes = [vars(base) for base in {base: None for code in self._codes for base in code.kind.__mro__}]
        self._sizes = [*map(len, self._classes)]

    def changed(self) -> str | None:
        """Say what is different now; ``None`` if nothing is. Asked in a few microseconds."""
        # Sizes too: a method that is added to a class in between may hide the one that was found in a base, which itself stays as
        # it is.
        same = all(map(is_, map(call, self._getters, self._names), self._values)) and [*map(len, self._classes)] == self._sizes
        if same and [*map(_RUN, self._functions.values())] == self._run:
            return None
        for where, (home, name, value) in self._places.items():
            now = vars(home).get(name)
            if now is not value and not (type(now) is type(value) and type(value) in _PLAIN and now == value):
                return f"somebody has replaced {where}"
        for (where, function), run in zip(self._functions.items(), self._run, strict=True):
            if _RUN(function) != run:
                return f"somebody has changed {where}"
        for code in self._codes:
            for name, owner in code.owners.items():
                first = next(base for base in code.kind.__mro__ if name in vars(base))
                if first is not owner:
                    return f"somebody has given {first.__qualname__} a {name} of its own"
        self._sizes = [*map(len, self._classes)]
        return None


_KNOWN: dict[tuple[type, tuple[str, ...], tuple[str, ...]], Code] = {}


def code_of(kind: type, roots: tuple[str, ...], calls: tuple[str, ...] = ()) -> Code:
    """Find what methods of a class come to; once a process, if nobody has changed it before.

    Args:
        kind: The class.
        roots: Names of the methods; those that it does not have count for nothing.
        calls: Names of methods that are left alone.
    """
    if (found := _KNOWN.get((kind, roots, calls))) is None:
        found = Code(kind, roots, calls)
        # Not remembered if it was changed already, or it would go on counting as changed after it was put right.
        if found._foreign is None:
            _KNOWN[kind, roots, calls] = found
    return found


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) in (tuple, list) and all(type(one) in _PLAIN for one in value))


def _package(name: str) -> str:
    return name.partition(".")[0]


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _tree(function: FunctionType) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]


# ---------------------------------------------------------------------- the questions


def reason(thing: Any, like: type, roots: tuple[str, ...], named: str = "", calls: tuple[str, ...] = ()) -> str | None:
    """Say why a fast form of methods of a class may not stand in for those of an object; ``None`` if it may.

    Args:
        thing: The object.
        like: The class that the fast form is of, of a library.
        roots: Names of the methods.
        named: What the object is of something else, to be said in the sentence: ``"features_extractor"``.
        calls: Methods of the object that the fast form calls itself, so that they may do anything.
    """
    kind, code = type(thing), code_of(like, roots, calls)
    if kind is not like:
        if like not in kind.__mro__:
            return f"its {named} is a {kind.__name__}, not a {like.__name__}" if named else f"{kind.__name__} is no {like.__name__}"
        for base in kind.__mro__:
            if base not in like.__mro__ and (own := vars(base).keys() & code.names):
                return f"{base.__name__} overrides {min(own & code.methods or own)}"
    if own := getattr(thing, "__dict__", {}).keys() & code.methods:
        return f"{min(own)} of {f'its {named}' if named else f'this {kind.__name__}'} is an attribute of its own"
    return code.changed()


def unmodified(kind: type, roots: tuple[str, ...], written_from: tuple[str, ...] = ()) -> str | None:
    """Say why something else may not stand in for methods of a class; ``None`` if it may. Cheap: it may be asked before each step.

    Args:
        kind: The class.
        roots: Names of the methods.
        written_from: Fingerprints of the code that the other one was written from; empty for any.
    """
    code = code_of(kind, roots)
    if (changed := code.changed()) is not None:
        return changed
    if written_from and code.fingerprint not in written_from:
        return f"it was not written from this {kind.__name__} ({code.fingerprint})"
    return None


def library_class(kind: type, packages: Container[str]) -> type | None:
    """The class itself, or the first of its bases, that is from one of some packages.

    Args:
        kind: The class.
        packages: Names of packages, such as ``"torch"``.
    """
    return next((base for base in kind.__mro__ if _package(base.__module__) in packages), None)


# ---------------------------------------------------------------------- what it was written from


def fingerprint(kind: type, roots: tuple[str, ...]) -> str:
    """A short hash of all functions and constants that methods come to, without their docstrings, annotations and layout.

    The same on every version of Python and every platform.

    Args:
        kind: The class.
        roots: Names of the methods.

    Raises:
        OSError: If there is no source text of a function.
    """
    return code_of(kind, roots).fingerprint


_LEFT_OUT = frozenset({"ctx", "type_comment", "annotation", "returns", "kind", "type_ignores", "type_params"})


def _canonical(node: Any) -> str:
    """A tree as text that no version of Python writes otherwise."""
    if isinstance(node, list):
        return "[" + ",".join(map(_canonical, node)) + "]" if node else ""
    if not isinstance(node, ast.AST):
        return "" if node is None else repr(node)
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return ""
    fields = dict(ast.iter_fields(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:] or [ast.Pass()]
    if isinstance(node, ast.JoinedStr):  # Python 3.12 ends some with an empty string
        fields["values"] = [one for one in node.values if not (isinstance(one, ast.Constant) and one.value == "")]
    texts = [_canonical(value) for name, value in fields.items() if name not in _LEFT_OUT]
    return f"{type(node).__name__.replace('AnnAssign', 'Assign')}({','.join(filter(None, texts))})"
