"""Convolutions of the extension: the bits of a loop of ``fmaf`` for every kind of processor and number of threads, and right."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
from every_other import every_other
from torch_plugin.test_products import KINDS, chain, kind_in_use, normal, products, same_bits  # noqa: F401

Array = npt.NDArray[np.float32]
CONVOLUTION, NONE, RELU, TANH = "convolution", 0, 1, 2
CHAIN = 256
"""Windows of the chain that a gradient of weights begins with, if there are several images in it."""


class Shape(NamedTuple):
    """A convolution: outputs, kernel, stride, padding and activation."""

    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    activation: int = RELU


class Convolutions:
    """Some that follow each other, with weights, inputs and a gradient of normal numbers."""

    def __init__(
        self, seed: int, rows: int, height: int, width: int, channels: int, shapes: list[Shape], bytes_of: Any = None
    ) -> None:
        rng = np.random.default_rng(seed)
        self.rows, self.image, self.shapes = rows, (height, width, channels), shapes
        self.arrays: list[tuple[Array, ...]] = []
        layers: list[Any] = []
        for number, shape in enumerate(shapes):
            sides = zip((height, width), shape.kernel, shape.stride, shape.padding, strict=True)
            high, wide = ((side + 2 * padding - kernel) // stride + 1 for side, kernel, stride, padding in sides)
            inputs, outputs, window = (
                height * width * channels,
                high * wide * shape.outputs,
                channels * shape.kernel[0] * shape.kernel[1],
            )
            weight, bias = normal(rng, shape.outputs, window) / np.float32(window**0.5), normal(rng, shape.outputs)
            by_weight, by_bias = np.full_like(weight, np.nan), np.full_like(bias, np.nan)
            out = np.full((rows, outputs), np.nan, np.float32)
            below = np.full((rows, inputs), np.nan, np.float32) if bytes_of is None or number else None
            self.arrays.append((weight, bias, by_weight, by_bias, out, *([] if below is None else [below])))
            images = (
                height,
                width,
                channels,
                *shape.kernel,
                *shape.stride,
                *shape.padding,
                *(bytes_of or () if number == 0 else ()),
            )
            layers.append((CONVOLUTION, shape.activation, inputs, outputs, 0.0, *self.arrays[-1][:5], below, images))
            height, width, channels = high, wide, shape.outputs
        self.outputs = height, width, channels
        self.inputs = normal(rng, rows, inputs_of(*self.image))
        self.gradient = normal(rng, rows, height * width * channels)
        self.layers = tuple(layers)
        self.network = products.Network(rows, self.layers)

    def computed(self, kind: str) -> list[Array]:
        """What the layers give, and all gradients."""
        products.use(kind)
        self.network.run(self.inputs)
        out = [of_layer[4].copy() for of_layer in self.arrays]
        self.network.back(self.gradient.copy())
        return out + [part.copy() for part in gradients_of(self)]

    def exact(self) -> list[Array]:
        """The same by torch, with twice as many bits."""
        seen = torch.from_numpy(self.inputs.reshape(self.rows, *self.image)).double().permute(0, 3, 1, 2)
        wanted: list[Any] = [seen.requires_grad_()]
        parameters = []
        for (weight, bias, *_), shape in zip(self.arrays, self.shapes, strict=True):
            parameters += [torch.from_numpy(one).double().requires_grad_() for one in (weight, bias)]
            kernel = parameters[-2].view(shape.outputs, -1, *shape.kernel)
            found = torch.nn.functional.conv2d(wanted[-1], kernel, parameters[-1], shape.stride, shape.padding)
            wanted.append({NONE: torch.clone, RELU: torch.relu, TANH: torch.tanh}[shape.activation](found))
            wanted[-2].retain_grad()
        height, width, channels = self.outputs
        wanted[-1].backward(
            torch.from_numpy(self.gradient.reshape(self.rows, height, width, channels)).double().permute(0, 3, 1, 2)
        )
        gradients: list[Any] = []
        for number in range(len(self.shapes)):
            weight, bias = parameters[2 * number : 2 * number + 2]
            gradients += [weight.grad.flatten(1), bias.grad, rows_of(wanted[number].grad * slope(wanted, self.shapes, number))]
        return [one.detach().numpy() for one in [*map(rows_of, wanted[1:]), *gradients]]


def slope(given: list[Any], shapes: list[Shape], number: int) -> Any:
    """The extension gives gradients behind the activation below."""
    if number == 0:
        return 1.0
    out, activation = given[number].detach(), shapes[number - 1].activation
    return {NONE: 1.0, RELU: (out > 0).double(), TANH: 1 - out * out}[activation]


def rows_of(images: torch.Tensor) -> torch.Tensor:
    return images.permute(0, 2, 3, 1).flatten(1)


def inputs_of(height: int, width: int, channels: int) -> int:
    return height * width * channels


NATURE = [Shape(32, (8, 8), (4, 4)), Shape(64, (4, 4), (2, 2)), Shape(64, (3, 3))]
CASES = [
    (5, 84, 84, 4, NATURE),
    (3, 15, 17, 3, [Shape(16, (3, 3), (1, 1), (1, 1)), Shape(32, (3, 3), (2, 2), (1, 1), TANH)]),
    (7, 9, 8, 1, [Shape(5, (3, 3), activation=NONE), Shape(33, (2, 2), (2, 2)), Shape(1, (1, 1))]),
    (1, 4, 4, 16, [Shape(16, (3, 3), (1, 1), (1, 1))]),
    (12, 13, 40, 7, [Shape(40, (5, 2), (3, 1), (2, 1), TANH)]),
    (70, 6, 6, 2, [Shape(17, (1, 4), (2, 3), (0, 2)), Shape(13, (2, 1), activation=NONE)]),
    (2, 3, 3, 90, [Shape(70, (3, 3)), Shape(31, (1, 1))]),
    (0, 6, 6, 2, [Shape(3, (3, 3))]),
]


def test_a_convolution_is_a_loop_of_fmaf() -> None:
    shape = Shape(3, (2, 3), (1, 2), (0, 1), NONE)
    made = Convolutions(0, 30, 8, 7, 2, [shape])
    out, by_weight, by_bias, below = made.computed("portable")
    weight, bias = (one.astype(np.float32) for one in made.arrays[0][:2])
    kernel = weight.reshape(3, 2, 2, 3)
    seen = np.pad(made.inputs.reshape(30, 8, 7, 2), ((0, 0), (0, 0), (1, 1), (0, 0)))
    high, wide, _ = made.outputs
    windows = np.stack([seen[:, y : y + 2, 2 * x : 2 * x + 3] for y in range(high) for x in range(wide)], axis=1)
    flat = windows.reshape(30, high * wide, -1)
    by_window = kernel.transpose(0, 2, 3, 1).reshape(3, -1)  # rows, columns, channels
    for image, window, output in ((0, 0, 0), (29, 5, 2), (7, high * wide - 1, 1)):
        wanted = chain(flat[image, window], by_window[output], float(bias[output]))
        assert out.reshape(30, -1, 3)[image, window, output] == np.float32(wanted)

    gradient = made.gradient.reshape(30, high * wide, 3)
    together = CHAIN // (high * wide)  # images of a leaf
    for output, number in ((0, 0), (2, 7), (1, 11)):
        leaves = [
            chain(gradient[begin : begin + together, :, output].ravel(), flat[begin : begin + together, :, number].ravel())
            for begin in range(0, 30, together)
        ]
        assert len(leaves) == 4
        first, second, third, fourth = map(np.float32, leaves)
        found = by_weight.reshape(3, 2, 2, 3).transpose(0, 2, 3, 1).reshape(3, -1)[output, number]
        assert found == (first + second) + (third + fourth)
    assert np.allclose(by_bias, gradient.sum((0, 1)), rtol=1e-5)

    # A pixel gets what its windows say, one after the other, and each says one chain over outputs.
    pixels = np.zeros_like(seen[3])
    for window in range(high * wide):
        y, x = divmod(window, wide)
        for row, column, channel in np.ndindex(2, 3, 2):
            said = chain(gradient[3, window], kernel[:, channel, row, column])
            pixels[y + row, 2 * x + column, channel] += np.float32(said)
    assert same_bits(below.reshape(30, 8, 7, 2)[3], pixels[:, 1:-1])


@pytest.mark.parametrize("case", CASES)
def test_all_kinds_of_processors_give_the_same_bits_and_are_right(case: Any) -> None:
    """As right as float64 says."""
    made, count = Convolutions(1, *case), len(case[-1])
    found, *others = (made.computed(kind) for kind in KINDS)
    for other in others:
        assert all(map(same_bits, other, found))
    order = [*range(count), *(count + 3 * number + part for number in range(count) for part in (0, 1, 2))]
    for one, right in zip((found[at] for at in order), made.exact(), strict=True):
        assert one.shape == right.shape
        assert np.abs(one - right).max(initial=0) <= 3e-6 * max(1.0, np.abs(right).max(initial=0))


@pytest.mark.parametrize("threads", [2, 3, 4, 70])
def test_threads_change_no_bit(threads: int) -> None:
    team = products.Team(threads)
    for case in CASES:
        made = Convolutions(3, 9 * case[0], *case[1:])
        wanted = made.computed(KINDS[0])
        for _ in range(4):
            with team:
                found = made.computed(KINDS[0])
            assert all(map(same_bits, found, wanted))
    team.close()


@every_other(kind=KINDS, channels=[1, 3, 4], padding=[0, 2], divisor=[1, 255])
def test_bytes_are_made_numbers(kind: str, channels: int, padding: int, divisor: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 40, 31, channels)).astype(np.uint8)
    shapes = [Shape(8, (3, 3), (2, 1), (padding, padding))]
    numbers = Convolutions(5, 6, 40, 31, channels, shapes)
    numbers.inputs = pixels.reshape(6, -1).astype(np.float32) / np.float32(divisor)
    wanted = numbers.computed(kind)
    for planes in (False, True):
        made = Convolutions(5, 6, 40, 31, channels, shapes, bytes_of=(divisor, planes))
        made.inputs = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2) if planes else pixels).reshape(6, -1)
        assert all(map(same_bits, made.computed(kind), wanted))


def test_weights_are_laid_out_anew_when_they_change() -> None:
    made = Convolutions(6, 4, 12, 12, 4, [Shape(8, (3, 3))])
    before = made.computed(KINDS[0])[0]
    made.arrays[0][0][3, 5] += 1
    changed = made.computed(KINDS[0])[0]
    assert not np.array_equal(before, changed)
    other = Convolutions(6, 4, 12, 12, 4, [Shape(8, (3, 3))])
    other.arrays[0][0][3, 5] += 1
    assert same_bits(other.computed(KINDS[-1])[0], changed)
    assert same_bits(made.computed(KINDS[-1])[0], changed)  # another kind has other panels


FLATTENED, LINEAR = "flatten", "linear"


def flattened(rows: int, seed: int = 8) -> tuple[Any, list[Array], tuple[Any, ...], Array]:
    """Two convolutions, what they give with channels first, and a linear layer; the arrays, inputs and a gradient."""
    made = Convolutions(seed, rows, 20, 17, 3, [Shape(6, (4, 3), (2, 2)), Shape(5, (3, 3))])
    rng, (height, width, channels) = np.random.default_rng(seed), made.outputs
    numbers = height * width * channels
    weight, bias = normal(rng, 7, numbers), normal(rng, 7)
    room = [np.full(shape, np.nan, np.float32) for shape in ((7, numbers), (7,), (rows, 7), (rows, numbers), (rows, numbers))]
    by_weight, by_bias, out, turned, by_turned = room
    below = np.full((rows, numbers), np.nan, np.float32)
    layers = (
        *made.layers,
        (FLATTENED, NONE, numbers, numbers, 0.0, None, None, None, None, turned, below, channels),
        (LINEAR, TANH, numbers, 7, 0.0, weight, bias, by_weight, by_bias, out, by_turned),
    )
    return made, [turned, out, by_weight, by_bias, by_turned, weight, bias], layers, normal(rng, rows, 7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_images_are_flattened_with_channels_first(kind: str, threads: int) -> None:
    rows = 60  # enough for threads
    made, arrays, layers, gradient = flattened(rows)
    turned, out, by_weight, by_bias, by_turned, weight, bias = arrays
    products.use(kind)
    team = products.Team(threads)
    with team:
        network = products.Network(rows, layers)
        network.run(made.inputs)
        network.back(gradient.copy())
    team.close()
    height, width, channels = made.outputs
    seen = made.arrays[-1][4].reshape(rows, height, width, channels)
    assert same_bits(turned, np.ascontiguousarray(seen.transpose(0, 3, 1, 2)).reshape(rows, -1))
    alone = [np.empty_like(one) for one in (by_weight, by_bias, out, by_turned)]
    linear = products.Network(rows, ((LINEAR, TANH, weight.shape[1], 7, 0.0, weight, bias, *alone),))
    linear.run(turned)
    linear.back(gradient.copy())
    assert all(map(same_bits, (by_weight, by_bias, out, by_turned), alone))
    turned_back = by_turned.reshape(rows, channels, height, width).transpose(0, 2, 3, 1)
    other = Convolutions(8, rows, 20, 17, 3, made.shapes)
    other.gradient = np.ascontiguousarray(turned_back).reshape(rows, -1)
    for found, wanted in zip(gradients_of(made), other.computed(kind)[len(made.shapes) :], strict=True):
        assert same_bits(found, wanted)
    with pytest.raises(ValueError, match="no images with 4 channels have"):
        products.Network(rows, (*made.layers, (*layers[-2][:-1], 4)))


def gradients_of(made: Convolutions) -> list[Array]:
    return [part for of_layer in made.arrays for part in (*of_layer[2:4], *of_layer[5:])]


def test_wrong_arguments_are_refused() -> None:
    def network(k: int, n: int, images: Any, window: int = 36, outputs: int = 8) -> Any:
        arrays = [np.zeros(shape, np.float32) for shape in ((outputs, window), outputs, (outputs, window), outputs, (2, n))]
        return products.Network(2, ((CONVOLUTION, RELU, k, n, 0.0, *arrays, None, images),))

    right = (12, 12, 4, 3, 3, 1, 1, 0, 0)
    network(576, 800, right)
    for images in (
        (12, 12, 5, *right[3:]),
        (*right[:3], 13, 3, *right[5:]),
        (*right[:5], 0, 1, 0, 0),
        (*right, 2.0, 0),
        (-12, -12, *right[2:]),
    ):
        with pytest.raises(ValueError, match="no convolution with this kernel"):
            network(576, 800, images)
    with pytest.raises(ValueError, match=r"no convolution|weight does not fit"):
        network(576, 801, right)
    with pytest.raises(ValueError, match="weight does not fit: dimension 1 must be 36, got 35"):
        network(576, 800, right, window=35)
    with pytest.raises(TypeError, match="is given"):
        network(576, 800, None)
    made = Convolutions(7, 4, 12, 12, 4, [Shape(8, (3, 3))], bytes_of=(255, True))
    with pytest.raises(ValueError, match=r"inputs must be uint8 of the shape \(4, 576\)"):
        made.network.run(np.zeros((4, 576), np.float32))
    with pytest.raises(ValueError, match="no slopes"):
        made.network.slopes(made.gradient, None, 0, np.zeros((4, 576), np.float32))
    with contextlib.suppress(TypeError), pytest.raises(TypeError):
        products.Network(2, ((CONVOLUTION, RELU, 576, 800, 0.0),))
