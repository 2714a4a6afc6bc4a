"""Why torch has to evaluate a module, in a sentence; and that a changed class is noticed like a changed module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import FlattenExtractor, MlpExtractor
from torch import nn
from torch.nn.modules.module import register_module_forward_hook

from reactor_torch import Structure, draws, layers_of, reason


class Own(nn.Linear):
    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return super().forward(given)


class Unchanged(nn.Linear):
    """Has a name of its own and nothing else."""


def nothing(*given: Any, **more: Any) -> None:
    """Changes nothing."""


def of_its_own(layer: Any) -> None:
    layer.forward = nothing


TOUCHES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "forward": (lambda layer: layer.register_forward_hook(nothing), "has a forward hook"),
    "before": (lambda layer: layer.register_forward_pre_hook(nothing), "has a forward-pre hook"),
    "backward": (lambda layer: layer.register_full_backward_hook(nothing), "has a backward hook"),
    "before backward": (lambda layer: layer.register_full_backward_pre_hook(nothing), "has a backward-pre hook"),
    "attribute": (of_its_own, "forward of its body.0 is an attribute of its own"),
}


@pytest.mark.parametrize("name", TOUCHES)
def test_what_somebody_has_done_to_a_layer_is_named(name: str) -> None:
    layer, (touch, expected) = nn.Linear(2, 3), TOUCHES[name]
    assert reason(layer) is None and not isinstance(layers_of([("body.0", layer)], 2), str)
    touch(layer)
    assert expected in (reason(layer, named="body.0") or "")
    assert expected in str(layers_of([("body.0", layer)], 2)) and "body.0" in str(layers_of([("body.0", layer)], 2))


def test_a_hook_of_all_modules_is_named() -> None:
    hook = register_module_forward_hook(nothing)
    try:
        assert reason(nn.ReLU()) == "this ReLU has a forward hook of all modules"
    finally:
        hook.remove()
    assert reason(nn.ReLU()) is None


def test_classes() -> None:
    assert reason(Unchanged(2, 3), nn.Linear) is None
    assert reason(Own(2, 3), nn.Linear) == "Own overrides forward"
    assert reason(nn.ReLU(), nn.Linear, named="head") == "its head is a ReLU, not a Linear"
    assert "Own" in layers_of([("one", Own(2, 3))], 2) and "given 4 numbers" in layers_of([("one", nn.Linear(2, 3))], 4)


def net() -> nn.Module:
    return nn.Sequential(FlattenExtractor(spaces.Box(-1, 1, (2,))), nn.Linear(2, 3), Unchanged(3, 1))


def own_forward(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlattenExtractor, "forward", lambda self, given: self.flatten(given) + 1)


def of_a_subclass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unchanged, "forward", Own.forward, raising=False)


def code(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FlattenExtractor.forward, "__code__", (lambda self, observations: observations).__code__)


@pytest.mark.parametrize("change", [own_forward, of_a_subclass, code])
def test_a_class_that_is_changed_between_rounds_is_noticed(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = net()
    structure = Structure({"net": module}, {})
    assert structure.is_still_so({"net": module}, {})
    with monkeypatch.context() as context:
        change(context)
        assert not structure.is_still_so({"net": module}, {})
        assert structure.difference(Structure({"net": module}, {})) == [f"{2 if change is of_a_subclass else 0} computes otherwise"]
    assert structure.is_still_so({"net": module}, {})


def test_a_method_that_is_replaced_twice_is_noticed_twice() -> None:
    module = net()
    module[1].forward = nothing  # type: ignore[index]
    structure = Structure({"net": module}, {})
    assert structure.is_still_so({"net": module}, {})
    module[1].forward = lambda given: given  # type: ignore[index]
    assert not structure.is_still_so({"net": module}, {})
    assert structure.difference(Structure({"net": module}, {})) == ["1 has another forward"]


class Built(MlpExtractor):
    """Which makes its layers in a way of its own, by a method of its own."""

    def __init__(self) -> None:
        super().__init__(2, [3], nn.ReLU)
        self.fill()

    def fill(self) -> None:
        nn.init.zeros_(self.policy_net[0].weight)  # type: ignore[arg-type]


class Noisy(MlpExtractor):
    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        return super().forward_actor(features) + torch.randn(1)


def test_what_a_library_s_code_does_not_come_to_draws_nothing() -> None:
    assert not draws(Built())
    assert draws(Noisy(2, [3], nn.ReLU))
