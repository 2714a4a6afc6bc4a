"""An ONNX model, evaluated by onnxruntime, answers as the actor does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from exported import ROWS, asked, read, session_of
from policy_cases import CASES

from reactor_sb3.exporting.onnx_model import onnx_of

pytest.importorskip("onnx")
PLAIN = [name for name, case in CASES.items() if case.exported and case.plain]


def calm(policy: Any) -> None:
    """Let convolutions give numbers as trained ones do: of thousands few digits would be left."""
    with torch.no_grad():
        for name, one in policy.named_parameters():
            one.mul_(0.25 if "features_extractor" in name else 1)


@pytest.mark.parametrize("name", PLAIN)
def test_it_answers_as_the_actor(name: str) -> None:
    case = CASES[name] if CASES[name].kind != "CnnPolicy" else replace(CASES[name], touch=calm)
    with case.made() as model:
        wanted, greedy = asked(case, model), read(model)
    session = session_of(onnx_of(greedy))
    given = {"observation": wanted.seen} | ({} if wanted.masks is None else {"action_masks": wanted.masks})
    if greedy.hidden:
        state, rows = np.zeros((1, 2 * greedy.hidden), np.float32), []
        for row in wanted.seen:
            *found, state = session.run(None, {"observation": row[None], "state": state})
            rows.append([one[0] for one in found])
        action, outputs = (np.array(part) for part in zip(*rows, strict=True))
    else:
        action, outputs = session.run(["action", "outputs"], given)
    np.testing.assert_allclose(outputs, wanted.outputs, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(action, wanted.actions, atol=1e-6, rtol=1e-6)
    assert len(np.unique(outputs, axis=0)) > 1 or "bounds" in name
    assert action.shape == (ROWS, *case.actions.shape) and action.dtype == case.actions.dtype
