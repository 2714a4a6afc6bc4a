"""What somebody else may use again is copied; what cannot change is not."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from compare import assert_same

from reactor_gymnasium.environments.owning import as_number, own


def test_own_is_a_copy_throughout() -> None:
    class Marked(dict[str, Any]):
        pass

    array = np.arange(3.0)
    value = {"a": array, "b": [array, (array, {"c": array})], "d": Marked(e=array), "f": np.array([array, None], object), "g": "x"}
    copied, before = own(value), deepcopy(value)
    assert type(copied["d"]) is Marked
    array += 1
    value["b"].append(1)
    assert_same(copied, before)
    assert own({"module": np})["module"] is np  # which can be pickled, and not copied
    for fixed in (1, 1.5, True, "x", b"x", None, np.float32(1), np.int8(1), np.bool_(True)):
        assert own(fixed) is fixed


def test_numbers_of_rewards() -> None:
    for reward in (1, 1.5, True, np.float32(1.5), np.int64(3)):
        assert as_number(reward) is reward
    reward = np.array([2.5])
    number = as_number(reward)
    reward += 1
    assert number == 2.5
    with pytest.raises(ValueError, match="the reward must be a number, got"):
        as_number(np.zeros(2))
