"""A policy as one C header: no library but the C library's, and the very bits of an actor.

Layers are computed by functions of the extension, whose text is taken from its source, and in its order of sums. What only joins
them is written here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_rl import __version__
from reactor_sb3.exporting.c_source import functions_of, maximum
from reactor_sb3.exporting.reading import Greedy
from reactor_torch import Layer

__all__ = ["header_of"]

Array = npt.NDArray[np.generic]
_TYPES = {
    np.dtype(name): f"{name}_t" for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
} | {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}  # fmt: skip
_FEW = 4
"""Outputs up to which those of a linear layer are sums of 16 chains. The same number as ``FEW`` in ``reactor_torch/_c/numbers.h``:
a header must have the bits of the network that acted.
"""
_FORBIDDEN = "-1e8f"
_WIDTH = 120
"""Columns of a header."""


def header_of(greedy: Greedy, file: str) -> str:
    """The text of a C header.

    Args:
        greedy: The policy.
        file: Name of the file, whose names in C begin with it: those of ``my-policy.h`` with ``my_policy_``.

    Raises:
        ValueError: If the policy sees images, or numbers that C has no type for.
    """
    if greedy.divisor:
        raise ValueError("a C header cannot see images: export to a file that ends in .onnx")
    dtype = greedy.observation_space.dtype
    if dtype not in _TYPES:
        raise ValueError(f"C has no type for observations of {dtype}: export to a file that ends in .onnx")
    return _Header(greedy, file).text()


class _Header:
    """A header that is being written."""

    def __init__(self, greedy: Greedy, file: str) -> None:
        self.greedy, self.file, self.name = greedy, file, _identifier(file.removesuffix(".h"))
        self.needed: list[str] = []
        self.arrays: list[str] = []
        self.one_number = isinstance(greedy.observation_space, spaces.Discrete)
        self.seen = _TYPES[np.dtype(greedy.observation_space.dtype or np.int64)]
        self.acted = self._action_type()

    def text(self) -> str:
        """All of it."""
        outputs, action, guard = "\n".join(self._outputs()), "\n".join(self._act()), f"{self.name.upper()}_H"
        functions = functions_of(dict.fromkeys(self.needed), self.name)
        begin = f"{self._comment()}\n#ifndef {guard}\n#define {guard}\n\n{_INCLUDES}\n{_EXACTLY}"
        return "\n".join((begin, functions, *self.arrays, outputs, "", action, _AS_BEFORE, f"#endif /* {guard} */\n"))

    def function(self, name: str) -> str:
        """The name, in the header, of a function of the extension."""
        self.needed.append(name)
        return f"{self.name}_{name}"

    def array(self, what: str, numbers: Array) -> str:
        """An array of constants, and its name."""
        name = f"{self.name}_{what}"
        kind = _TYPES[numbers.dtype]
        self.arrays.append(f"static const {kind} {name}[{numbers.size}] = {{\n{_wrapped(map(_literal, numbers.ravel()))}\n}};\n")
        return name

    # ------------------------------------------------------------------ how it is called

    def _action_type(self) -> str:
        match self.greedy.action_space:
            case spaces.Box():
                return _TYPES[self.greedy.bounds[0].dtype]
            case spaces.MultiBinary():
                return "int8_t"
        return "int64_t"

    def _signature(self, *more: str) -> str:
        seen = f"{self.seen} observation" if self.one_number else f"const {self.seen} *observation"
        return ", ".join([seen, *(["float *state"] if self.greedy.hidden else []), *more])

    def _comment(self) -> str:
        """The comment at the head: sizes, and an example."""
        greedy, space = self.greedy, self.greedy.action_space
        told = [("observation", self._told_observation())]
        declared = [f"{self.seen} observation{'' if self.one_number else f'[{greedy.features}]'} = ...;"]
        if greedy.hidden:
            told.append(("state", f"{2 * greedy.hidden} numbers, which are changed: all 0 where an episode begins"))
            declared.append(f"float state[{2 * greedy.hidden}] = {{0}};")
        if greedy.masked:
            choices = sum(greedy.choices)
            told.append(("masks", f"{choices} bytes, not 0 for what is allowed: of each choice one thing at least"))
            declared.append(f"uint8_t masks[{choices}] = ...;")
        names = ", ".join(name for name, _ in told)
        if isinstance(space, spaces.Discrete):
            declared.append(f"int64_t action = {self.name}_act({names});")
        else:
            declared += [f"{self.acted} action[{_count(space)}];", f"{self.name}_act({names}, action);"]
        told += [("action", self._told_action()), ("outputs", f"{greedy.outputs} numbers by which it is chosen")]
        lines = [
            f"{self.file}: a trained policy, written by reactor_rl {__version__} (reactor_sb3.export).",
            "",
            *(f"{name:<11}  {what}" for name, what in told),
            "",
            *(f"    {line}" for line in (f'#include "{self.file}"', *declared)),
            "",
            "The action is the best one, without chance. C99 and C++17; nothing is written but what is passed.",
            "It has the bits of reactor_rl's actors, with any compiler that keeps to IEEE 754: not with -ffast-math.",
            "Where fmaf() is an instruction (-mfma on x86) it takes less time.",
        ]
        return "/*\n" + "\n".join(f" * {line}".rstrip() for line in lines) + "\n */"

    def _told_observation(self) -> str:
        space = self.greedy.observation_space
        if isinstance(space, spaces.Discrete):
            return f"a number from 0 to {int(space.n) - 1}"
        how = ", not normalised: that is done here" if self.greedy.normalized else ""
        return f"{self.greedy.features} numbers{_of_shape(space)}, as the environment shows them{how}"

    def _told_action(self) -> str:
        space = self.greedy.action_space
        match space:
            case spaces.Discrete(n=n, start=start):
                return f"a number from {int(start)} to {int(start) + int(n) - 1}"
            case spaces.Box():
                return f"{_count(space)} numbers{_of_shape(space)} within the bounds of the environment's space"
        return f"{_count(space)} numbers{_of_shape(space)}: {space}"

    # ------------------------------------------------------------------ the network

    def _outputs(self) -> Iterator[str]:
        greedy = self.greedy
        layers = list(greedy.layers)
        wide = max(greedy.features, *(side for layer in layers for side in (layer.inputs, layer.outputs)))
        yield f"/* Overwrites the {greedy.outputs} outputs{' and the state' if greedy.hidden else ''}. */"
        yield f"static inline void\n{self.name}_outputs({self._signature('float *outputs')})\n{{"
        code = list(_indented(self._network(layers)))
        if any("h[" in line for line in code):
            yield f"    float h[2][{wide}];"
        if any("hat," in line for line in code):
            yield f"    float hat[{wide}], scale;"
        yield from (*code, "}")

    def _network(self, layers: list[Layer]) -> Iterator[str]:
        greedy, at = self.greedy, "observation"

        def other() -> str:
            return "h[1]" if at == "h[0]" else "h[0]"

        if greedy.one_hot:
            first, to = layers.pop(0), other()
            weight, bias = self._parameters(first, "0", "weight", "bias")
            yield f"for (long j = 0; j < {first.outputs}; j++) {{"
            yield f"    {to}[j] = {weight}[j * {first.inputs} + (long)observation] + {'0.0f' if bias == 'NULL' else f'{bias}[j]'};"
            yield "}"
            at = to
        for number, one in enumerate(greedy.normalized):
            to = other()
            mean, deviation = (
                self.array(f"{what}{number}", part) for what, part in (("mean", one.mean), ("deviation", one.deviation))
            )
            yield f"for (long j = 0; j < {greedy.features}; j++) {{ /* VecNormalize */"
            yield f"    double z = ((double){at}[j] - {mean}[j]) / {deviation}[j];"
            yield f"    z = z > {-one.limit!r} ? z : {-one.limit!r};"
            yield f"    {to}[j] = (float)(z < {one.limit!r} ? z : {one.limit!r});"
            yield "}"
            at = to
        if at == "observation" and self.seen != "float":
            yield f"for (long j = 0; j < {greedy.features}; j++) {{\n    h[0][j] = (float)observation[j];\n}}"
            at = "h[0]"
        if greedy.hidden:
            yield from self._lstm(at)
            at = "state"
        for number, layer in enumerate(layers, int(greedy.one_hot)):
            to = "outputs" if layer is layers[-1] else other()
            yield from self._layer(layer, str(number), at, to)
            at = to
        if at != "outputs":
            yield f"for (long j = 0; j < {greedy.outputs}; j++) {{\n    outputs[j] = {at}[j];\n}}"

    def _layer(self, layer: Layer, number: str, at: str, to: str) -> Iterator[str]:
        each = f"for (long j = 0; j < {layer.outputs}; j++) {{"
        match layer.kind:
            case "linear":
                weight, bias = self._parameters(layer, number, "weight", "bias")
                yield each
                yield from self._sum(layer.inputs, layer.outputs, weight, bias, at)
                yield f"    {to}[j] = sum;\n}}"
            case "normalised":
                weight, bias = self._parameters(layer, number, "weight", "bias")
                epsilon = _literal(np.float32(layer.epsilon))
                layer_norm = self.function("layer_norm")
                yield f"{layer_norm}(1, {layer.inputs}, {at}, {layer.inputs}, {weight}, {bias}, {epsilon}, {to}, hat, &scale);"
            case "renormalised":
                weights, name = self.greedy.weights, layer.name
                scale, variance = weights[f"{name}.scale"], weights[f"{name}.ra_var"] + np.float32(layer.epsilon)
                factor = self.array(f"factor{number}", np.float32(1) / np.sqrt(variance) * scale)
                mean, bias = (
                    self.array(f"centre{number}", weights[f"{name}.ra_mean"]),
                    self.array(f"bias{number}", weights[f"{name}.bias"]),
                )
                yield f"{each} /* batch normalisation by running statistics */"
                yield f"    {to}[j] = fmaf({at}[j] - {mean}[j], {factor}[j], {bias}[j]);\n}}"
            case "tanh":
                yield f"{each}\n    {to}[j] = {self.function('squashed')}({at}[j]);\n}}"
            case "relu":
                yield f"{each}\n    {to}[j] = {maximum('0.0f', f'{at}[j]')};\n}}"
            case kind:
                raise ValueError(f"a C header has no layer {layer.name!r} of the kind {kind}: export to a file that ends in .onnx")

    def _sum(self, inputs: int, outputs: int, weight: str, bias: str, at: str) -> Iterator[str]:
        """Number j of what a linear layer gives, as ``sum``."""
        begin = "0.0f" if bias == "NULL" else f"{bias}[j]"
        if outputs <= _FEW:
            yield f"    float s[16] = {{0}};\n    for (long p = 0; p < {inputs}; p++) {{"
            yield f"        s[p % 16] = fmaf({weight}[j * {inputs} + p], {at}[p], s[p % 16]);\n    }}"
            yield f"    float sum = {self.function('folded')}(s) + {begin};"
        else:
            yield f"    float sum = {begin};\n    for (long p = 0; p < {inputs}; p++) {{"
            yield f"        sum = fmaf({weight}[j * {inputs} + p], {at}[p], sum);\n    }}"

    def _parameters(self, layer: Layer, number: str, *parts: str) -> list[str]:
        weights = self.greedy.weights
        found = [(part, weights.get(f"{layer.name}.{part}")) for part in parts]
        return ["NULL" if numbers is None else self.array(f"{part}{number}", numbers) for part, numbers in found]

    def _lstm(self, at: str) -> Iterator[str]:
        greedy, hidden, features = self.greedy, self.greedy.hidden, self.greedy.features
        inputs, recurrent, first, second = (
            greedy.weights[f"lstm_actor.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        weight, again, bias = self.array("inputs", inputs), self.array("recurrent", recurrent), self.array("gates", first + second)
        yield f"float gates[{4 * hidden}]; /* an LSTM: hidden numbers of the state, then its cells */"
        yield f"for (long j = 0; j < {4 * hidden}; j++) {{"
        yield from self._sum(features, 4 * hidden, weight, bias, at)
        yield f"    for (long p = 0; p < {hidden}; p++) {{\n        sum = fmaf({again}[j * {hidden} + p], state[p], sum);\n    }}"
        yield "    gates[j] = sum;\n}"
        yield f"{self.function('lstm_cell')}(1, {hidden}, gates, state + {hidden}, state + {hidden}, state);"

    # ------------------------------------------------------------------ the action

    def _act(self) -> Iterator[str]:
        greedy, space = self.greedy, self.greedy.action_space
        one = isinstance(space, spaces.Discrete)
        if greedy.choices:
            yield "/* The first of the largest; at a NaN it stops. */"
            yield f"static inline int64_t\n{self.name}_best(long n, const float *values)\n{{"
            yield "    long best = 0;\n    for (long j = 1; j < n && values[best] == values[best]; j++) {"
            yield "        best = values[j] <= values[best] ? best : j;\n    }\n    return best;\n}\n"
        more = [*(["const uint8_t *masks"] if greedy.masked else []), *([] if one else [f"{self.acted} *action"])]
        yield "/* The best action. */"
        yield f"static inline {'int64_t' if one else 'void'}\n{self.name}_act({self._signature(*more)})\n{{"
        yield f"    float y[{greedy.outputs}];"
        arguments = ["observation", *(["state"] if greedy.hidden else []), "y"]
        yield f"    {self.name}_outputs({', '.join(arguments)});"
        yield from _indented(self._chosen())
        yield "}\n"

    def _chosen(self) -> Iterator[str]:
        greedy, space = self.greedy, self.greedy.action_space
        count = _count(space)
        if greedy.quantiles > 1:
            yield f"for (long j = 0; j < {sum(greedy.choices)}; j++) {{ /* the mean of {greedy.quantiles} quantiles */"
            yield f"    for (long q = 1; q < {greedy.quantiles}; q++) {{\n        y[j] += y[q * {sum(greedy.choices)} + j];\n    }}"
            yield f"    y[j] /= {greedy.quantiles}.0f;\n}}"
        if greedy.masked:
            yield f"for (long j = 0; j < {greedy.outputs}; j++) {{\n    y[j] = masks[j] ? y[j] : {_FORBIDDEN};\n}}"
        starts = np.broadcast_to(np.asarray(getattr(space, "start", 0)), space.shape or ()).ravel().tolist()
        match space:
            case spaces.Discrete(n=n):
                yield f"return {self.name}_best({int(n)}, y){_plus(starts[0])};"
            case spaces.Box():
                yield from self._fitting(count)
            case _ if greedy.choices:
                ends = np.cumsum(greedy.choices).tolist()
                for number, (size, end, start) in enumerate(zip(greedy.choices, ends, starts, strict=True)):
                    cast = "" if self.acted == "int64_t" else f"({self.acted})"
                    yield f"action[{number}] = {cast}({self.name}_best({size}, y + {end - size}){_plus(start)});"
            case _:
                yield f"for (long j = 0; j < {count}; j++) {{\n    action[j] = y[j] > 0.0f;\n}}"

    def _fitting(self, count: int) -> Iterator[str]:
        greedy, (low, high) = self.greedy, self.greedy.bounds
        names = self.array("low", low), self.array("high", high)
        yield f"for (long j = 0; j < {count}; j++) {{"
        if greedy.mean_limit:
            limit = _literal(np.float32(greedy.mean_limit))
            yield f"    y[j] = y[j] < -{limit} ? -{limit} : y[j];\n    y[j] = y[j] > {limit} ? {limit} : y[j];"
        if greedy.tanh:
            yield f"    y[j] = {self.function('tanhf')}(y[j]);"
        if greedy.squashed:
            width = self.array("width", high - low)
            yield f"    {self.acted} a = {names[0]}[j] + 0.5f * (y[j] + 1.0f) * {width}[j];"
        else:
            yield f"    {self.acted} a = y[j];"
        yield f"    a = a < {names[0]}[j] ? {names[0]}[j] : a;"
        yield f"    action[j] = a > {names[1]}[j] ? {names[1]}[j] : a;\n}}"


_INCLUDES = """\
#include <math.h>
#include <stddef.h>
#include <stdint.h>
"""
_EXACTLY = """\
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF /* a product and a sum stay two roundings */
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("-ffp-contract=off")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif
"""
_AS_BEFORE = """\
#if defined(__clang__)
#pragma STDC FP_CONTRACT DEFAULT
#elif defined(__GNUC__)
#pragma GCC pop_options
#endif
"""


def _identifier(name: str) -> str:
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"policy_{found}" if found[:1].isdigit() or not found.strip("_") else found


def _count(space: spaces.Space[Any]) -> int:
    return int(np.prod(space.shape or ()))


def _of_shape(space: spaces.Space[Any]) -> str:
    return f" of the shape {space.shape}, row by row" if len(space.shape or ()) > 1 else ""


def _plus(start: int) -> str:
    return f" {'+' if start > 0 else '-'} {abs(start)}" if start else ""


def _literal(number: np.generic) -> str:
    """A number as C reads it, all its bits."""
    if not np.issubdtype(number.dtype, np.floating):
        return str(number)
    if np.isinf(number):
        return "INFINITY" if float(number) > 0 else "-INFINITY"
    text = re.sub(r"\.?0*p", "p", float(number).hex())
    return text + ("f" if number.dtype == np.float32 else "")


def _wrapped(literals: Iterator[str]) -> str:
    lines = ["   "]
    for one in literals:
        if len(lines[-1]) + len(one) + 2 > _WIDTH:
            lines.append("   ")
        lines[-1] += f" {one},"
    return "\n".join(lines)


def _indented(blocks: Iterator[str]) -> Iterator[str]:
    for block in blocks:
        yield from (f"    {line}" for line in block.split("\n"))
