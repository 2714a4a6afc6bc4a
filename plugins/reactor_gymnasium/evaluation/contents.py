"""Collect the values that the code of a policy, or of a function that makes an environment, can reach, by their names.

Two such collections show whether a policy has changed meanwhile. Their hashes show whether it is the same in another process.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import os
import random
import re
import sys
import sysconfig
import warnings
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)  # fmt: skip
from typing import Any, NamedTuple

import numpy as np

import reactor_rl
from reactor_rl.plugin import canonical, new_hash

__all__ = [
    "Contents", "changes", "contents", "generators_of", "hashed", "hashes", "only_added", "only_written", "replaced", "seeded",
]  # fmt: skip

MOST = 20_000
"""Values that are looked at: an evaluation looks a few times, and a value takes about a microsecond or more. What lies behind them
goes unnoticed. Chosen.
"""
FEW = 128
"""Elements at each end of a long list that are looked at: what grows does so at its end."""
LARGE, HUGE = 1 << 20, 1 << 26
"""Bytes of an array of which only some elements are looked at, where a look has to be short, and otherwise. To hash a megabyte
takes about a millisecond; a change of a few elements of a larger array may go unnoticed. Chosen.
"""


class Part(NamedTuple):
    """A value that was found.

    Attributes:
        kind: ``"value"``, ``"generator"`` for one of random numbers, or ``"code"``.
        content: The value, or its hash.
        installed: Whether it is an attribute of an object of an installed package.
    """

    kind: str
    content: Any
    installed: bool = False


Contents = Mapping[str, Part]


def contents(*roots: Any, whole: bool = False) -> dict[str, Part]:
    """Return the values that make up objects, by the names under which their code finds them: ``queue``, ``weights[0]``.

    Of functions these are the variables of other functions and of their module that they use, of objects their attributes. What
    belongs to Python and to installed packages is not looked into, but for attributes of its objects.

    Args:
        *roots: The objects.
        whole: Whether large arrays are read as a whole, and the user's code as well.
    """
    return _Look(roots, whole).found


def changes(*looks: Contents, overwritten: bool = False) -> tuple[list[str], list[str]]:
    """Compare each look with the next: return names of values that differ, and of generators that were drawn from.

    Args:
        *looks: The looks.
        overwritten: Whether it does not count what objects of installed packages have put down in the last call and in none
            before. The second look and the last one are after the same call then, and agree about such an object.
    """
    values: dict[str, None] = {}
    drawn: dict[str, None] = {}
    for before, after in itertools.pairwise(looks):
        for path in {**before, **after}:
            one, other = before.get(path), after.get(path)
            if one == other:
                continue
            installed = all(part is None or part.installed for part in (one, other))
            if other is not None and other.kind == "generator":
                drawn[_holder(path)] = None
            elif not (overwritten and installed and looks[1].get(path) == looks[-1].get(path)):
                values[_holder(path)] = None
    return list(values), list(drawn)


def replaced(before: Contents, after: Contents) -> list[str]:
    """Return names of values that were there and are others now. New ones are left out: they are made at first use, and stay."""
    known = [path for path, part in before.items() if path in after and part.content != "NoneType None"]
    return changes({path: before[path] for path in known}, {path: after[path] for path in known})[0]


def only_added(before: Contents, after: Contents, besides: Collection[str]) -> bool:
    """Whether what was there is as it was, but for mappings with more entries and for what was ``None``, as a cache leaves it.

    Args:
        before: What was there.
        after: What is there.
        besides: Names that do not count.
    """
    for path, part in before.items():
        now = after.get(path)
        if part == now or _holder(path) in besides or part.content == "NoneType None":
            continue
        if now is None or part.kind != "value" or not _ENTRIES.fullmatch(str(part.content)):
            return False
    return True


_ENTRIES = re.compile(r"\w*(dict|Dict|proxy|Counter) of \d+")


def generators_of(*roots: Any) -> list[Any]:
    """The generators of random numbers that the code of objects can reach, but for those of the process."""
    return _Look(roots).generators


@contextlib.contextmanager
def seeded(generators: Sequence[Any], word: int) -> Iterator[None]:
    """Seed generators for a block, each otherwise; they have their state back afterwards."""
    generators = [one.bit_generator if isinstance(one, np.random.Generator) else one for one in generators]
    states = [_generator_state(one) for one in generators]
    try:
        for number, one in enumerate(generators):
            _seed(one, np.random.SeedSequence(word, spawn_key=(number,)))
        yield
    finally:
        for one, state in zip(generators, states, strict=True):
            _put_back(one, state)


def _seed(generator: Any, seed: np.random.SeedSequence) -> None:
    number = int(seed.generate_state(1)[0])
    if isinstance(generator, np.random.BitGenerator):
        generator.state = type(generator)(seed).state
    elif isinstance(generator, np.random.RandomState | random.Random):
        generator.seed(number)
    else:
        generator.manual_seed(number)


def _put_back(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.BitGenerator):
        generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(sys.modules["torch"].from_numpy(state))


def only_written(names: Iterable[str], *roots: Any) -> set[str]:
    """Return those variables and attributes that the code of objects only writes: counts of calls, lists that are appended to.

    A value that no code reads cannot change the answers of a function. In doubt, a name counts as read.
    """
    codes = [inner for code in _Look(roots).codes for inner in _codes_within(code)]
    if any(name in _BY_NAME for code in codes for name in code.co_names):
        return set()
    found = set()
    for name in names:
        last = name.rpartition(".")[2]
        using = [code for code in codes if last in (*code.co_names, *code.co_freevars, *code.co_cellvars, *code.co_consts)]
        if using and all(_only_written(last, code) for code in using):
            found.add(name)
    return found


_BY_NAME = {"vars", "locals", "globals", "eval", "exec", "__dict__", "__getstate__", "deepcopy"}
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT", "LOAD_ATTR", "LOAD_METHOD")
_GROWS = {"append", "appendleft", "extend", "add", "insert"}


def _codes_within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes_within(const)


def _only_written(name: str, code: CodeType) -> bool:
    if not name or name in code.co_consts:
        return False
    steps = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
    for at, one in enumerate(steps):
        if one.argval != name or not one.opname.startswith(_READS):
            continue
        if not (_grown(steps[at + 1 :]) or _added_to(name, steps[at + 1 :])):
            return False
    return True


def _grown(steps: list[dis.Instruction]) -> bool:
    """Whether what was read, or an element of it, is only appended to or replaced: ``name.append(x)``, ``name[key] = x``."""
    if len(steps) > 2 and steps[0].opname.startswith("LOAD_") and not steps[0].opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
        if steps[1].opname == "STORE_SUBSCR" or (
            [one.opname for one in steps[1:3]] == ["COPY", "COPY"] and _added_to("", steps[3:])
        ):
            return True
        if _subscript(steps[1]):
            steps = steps[2:]
    return bool(steps) and steps[0].opname in ("LOAD_ATTR", "LOAD_METHOD") and steps[0].argval in _GROWS


def _subscript(step: dis.Instruction) -> bool:
    return step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr == "[]")


def _added_to(name: str, steps: list[dis.Instruction]) -> bool:
    """Whether what was read is only added to, and written again: ``name += 1``; without a name, an element: ``x[key] += 1``."""
    before: dis.Instruction | None = None
    for one in steps:
        if one.opname == "SWAP":
            continue
        if one.argval == name or (not name and one.opname == "STORE_SUBSCR"):
            added = before is not None and before.opname == "BINARY_OP" and before.argrepr.endswith("=")
            return one.opname.startswith("STORE_") and added
        if one.opname.startswith(("STORE_", "POP_JUMP", "RETURN", "YIELD")):
            return False
        before = one
    return False


def hashes(found: Contents, without: Iterable[str]) -> dict[str, str]:
    """Hashes of what was found, by the first part of the name; generators do not count.

    Args:
        found: What was found.
        without: Names of what changes by itself, which are left out.
    """
    left_out = set(without)
    groups: dict[str, Any] = {}
    for path in sorted(found):
        part, holder = found[path], _holder(path)
        if part.kind == "generator" or holder in left_out:
            continue
        group = groups.setdefault(re.split(r"[.\[(]", path, maxsplit=1)[0], new_hash())
        canonical((path, part.kind, part.content), group)
    return {name: group.hexdigest()[:16] for name, group in groups.items()}


def _holder(path: str) -> str:
    """The name of the variable or attribute in which a value is."""
    return path.split("[", 1)[0]


def _folders() -> tuple[str, ...]:
    """Where Python and installed packages are, and these packages."""
    known = {Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    known |= {Path(reactor_rl.__file__).parent, *Path(__file__).parents[2].glob("reactor_*")}
    return tuple({f"{folder}{os.sep}" for one in known for folder in (one, one.resolve())})


_INSTALLED = _folders()


def _of_user(file: str | None) -> bool:
    return file is not None and not file.startswith((*_INSTALLED, "<frozen"))


@functools.lru_cache(maxsize=4096)
def _module_of_user(name: str) -> bool:
    if name == "__main__":
        return True
    return _of_user(getattr(sys.modules.get(name), "__file__", None))


@functools.lru_cache(maxsize=4096)
def _globals_of(code: CodeType) -> tuple[str, ...]:
    """Names of a module that code reads or writes, in the functions within it too."""
    names: dict[str, None] = {}
    for instruction in itertools.chain.from_iterable(map(dis.get_instructions, _codes_within(code))):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"):
            names[instruction.argval] = None
    return tuple(names)


def _code_of(code: CodeType) -> tuple[Any, ...]:
    """Describe what code does, without the file and the lines that it is in."""
    consts = [_code_of(one) if isinstance(one, CodeType) else repr(sorted(map(repr, one))) if isinstance(one, frozenset)
              else repr(one) for one in code.co_consts]  # fmt: skip
    return (code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_flags)


def _shared_generators() -> set[int]:
    """Generators of the process, which are compared and put back by themselves."""
    shared = {id(getattr(random, "_inst", None)), id(getattr(np.random.mtrand, "_rand", None))}
    torch = sys.modules.get("torch")
    return shared if torch is None else {*shared, id(torch.default_generator)}


class _Look:
    """One look at objects."""

    def __init__(self, roots: Iterable[Any], whole: bool = False) -> None:
        self.whole = whole
        self.found: dict[str, Part] = {}
        self.seen: dict[int, Any] = {}  # with the objects, lest another one get the same id
        self.shared = _shared_generators()
        self.todo: deque[tuple[Any, str, bool]] = deque()
        self.installed = False  # what is visited, see :class:`Part`
        self.codes: list[CodeType] = []  # the user's
        self.generators: list[Any] = []
        for root in roots:
            self._at(root)

    def _at(self, root: Any) -> None:
        self.todo.append((root, "", False))
        while self.todo and len(self.found) < MOST:
            value, path, self.installed = self.todo.popleft()
            try:
                self._visit(value, path)
            except Exception:  # whatever it is, it does not like to be looked at
                self._note(path, type(value).__qualname__)

    def _note(self, path: str, content: Any, kind: str = "value") -> None:
        while path in self.found:
            path += "'"
        self.found[path] = Part(kind, content, self.installed)

    def _later(self, value: Any, path: str) -> None:
        self.todo.append((value, path, self.installed))

    def _visit(self, value: Any, path: str) -> None:
        kind = type(value)
        if value is None or isinstance(value, bool | int | float | complex | np.generic):
            self._note(path, f"{kind.__qualname__} {value!r}")
            return
        if isinstance(value, str | bytes | bytearray):
            self._note(path, hashed(value if isinstance(value, str) else bytes(value)))
            return
        if isinstance(value, Enum):
            self._note(path, f"{kind.__qualname__}.{value.name}")
            return
        if id(value) in self.seen:
            return
        self.seen[id(value)] = value
        if isinstance(value, np.ndarray):
            self._array(value, path)
        elif isinstance(value, FunctionType):
            self._function(value, path)
        elif isinstance(value, MethodType):
            self._later(value.__func__, path)
            self._later(value.__self__, path)
        elif isinstance(value, type):
            self._class(value, path)
        elif isinstance(value, BuiltinFunctionType):
            self._note(path, value.__qualname__)
            if not isinstance(value.__self__, ModuleType):
                self._later(value.__self__, path)
        elif isinstance(value, ModuleType):
            self._note(path, value.__name__)
        elif isinstance(value, functools.partial):
            self._later(value.func, path)
            self._within(enumerate(value.args), path)
            for name, part in value.keywords.items():
                self._later(part, _named(path, name))
        elif hasattr(kind, "cache_info") and hasattr(value, "__wrapped__"):
            self._later(value.__wrapped__, path)  # what is in a cache is what the function gives
        elif isinstance(value, dict | MappingProxyType):
            self._note(path, f"{kind.__qualname__} of {len(value)}")
            items = list(value.items())
            self._within([(_key(key), part) for key, part in self._ends(items)], path)
        elif isinstance(value, list | tuple | deque):
            self._note(path, f"{kind.__qualname__} of {len(value)}")
            self._within(self._ends(list(enumerate(value))), path)
        elif isinstance(value, set | frozenset):
            self._note(path, hashed(sorted(map(_key, value))))
        else:
            self._object(value, path)

    def _ends(self, items: list[Any]) -> list[Any]:
        return items if self.whole or len(items) <= 2 * FEW else [*items[:FEW], *items[-FEW:]]

    def _within(self, items: Iterable[tuple[Any, Any]], path: str) -> None:
        for key, part in items:
            self._later(part, f"{path}[{key}]")

    def _array(self, array: Any, path: str) -> None:
        if array.dtype.hasobject:
            self._note(path, f"{array.shape}")
            self._within(self._ends(list(enumerate(array.ravel().tolist()))), path)
            return
        shape, dtype = array.shape, array.dtype.str
        if array.nbytes > (HUGE if self.whole else LARGE):
            array = array.reshape(-1)[:: self._stride(array.size)]
        self._note(path, (dtype, str(shape), hashed(np.ascontiguousarray(array))))

    def _stride(self, size: int) -> int:
        return max(1, size // (1_000_003 if self.whole else 4_099))

    def _function(self, function: FunctionType, path: str) -> None:
        code = function.__code__
        named: list[tuple[str, Any]] = []
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                named.append((name, cell.cell_contents))
            except ValueError:  # it has no value yet
                continue
        if _of_user(code.co_filename):
            self.installed = False
            self.codes.append(code)
            if self.whole:
                self._note(f"{path}()", hashed(_code_of(code)), "code")
            scope = function.__globals__
            for name in _globals_of(code):
                if name in scope:
                    value = scope[name]
                    named.append((name, value))
                    if isinstance(value, ModuleType) and _of_user(getattr(value, "__file__", None)):
                        named += [(f"{name}.{one}", vars(value)[one]) for one in code.co_names if one in vars(value)]
        else:
            self._note(f"{path}()", f"{function.__module__}.{function.__qualname__}")
        for name, value in named:
            if not name.startswith("__"):
                self._later(value, _named(path, name))
        defaults = function.__defaults__ or ()
        parameters = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        for name, value in zip(parameters, defaults, strict=False):
            self._later(value, _named(path, name))
        for name, value in {**(function.__kwdefaults__ or {}), **vars(function)}.items():
            self._later(value, _named(path, name))

    def _class(self, cls: type, path: str) -> None:
        if not _module_of_user(cls.__module__):
            self._note(path, f"{cls.__module__}.{cls.__qualname__}")
            return
        self._note(path, cls.__qualname__)
        for base in cls.__bases__:
            self._later(base, _named(path, base.__name__))
        for name, value in list(vars(cls).items()):
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            elif isinstance(value, property):
                value = value.fget
            if name.startswith("_abc_") or isinstance(value, GetSetDescriptorType | MemberDescriptorType):
                continue
            if not (name.startswith("__") and name.endswith("__")) or isinstance(value, FunctionType):
                self._later(value, _named(path, name))

    def _object(self, value: Any, path: str) -> None:
        if (state := _generator_state(value)) is not None:
            if id(value) not in self.shared:
                self._note(path, hashed(state), "generator")
                self.generators.append(value)
            return
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            self._tensor(value, path)
            return
        if isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools", "collections"):
            self._iterator(value, path)
        of_user = _module_of_user(type(value).__module__)
        self._later(type(value), path if of_user else f"{path}()")
        if type(value).__module__.partition(".")[0] in _TOOLS:
            return
        self.installed = not of_user
        attributes: dict[str, Any] = dict(getattr(value, "__dict__", None) or {})
        for cls in type(value).__mro__:
            slots = vars(cls).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and name in vars(cls):
                    attributes.setdefault(name, getattr(value, name, None))
        if self.whole:
            attributes = _lasting(value, attributes)
        for name, part in attributes.items():
            if name in _OF_MODULES and isinstance(part, dict):
                for key, inner in part.items():
                    self._later(inner, _named(path, key))
            else:
                self._later(part, _named(path, name))
        if not attributes and hasattr(type(value), "qsize"):
            self._note(path, value.qsize())

    def _tensor(self, tensor: Any, path: str) -> None:
        shape, dtype, tensor = tuple(tensor.shape), str(tensor.dtype), tensor.detach()
        if tensor.is_meta or tensor.is_sparse or tensor.is_quantized:
            self._note(path, (dtype, str(shape)))
            return
        if tensor.numel() * tensor.element_size() > (HUGE if self.whole else LARGE):
            tensor = tensor.reshape(-1)[:: self._stride(tensor.numel())]
        torch = sys.modules["torch"]
        array = tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy()
        self._note(path, (dtype, str(shape), hashed(array)))

    def _iterator(self, value: Any, path: str) -> None:
        if isinstance(value, GeneratorType):
            frame = value.gi_frame
            self._note(path, -1 if frame is None else frame.f_lasti)
            for name, part in inspect.getgeneratorlocals(value).items():
                self._later(part, _named(path, name))
            self._later(value.gi_code, path)
        elif isinstance(value, itertools.count):
            self._note(path, repr(value))
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a protocol that goes; what is without it tells nothing
                reduced = value.__reduce__()
            if isinstance(reduced, tuple):
                self._within(enumerate(reduced[1:]), path)


def _generator_state(value: Any) -> Any:
    """The state of a generator of random numbers; ``None`` for anything else."""
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, np.random.BitGenerator):
        return value.state
    if isinstance(value, np.random.RandomState):
        return value.get_state(legacy=False)
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return value.getstate()
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Generator):
        return value.get_state().cpu().numpy()
    return None


_TOOLS = ("logging", "threading", "_thread", "_io", "io", "socket", "weakref", "tqdm")
"""Modules whose objects are tools of the process, which say nothing about what somebody answers."""


_OF_MODULES = ("_parameters", "_buffers", "_modules")
"""Where modules of torch keep what looks like attributes."""


_OF_MODELS = {"BaseAlgorithm": ("policy", "_vec_normalize_env"), "VecNormalize": ("obs_rms", "norm_obs", "clip_obs", "epsilon")}
"""Attributes that decide the answers of a class of Stable-Baselines3; the others include buffers and clocks."""


def _lasting(value: Any, attributes: dict[str, Any]) -> dict[str, Any]:
    """Those attributes of an object that are the same in another process, and by which it answers."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.optim.Optimizer):
        return {}
    attributes = {name: part for name, part in attributes.items() if not name.startswith("_np_random")}
    for cls in type(value).__mro__:
        if cls.__module__.startswith("stable_baselines3.") and cls.__name__ in _OF_MODELS:
            return {name: attributes[name] for name in _OF_MODELS[cls.__name__] if name in attributes}
    if torch is not None and isinstance(value, torch.nn.Module) and not _module_of_user(type(value).__module__):
        plain = (bool, int, float, str, tuple)
        return {name: part for name, part in attributes.items() if name in _OF_MODULES or isinstance(part, plain)}
    return attributes


def _named(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _key(value: Any) -> str:
    """A name for a key, the same in every process."""
    plain = isinstance(value, str | bytes | bool | int | float | tuple | np.generic | type(None))
    return repr(value) if plain else type(value).__qualname__


def hashed(value: Any) -> str:
    """A hash of plain values and arrays."""
    into = new_hash()
    canonical(value, into)
    return str(into.hexdigest())
