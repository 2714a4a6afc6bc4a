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
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["torch_state", "torch_stream"]

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

_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


@contextlib.contextmanager
def torch_stream(state: torch.Tensor) -> Iterator[None]:
    """Let what draws random numbers on the CPU in this thread (dropout, say) go on from ``state``, which is brought up to date.

    The numbers are those that torch's own generator would give from that state. What compiled code (TorchScript) draws by itself is
    not intercepted. Within another stream it is this one that is drawn from.
    """
    generator = torch.Generator()
    generator.set_state(state)
    before = getattr(_innermost, "calls", None)
    _innermost.calls = calls = _Calls(generator)
    try:
        with calls:
            yield
    finally:
        _innermost.calls = before
        state.copy_(generator.get_state())


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
    """What such a call does, operation by operation."""

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
        with self:  # in inference mode, what is made of other operations arrives here before these
            return func._op_dk(_COMPOSITE, *args, **kwargs)


@lru_cache(maxsize=4096)
def _may_draw(name: str) -> bool:
    return _MAY_DRAW.search(name) is not None


@lru_cache(maxsize=1024)
def _with_generator(func: Any) -> Any:
    """The operation, or one for the same arguments, that takes a generator; None if there is none."""
    overloads = func.overloadpacket
    for name in (func._overloadname, {"default": "generator"}.get(func._overloadname, f"{func._overloadname}_generator")):
        if name in overloads.overloads() and any(one.name == "generator" for one in getattr(overloads, name)._schema.arguments):
            return getattr(overloads, name)
    return None


def _on_cpu(args: Any, kwargs: Any) -> bool:
    """Where a call draws: where its first tensor is, or where it is told to make one."""
    device = kwargs.get("device")
    if device is None:
        device = next((one.device for one in args if isinstance(one, torch.Tensor)), None) or torch.get_default_device()
    return torch.device(device).type == "cpu"
