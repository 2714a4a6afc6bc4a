"""Random streams for torch: what draws inside of a block draws from a generator of ours, and torch's own is left alone.

Dropout and many others take no generator, and lending them torch's own (set its state, draw, set it back) would let another thread
of the program draw from our numbers, and us from its. So calls that draw are intercepted, in this thread only, and are given the
generator as their argument.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from reactor_rl.plugin import library_class
from reactor_torch.unmodified import LIBRARIES, reason, shadows_of

__all__ = ["drawing_nothing", "draws", "torch_state", "torch_stream"]

_TAKES_GENERATOR = frozenset({
    "bernoulli", "bernoulli_", "binomial", "cauchy_", "exponential_", "geometric_", "log_normal_", "multinomial", "normal",
    "normal_", "poisson", "rand", "randint", "randn", "random_", "randperm", "uniform_",
})  # fmt: skip
"""Functions and methods of torch's that draw, and take a generator where Python calls them."""

_MAY_DRAW = re.compile(
    "rand|normal|bernoulli|multinomial|uniform|exponential|geometric|cauchy|gumbel|poisson|binomial|gamma|dirichlet|drop|rrelu|"
    "attention|rnn|lstm|gru|orthogonal|sparse_|fractional|lowrank"
)
"""Names of functions that draw, or may call one that does. One name too many costs some microseconds and nothing else."""

_CERTAIN = ("linear", "conv", "activation", "container", "flatten", "normalization", "pooling", "dropout", "rnn", "module")
"""Torch's families of layers that draw nothing, but for those named next."""
_ALWAYS_DRAWING = (nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)
_DRAWING = (nn.RReLU, nn.MultiheadAttention, nn.modules.dropout._DropoutNd)
"""Draw where somebody learns."""
_KNOWN = ("stable_baselines3.", "sb3_contrib.", "reactor_sb3.")
"""Packages whose networks draw nothing but by the layers that they consist of."""
_PLAIN = frozenset({
    "abs", "append", "dict", "enumerate", "float", "int", "isinstance", "items", "keys", "len", "list", "max", "min", "range",
    "sorted", "sum", "tuple", "values", "zip",
})  # fmt: skip
"""Attributes of Python's own functions and containers that a ``forward`` asks for and that draw nothing."""

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@contextlib.contextmanager
def torch_stream(source: torch.Generator | torch.Tensor) -> Iterator[None]:
    """Let what draws random numbers on the CPU in this thread (dropout, say) draw from a generator.

    The numbers are those that torch's own generator would give from that state. What compiled code (TorchScript) draws by itself is
    not intercepted. Within another stream it is this one that is drawn from.

    Args:
        source: The generator, or the state of one, which is brought up to date.
    """
    generator = source if isinstance(source, torch.Generator) else torch.Generator()
    if isinstance(source, torch.Tensor):
        generator.set_state(source)
    before = getattr(_innermost, "calls", None)
    _innermost.calls = calls = _Calls(generator)
    try:
        with calls:
            yield
    finally:
        _innermost.calls = before
        if isinstance(source, torch.Tensor):
            source.copy_(generator.get_state())


def drawing_nothing() -> contextlib.AbstractContextManager[None]:
    """For code that draws nothing: within a :func:`torch_stream`, its calls of torch are not intercepted, which costs time."""
    nothing: contextlib.AbstractContextManager[None] = torch._C.DisableTorchFunction()
    return nothing


_innermost = threading.local()


def torch_state(seed: int) -> torch.Tensor:
    """The state that a :func:`torch_stream` begins with."""
    return torch.Generator().manual_seed(seed).get_state()


class _Calls(TorchFunctionMode):
    """Calls of torch from Python; few of them draw, so only these are looked into."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator, self._operations = generator, _Operations(generator)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if not _may_draw(name) or _innermost.calls is not self:
            return func(*args, **kwargs)
        if name in _TAKES_GENERATOR and kwargs.get("generator") is None and _on_cpu(args, kwargs):
            with contextlib.suppress(TypeError):  # one of the same name that takes none
                return func(*args, **{**kwargs, "generator": self._generator})
        with self._operations:
            return func(*args, **kwargs)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The effect of such a call, operation by operation."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch imports its compiler at the first call: seconds for who only acts. Optimizers of torch's import it anyway."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Torch asks. Else ``torch.compile`` would do nothing any more once calls of two threads have overlapped."""
        return True

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if not _may_draw(name) or kwargs.get("generator") is not None or not _on_cpu(args, kwargs):
            return func(*args, **kwargs)
        drawn = _with_generator(func)
        if drawn is not None:
            return drawn(*args, **kwargs, generator=self._generator)
        match name, args:
            case "randn_like", (like,):
                return torch.empty_like(like, **kwargs).normal_(generator=self._generator)
            case "rand_like", (like,):
                return torch.empty_like(like, **kwargs).uniform_(generator=self._generator)
            case "randint_like", (like, *bounds):
                return torch.empty_like(like, **kwargs).random_(*([0, *bounds][-2:]), generator=self._generator)
        if not torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), _COMPOSITE):
            return func(*args, **kwargs)
        # In inference mode, what is made of other operations arrives here before these. `decompose()` would do the same but for
        # operations that torch's compiler has brought forms in Python of, once it is imported: those may draw other numbers.
        with self:
            return func._op_dk(_COMPOSITE, *args, **kwargs)


@lru_cache(maxsize=4096)
def _may_draw(name: str) -> bool:
    return _MAY_DRAW.search(name) is not None


@lru_cache(maxsize=1024)
def _with_generator(func: Any) -> Any:
    """The operation, or one for the same arguments, that takes a generator; None if torch has no such form."""
    overloads, overload = func.overloadpacket, func.name().partition(".")[2]  # empty for the default one
    for name in (overload or "default", f"{overload}_generator" if overload else "generator"):
        if name in overloads.overloads() and any(one.name == "generator" for one in getattr(overloads, name)._schema.arguments):
            return getattr(overloads, name)
    return None


def _on_cpu(args: Any, kwargs: Any) -> bool:
    """Where a call draws: where its first tensor is, or where it is told to make one."""
    device = kwargs.get("device")
    if device is None:
        # A tensor is there by default: torch.get_default_device() takes thirty times as long.
        device = next((one.device for one in args if isinstance(one, torch.Tensor)), None) or torch.empty(0).device
    return torch.device(device).type == "cpu"


# ---------------------------------------------------------------------- which networks draw


def draws(module: nn.Module, *, learning: bool = True) -> bool:
    """Whether a network may draw from torch's generator: whether it has parts that do, or parts that nobody can tell of.

    A part of the user's own is told from its ``forward``: one that asks torch only for what draws nothing, and else only for other
    parts and for numbers, draws nothing by itself. Intercepting calls makes a small network's gradients a quarter slower.

    Args:
        module: The network.
        learning: Whether it learns; if not, dropout draws nothing.
    """
    return not all(_certain(part, learning) for part in module.modules())


def _certain(part: nn.Module, learning: bool) -> bool:
    if isinstance(part, _ALWAYS_DRAWING):
        return False
    if (learning or part.training) and (isinstance(part, _DRAWING) or (isinstance(part, nn.RNNBase) and part.dropout > 0)):
        return False
    defined_by = next(cls for cls in type(part).__mro__ if "forward" in vars(cls))
    package, _, family = defined_by.__module__.rpartition(".")
    if (package == "torch.nn.modules" and family in _CERTAIN) or defined_by.__module__.startswith(_KNOWN):
        return reason(part, library_class(type(part), LIBRARIES)) is None
    own = reason(part, nn.Module, ()) is not None or shadows_of(part)
    return not own and _only_calls_what_is_known(part, vars(defined_by)["forward"])


def _only_calls_what_is_known(part: nn.Module, forward: object) -> bool:
    """Whether all names in a function are of parts, numbers, torch's modules and functions of torch's that draw nothing."""
    if not isinstance(forward, FunctionType) or forward.__closure__ or any(map(callable, forward.__defaults__ or ())):
        return False

    def known(name: str) -> bool:
        if _may_draw(name):
            return False
        if name in forward.__globals__:
            found = forward.__globals__[name]
            return found in (torch, nn, nn.functional) if isinstance(found, ModuleType) else isinstance(found, int | float | str)
        of_class = getattr(type(part), name, None)
        if of_class is not None and not hasattr(nn.Module, name):  # else a method or a property of the user's
            return isinstance(of_class, int | float | str)
        if isinstance(getattr(part, name, None), nn.Module | torch.Tensor | int | float | str):
            return True
        if name in vars(part):
            return False
        return name in _PLAIN or any(hasattr(place, name) for place in (torch.Tensor, torch, nn.functional))

    def names(code: CodeType) -> set[str]:
        inner = [const for const in code.co_consts if isinstance(const, CodeType)]
        return set(code.co_names).union(*map(names, inner))

    return all(map(known, names(forward.__code__)))
