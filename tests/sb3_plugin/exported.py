"""Exported policies as the tests of ``exporting`` ask them: compiled C, and the actors that they are compared with."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from gymnasium import spaces
from policy_adapter import Bound, source_of
from policy_cases import Case

from reactor_sb3.exporting.c_header import header_of
from reactor_sb3.exporting.reading import Greedy, read
from reactor_torch import DenseForward, GaussianByRow, Lstm, LstmWeights, SquashedGaussian, SquashedGaussianByRow, kernels

__all__ = ["ROWS", "asked", "compile_file", "compiled", "dense_outputs", "read", "run", "session_of"]

Array = npt.NDArray[Any]
WARNINGS = ("-Wall", "-Wextra", "-Werror")
ROWS = 500
_LSTM = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


class Asked(NamedTuple):
    """A policy's observations, and what its actor makes of them, one environment after ``ROWS`` steps of an episode."""

    seen: Array
    masks: Array | None
    outputs: Array
    actions: Array


def asked(case: Case, model: Any) -> Asked:
    """Ask the actor of a trainer, which torch evaluates where there is no extension."""
    if kernels.compiled is None:
        pytest.skip("there is no extension, whose bits these are")
    source = source_of(model)
    seen, masks = case.seen(ROWS, 1), case.masks(ROWS, 1)
    bound = Bound(source.policy, source.weights(), seen, masks)
    if case.remembers:
        bound.round(np.random.default_rng(0))
        outputs = np.array(bound.bound.scores)
        bound = Bound(source.policy, source.weights(), seen, masks)
    else:
        outputs = np.array([np.array(bound.bound.net.outputs(step)) for step in range(ROWS)])
    if isinstance(source.policy.distribution, SquashedGaussian | GaussianByRow | SquashedGaussianByRow):  # means come first
        outputs = outputs[..., : source.policy.distribution.count]
    return Asked(seen[""][:, 0], None if masks is None else masks[:, 0], outputs[:, 0], bound.modes()[:, 0])


_GLUE = """
void run_{name}(long rows, const {seen} *seen, const uint8_t *masks, float *outputs, {acted} *actions)
{{
    float state[2][{states}] = {{{{0}}, {{0}}}};
    for (long row = 0; row < rows; row++) {{
        {name}_outputs({observation}, {of_outputs}outputs + row * {count});
        {answer}{name}_act({observation}{of_act}{given});
    }}
    (void)masks;
    (void)state;
}}
"""


def glue(name: str, greedy: Greedy) -> str:
    """A C function that asks a header's policy about many rows."""
    one, space = isinstance(greedy.observation_space, spaces.Discrete), greedy.action_space
    scalar = isinstance(space, spaces.Discrete)
    of_act = ", state[1]" * bool(greedy.hidden) + f", masks + row * {sum(greedy.choices)}" * greedy.masked
    return _GLUE.format(
        name=name,
        seen=c_type(greedy.observation_space.dtype),
        acted=c_type(action_dtype(space)),
        states=max(2 * greedy.hidden, 1),
        observation="seen[row]" if one else f"seen + row * {greedy.features}",
        of_outputs="state[0], " if greedy.hidden else "",
        count=greedy.outputs,
        answer="actions[row] = " if scalar else "",
        of_act=of_act,
        given="" if scalar else f", actions + row * {int(np.prod(space.shape or ()))}",
    )


def c_type(dtype: Any) -> str:
    return {"float32": "float", "float64": "double"}.get(np.dtype(dtype).name, f"{np.dtype(dtype).name}_t")


def action_dtype(space: Any) -> Any:
    return (
        np.result_type(np.float32, space.dtype)
        if isinstance(space, spaces.Box)
        else np.int8
        if space.dtype == np.int8
        else np.int64
    )


def compiled(folder: Path, policies: Mapping[str, Greedy], *how: str) -> ctypes.CDLL:
    """Headers, all included in one file, as a library with ``run_name`` for each."""
    for name, greedy in policies.items():
        (folder / f"{name}.h").write_text(header_of(greedy, f"{name}.h"))
    return compile_file(folder, policies, *how)


def compile_file(folder: Path, policies: Mapping[str, Greedy], *how: str) -> ctypes.CDLL:
    """The same of headers that are there."""
    compiler, *flags = how or ("gcc", "-std=c99", "-O1")
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    ending = "cpp" if "++" in compiler else "c"
    includes = "".join(f'#include "{name}.h"\n#include "{name}.h"\n' for name in policies)
    body = "".join(glue(name, greedy) for name, greedy in policies.items())
    code = f'extern "C" {{\n{body}}}\n' if ending == "cpp" else body
    (folder / f"all.{ending}").write_text(includes + code)
    library = f"{len(list(folder.iterdir()))}.so"  # one that is loaded already stays what it is
    command = [compiler, "-shared", "-fPIC", *WARNINGS, *flags, f"all.{ending}", "-o", library, "-lm"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return ctypes.CDLL(str(folder / library))


def run(library: ctypes.CDLL, name: str, greedy: Greedy, seen: Array, masks: Array | None) -> tuple[Array, Array]:
    """Outputs and actions of a compiled policy, ``(rows, ...)``; of one episode for one that remembers."""
    space, rows = greedy.action_space, len(seen)
    outputs = np.zeros((rows, greedy.outputs), np.float32)
    actions = np.zeros((rows, *(space.shape or ())), action_dtype(space))
    given = (np.ascontiguousarray(seen), np.zeros(1, np.uint8) if masks is None else np.ascontiguousarray(masks).view(np.uint8))
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (*given, outputs, actions)]
    getattr(library, f"run_{name}")(ctypes.c_long(rows), *pointers)
    return outputs, actions


def dense_outputs(greedy: Greedy, seen: Array) -> Array:
    """What the extension makes of the layers that were read, row by row, ``(rows, n)``; observations are normalised already."""
    if kernels.compiled is None:
        pytest.skip("there is no extension, whose bits these are")
    record = np.zeros((), [(name, part.dtype, part.shape) for name, part in greedy.weights.items()])
    for name, part in greedy.weights.items():
        record[name] = part
    rows = np.ascontiguousarray(seen)
    if greedy.hidden:
        lstm = Lstm(LstmWeights(*(record[f"lstm_actor.{part}"] for part in _LSTM)))
        lstm.take_weights()
        nothing = np.zeros((1, greedy.hidden), np.float32)
        rows = lstm.run(rows.reshape(len(seen), 1, -1).astype(np.float32), np.zeros((len(seen), 1), np.float32), nothing, nothing)[
            0
        ][:, 0]
    features = greedy.layers[0].inputs
    bound = DenseForward(greedy.layers, features, greedy.one_hot).bind(record, {"": rows.reshape(len(seen), 1, *rows.shape[1:])})
    return np.array([np.array(bound(row)[0]) for row in range(len(seen))])


def session_of(model: bytes) -> Any:
    """An ONNX model in onnxruntime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
