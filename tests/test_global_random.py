"""Global random generators: which of them something has drawn from, and putting them back."""

from __future__ import annotations

import random

import numpy as np
import pytest

from reactor_rl.fingerprint import changed_generators, generator_states, global_random_state


@pytest.mark.parametrize(("draw", "name"), [(random.random, "random"), (np.random.rand, "np.random")])
def test_a_draw_is_named_and_put_back(draw, name):
    before = generator_states()
    assert changed_generators(before) == ()
    with global_random_state():
        draw()
        assert changed_generators(before) == (name,)
    assert changed_generators(before) == ()


@pytest.mark.slow
def test_torch_counts_where_it_is_loaded():
    torch = pytest.importorskip("torch")
    before = generator_states()
    with global_random_state():
        torch.rand(1)
        assert changed_generators(before) == ("torch",)
    assert changed_generators(before) == ()


def test_they_are_put_back_if_the_block_fails():
    def fail():
        random.random()
        raise ValueError("no")

    before = generator_states()
    with pytest.raises(ValueError, match="no"), global_random_state():
        fail()
    assert changed_generators(before) == ()
