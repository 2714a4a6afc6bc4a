"""``model.explain()``: who evaluates and who differentiates each network, and why."""

from __future__ import annotations

from typing import Any

import pytest
from contrib_trainers import CONTRIB, make
from torch import nn
from trainers import ALGORITHMS, new

from reactor_torch import kernels

ALL = sorted({*ALGORITHMS, *CONTRIB})

pytestmark = pytest.mark.skipif(kernels.compiled is None, reason="the extension is not compiled here")


def made(algorithm: str, **more: Any) -> Any:
    return (make if algorithm in CONTRIB else new)(algorithm, **more)


@pytest.mark.parametrize("algorithm", ALL)
def test_the_extension_does_it(algorithm: str) -> None:
    with made(algorithm) as model:
        found = model.explain()
        assert {row.network for row in found} == set(model.nets)
        acting = [row.network for row in found if row.acts]
        assert len(acting) == 1 and model.nets[acting[0]] is model.acting()[0]
        assert {row.acts for row in found} <= {"extension", ""} and {row.learns for row in found} <= {"extension", ""}
        assert sorted(row.network for row in found if not row.learns) == sorted(
            name for name, part in model.nets.parts.items() if part.optimizer is None
        )
        assert not any(row.why for row in found) and "why=" not in repr(model)


@pytest.mark.parametrize("algorithm", ALL)
def test_a_hook_is_said(algorithm: str) -> None:
    with made(algorithm) as model:
        layer = next(part for part in model.acting()[0].modules() if type(part) is nn.Linear)
        layer.register_forward_hook(lambda module, given, found: None)
        model.look()
        found = model.explain()
        acting = next(row for row in found if row.acts)
        assert acting.acts == "torch" and acting.learns == "autograd" and acting.why.endswith(" has a forward hook")
        assert acting.why.count("hook") == 1 and acting.why in repr(model)
        for row in found:
            assert row is acting or (row.learns, row.why) in [("", ""), ("autograd", f"{acting.network!r}: {acting.why}")]


def test_it_is_a_table() -> None:
    with new("sac") as model:
        assert str(model.explain()) == repr(model.explain()) == (
            "network        acts by    learns by  why\n"
            "actor          extension  extension  -\n"
            "critic         -          extension  -\n"
            "critic_target  -          -          -\n"
            "ent_coef       -          extension  -"
        )  # fmt: skip


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "compiled", None)
    with new("dqn") as model:
        acting = model.explain()[0]
        assert acting.acts == "torch" and acting.learns == "autograd" and "doctor" in acting.why
