"""Every way of evaluating a Q-network gives what torch gives, whatever the batch, and looks at its parameters at every call."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, CombinedExtractor, FlattenExtractor, NatureCNN
from stable_baselines3.dqn.policies import QNetwork
from torch import nn

from reactor_sb3.acting.forwards import held_forward, sent
from reactor_sb3.policies import network_of as read
from reactor_torch import Calls, ConvolvedForward, DenseForward, ImageNet, TorchForward, TorchNet, kernels
from reactor_torch.dense import Layer
from reactor_torch.forward import BoundDense, bind_compiled, bind_torch
from reactor_torch.parameters import FILLING, parameter_record, write_parameters

Array = npt.NDArray[Any]

EXTENSION = kernels.compiled
NO_EXTENSION = pytest.mark.skipif(EXTENSION is None, reason="no extension")


def of_kind(kind: str, *given: Any) -> BoundDense:
    """A network that the extension evaluates in one of its forms, which is in use until the end of the test."""
    EXTENSION.use(kind)
    return bind_compiled(*given)


@pytest.fixture(autouse=True)
def form_of_before() -> Iterator[None]:
    used = None if EXTENSION is None else EXTENSION.using()
    yield
    if EXTENSION is not None:
        EXTENSION.use(used)


FORMS = [] if EXTENSION is None else EXTENSION.kinds()
COMPILED = [pytest.param(partial(of_kind, kind), id=kind) for kind in FORMS]
WAYS = [pytest.param(bind_torch, id="torch"), *COMPILED]


class OwnCnn(NatureCNN):
    """With a ``forward`` of its own."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return super().forward(observations) + 1


def q_network(
    space: spaces.Space[Any], sizes: list[int], actions: int = 3, extractor: type[BaseFeaturesExtractor] = FlattenExtractor
) -> QNetwork:
    made = extractor(space)
    return QNetwork(space, spaces.Discrete(actions), made, made.features_dim, sizes)


def record_of(q_net: nn.Module) -> Array:
    record = np.zeros((), parameter_record(q_net.state_dict()))
    write_parameters(record, q_net.state_dict())
    return record


def read_only(record: Array) -> Array:
    view = record.view()
    view.flags.writeable = False
    return view


def observed(space: spaces.Space[Any], steps: int, envs: int, seed: int = 0) -> Array:
    space.seed(seed)
    rows = np.array([[space.sample() for _ in range(envs)] for _ in range(steps)], space.dtype)
    return rows / 2 if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating) else rows


def by_torch(q_net: nn.Module, rows: Any) -> Array:
    with torch.inference_mode():
        tensors = {key: torch.from_numpy(part) for key, part in rows.items()} if isinstance(rows, dict) else torch.from_numpy(rows)
        return q_net(tensors).numpy()  # type: ignore[no-any-return]


def forward_of(q_net: QNetwork) -> DenseForward | ConvolvedForward | TorchForward:
    """What actors evaluate."""
    found = read(q_net, "q_net")
    return sent(held_forward(q_net, found)) if isinstance(found, str) else found


def layered(q_net: QNetwork) -> DenseForward:
    network = forward_of(q_net)
    assert isinstance(network, DenseForward)
    return network


def both(way: Any, *given: Any) -> tuple[Callable[[int], Array], Array]:
    """Where outputs are largest, and the outputs."""
    bound = way(*given)
    return bound.argmax, bound.outputs


def check(way: Any, q_net: QNetwork, rows: Array) -> None:
    """It gives what torch gives for every step, in any order, up to rounding."""
    bound = way(layered(q_net), read_only(record_of(q_net)), rows)
    for step in reversed(range(len(rows))):
        expected = by_torch(q_net, rows[step])
        values = bound(step).copy()
        bound.outputs.fill(np.nan)
        actions = bound.argmax(step)
        assert np.array_equal(bound.outputs, values)
        assert np.allclose(values, expected, rtol=1e-4, atol=2e-5 * max(1, np.abs(expected).max())), step
        assert actions.dtype == np.int64 and np.array_equal(actions, values.argmax(1))
        best = np.sort(expected, 1)[:, -2:]
        clear = best[:, -1] - best[:, 0] > 1e-3
        assert np.array_equal(actions[clear], expected.argmax(1)[clear])


# ---------------------------------------------------------------------- what is computed


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "space",
    [spaces.Box(-1, 1, (1,), np.float32), spaces.Box(-1, 1, (2, 3, 4), np.float64), spaces.Discrete(500), spaces.Discrete(1)],
    ids=["number", "shaped", "one-hot", "always the same"],
)
def test_every_space(way: Any, space: spaces.Space[Any]) -> None:
    torch.manual_seed(1)
    check(way, q_network(space, [64, 64], 5), observed(space, 4, 3))


@pytest.mark.parametrize("way", WAYS)
def test_other_numbers(way: Any) -> None:
    torch.manual_seed(1)
    for kind in (np.int8, np.int64, np.float16):
        space = spaces.Box(-9, 9, (2,), kind)
        q_net = q_network(space, [16])
        rows = observed(space, 4, 5)
        check(way, q_net, rows)


@pytest.mark.parametrize("way", WAYS)
def test_tanh_is_accurate_everywhere(way: Any) -> None:
    x = np.concatenate([np.linspace(-20, 20, 4001), np.geomspace(1e-30, 1e30, 1001), -np.geomspace(1e-30, 1e30, 1001)])
    x = np.concatenate([x, [0, np.inf, -np.inf]]).astype(np.float32)
    tanh = DenseForward((Layer("tanh", "", len(x), len(x)),), len(x), False)
    greedy, values = both(way, tanh, np.zeros((), [("unused", "f4")]), x.reshape(1, 1, -1))
    greedy(0)
    expected = np.tanh(x.astype(np.float64))
    assert np.all(np.abs(values[0] - expected) <= 5e-7 * np.abs(expected))
    assert np.abs(values).max() <= 1


# ---------------------------------------------------------------------- what it depends on


@NO_EXTENSION
@pytest.mark.parametrize("envs", [1, 3, 8, 17])
def test_all_forms_give_the_same_bits(envs: int) -> None:
    """Also those of one-hot observations, and of what is normalised; NaN and infinity arrive where torch has them."""
    torch.manual_seed(3)
    normalised = nn.LayerNorm(19, eps=0.01)
    nn.init.normal_(normalised.weight), nn.init.normal_(normalised.bias)
    layers = [normalised, nn.Linear(19, 45), nn.Tanh(), nn.Linear(45, 77), nn.ReLU(), nn.Linear(77, 7)]
    for space in (spaces.Box(-1, 1, (19,), np.float32), spaces.Discrete(19)):
        q_net = q_network(space, [])
        q_net.q_net = nn.Sequential(*layers)
        record, rows = record_of(q_net), observed(space, 2, envs)
        if rows.dtype == np.float32:
            rows[1, 0, 3], rows[1, -1, 5] = np.nan, np.inf
        found = []
        for kind in FORMS:
            bound = of_kind(kind, layered(q_net), record, rows)
            found.append([bound(step).tobytes() for step in range(2)])
        assert found == found[:1] * len(found)
        expected = by_torch(q_net, rows[1])
        assert np.array_equal(np.isfinite(bound.outputs), np.isfinite(expected)) and np.allclose(
            bound.outputs, expected, rtol=1e-4, atol=1e-5, equal_nan=True
        )


@pytest.mark.parametrize("way", COMPILED)
def test_nothing_depends_on_where_arrays_lie(way: Any) -> None:
    torch.manual_seed(3)
    space = spaces.Box(-1, 1, (19,), np.float32)
    q_net = q_network(space, [45, 77], 7)
    record, rows = record_of(q_net), observed(space, 2, 3)
    found = []
    for offset in range(0, 68, 4):
        memory = np.full(record.nbytes + 200, 0xFF, np.uint8)  # NaN wherever it should not look
        start = -memory.ctypes.data % 64 + offset
        moved = memory[start : start + record.nbytes].view(record.dtype)[0:1].reshape(())
        moved[...] = record
        space_for_rows = np.full(rows.nbytes + 200, 0xFF, np.uint8)
        start = -space_for_rows.ctypes.data % 64 + offset
        moved_rows = space_for_rows[start : start + rows.nbytes].view(np.float32).reshape(rows.shape)
        moved_rows[...] = rows
        greedy, values = both(way, layered(q_net), moved, moved_rows)
        greedy(1)
        found.append(values.copy())
    assert all(np.array_equal(found[0], one) for one in found)


def test_all_arrays_are_kept_alive() -> None:
    torch.manual_seed(5)
    space = spaces.Box(-1, 1, (300,), np.float32)
    q_net = q_network(space, [300], 4)
    bound = [layered(q_net).bind(record_of(q_net), {"": observed(space, 1, 2)}).argmax for _ in range(20)]
    expected = by_torch(q_net, observed(space, 1, 2)[0]).argmax(1)
    assert all(np.array_equal(greedy(0), expected) for greedy in bound)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("way", COMPILED)
@pytest.mark.parametrize("step", [2, -1, 10**6, 2**70, -(2**70)])
def test_a_step_that_is_not_there(way: Any, step: int) -> None:
    space = spaces.Box(-1, 1, (5,), np.float32)
    q_net = q_network(space, [20])
    greedy, _ = both(way, layered(q_net), record_of(q_net), observed(space, 2, 3))
    with pytest.raises(IndexError):
        greedy(step)
    with pytest.raises(TypeError):
        greedy(0.0)
    greedy(np.int64(1))


@pytest.mark.parametrize("way", COMPILED)
@pytest.mark.parametrize("number", [7, -1, 2**62, -(2**62)])
@pytest.mark.parametrize("layers", [[], [nn.ReLU()]], ids=len)
def test_an_observation_that_is_not_there(way: Any, number: int, layers: list[nn.Module]) -> None:
    q_net = q_network(spaces.Discrete(7), [])
    q_net.q_net = nn.Sequential(*layers, nn.Linear(7, 3))
    greedy, _ = both(way, layered(q_net), record_of(q_net), np.array([[0, 6], [3, number]]))
    greedy(0)
    with pytest.raises(IndexError, match=f"below 7 and not negative, got {number}"):
        greedy(1)


def linear(**changes: Any) -> Any:
    """A network of one linear layer, four inputs and three outputs, that has observed; with changed arguments."""
    assert EXTENSION is not None
    weight, bias = changes.pop("weight", np.zeros((3, 4), np.float32)), changes.pop("bias", np.zeros(3, np.float32))
    head = (changes.pop("type", "linear"), 0, 4, changes.pop("size", 3), 0.0)
    outputs = changes.pop("outputs", np.zeros((2, 3), np.float32))
    layer = changes.pop("layer", (*head, weight, bias, None, None, outputs, None))
    network = EXTENSION.Network(2, changes.pop("layers", (layer,)))
    arguments = {"observations": np.zeros((5, 2, 4), np.float32), "one_hot": False, "actions": np.zeros(2, np.int64)}
    network.observe(*(arguments | changes).values())
    return network


def shifted(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array whose elements are not aligned."""
    memory = np.zeros(int(np.prod(shape)) * np.dtype(dtype).itemsize + 1, np.uint8)
    return memory[1:].view(dtype).reshape(shape)


def locked(array: Array) -> Array:
    array.flags.writeable = False
    return array


@NO_EXTENSION
@pytest.mark.parametrize(
    "changes",
    [
        {"observations": np.zeros((5, 2, 3), np.float32)},
        {"observations": np.zeros((5, 2, 4), np.float16)},
        {"observations": np.zeros((5, 2, 4), ">f4")},
        {"observations": np.zeros((5, 2, 8), np.float32)[..., ::2]},
        {"observations": shifted((5, 2, 4), np.float32)},
        {"observations": np.zeros((8,), np.float32)},
        {"observations": np.zeros((5, 2, 0), np.float32)},
        {"observations": np.zeros((5, 3, 4), np.float32)},
        {"observations": np.zeros((5, 2), np.int32), "one_hot": True},
        {"observations": np.zeros((5, 2, 4), np.float32), "one_hot": True},
        {"weight": np.zeros((4, 3), np.float32)},
        {"weight": np.zeros((4, 3), np.float32).T},
        {"weight": np.zeros((3, 4))},
        {"bias": np.zeros(4, np.float32)},
        {"bias": np.zeros(6, np.float32)[::2]},
        {"size": 0},
        {"size": 2**60},
        {"type": "layer_norm"},
        {"type": "activation"},
        {"type": "dense"},
        {"layers": ()},
        {"outputs": np.zeros((2, 4), np.float32)},
        {"outputs": locked(np.zeros((2, 3), np.float32))},
        {"actions": np.zeros(3, np.int64)},
        {"actions": np.zeros(2, np.int32)},
        {"actions": locked(np.zeros(2, np.int64))},
    ],
    ids=repr,
)
def test_wrong_arrays(changes: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        linear(**changes)


@NO_EXTENSION
@pytest.mark.parametrize(
    "changes",
    [
        {"observations": 1},
        {"weight": None},
        {"bias": 1},
        {"layers": []},
        {"layers": None},
        {"layer": ()},
        {"layer": ("linear", 0, 4, 3, 0.0, None)},
        {"type": 0},
        {"outputs": None},
        {"actions": None},
    ],
    ids=repr,
)
def test_wrong_types(changes: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        linear(**changes)


@NO_EXTENSION
def test_the_answer_is_the_array_of_actions() -> None:
    actions = np.full(2, 9)
    greedy = linear(actions=actions, bias=np.array([0, 1, 1], np.float32)).greedy
    assert greedy(4) is actions
    assert actions.tolist() == [1, 1]
    with pytest.raises(TypeError):
        greedy()


# ---------------------------------------------------------------------- which way is taken


def test_without_the_extension_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "compiled", None)
    torch.manual_seed(6)
    space = spaces.Box(-1, 1, (6,), np.float32)
    q_net = q_network(space, [30, 30], 4)
    rows = observed(space, 3, 4)
    greedy = layered(q_net).bind(record_of(q_net), {"": rows}).argmax
    assert [greedy(step).tolist() for step in range(3)] == [by_torch(q_net, rows[step]).argmax(1).tolist() for step in range(3)]


@pytest.mark.parametrize(
    ("space", "extractor"),
    [
        (spaces.Box(0, 255, (4, 36, 36), np.uint8), OwnCnn),
        (
            spaces.Dict(
                image=spaces.Box(0, 255, (1, 36, 36), np.uint8),
                vector=spaces.Box(-1, 1, (3,), np.float32),
                kind=spaces.Discrete(4),
                switches=spaces.MultiBinary(3),
            ),
            CombinedExtractor,
        ),
        (spaces.MultiDiscrete([3, 4]), FlattenExtractor),
        (spaces.MultiBinary(5), FlattenExtractor),
        (spaces.Box(0, 255, (36, 36, 3), np.uint8), FlattenExtractor),
    ],
    ids=["images", "dict", "choices", "switches", "flat images"],
)
@pytest.mark.parametrize("envs", [1, 3])
def test_other_networks_are_evaluated_by_torch_but_for_convolutions(space: spaces.Space[Any], extractor: Any, envs: int) -> None:
    torch.manual_seed(7)
    q_net = q_network(space, [16], 4, extractor)
    network = pickle.loads(pickle.dumps(forward_of(q_net)))
    assert isinstance(network, TorchForward)
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
    rows = {key: observed(part, 2, envs) for key, part in parts.items()}
    record = record_of(q_net)
    bound = TorchNet(network, Calls()).bind(read_only(record), rows, judges=False)
    for seed in (8, 9):
        torch.manual_seed(seed)
        for parameter in q_net.parameters():
            nn.init.normal_(parameter, std=0.1)
        write_parameters(record, q_net.state_dict())
        for step in (1, 0):
            seen = {key: part[step] for key, part in rows.items()}
            expected = by_torch(q_net, seen if isinstance(space, spaces.Dict) else seen[""])
            np.testing.assert_allclose(bound.outputs(step), expected, rtol=0, atol=2e-6 if network.convolves else 0)
            actions = bound.argmax(step)
            assert actions.dtype == np.int64 and np.array_equal(actions, bound.outputs(step).argmax(1))


# ---------------------------------------------------------------------- images, by the extension

SEES = pytest.mark.skipif(kernels.compiled is None, reason="no extension")
IMAGES = spaces.Box(0, 255, (2, 36, 40), np.uint8)
"""Neither square nor of the usual number of channels."""


def seeing(q_net: QNetwork) -> ConvolvedForward:
    network = pickle.loads(pickle.dumps(forward_of(q_net)))
    assert isinstance(network, ConvolvedForward)
    return network


def lying(rows: Array, how: str) -> Array:
    """The same images as a port may have them."""
    if how == "pixels":
        return np.ascontiguousarray(rows.transpose(0, 1, 3, 4, 2)).transpose(0, 1, 4, 2, 3)
    return rows.astype(np.float32) if how == "numbers" else rows


@SEES
@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("how", ["planes", "pixels", "numbers"])
@pytest.mark.parametrize("divided", [True, False])
def test_images_are_evaluated_by_the_extension(divided: bool, how: str, envs: int) -> None:
    torch.manual_seed(7)
    q_net = q_network(IMAGES, [16], 4, partial(NatureCNN, features_dim=33))  # type: ignore[arg-type]
    q_net.normalize_images = divided
    record, rows = record_of(q_net), lying(observed(IMAGES, 3, envs), how)
    bound = ImageNet(seeing(q_net)).bind(read_only(record), {"": rows}, judges=False)
    for scale in (1.0, 0.5):
        for parameter in q_net.parameters():
            nn.init.normal_(parameter, std=0.05 * scale)
        write_parameters(record, q_net.state_dict())  # which are read where they lie, at each call
        for step in (2, 0, 1):
            expected = by_torch(q_net, np.ascontiguousarray(rows[step]))
            if how == "numbers":
                expected = by_torch(q_net, rows[step].astype(np.uint8))
            np.testing.assert_allclose(bound.outputs(step), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
            assert np.array_equal(bound.argmax(step), bound.outputs(step).argmax(1)) and bound.argmax(step).dtype == np.int64


def test_images_are_evaluated_by_torch_where_there_is_no_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "compiled", None)
    q_net = q_network(IMAGES, [], 4, NatureCNN)
    network = forward_of(q_net)
    assert isinstance(network, TorchForward)
    rows = observed(IMAGES, 1, 3)
    np.testing.assert_allclose(
        TorchNet(network, Calls()).bind(record_of(q_net), {"": rows}, judges=False).outputs(0),
        by_torch(q_net, rows[0]),
        rtol=0,
        atol=2e-6,
    )


@SEES
def test_views_of_weights_go_with_who_sees_images() -> None:
    q_net = q_network(IMAGES, [], 4, NatureCNN)
    record = record_of(q_net)
    bound = ImageNet(seeing(q_net)).bind(record, {"": observed(IMAGES, 2, 2)}, judges=False)
    bound.outputs(1)
    gone = weakref.ref(record)
    gc.disable()
    try:
        del bound, record
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["a subclass's", "an instance's", "the extractor's"])
def test_a_forward_of_its_own_stays_with_torch(how: str) -> None:
    q_net = q_network(IMAGES, [], 4, OwnCnn if how == "the extractor's" else NatureCNN)
    if how == "an instance's":
        q_net.features_extractor.forward = lambda images: torch.zeros(len(images), 512)  # type: ignore[method-assign]
    if how == "a subclass's":
        q_net.__class__ = type("Own", (QNetwork,), {"forward": lambda self, obs: QNetwork.forward(self, obs)})
    assert isinstance(forward_of(q_net), TorchForward)


def test_a_network_in_training_is_evaluated_as_one_that_is_not() -> None:
    q_net = q_network(spaces.Box(-1, 1, (4,), np.float32), [])
    q_net.q_net = nn.Sequential(nn.Linear(4, 50), nn.Dropout(), nn.Linear(50, 3))
    q_net.train()
    network = forward_of(q_net)
    assert q_net.training and isinstance(network, TorchForward)
    rows = observed(q_net.observation_space, 1, 5)
    greedy = TorchNet(network, Calls()).bind(record_of(q_net), {"": rows}, judges=False).argmax
    assert np.array_equal(greedy(0), by_torch(q_net.eval(), rows[0]).argmax(1))


def test_structures_travel_without_weights() -> None:
    images = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    large = q_network(images, [], 18, NatureCNN)
    assert sum(parameter.nbytes for parameter in large.parameters()) > 5_000_000
    assert len(pickle.dumps(forward_of(large))) < 130_000  # nearly all of it the bounds of the space
    flat = spaces.Box(-1, 1, (100,), np.float32)
    q_net = q_network(flat, [256, 256])
    sent = pickle.dumps(forward_of(q_net))
    assert len(sent) < 2_000
    assert pickle.loads(sent) == layered(q_net)


def test_what_fills_a_record_up_is_no_parameter() -> None:
    q_net = q_network(spaces.Box(-1, 1, (3,), np.float32), [], 3)  # 9 + 3 floats, and one more: an odd number of words
    q_net.register_buffer("count", torch.zeros(1))
    record = record_of(q_net)
    assert FILLING in (record.dtype.names or ())
    check(bind_torch, q_net, observed(q_net.observation_space, 2, 2))
    if EXTENSION is not None:
        check(bind_compiled, q_net, observed(q_net.observation_space, 2, 2))
