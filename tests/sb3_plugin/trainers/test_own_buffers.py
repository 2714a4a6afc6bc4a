"""Networks with buffers and parameters of all kinds: one result whatever executes it, or refused by name."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from contrib_trainers import CONTRIB, make
from every_other import every_other, in_turn
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn
from trainers import ALGORITHMS, INLINE, PROCESSES, ROWS, STEPWISE, new

from reactor_gymnasium import evaluate

pytestmark = pytest.mark.usefixtures("small_blocks")
ALL = sorted({*ALGORITHMS, *CONTRIB})
SHARED: dict[str, Any] = {"executor": "threads", "workers": 2, "n_learners": 2}


class Features(BaseFeaturesExtractor):
    """A linear layer, and something else."""

    def __init__(self, space: Any) -> None:
        self.n = int(np.prod(space.shape))
        super().__init__(space, self.n)
        self.layer = nn.Linear(self.n, self.n)
        self.more()

    def more(self) -> None:
        """What a subclass has besides."""

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.layer(seen.flatten(1)))


class Largest(Features):
    """Divides by the largest numbers that it has learned from."""

    def more(self) -> None:
        self.register_buffer("most", torch.full((self.n,), 1e-3))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.note(seen.detach().flatten(1).abs().amax(0))
        return super().forward(seen.flatten(1) / self.most)

    def note(self, most: torch.Tensor) -> None:
        self.most.copy_(torch.maximum(self.most, most))


class Exchanged(Largest):
    def note(self, most: torch.Tensor) -> None:
        self.most = torch.maximum(self.most, most)


class ByData(Largest):
    def note(self, most: torch.Tensor) -> None:
        self.most.data.mul_(0.9).add_(0.1 * most)


class Always(Largest):
    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        self.note(seen.detach().flatten(1).abs().amax(0))
        return torch.tanh(self.layer(seen.flatten(1) / self.most))


class Tied(Features):
    def more(self) -> None:
        self.other = nn.Linear(self.n, self.n)
        self.other.weight = self.layer.weight

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.other(super().forward(seen)))


class Unsaved(Features):
    def more(self) -> None:
        self.register_buffer("scale", torch.full((self.n,), 0.5), persistent=False)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return super().forward(seen.flatten(1) * self.scale)


class Remembering(Features):
    """Keeps what it has computed, which torch does not copy."""

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        self.last = super().forward(seen)
        return self.last


class Extra(Features):
    def get_extra_state(self) -> Any:
        return {"n": self.n}

    def set_extra_state(self, state: Any) -> None:
        self.n = state["n"]


class Parametrized(Features):
    def more(self) -> None:
        nn.utils.parametrizations.weight_norm(self.layer)


class Scripted(Features):
    def more(self) -> None:
        self.layer = torch.jit.script(self.layer)


class Short(Features):
    def more(self) -> None:
        self.register_buffer("scale", torch.ones(self.n, dtype=torch.bfloat16))


class Differentiating(Features):
    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            given = seen.flatten(1).detach().requires_grad_(True)
            (found,) = torch.autograd.grad(super().forward(given).sum(), given, create_graph=True)
        return found


def made(algorithm: str, features: Any, **changed: Any) -> Any:
    more = {"learning_starts": 0} if ROWS[algorithm].kind == "off-policy" else {}
    row = {"lstm_hidden_size": 8} if algorithm == "recurrent_ppo" else {}
    network = {"net_arch": [8], "features_extractor_class": features, **row}
    return (make if algorithm in CONTRIB else new)(algorithm, policy_kwargs=network, **{**more, **changed})


@pytest.mark.slow
@every_other(kept=2, algorithm=STEPWISE, features=[Largest, Exchanged, ByData, Tied, Unsaved, Remembering])
def test_one_result_whatever_executes_it(algorithm: str, features: Any) -> None:
    found = []
    for place in (INLINE, PROCESSES if features in (Largest, ByData, Unsaved) else SHARED):
        with made(algorithm, features, **place) as model:
            found.append(model.learn(128).fingerprint())
            model.learn(64)  # what modules keep since then is no obstacle
    assert len(set(found)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("features", [Tied, Unsaved, Remembering])
def test_what_actors_note_is_what_the_policy_computes(features: Any) -> None:
    with made("ppo", features, learning_rate=0.0) as model:
        noted = model.learn(64).rollout_buffer
        seen = torch.as_tensor(noted.observations).flatten(0, 1)
        with torch.no_grad():
            values = model.policy.predict_values(seen).flatten()
        np.testing.assert_allclose(values, noted.values.flatten(), rtol=1e-4, atol=1e-5)
        remembers = (
            pytest.warns(UserWarning, match="no answer was seen to depend on it") if features is Remembering else nullcontext()
        )
        with remembers:
            report = evaluate(model, "CartPole-v1", episodes=2, num_envs=1, executor="inline", seed=0)
        assert len(report.returns) == 2


@in_turn("algorithm", ["crossq", "sac", "td3", "tqc"], kept=1)
def test_statistics_in_two_places_are_refused(algorithm: str) -> None:
    with pytest.raises(ValueError, match=r"split=True .* buffer '\w+\.features_extractor\.most' changes"):
        made(algorithm, Largest, split=True)
    made(algorithm, Unsaved, split=True).close()


@in_turn("algorithm", STEPWISE)
def test_statistics_of_what_acts_are_refused(algorithm: str) -> None:
    with pytest.raises(ValueError, match=r"changes the buffer '.*features_extractor\.most' where it acts"):
        made(algorithm, Always)


REFUSED: list[tuple[type[Features], type[Exception], str]] = [
    (Extra, ValueError, "get_extra_state"),
    (Parametrized, ValueError, "parametrize"),
    (Scripted, ValueError, "torch.jit"),
    (Short, TypeError, "scale' is torch.bfloat16"),
    (Differentiating, ValueError, "inference_mode"),
]


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@every_other(kept=5, algorithm=STEPWISE, refused=REFUSED)
def test_what_actors_could_not_have_is_refused(algorithm: str, refused: Any) -> None:
    features, error, words = refused
    with pytest.raises(error, match=words):
        made(algorithm, features)


def test_unsaved_buffers_that_have_changed_are_in_no_checkpoint(tmp_path: Any) -> None:
    with made("ppo", Unsaved) as model:
        model.learn(64).save_checkpoint(tmp_path / "run.zip")
        model.policy.features_extractor.scale.fill_(2.0)
        with pytest.raises(ValueError, match=r"features_extractor\.scale has other values"):
            model.save_checkpoint(tmp_path / "run.zip")


# ---------------------------------------------------------------------- memory


def _tensors() -> int:
    gc.collect()
    return sum(type(one) is torch.Tensor for one in gc.get_objects())


@pytest.mark.slow
@in_turn("algorithm", ALL, kept=3)
def test_buffers_for_few_numbers_of_rows_are_kept(algorithm: str) -> None:
    """Each minibatch has another number of rows, as where agents die."""
    model = (make if algorithm in CONTRIB else new)(algorithm)
    nets, batch = model.nets, model.example()
    nets.begin_round(nets.losses)

    def compute(rows: int) -> None:
        for loss in nets.losses:
            nets.gradients(loss, batch[slice(0, rows)])

    compute(1)
    before = _tensors()
    compute(2)
    of_each = _tensors() - before
    for rows in range(3, len(batch)):
        compute(rows)
    assert _tensors() - before <= 5 * max(of_each, 1)
