"""CrossQ's batch renormalisation: computed without autograd, wherever it is run, and evaluated by the extension."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from contrib_trainers import make
from every_other import in_turn
from torch import nn
from trainers import EVALUATED, INLINE, PROCESSES, THREADS, outcome

from reactor_torch import Task, kernels

STEPS = 320
NETWORK: dict[str, Any] = {"net_arch": [32, 16], "renorm_warmup_steps": 3}
"""Whose warm-up ends in the middle of a training."""


@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
def test_who_computes_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def why(**network: Any) -> str | None:
        with make("crossq", policy_kwargs={"net_arch": [8], **network}) as model:
            assert model.nets.compiled == (model.nets.why is None)
            return model.nets.why

    assert why() is why(batch_norm=False) is why(activation_fn=nn.Tanh) is None
    assert "ELU" in str(why(activation_fn=nn.ELU))
    monkeypatch.setattr(kernels, "compiled", None)
    assert "the extension is not used here" in str(why())


@cache
def alone(pipeline: int, split: bool) -> dict[str, Any]:
    with make("crossq", pipeline=pipeline, split=split, policy_kwargs=NETWORK, **EVALUATED, **INLINE) as model:
        found = outcome(model.learn(STEPS))
        assert int(model.policy.critic.qf0[0].steps) > NETWORK["renorm_warmup_steps"]
        assert int(model.policy.actor.latent_pi[0].steps) > NETWORK["renorm_warmup_steps"]
        return found


PLACES = [
    {"n_learners": 1, **INLINE},
    THREADS,
    PROCESSES,
    {"executor": "processes", "workers": 3},
    {"executor": "processes", "workers": 4},
]


@pytest.mark.slow
@in_turn("pipeline, split, place", [*product((0, 1), (False, True), PLACES)], kept=4)
def test_the_same_wherever_it_is_run(pipeline: int, split: bool, place: dict[str, Any]) -> None:
    with make("crossq", pipeline=pipeline, split=split, policy_kwargs=NETWORK, **EVALUATED, **place) as model:
        assert outcome(model.learn(STEPS)) == alone(pipeline, split)


@pytest.mark.skipif(kernels.compiled is None, reason="no extension")
def test_buffers_that_were_replaced_are_those_that_change() -> None:
    with make("crossq", policy_kwargs=NETWORK) as model:
        model.learn(160)
        nets, batch = model.nets, model.example()
        found = []
        for replaced in (False, True):
            for module in nets["critic"].modules() if replaced else ():
                for name, one in list(module.named_buffers(recurse=False)):
                    module.register_buffer(name, one.clone())
            before = [one.clone() for one in nets.buffers("critic")]
            nets.begin_round(nets.losses)
            nets.compute([Task("critic", batch, slice(0, len(batch)))])
            nets.end_round()
            changed = [one.clone() for one in nets.buffers("critic")]
            assert not any(torch.equal(one, was) for one, was in zip(changed, before, strict=True))
            found.append(changed)
            for one, was in zip(nets.buffers("critic"), before, strict=True):
                one.copy_(was)
        assert all(map(torch.equal, *found))
