"""The short way from observations to actions gives RLlib's own bits and errors, and leaves users' classes their way."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("tree")
pytest.importorskip("ray.rllib.algorithms", exc_type=ImportError)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import gymnasium
    from ray.rllib.connectors.module_to_env import GetActions
    from ray.rllib.core.distribution.torch.torch_distribution import TorchCategorical, TorchDiagGaussian, TorchSquashedGaussian
    from ray.rllib.core.rl_module.torch import TorchRLModule
    from ray.rllib.utils.numpy import convert_to_numpy
    from ray.rllib.utils.torch_utils import convert_to_torch_tensor

    from reactor_ray.rllib.inference import evaluating, forward, infer_actions, tensor


class Module(TorchRLModule):  # type: ignore[misc]
    """Says its mode, and a distribution of a class that the test chooses."""

    def setup(self) -> None:
        self.inner = torch.nn.Dropout()

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        assert not self.training and not self.inner.training and not torch.is_grad_enabled()
        return {"action_dist_inputs": batch["obs"], **kwargs}


def module(kind: Any) -> Any:
    space = gymnasium.spaces.Box(-1, 1, (4,))
    made = Module(observation_space=space, action_space=space)
    made.action_dist_cls = kind
    return made


class Lowest(TorchCategorical):  # type: ignore[misc]
    """A user's: always the first action."""

    def sample(self, **kwargs: Any) -> Any:
        return torch.zeros(self.logits.shape[:-1], dtype=torch.int64)


@pytest.mark.parametrize("explore", [True, False])
@pytest.mark.parametrize("shape", [(500, 4), (6, 1, 4)])
@pytest.mark.parametrize("kind", [TorchCategorical, TorchDiagGaussian, TorchSquashedGaussian, Lowest])
def test_bits_of_rllibs_own_connectors(kind: Any, shape: tuple[int, ...], explore: bool) -> None:
    one, inputs = module(kind), torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 5
    torch.manual_seed(2)
    said = GetActions()(rl_module=one, batch={"action_dist_inputs": inputs}, episodes=[None], explore=explore)
    theirs, after = convert_to_numpy(said), torch.get_rng_state()
    torch.manual_seed(2)
    ours = infer_actions(one, {"action_dist_inputs": inputs}, explore=explore)
    assert torch.equal(torch.get_rng_state(), after)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        assert (ours[name].dtype, ours[name].shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(ours[name], value)
    if kind is Lowest and explore:
        assert not ours["actions"].any()


@pytest.mark.parametrize("kind", [TorchCategorical, TorchDiagGaussian])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_ends_as_in_rllib(kind: Any, wrong: float) -> None:
    def ended(act: Any) -> Any:
        torch.manual_seed(2)
        inputs = torch.zeros(3, 4)
        inputs[1, 2] = wrong
        try:
            return convert_to_numpy(act({"action_dist_inputs": inputs}))
        except RuntimeError as error:
            return str(error)

    one = module(kind)
    theirs = ended(lambda said: GetActions()(rl_module=one, batch=said, episodes=[None], explore=True))
    np.testing.assert_equal(ended(lambda said: infer_actions(one, said, explore=True)), theirs)
    assert isinstance(theirs, str) or kind is TorchDiagGaussian


def test_actions_that_a_module_chose_are_kept() -> None:
    said = {"actions": torch.tensor([3, 1]), "action_dist_inputs": torch.zeros(2, 4), "inner": {"of": torch.zeros(2)}}
    given = infer_actions(module(TorchCategorical), said, explore=True)
    assert given["actions"].tolist() == [3, 1] and given["actions"].dtype == np.int32 and "action_logp" not in given
    assert isinstance(given["inner"]["of"], np.ndarray)


def test_modules_are_in_evaluation_mode_and_come_back() -> None:
    one, batch = module(TorchCategorical), {"obs": torch.zeros(2, 4)}
    with evaluating(one):
        assert forward(one, batch, explore=True, step=7)["t"] == 7
        one.train()
        assert "t" not in forward(one, batch, explore=False, step=7)
    assert one.training and one.inner.training
    one.eval()
    with evaluating(one):
        pass
    assert not one.training


def test_a_forward_of_the_users_own_is_called() -> None:
    class Own(Module):
        def forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
            return {"own": True}

    one = Own(observation_space=gymnasium.spaces.Box(-1, 1, (4,)), action_space=gymnasium.spaces.Discrete(4))
    assert forward(one, {}, explore=True, step=0) == {"own": True}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.uint8, np.int64, np.bool_])
def test_tensors_of_arrays(dtype: Any) -> None:
    values = np.array([[1, 0], [3, 2]], dtype)
    ours, theirs = tensor(values, "cpu"), convert_to_torch_tensor(values, device="cpu")
    assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    nested = tensor({"one": (values,)}, None)
    assert torch.equal(nested["one"][0], theirs)
