"""Whether an object computes what its class was written to compute: by following the code, with a sentence where it does not."""

from __future__ import annotations

import functools
import importlib
import math
import re
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from reactor_rl import unmodified as topic
from reactor_rl.plugin import Watch, code_of, fingerprint, library_class, reason, unmodified

ROOTS = ("step", "reset")
GRAVITY = 9.8
LIMITS = (-1.0, 1.0)


def clipped(value: float, low: float = LIMITS[0]) -> float:
    """No smaller than that."""
    return max(value, low)


def pushed(value: float) -> float:
    return clipped(value) * math.cos(GRAVITY)


class Base:
    mass = 2.0

    def reset(self) -> None:
        self.last = 0.0

    def unused(self) -> str:
        return "never"


class Cart(Base):
    """A thing with state."""

    def __init__(self) -> None:
        self.reset()

    @property
    def force(self) -> float:
        return self.mass * GRAVITY

    def step(self, push: float) -> float:
        """Move."""

        def moved(by: float) -> float:
            return by + pushed(self.force)

        self.last += moved(push)
        self.trail: list[float] = self._seen(self.last)
        return self.last

    @staticmethod
    def _seen(value: float) -> list[float]:
        return [value]

    def reset(self) -> None:
        super().reset()

    def render(self) -> str:
        return "cart"


class Plain(Cart):
    """Which changes nothing that is asked about."""

    def unused(self) -> str:
        return "other"

    def render(self) -> str:
        return "plain"


def other(*given: Any) -> Any:
    return 0.0


# ---------------------------------------------------------------------- what is looked at


def test_it_follows_the_code() -> None:
    code = code_of(Cart, ROOTS)
    names = {where.removeprefix(f"{__name__}.") for where in code.functions}
    assert names == {"Cart.step", "Cart.reset", "Base.reset", "Cart.force", "Cart._seen", "pushed", "clipped"}
    assert {where.removeprefix(f"{__name__}."): value for where, value in code.values.items()} == {
        "Base.mass": 2.0, "GRAVITY": 9.8,
    }  # fmt: skip
    assert code.written == {"last", "trail"}
    assert code_of(Cart, ("reset",)).functions.keys() < code.functions.keys()
    assert code_of(Cart, ("nothing",)).functions == {}


@pytest.mark.parametrize("kind", [Cart, Plain])
def test_what_is_untouched_has_no_reason(kind: type[Cart]) -> None:
    assert reason(kind(), Cart, ROOTS) is None and unmodified(Cart, ROOTS) is None
    thing: Any = kind()
    thing.unused = thing.anything = other
    assert reason(thing, Cart, ROOTS) is None


def subclass(name: str, value: Any = other) -> Any:
    return type("Mine", (Plain,), {name: value})()


@pytest.mark.parametrize("name", ["step", "reset", "_seen", "force", "mass", "__getattribute__"])
def test_a_subclass_that_overrides_it_is_named(name: str) -> None:
    kind = subclass(name, object.__getattribute__ if name == "__getattribute__" else property(other) if name == "force" else other)
    assert reason(kind, Cart, ROOTS) == f"Mine overrides {name}"


def test_a_mixin_in_front_is_named() -> None:
    class Mixin(Base):
        def reset(self) -> None:
            super().reset()

    class Mixed(Cart, Mixin):
        pass

    assert reason(Mixed(), Cart, ROOTS) == "Mixin overrides reset"


def test_something_else_is_named() -> None:
    assert reason(3, Cart, ROOTS) == "int is no Cart"
    assert reason(3, Cart, ROOTS, "body") == "its body is a int, not a Cart"


def test_an_attribute_of_its_own_is_named() -> None:
    thing: Any = Cart()
    thing.step = other
    assert reason(thing, Cart, ROOTS) == "step of this Cart is an attribute of its own"
    assert reason(thing, Cart, ROOTS, "body") == "step of its body is an attribute of its own"
    assert reason(thing, Cart, ("reset",)) is None


def test_what_the_fast_form_calls_itself_may_do_anything() -> None:
    assert reason(subclass("_seen"), Cart, ROOTS, calls=("_seen",)) is None
    assert reason(subclass("step"), Cart, ROOTS, calls=("_seen",)) == "Mine overrides step"


PATCHES: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str | None]] = {
    "a method": (lambda patch: patch.setattr(Cart, "step", other), "replaced .*Cart.step"),
    "of a base": (lambda patch: patch.setattr(Base, "reset", other), "replaced .*Base.reset"),
    "given": (lambda patch: patch.setattr(Plain, "unused", other), None),
    "a helper": (lambda patch: patch.setitem(globals(), "clipped", other), "replaced .*clipped"),
    "a constant": (lambda patch: patch.setitem(globals(), "GRAVITY", 1.6), "replaced .*GRAVITY"),
    "an equal constant": (lambda patch: patch.setitem(globals(), "GRAVITY", float("9.8")), None),
    "of a class": (lambda patch: patch.setattr(Base, "mass", 3.0), "replaced .*Base.mass"),
    "in between": (lambda patch: patch.setattr(Cart, "mass", 2.0, raising=False), "given Cart a mass of its own"),
    "code": (lambda patch: patch.setattr(pushed, "__code__", other.__code__), "changed .*pushed"),
    "defaults": (lambda patch: patch.setattr(clipped, "__defaults__", (0.0,)), "changed .*clipped"),
    "something else": (lambda patch: patch.setattr(Cart, "render", other), None),
}  # fmt: skip


@pytest.mark.parametrize("name", PATCHES)
def test_whoever_patches_it_later_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patch, expected = PATCHES[name]
    watch = Watch([code_of(Cart, ROOTS)])
    for _ in range(2):  # whoever takes it back has not changed anything
        assert unmodified(Cart, ROOTS) is None and watch.changed() is None
        with monkeypatch.context() as context:
            patch(context)
            for found in (unmodified(Cart, ROOTS), reason(Plain(), Cart, ROOTS), watch.changed()):
                assert found is None if expected is None else re.search(expected, found or "")
    assert unmodified(Cart, ROOTS) is None


def test_a_class_that_was_patched_before_anybody_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrapping(textwrap.TextWrapper):
        pass

    def patched(self: Any, text: str) -> list[str]:
        return [text]

    for made in (patched, functools.wraps(textwrap.TextWrapper.wrap)(patched)):
        with monkeypatch.context() as context:
            context.setattr(textwrap.TextWrapper, "wrap", made)
            assert reason(Wrapping(), textwrap.TextWrapper, ("wrap",)) == "somebody has replaced textwrap.TextWrapper.wrap"
        assert reason(Wrapping(), textwrap.TextWrapper, ("wrap",)) is None
        topic._KNOWN.pop((textwrap.TextWrapper, ("wrap",), ()))


def test_the_class_of_a_library() -> None:
    assert library_class(Plain, [__name__.partition(".")[0]]) is Plain
    assert library_class(Plain, ["builtins"]) is object and library_class(Plain, ["elsewhere"]) is None


# ---------------------------------------------------------------------- fingerprints

WRITTEN = "4f5f44564540"
"""The same on every version of Python and every platform."""


def source_of(name: str, text: str, folder: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A class ``Thing`` of a module with such a text."""
    (folder / f"{name}.py").write_text(text)
    with monkeypatch.context() as context:
        context.syspath_prepend(str(folder))
        module = importlib.import_module(name)
    monkeypatch.setitem(sys.modules, name, sys.modules.pop(name))
    return module.Thing


THING = '''
"""A module."""
from dataclasses import dataclass

SIZE = 3

def helper(x, *, y=(1, 2), z: int = SIZE):
    return x if x in y else f"{x!r:>{z}}"

def nobody():
    return 1

class Thing:
    """A thing."""

    def step(self, x: int) -> list[int]:
        """Do it."""
        match x:
            case 0 | 1:
                found: list[int] = [helper(x)]
            case _:
                found = [*(lambda a, /, b=2: a + b for _ in range(3)), -0.5, b"\\x00", ..., 1j]
        try:
            self.x, (self.y, *self.z) = x, (1, 2, 3)
        except* ValueError as error:
            raise TypeError("no") from error
        return found

    async def reset(self):
        async with self as one:
            yield {one: 1, **self.y}
'''


def test_a_fingerprint_is_that_of_the_code_alone(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(number: int, before: str = "", after: str = "") -> str:
        assert before in THING
        text = THING.replace(before, after) if before else THING
        return fingerprint(source_of(f"fingerprinted_{number}", text, tmp_path, monkeypatch), ROOTS)

    plain = made(0)
    same = [
        ('"""A module."""', "# no module"), ('"""Do it."""', '"""Do it otherwise."""'), ("x: int", "x: float"),
        ("return 1", "return 2"), (" -> list[int]", ""), ("    def step", "    # a line\n\n    def step"), ('("no")', "('no')"),
    ]  # fmt: skip
    other = [
        ("SIZE = 3", "SIZE = 4"), ("y=(1, 2)", "y=(1, 3)"), ("-0.5", "0.5"), ("case 0 | 1", "case 0"), ("*self.z", "self.z"),
        (":>{z}", ":<{z}"), ("a + b", "a - b"),
    ]  # fmt: skip
    assert {made(number, *pair) for number, pair in enumerate(same, 1)} == {plain}
    found = [made(number, *pair) for number, pair in enumerate(other, 20)]
    assert plain not in found and len(set(found)) == len(found)
    assert plain == WRITTEN
    assert unmodified(source_of("fingerprinted_0", THING, tmp_path, monkeypatch), ROOTS, ("0" * 12, plain)) is None


def test_whatever_it_was_not_written_from_is_named() -> None:
    found = fingerprint(Cart, ROOTS)
    assert unmodified(Cart, ROOTS, (found,)) is None
    assert unmodified(Cart, ROOTS, ("0" * 12,)) == f"it was not written from this Cart ({found})"


def test_where_a_library_lies_is_no_part_of_a_fingerprint(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "class Thing:\n    def step(self):\n        return open(__file__)\n\n    reset = step\n"
    one, other = (source_of(f"lying_{place}", text, tmp_path, monkeypatch) for place in ("here", "there"))
    assert "lying_here.__file__" in code_of(one, ROOTS).places
    assert fingerprint(one, ROOTS) == fingerprint(other, ROOTS)
