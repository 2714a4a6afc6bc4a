"""What every kind of layer has to do, for who acts and who learns: torch's numbers, and the same bits whoever computes them."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from layer_cases import CASES, Made, cases
from networks_today import (
    HAS_EXTENSION,
    LEAF,
    Acting,
    Learned,
    OfBytes,
    Tensors,
    all_at_once,
    form,
    forms,
    read,
    steps_of,
    team,
    tree,
    weights_of,
)
from sb3_contrib.common.torch_layers import BatchRenorm1d
from torch import nn

pytestmark = [
    pytest.mark.skipif(not HAS_EXTENSION, reason="the extension is not compiled here"),
    pytest.mark.usefixtures("one_thread"),
]

CLOSE = 1e-5
"""Of the largest output, gradient or buffer."""


def are_close(ours: Tensors, theirs: Tensors) -> None:
    """Gradients may cancel each other out, to more or less: the largest of all says how close they have to be."""
    largest = max(float(one.abs().max()) for name, one in theirs.items() if name.startswith("by "))
    for name, one in ours.items():
        wanted = theirs[name]
        assert one.shape == wanted.shape
        most = largest if name.startswith("by ") else float(wanted.abs().max())
        assert float((one - wanted).abs().max()) <= CLOSE * max(1.0, most), name


def same_bits(ours: Tensors, theirs: Tensors, where: Any = "") -> None:
    assert ours.keys() == theirs.keys()
    for name, one in ours.items():
        assert bits(one) == bits(theirs[name]), (name, where)


def bits(one: Any) -> bytes:
    """Of numbers; what is no number has many."""
    found = np.ascontiguousarray(one)
    return np.where(np.isnan(found), np.float32(np.nan), found).tobytes() + found.dtype.str.encode()


# ---------------------------------------------------------------------- who learns


@cases()
def test_outputs_and_gradients_are_those_of_torch(name: str) -> None:
    made = CASES[name].made()
    was = deepcopy(made.inputs)
    found, wanted = made.ours(), made.by_torch()
    assert {f"by {name}" for name, _ in made.module.named_parameters()} <= found.keys()
    assert not made.case.plain or "by input 0" in found
    are_close(found, wanted)
    assert all(float(one.abs().max()) > 0 for one in found.values())
    assert all(map(torch.equal, made.inputs, was))


@pytest.mark.parametrize("some", [None, [3, 150, 7, 7]], ids=["all", "some"])
@cases(lambda case: case.plain and len(case.shape) == 1 and not case.learning)
def test_gradients_by_some_inputs_of_chosen_rows(name: str, some: list[int] | None) -> None:
    made = CASES[name].made()
    rows, first = None if some is None else torch.tensor(some), made.case.shape[0] // 2
    seen = made.inputs[0].clone().requires_grad_()
    (wanted,) = torch.autograd.grad(deepcopy(made.module).eval()(seen).sum(), seen)
    found = made.learned().by_chosen(made.inputs[0], rows, first)
    torch.testing.assert_close(found, (wanted if rows is None else wanted[rows])[:, first:], rtol=CLOSE, atol=CLOSE)


@cases()
def test_all_forms_have_the_same_bits(name: str) -> None:
    made = CASES[name].made()
    wanted = made.ours()
    for one in forms():
        with form(one):
            same_bits(made.ours(), wanted, one)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@cases(lambda case: case.wide)
def test_threads_change_no_bit(name: str, threads: int) -> None:
    made = CASES[name].made()
    wanted = made.ours()
    with team(threads):
        for _ in range(3):
            same_bits(made.ours(), wanted)


@cases(lambda case: not case.learning)
def test_a_row_has_the_bits_that_it_has_alone(name: str) -> None:
    """Whatever other rows there are; gradients by its inputs, too."""
    made = CASES[name].made()
    wanted = made.ours()
    for rows in (slice(0, 1), slice(3, 10), torch.tensor([17, 2])):
        found = made.of_rows(rows)
        for part, one in found.items():
            if part.startswith(("output", "by input")):
                whole = wanted[part]
                assert bits(one) == bits(whole[:, rows] if len(whole) != made.case.rows else whole[rows]), part


@cases(lambda case: case.adds_up)
def test_leaves_added_up_as_a_tree_have_the_bits_of_all_rows(name: str) -> None:
    """Gradients of 64 rows each."""
    case, made = CASES[name], CASES[name].made()
    whole = made.ours()
    leaves = [made.of_rows(slice(at, min(at + LEAF, case.rows))) for at in range(0, case.rows, LEAF)]
    for name, _ in made.module.named_parameters():
        assert bits(tree([one[f"by {name}"] for one in leaves])) == bits(whole[f"by {name}"]), name


@cases()
def test_inputs_may_lie_anywhere(name: str) -> None:
    made = CASES[name].made()
    wanted = made.ours()
    made.inputs = [beside(one) for one in made.inputs]
    assert any(one.data_ptr() % 64 for one in made.inputs)
    same_bits(made.ours(), wanted)


def beside(one: torch.Tensor) -> torch.Tensor:
    """The same behind one number more, so that nothing is aligned."""
    room = torch.zeros(one.numel() + 1, dtype=one.dtype)
    return room[1:].as_strided(one.shape, one.stride()).copy_(one)


@cases(lambda case: case.plain and len(case.shape) == 1)
def test_rows_of_inputs_may_lie_apart(name: str) -> None:
    made = CASES[name].made()
    wanted = made.ours()
    made.inputs = [torch.cat([one, torch.full((len(one), 3), torch.nan)], 1)[:, : one.shape[1]] for one in made.inputs]
    assert not made.inputs[0].is_contiguous()
    same_bits(made.ours(), wanted)


SPECIAL = {"NaN": torch.nan, "infinity": torch.inf, "-infinity": -torch.inf}


@pytest.mark.parametrize("special", SPECIAL)
@cases(lambda case: case.inputs is None)
def test_what_is_no_number_arrives(name: str, special: str) -> None:
    """From inputs, gradients and weights, wherever it does by torch, and in no other row's numbers."""
    arrived = False
    for where in ("inputs", "slopes", "weights"):
        made = CASES[name].made()
        *_, last = made.module.parameters()
        given = last.data if where == "weights" else getattr(made, where)[0][5]
        given.view(-1)[0] = SPECIAL[special]
        found, wanted = made.ours(), made.by_torch()
        for part, one in found.items():
            if part.startswith("output"):
                for what in (torch.isnan, torch.isposinf, torch.isneginf):
                    assert torch.equal(what(one), what(wanted[part])), (where, part, what)
            assert not bool((one.isfinite() & ~wanted[part].isfinite()).any()), (where, part)
            arrived = arrived or not bool(one.isfinite().all())
            if where != "weights" and not made.case.learning and part.startswith(("output", "by input")):
                assert bool(torch.cat([one[:5], one[6:]]).isfinite().all()), (where, part)
    assert arrived


# ---------------------------------------------------------------------- who acts


def acting(made: Made, rows: Any = slice(None)) -> Any:
    """Outputs of some of the rows, as who acts computes them."""
    return Acting(made.module, made.case.shape, weights_of(made.module), seen_of(made)[:, rows], made.case.one_hot)(0)


def seen_of(made: Made) -> Any:
    """Inputs as observations of a step, ``(1, rows, ...)``."""
    inputs = made.inputs[0].numpy()
    return (inputs.argmax(1) if made.case.one_hot else inputs)[None]


ACT = cases(lambda case: case.computed in (Learned, OfBytes) and not case.learning)


@ACT
def test_who_acts_computes_what_who_learns_does(name: str) -> None:
    """To the last bit: there is one order of sums."""
    made = CASES[name].made()
    found, wanted = acting(made), made.ours()["output 0"]
    are_close({"output 0": torch.from_numpy(found)}, {"output 0": wanted, "by nothing": torch.zeros(1)})
    assert bits(found) == bits(wanted)


@ACT
def test_a_row_is_acted_upon_as_if_it_were_alone(name: str) -> None:
    made = CASES[name].made()
    wanted = acting(made)
    for rows in (slice(0, 1), slice(5, 6), slice(3, 10), [17, 2], [19, *range(16)]):
        assert bits(acting(made, rows)) == bits(wanted[rows]), rows


@ACT
def test_observations_are_read_where_they_lie_and_weights_at_the_beginning_of_a_round(name: str) -> None:
    """Whatever was there when they were bound; and the observations of any step."""
    made = CASES[name].made()
    seen, weights = np.repeat(seen_of(made), 3, 0), weights_of(made.module)
    wanted = acting(made)
    weights[...], seen[...] = np.zeros_like(weights), 0
    bound = Acting(made.module, made.case.shape, weights, seen, made.case.one_hot)
    bound(1)
    weights[...], seen[2] = weights_of(made.module), seen_of(made)[0]
    bound.bound.begin()
    assert bits(bound(2)) == bits(wanted) and bits(bound(0)) != bits(wanted)


@ACT
def test_observations_may_lie_anywhere(name: str) -> None:
    made = CASES[name].made()
    seen = beside(torch.from_numpy(seen_of(made))).numpy()
    assert seen.ctypes.data % 8 or seen.itemsize == 8
    bound = Acting(made.module, made.case.shape, weights_of(made.module), seen, made.case.one_hot)
    assert bits(bound(0)) == bits(acting(made))


@cases(lambda case: case.plain and len(case.shape) == 1 and not case.one_hot and not case.learning)
def test_observations_of_float64_are_rounded_first(name: str) -> None:
    made = CASES[name].made()
    seen = seen_of(made).astype(np.float64) * (1 + 1e-9)
    assert bits(Acting(made.module, made.case.shape, weights_of(made.module), seen)(0)) == bits(acting(made))


@ACT
def test_the_largest_output_is_the_first_of_them(name: str) -> None:
    """As numpy's argmax: what is no number is larger than all."""
    made = CASES[name].made()
    weights, seen = weights_of(made.module), seen_of(made)
    bound = Acting(made.module, made.case.shape, weights, seen, made.case.one_hot)
    assert np.array_equal(bound.best(0), bound(0).argmax(1))
    last = list(made.module.named_parameters())[-1][0]
    weights[last].reshape(-1)[-2 if weights[last].size > 1 else -1] = np.nan
    bound.bound.begin()
    assert np.array_equal(bound.best(0), bound(0).argmax(1))
    weights[...] = np.zeros_like(weights)
    bound.bound.begin()
    assert np.array_equal(bound.best(0), np.zeros(made.case.rows))


@cases(lambda case: case.plain and case.inputs is None and len(case.shape) == 1)
def test_several_at_once_have_the_bits_of_each(name: str) -> None:
    """As a runner asks ten policies. Exceptions are such."""
    made, case = CASES[name].made(), CASES[name]
    modules = [made.module, *(case.make() for _ in range(2))]
    seen = torch.randn(3, 6, *case.shape).numpy()
    found = all_at_once(modules, seen)
    assert (found is None) == case.apart
    if found is None:
        return
    scores, best = found
    each = [Acting(module, case.shape, weights_of(module), one[None])(0) for module, one in zip(modules, seen, strict=True)]
    assert bits(scores) == bits(np.stack(each))
    assert np.array_equal(best, scores.argmax(2))


def test_an_lstm_is_acted_with_step_by_step() -> None:
    made = CASES["LSTM"].made()
    found, wanted = steps_of(made.module, made.inputs), made.ours()
    assert bits(found[0]) == bits(wanted["output 0"]) and bits(found[1]) == bits(wanted["output 1"])


# ---------------------------------------------------------------------- who is left to torch

OWN = {
    "a subclass": lambda module: setattr(module, "__class__", type("Own", (type(module),), {})),
    "a forward of its own": lambda module: setattr(module, "forward", module.forward),
    "a hook": lambda module: module.register_forward_hook(lambda *given: None),
    "a hook before": lambda module: module.register_forward_pre_hook(lambda *given: None),
    "a hook behind": lambda module: module.register_full_backward_hook(lambda *given: None),
    "a hook before gradients": lambda module: module.register_full_backward_pre_hook(lambda *given: None),
    "double precision": lambda module: module.double(),
}


@pytest.mark.parametrize("own", OWN)
@cases(lambda case: case.plain)
def test_modules_that_are_not_the_librarys_are_left_to_torch(name: str, own: str) -> None:
    case = CASES[name]
    assert read(case.make(), case.shape) is not None
    for number, part in enumerate(case.make()):
        if own != "double precision" or list(part.parameters()):
            module = case.make()
            OWN[own](module[number])
            assert read(module, case.shape) is None, type(part)


@cases(lambda case: case.plain)
def test_layers_that_do_not_fit_are_left_to_torch(name: str) -> None:
    case = CASES[name]
    first, *size = case.shape
    assert read(case.make(), (first + 5, *size)) is None
    assert read(nn.Sequential(*case.make(), nn.GELU()), case.shape) is None


OTHERS: dict[str, tuple[tuple[int, ...], Callable[[], nn.Module]]] = {
    "another activation": ((13,), nn.GELU),
    "a layer norm without weights": ((13,), lambda: nn.LayerNorm(13, elementwise_affine=False)),
    "a layer norm without bias": ((13,), lambda: nn.LayerNorm(13, bias=False)),
    "a batch norm": ((13,), lambda: nn.BatchNorm1d(13)),
    "a batch renorm without weights": ((13,), lambda: BatchRenorm1d(13, affine=False)),
    "dropout": ((13,), nn.Dropout),
    "a convolution in groups": ((4, 9, 9), lambda: nn.Conv2d(4, 4, 3, groups=2)),
    "a convolution with dilation": ((4, 9, 9), lambda: nn.Conv2d(4, 4, 3, dilation=2)),
    "a convolution that pads by name": ((4, 9, 9), lambda: nn.Conv2d(4, 4, 3, padding="same")),
    "a convolution that pads otherwise": ((4, 9, 9), lambda: nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")),
    "a convolution without bias": ((4, 9, 9), lambda: nn.Conv2d(4, 4, 3, bias=False)),
    "a convolution of fewer pixels than its kernel": ((4, 9, 9), lambda: nn.Conv2d(4, 4, 10)),
    "pooling": ((4, 9, 9), lambda: nn.MaxPool2d(2)),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_layers_are_left_to_torch(other: str) -> None:
    shape, make = OTHERS[other]
    around = [nn.Conv2d(4, 4, 1), nn.Flatten()] if len(shape) == 3 else [nn.Linear(13, 13), nn.ReLU()]
    assert read(nn.Sequential(*around), shape) is not None
    assert read(nn.Sequential(around[0], make(), around[1]), shape) is None


@cases()
def test_where_a_parameter_is_frozen_torch_differentiates(name: str) -> None:
    """Each of them, weight or bias; who acts does not care."""
    made = CASES[name].made()
    assert made.case.computed.knows(deepcopy(made.module), made.case.shape)
    for one, _ in made.module.named_parameters():
        module = deepcopy(made.module)
        module.get_parameter(one).requires_grad_(False)
        assert not made.case.computed.knows(module, made.case.shape), one
        if made.case.plain and not made.case.learning:
            assert bits(acting(made)) == bits(acting(Made(made.case, module, made.inputs, [])))
