"""A policy as an ONNX model, with normalisation, clipping and the choice of the action inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from reactor_rl import __version__
from reactor_rl.plugin import require_extra
from reactor_sb3.exporting.reading import Greedy
from reactor_torch import Layer

__all__ = ["onnx_of"]

Array = npt.NDArray[Any]
_OPSET = 17
"""Of operators: the first one with ``LayerNormalization``."""
_IR = 8
"""Of the file, the one that goes with those operators, so that older runtimes read it."""
_GATES = ("input", "forget", "added", "shown")
"""Of an LSTM, in torch's order."""


def onnx_of(greedy: Greedy) -> bytes:
    """An ONNX model.

    Its inputs are ``observation``, ``(rows, *shape)`` in the space's dtype; ``state``, ``(rows, 2 * hidden)``, float32, of a policy
    that remembers; and ``action_masks``, ``(rows, choices)``, bool, of one that is masked. Its outputs are ``action``,
    ``(rows, *shape)``; ``outputs``, ``(rows, n)``, float32, by which it is chosen; and ``next_state``.

    Raises:
        ModuleNotFoundError: If the extra ``export`` is not installed.
        ValueError: If ONNX has no type for its observations.
    """
    with require_extra("export", "an export to ONNX"):
        import onnx
    return _Model(onnx, greedy).bytes()


class _Model:
    """A model that is being written."""

    def __init__(self, onnx: Any, greedy: Greedy) -> None:
        self.onnx, self.greedy = onnx, greedy
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []

    def bytes(self) -> bytes:
        """All of it, checked."""
        greedy, helper = self.greedy, self.onnx.helper
        space = greedy.observation_space
        self._shown(self.inputs, "observation", np.dtype(space.dtype or np.int64), *(space.shape or ()))
        outputs = self._network(self._normalized("observation"))
        self._add("Identity", outputs, to="outputs")
        action = self._action(outputs)
        self._add("Identity", action, to="action")
        acts = greedy.action_space
        dtype = greedy.bounds[0].dtype if isinstance(acts, spaces.Box) else _integer(acts)
        self._shown(self.outputs, "action", dtype, *(acts.shape or ()))
        self._shown(self.outputs, "outputs", np.dtype(np.float32), greedy.outputs)
        if greedy.hidden:
            self._shown(self.outputs, "next_state", np.dtype(np.float32), 2 * greedy.hidden)
        graph = helper.make_graph(self.nodes, "policy", self.inputs, self.outputs, list(self.constants.values()))
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR,
            producer_name="reactor_rl",
            producer_version=__version__,
        )
        self.onnx.checker.check_model(model, full_check=True)
        return model.SerializeToString()  # type: ignore[no-any-return]

    def _shown(self, where: list[Any], name: str, dtype: np.dtype[Any], *shape: int) -> None:
        try:
            kind = self.onnx.helper.np_dtype_to_tensor_dtype(dtype)
        except (KeyError, ValueError) as error:
            raise ValueError(f"ONNX has no type for {name}s of {dtype}") from error
        where.append(self.onnx.helper.make_tensor_value_info(name, kind, ["rows", *shape]))

    def _add(self, kind: str, *inputs: str, to: str = "", **attributes: Any) -> str:
        """Add an operator. Returns the name of what it gives."""
        to = to or f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, list(inputs), [to], **attributes))
        return to

    def _constant(self, numbers: Any, dtype: Any = None) -> str:
        """Add an array. Returns its name."""
        array = np.ascontiguousarray(numbers, dtype)
        name = f"constant_{len(self.constants)}"
        self.constants[name] = self.onnx.numpy_helper.from_array(array.reshape(np.shape(numbers)), name)
        return name

    def _parameter(self, name: str) -> str:
        """Add parameters of the policy. Returns their name."""
        if name not in self.constants:
            self.constants[name] = self.onnx.numpy_helper.from_array(np.ascontiguousarray(self.greedy.weights[name]), name)
        return name

    def _cast(self, what: str, dtype: Any) -> str:
        to = f"cast_{len(self.nodes)}"
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        self.nodes.append(self.onnx.helper.make_node("Cast", [what], [to], to=kind))
        return to

    # ------------------------------------------------------------------ the network

    def _normalized(self, what: str) -> str:
        """Numbers of observations as the network is given them, float32."""
        greedy = self.greedy
        if greedy.one_hot:
            depth, values = self._constant(greedy.layers[0].inputs, np.int64), self._constant([0, 1], np.float32)
            return self._add("OneHot", self._cast(what, np.int64), depth, values, axis=-1)
        for one in greedy.normalized:
            apart = self._add("Sub", self._cast(what, np.float64), self._constant(one.mean))
            apart = self._add("Div", apart, self._constant(one.deviation))
            limits = [self._constant(limit, np.float64) for limit in (-one.limit, one.limit)]
            what = self._cast(self._add("Clip", apart, *limits), np.float32)
        if not greedy.normalized and greedy.observation_space.dtype != np.float32:
            what = self._cast(what, np.float32)
        if greedy.divisor > 1:
            what = self._add("Div", what, self._constant(greedy.divisor, np.float32))
        return what if greedy.divisor else self._add("Reshape", what, self._constant([-1, greedy.features], np.int64))

    def _network(self, what: str) -> str:
        if self.greedy.hidden:
            what = self._lstm(what)
        for layer in self.greedy.layers:
            what = self._layer(layer, what)
        return what

    def _layer(self, layer: Layer, what: str) -> str:
        weights, name = self.greedy.weights, layer.name
        match layer.kind:
            case "linear" | "convolution":
                bias = [self._parameter(f"{name}.bias")] if f"{name}.bias" in weights else []
                if layer.kind == "linear":
                    return self._add("Gemm", what, self._parameter(f"{name}.weight"), *bias, transB=1)
                assert isinstance(layer.of_images, tuple)
                down, right, above, left = layer.of_images[5:9]
                pads = [above, left, above, left]
                return self._add("Conv", what, self._parameter(f"{name}.weight"), *bias, strides=[down, right], pads=pads)
            case "flattened":
                return self._add("Flatten", what)
            case "normalised":
                parameters = self._parameter(f"{name}.weight"), self._parameter(f"{name}.bias")
                return self._add("LayerNormalization", what, *parameters, epsilon=layer.epsilon)
            case "renormalised":
                factor = weights[f"{name}.scale"] / np.sqrt(weights[f"{name}.ra_var"] + np.float32(layer.epsilon))
                apart = self._add("Sub", what, self._parameter(f"{name}.ra_mean"))
                return self._add("Add", self._add("Mul", apart, self._constant(factor)), self._parameter(f"{name}.bias"))
            case "relu" | "tanh":
                return self._add(layer.kind.capitalize(), what)
            case kind:
                raise ValueError(f"ONNX export has no layer {name!r} of the kind {kind}")

    def _lstm(self, what: str) -> str:
        """One step; from the observation's numbers to the hidden ones."""
        greedy, weights = self.greedy, self.greedy.weights
        self._shown(self.inputs, "state", np.dtype(np.float32), 2 * greedy.hidden)
        half = self._constant([greedy.hidden] * 2, np.int64)
        self.nodes.append(self.onnx.helper.make_node("Split", ["state", half], ["hidden", "cells"], axis=1))
        bias = self._constant(weights["lstm_actor.bias_ih_l0"] + weights["lstm_actor.bias_hh_l0"])
        gates = self._add("Gemm", what, self._parameter("lstm_actor.weight_ih_l0"), bias, transB=1)
        gates = self._add("Gemm", "hidden", self._parameter("lstm_actor.weight_hh_l0"), gates, transB=1)
        quarter = self._constant([greedy.hidden] * 4, np.int64)
        self.nodes.append(self.onnx.helper.make_node("Split", [gates, quarter], list(_GATES), axis=1))
        added, forget, shown, taken = (
            self._add("Tanh" if one == "added" else "Sigmoid", one) for one in ("added", "forget", "shown", "input")
        )
        cells = self._add("Add", self._add("Mul", forget, "cells"), self._add("Mul", taken, added))
        hidden = self._add("Mul", shown, self._add("Tanh", cells))
        self._add("Concat", hidden, cells, to="next_state", axis=1)
        return hidden

    # ------------------------------------------------------------------ the action

    def _action(self, outputs: str) -> str:
        greedy, space = self.greedy, self.greedy.action_space
        if isinstance(space, spaces.Box):
            return self._fitting(outputs)
        if not greedy.choices:
            bits = self._add("Greater", outputs, self._constant(0, np.float32))
            return self._shaped(self._cast(bits, _integer(space)))
        if greedy.quantiles > 1:
            rows = self._add("Reshape", outputs, self._constant([-1, greedy.quantiles, sum(greedy.choices)], np.int64))
            outputs = self._add("ReduceMean", rows, axes=[1], keepdims=0)
        if greedy.masked:
            self._shown(self.inputs, "action_masks", np.dtype(np.bool_), sum(greedy.choices))
            outputs = self._add("Where", "action_masks", outputs, self._constant(-1e8, np.float32))
        start = self._constant(np.asarray(getattr(space, "start", 0)).reshape(-1), np.int64)
        if isinstance(space, spaces.Discrete):
            return self._add("Add", self._add("ArgMax", outputs, axis=1, keepdims=0), start)
        parts = [f"choice_{number}" for number in range(len(greedy.choices))]
        sizes = self._constant(greedy.choices, np.int64)
        self.nodes.append(self.onnx.helper.make_node("Split", [outputs, sizes], parts, axis=1))
        best = self._add("Concat", *(self._add("ArgMax", part, axis=1, keepdims=1) for part in parts), axis=1)
        return self._shaped(self._cast(self._add("Add", best, start), _integer(space)))

    def _fitting(self, outputs: str) -> str:
        greedy, (low, high) = self.greedy, self.greedy.bounds
        if greedy.mean_limit:
            limits = [self._constant(limit, np.float32) for limit in (-greedy.mean_limit, greedy.mean_limit)]
            outputs = self._add("Clip", outputs, *limits)
        if greedy.tanh:
            outputs = self._add("Tanh", outputs)
        if greedy.squashed:
            outputs = self._add("Mul", self._add("Add", outputs, self._constant(1, np.float32)), self._constant(0.5, np.float32))
        if low.dtype != np.float32:
            outputs = self._cast(outputs, low.dtype)
        if greedy.squashed:
            outputs = self._add("Add", self._constant(low), self._add("Mul", outputs, self._constant(high - low)))
        return self._shaped(self._add("Min", self._add("Max", outputs, self._constant(low)), self._constant(high)))

    def _shaped(self, action: str) -> str:
        return self._add("Reshape", action, self._constant([-1, *(self.greedy.action_space.shape or ())], np.int64))


def _integer(space: spaces.Space[Any]) -> np.dtype[Any]:
    """The type of actions that are not numbers of a ``Box``: bits are as the space has them."""
    return np.dtype(space.dtype) if isinstance(space, spaces.MultiBinary) else np.dtype(np.int64)
