"""Fingerprints: hashes of what was on ports and when, and the random generators that belong to the whole process.

A fingerprint does not depend on how or where a value was computed. It hashes the canonical content of a value, not its pickle:
two equal values hash alike whatever order a dict was filled in and whichever objects share memory.

The generators of Python, numpy and (once it is imported) torch are shared by everything in a process. What a reaction draws
from them depends on what else draws and when, so :func:`reactor_rl.verify` reports such draws, and measurements restore the
state.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import random
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Set
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np

__all__ = ["Hasher", "canonical", "combine", "new_hash", "generator_states", "global_random_state", "changed_generators"]


class Hasher(Protocol):
    def update(self, data: Any, /) -> None: ...


_DIGEST = 16
"""Bytes of a digest: 128 bits. Two different runs have the same one with a probability of 2**-128, and a short digest is easier to
compare by eye.
"""


def new_hash() -> Any:
    """Return a fresh hash (BLAKE2b, 16 bytes)."""
    return hashlib.blake2b(digest_size=_DIGEST)


def combine(digests: Mapping[str, bytes]) -> str:
    """Combine the digests of several ports, by name, into one fingerprint."""
    total = new_hash()
    for name in sorted(digests):
        total.update(name.encode() + b"\0" + digests[name])
    return str(total.hexdigest())


def canonical(value: Any, into: Hasher) -> None:
    """Hash the content of a value.

    Raises:
        TypeError: If it holds an object of unknown content.
    """
    match value:
        case None | bool():
            into.update(f"{value};".encode())
        case int():
            into.update(f"i{value};".encode())
        case float():
            into.update(b"f" + struct.pack("<d", value))
        case complex():
            into.update(b"c" + struct.pack("<dd", value.real, value.imag))
        case str():
            data = value.encode("utf-8", "surrogatepass")
            into.update(f"s{len(data)};".encode() + data)
        case bytes() | bytearray():
            into.update(f"b{len(value)};".encode() + bytes(value))
        case np.ndarray() | np.generic():
            _array(np.asarray(value), into)
        case Enum():
            canonical((type(value).__qualname__, value.name), into)
        case list() | tuple():
            into.update(f"{'l' if isinstance(value, list) else 't'}{len(value)};".encode())
            for item in value:
                canonical(item, into)
        case Mapping() | Set():
            items = value.items() if isinstance(value, Mapping) else value
            into.update(f"{'d' if isinstance(value, Mapping) else 'e'}{len(value)};".encode())
            for digest in sorted(_digest(item) for item in items):
                into.update(digest)
        case type():
            canonical(("type", value.__module__, value.__qualname__), into)
        case np.random.Generator():
            canonical(value.bit_generator.state, into)
        case BaseException():
            canonical((type(value).__qualname__, value.args), into)
        case _:
            _object(value, into)


def _digest(value: Any) -> bytes:
    part = new_hash()
    canonical(value, part)
    return bytes(part.digest())


def _array(array: np.ndarray[Any, Any], into: Hasher) -> None:
    if array.dtype.hasobject:
        into.update(f"a{array.shape};".encode())
        for item in array.reshape(-1).tolist():
            canonical(item, into)
        return
    little = array.dtype.newbyteorder("<")
    into.update(f"a{little.str}{array.shape};".encode())
    into.update(np.ascontiguousarray(array, little).reshape(-1).view(np.uint8).data)


def _object(value: Any, into: Hasher) -> None:
    name = type(value).__qualname__
    if dataclasses.is_dataclass(value):
        canonical((name, {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}), into)
        return
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor
        canonical(value.detach().cpu().numpy(), into)
        return
    state = value.__getstate__()
    if state is None or isinstance(state, (Mapping, tuple)):
        canonical((name, state), into)
        return
    raise TypeError(f"a value of type {type(value).__name__} has no canonical content to fingerprint; send plain data or arrays")


class _Generator(NamedTuple):
    name: str
    get: Callable[[], Any]
    put_back: Callable[[Any], Any]


def generator_states() -> dict[str, bytes]:
    """Digest the state of each generator, by name."""
    digests: dict[str, bytes] = {}
    for generator in _generators():
        digest = new_hash()
        canonical(generator.get(), digest)
        digests[generator.name] = digest.digest()
    return digests


def changed_generators(before: dict[str, bytes]) -> tuple[str, ...]:
    """Names of the generators that were drawn from (or seeded) since :func:`generator_states` returned ``before``."""
    after = generator_states()
    return tuple(name for name in before if before[name] != after[name])


@contextlib.contextmanager
def global_random_state() -> Iterator[None]:
    """Restore the state of every generator when the block ends, by an exception too."""
    states = [(generator.put_back, generator.get()) for generator in _generators()]
    try:
        yield
    finally:
        for put_back, state in states:
            put_back(state)


def _generators() -> Iterator[_Generator]:
    yield _Generator("random", random.getstate, random.setstate)
    if "numpy" in sys.modules:
        import numpy as np

        yield _Generator("np.random", np.random.get_state, np.random.set_state)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_rng_state"):
        yield _Generator("torch", torch.get_rng_state, torch.set_rng_state)
