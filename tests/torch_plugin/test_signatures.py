"""Functions of the extension are what their signatures say: checks of arguments, the stub, and each form's bits."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

products = pytest.importorskip("reactor_torch._products")

STUBS = Path(__file__).parent.parent.parent / ".ci" / "stubs.py"


def test_arguments_fit_a_signature() -> None:
    two, six, one = np.zeros((4, 2), np.float32), np.zeros((4, 3, 2), np.float32), np.zeros((4, 1), np.float32)
    taken, row, deep = np.zeros(4, np.int64), one[:, 0].copy(), [np.zeros((4, 3, 2), np.float32) for _ in range(2)]
    assert products.q_loss(two, taken[:, None], one, True, 1.0, two.copy()) == 0.0  # (4, 1) is (4,), too
    products.gaussian_by_row(six, six, six, 1e-6, *deep, one, row)  # and (4, 3, 2) is (4, 6)
    signature = re.escape("q_loss(values[r,n] actions:index[r<n] returns[r] huber:bool share:float > grad_values[r,n] : float): ")
    for given, error, says in (
        ((two, taken, row, True, 1.0), TypeError, "it has 6 arguments, got 5"),
        ((two, taken[:3], row, True, 1.0, two.copy()), ValueError, "actions does not fit: dimension 0 must be 4, got 3"),
        ((two, taken, row, True, 1.0, six), ValueError, "grad_values does not fit: dimension 1 must be 2, got 6"),
        ((two, row, row, True, 1.0, two.copy()), TypeError, 'actions must be int64, got the format "f"'),
        ((two, taken + 2, row, True, 1.0, two.copy()), IndexError, "actions must be below 2 and not negative, got 2"),
        ((two, taken - 1, row, True, 1.0, two.copy()), IndexError, "actions must be below 2 and not negative, got -1"),
    ):
        with pytest.raises(error, match=signature + says):
            products.q_loss(*given)
    with pytest.raises((ValueError, BufferError), match=r"contiguous"):
        products.q_loss(two[:, ::-1], taken, row, True, 1.0, two.copy())
    locked = two.copy()
    locked.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match=r"read-only|not writable"):
        products.q_loss(two, taken, row, True, 1.0, locked)
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        products.q_target(two[:, :0].copy(), None, row, row, None, 0.5, row.copy())
    rest = [np.zeros((4, 2), np.float32) for _ in range(3)], np.zeros(4, np.float32), np.zeros(4, np.float32)
    choices = np.zeros((4, 2), np.int64)
    for wrong in ([0, 2], [1, 2], [3, -1], [2**62, 2**62]):
        with pytest.raises(ValueError, match="sizes must be positive and add up to 2"):
            products.categorical(np.array(wrong), two, choices, None, *rest[0], *rest[1:])
    with pytest.raises(IndexError, match="taken must be below 1 and not negative, got 1"):
        products.categorical(np.array([1, 1]), two, choices + np.array([1, 0]), None, *rest[0], *rest[1:])


def signatures() -> dict[str, str]:
    return {name: one.__doc__ for name, one in vars(products).items() if "\n\n" in (one.__doc__ or "") and callable(one)}


def test_each_form_has_the_bits_of_portable_c() -> None:
    """Each function is called with random arrays of its signature's shapes."""
    assert all(products.check(kind) for kind in products.kinds())
    assert len(signatures()) > 20 and {"q_loss", "adam", "lstm", "gaussian_backward"} <= set(signatures())


def test_the_stub_is_that_of_the_signatures() -> None:
    spec = importlib.util.spec_from_file_location("stubs", STUBS)
    assert spec is not None and spec.loader is not None
    stubs: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stubs)
    assert stubs.stub(products) == stubs.STUB.read_text(encoding="utf-8"), "python .ci/stubs.py writes it"
