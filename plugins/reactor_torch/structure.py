"""Notice changes to the structure of networks that learners and actors have copied; checked once in each round.

Learners have parameters as flat arrays and layers that are read, actors have layers as values: all made from modules at one time. A
user may freeze a parameter, hang a hook onto a layer, or replace a layer, an optimiser or a whole network at any other time.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cache
from inspect import unwrap
from itertools import chain
from operator import attrgetter, call, is_, itemgetter
from types import CodeType, FunctionType
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from reactor_rl.plugin import Watch, code_of, library_class
from reactor_torch.loss import Network
from reactor_torch.unmodified import GLOBAL_HOOKS, LIBRARIES, ROOTS, hooks_of, reason, shadows_of

__all__ = ["Structure", "differences", "refuse_global_hooks"]

Facts = dict[str, dict[str, Any]]

_END = object()
_LEARNS, _GROUPS, _PLACE = attrgetter("requires_grad"), attrgetter("param_groups"), torch.Tensor.data_ptr
_STEPPED, _SETTINGS = "the optimizer of ", "has other settings"
_TENSOR_HOOKS = attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")
_OPTIMIZER_HOOKS = attrgetter("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_PLAIN = (bool, int, float, str)
_BY_NAME = frozenset(("setattr", "delattr", "vars", "__dict__", "__setattr__", "__delattr__"))
_MOVING: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()
"""Settings that modules were seen to change themselves while they learned."""


def refuse_global_hooks() -> None:
    """Refuse hooks of all modules of a process, which actors in other processes would not have.

    Raises:
        ValueError: If there are any.
    """
    if any(GLOBAL_HOOKS):
        raise ValueError(
            "torch has global module hooks (register_module_forward_hook and the like), which actors and gradient workers in other "
            "processes would not call: remove them before learn(), or hang them onto modules of the policy (register_forward_hook)"
        )


class Structure:
    """The structure of networks: modules, their hooks and settings, parameters and what is frozen, buffers, optimisers.

    Values of parameters and buffers do not belong to it, nor where they lie, nor settings of optimisers and hooks of tensors, which
    are looked at where they are used. Types and shapes do.

    Args:
        roots: Modules, by name, with everything in them.
        parts: Networks that learn, or are read.
    """

    def __init__(self, roots: Mapping[str, nn.Module], parts: Mapping[str, Network]) -> None:
        self._roots, self._parts = dict(roots), {name: (part.module, part.optimizer) for name, part in parts.items()}
        self._optimizers = {name: part.optimizer for name, part in parts.items() if part.optimizer is not None}
        self._tensors: dict[str, torch.Tensor] = {}  # those that belong to no module
        self._modules: dict[nn.Module, str] = {}
        for name, root in (*roots.items(), *((name, part.module) for name, part in parts.items())):
            if isinstance(root, nn.Module):
                for path, module in root.named_modules():
                    self._modules.setdefault(module, path if name in roots else f"{name}.{path}")
            else:
                self._tensors |= root
        self._held: list[Any] = []
        self._facts = dict(self._found(self._number))
        self._remember()

    # ------------------------------------------------------------------ is it still so

    def is_still_so(self, roots: Mapping[str, nn.Module], parts: Mapping[str, Network]) -> bool:
        """Whether nothing of it has changed."""
        if self._looks_so(roots, parts):
            return True
        now = Structure(roots, parts)
        if now._facts != self._facts:
            return False
        vars(self).update(vars(now))  # a parameter lies elsewhere, say, or a module keeps what it has computed
        return True

    def _looks_so(self, roots: Mapping[str, nn.Module], parts: Mapping[str, Network]) -> bool:
        """The same, and never by mistake; asked in a few microseconds, without a call of Python's for each module or tensor."""
        known = self._parts
        if parts.keys() != known.keys() or not all(map(is_, roots.values(), self._roots.values())):
            return False
        for name, part in parts.items():
            module, optimizer = known[name]
            if part.optimizer is not optimizer:
                return False
            if part.module is not module and (isinstance(module, nn.Module) or not _same(module, part.module)):
                return False
        return (
            not any(self._empty)
            and all(map(is_, chain.from_iterable(self._filled), self._values))
            and all(map(is_, map(_GROUPS, self._optimizers.values()), self._groups))
            and [*map(_LEARNS, self._parameters)] == self._learns
            and [*map(_PLACE, self._parameters)] == self._places
            and [*map(len, self._attributes)] == self._lengths
            and [*map(type, self._modules)] == self._types
            and self._watch.changed() is None
            and [*map(call, self._getters, self._settled)] == self._settings
        )

    def _remember(self) -> None:
        """Note what is compared quickly: what changes in place, and what is in it now."""
        containers: list[Any] = []
        for module in self._modules:
            containers += [module._parameters, module._buffers, module._modules, *hooks_of(module)]
        self._groups = [one.param_groups for one in self._optimizers.values()]
        stepped = [*self._groups, *(group["params"] for groups in self._groups for group in groups)]
        # Behind all others comes what is in none of them: whatever is added or taken away moves it.
        self._filled: list[Iterable[Any]] = [*(one.values() for one in containers if one), *stepped, (_END,)]
        self._empty = [one for one in containers if not one]
        self._values = list(chain.from_iterable(self._filled))
        parameters = chain.from_iterable(module._parameters.values() for module in self._modules)
        found = {id(one): one for one in (*parameters, *self._tensors.values()) if one is not None}
        self._parameters = list(found.values())
        self._learns, self._places = [*map(_LEARNS, self._parameters)], [*map(_PLACE, self._parameters)]
        self._attributes: list[Mapping[str, Any]] = [vars(module) for module in self._modules]
        self._types = [*map(type, self._modules)]
        # What a module or a class of the user's has for itself may hide a method of the class that it derives from.
        kinds = {base: None for kind in self._types for base in kind.__mro__ if _root_of(base) not in LIBRARIES}
        self._attributes += [vars(kind) for kind in kinds]
        self._lengths = [*map(len, self._attributes)]
        self._watch = Watch(code_of(kind, ROOTS) for kind in {_library_class(module): None for module in self._modules})
        settled = [(vars(module), names) for module in self._modules if (names := _settings_of(module) + shadows_of(module))]
        self._settled, self._getters = [values for values, _ in settled], [itemgetter(*names) for _, names in settled]
        self._settings = [*map(call, self._getters, self._settled)]

    def let_move(self) -> None:
        """Take what modules have changed of their settings since they were last looked at for their own: they count, say.

        To be called when they have learned, and before somebody else has a say.
        """
        if [*map(call, self._getters, self._settled)] == self._settings:
            return
        for module in self._modules:
            known = self._facts[self._modules[module]][_SETTINGS]
            if moved := {name for name, value in known.items() if vars(module).get(name, _END) != value}:
                _MOVING.setdefault(module, set()).update(moved)
                for name in moved:
                    del known[name]
        self._remember()

    def forget_moving(self, contents: Facts) -> None:
        """Take settings that modules change themselves out of what :meth:`contents` gave before it was known of them.

        Args:
            contents: Is changed.
        """
        for module, path in self._modules.items():
            for name in _MOVING.get(module, ()):
                contents.get(path, {}).get(_SETTINGS, {}).pop(name, None)

    def acts_as(self, other: Structure) -> bool:
        """Whether what acts is the same, whatever is frozen, and whoever steps it."""
        return _acting(self._facts) == _acting(other._facts)

    # ------------------------------------------------------------------ in words

    def difference(self, now: Structure) -> list[str]:
        """Say in words what is different now; a root that was replaced stands for all that is in it."""
        roots = [f"{name} is replaced" for name, root in self._roots.items() if now._roots[name] is not root]
        return roots or differences(self._facts, now._facts)

    def contents(self) -> Facts:
        """The same as values, which those of another process can be compared with; see :func:`differences`.

        Hooks of parameters and optimisers belong to it, and values of buffers that are not saved.
        """
        names = {id(one): name for module in self._modules for name, one in self._named(module)}

        def described(one: Any) -> Any:
            if isinstance(one, nn.Module):
                return one.extra_repr()
            return names.get(id(one)) or getattr(one, "__qualname__", type(one).__qualname__)

        facts = dict(self._found(described))
        for module in self._modules:
            for name, one in self._named(module):
                if isinstance(one, nn.Parameter):
                    facts[name]["has other hooks"] = sum(map(len, filter(None, _TENSOR_HOOKS(one))))
                elif name.rpartition(".")[2] in module._non_persistent_buffers_set:
                    facts[name]["has other values"] = one.detach().cpu().tolist()
        for name, optimizer in self._optimizers.items():
            facts[f"{_STEPPED}{name}"]["has other hooks"] = sum(map(len, _OPTIMIZER_HOOKS(optimizer)))
        return facts

    def _number(self, one: Any) -> int:
        """An object's, which is held, so that no later one gets the same."""
        self._held.append(one)
        return id(one)

    def _named(self, module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        for name, one in (*module._parameters.items(), *module._buffers.items()):
            if one is not None:
                yield f"{self._modules[module]}.{name}".removeprefix("."), one

    def _found(self, of: Callable[[Any], Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each part of the networks: its name, and the facts to compare.

        Args:
            of: Makes of an object what is compared.
        """
        for module, path in self._modules.items():
            hooks = tuple(of(hook) for some in hooks_of(module) for hook in some.values())
            own = {name: of(vars(module)[name]) for name in shadows_of(module)}
            yield path, {
                "is replaced": (of(module), type(module)), "has other hooks": hooks, f"has another {_first(own)}": own,
                "computes otherwise": None if hooks or own else reason(module, _library_class(module)),
                _SETTINGS: {name: vars(module)[name] for name in _settings_of(module)},
            }  # fmt: skip
            for name, one in self._named(module):
                yield name, {"is replaced": of(one) if isinstance(one, nn.Parameter) else None, **_of_tensor(one)}
        for name, tensor in self._tensors.items():
            yield name, {"is replaced": of(tensor), **_of_tensor(tensor)}
        for name, optimizer in self._optimizers.items():
            groups = tuple(tuple(of(one) for one in group["params"]) for group in optimizer.param_groups)
            yield f"{_STEPPED}{name}", {"is replaced": (of(optimizer), type(optimizer)), "steps other parameters": groups}


def differences(before: Facts, now: Facts) -> list[str]:
    """Say in words what is different now from what :meth:`Structure.contents` returned before."""
    return [_told(name, before.get(name), now.get(name)) for name in {**before, **now} if before.get(name) != now.get(name)]


def _acting(facts: Facts) -> Facts:
    learning = ("is frozen", "is learned")
    return {
        name: {what: value for what, value in of_one.items() if what not in learning}
        for name, of_one in facts.items()
        if not name.startswith(_STEPPED)
    }


def _settings_of(module: nn.Module) -> list[str]:
    """Names of numbers and the like that say what a module computes; without those in which a module of a user's keeps count."""
    cls, moving = type(module), frozenset(_MOVING.get(module, ()))
    if _root_of(cls) not in LIBRARIES:
        if (own := _stored_by(cast(Hashable, cls))) is None or any(hooks_of(module)) or "forward" in vars(module):
            return []
        moving |= own
    return [name for name, value in vars(module).items() if type(value) in _PLAIN and name != "training" and name not in moving]


def _library_class(module: nn.Module) -> type:
    """The class of a library's that a module is, or derives from."""
    return library_class(type(module), LIBRARIES) or nn.Module


def _root_of(one: Any) -> str:
    """The package that a class or a function is from."""
    return str(one.__module__).partition(".")[0]


@cache
def _stored_by(cls: type[nn.Module]) -> frozenset[str] | None:
    """Attributes that a class's methods, and functions they call by name, store as it computes; ``None`` if that is not known."""
    methods: dict[str, list[FunctionType]] = {}  # those of bases, too, which super() calls
    for base in cls.__mro__[: cls.__mro__.index(nn.Module)]:
        for name, value in vars(base).items():
            function = unwrap(getattr(value, "fget", None) or getattr(value, "__func__", None) or value)
            if isinstance(function, FunctionType):
                methods.setdefault(name, []).append(function)
    stored: set[str] = set()
    done: set[CodeType] = set()
    due = [(one.__code__, one.__globals__) for name in (*ROOTS, "train") for one in methods.get(name, ())]
    while due:
        code, names = due.pop()
        if code in done:
            continue
        done.add(code)
        if not _BY_NAME.isdisjoint(code.co_names):
            return None
        called: list[Any] = []
        for one in dis.get_instructions(code):
            if one.opname in ("STORE_ATTR", "DELETE_ATTR"):
                stored.add(one.argval)
            elif one.opname == "LOAD_GLOBAL":
                called.append(names.get(one.argval))
            elif one.opname.startswith("LOAD_") and isinstance(one.argval, str):
                called += methods.get(one.argval, ())
        called = [one for one in called if isinstance(one, FunctionType) and _root_of(one) not in LIBRARIES]
        due += [(one.__code__, one.__globals__) for one in called]
        due += [(one, names) for one in code.co_consts if isinstance(one, CodeType)]
    return frozenset(stored)


def _first(names: Mapping[str, Any]) -> str:
    return next(iter(names), "forward")


def _of_tensor(one: torch.Tensor) -> dict[str, Any]:
    return {"is frozen" if not one.requires_grad else "is learned": True, "has another type": (one.dtype, one.device, one.shape)}


def _same(before: Any, now: Any) -> bool:
    return isinstance(now, Mapping) and before.keys() == now.keys() and all(map(is_, before.values(), now.values()))


def _told(name: str, before: dict[str, Any] | None, now: dict[str, Any] | None) -> str:
    if before is None or now is None:
        return f"{name or 'policy'} is {'new' if before is None else 'gone'}"
    return f"{name or 'policy'} {' and '.join(what for what in now if before.get(what) != now.get(what))}"
