"""Networks of SB3's that torch evaluates for actors: how they are asked, and copies of modules that can travel."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from gymnasium import spaces
from torch import nn
from torch.nn.utils.parametrize import is_parametrized

from reactor_torch import Answer, Calls, HeldForward, OwnCalls, TorchForward, computed_in, torch_state, torch_stream

__all__ = ["ActorCriticCalls", "ActorCriticOutputs", "Predicting", "RecurrentCalls", "copied", "held_forward", "sent"]

M = TypeVar("M", bound=nn.Module)


def held_forward(module: Any, why: str = "") -> HeldForward:
    """A copy of any network or policy of SB3's, without its optimisers.

    Args:
        module: The network.
        why: Why nothing else evaluates it.
    """
    optimizers = {id(part.optimizer): None for part in module.modules() if hasattr(part, "optimizer")}
    return HeldForward(copied(module, optimizers), isinstance(module.observation_space, spaces.Dict), why)


def sent(forward: HeldForward) -> TorchForward:
    """Take the weights from a network that is to be sent to actors.

    Raises:
        ValueError: If it cannot be sent to actors, or be evaluated without autograd, or if it changes buffers where it acts.
    """
    module = forward.module
    for path, part in module.named_modules():
        made_by = "torch.jit" if isinstance(part, torch.jit.ScriptModule) else "torch.nn.utils.parametrize"
        if made_by == "torch.jit" or is_parametrized(part):
            raise ValueError(
                f"{path!r} of {type(module).__name__} is made by {made_by}, and such modules cannot be sent to actors: use a plain "
                "module, and compute what it does in forward()"
            )
    _try_out(module, type(module).__name__)
    return TorchForward(module, forward.keyed, forward.why)


def _try_out(module: Any, name: str) -> None:
    """Have a copy of a network act once, as actors do: with weights and buffers that are not theirs to change."""
    space = copy.deepcopy(module.observation_space)
    space.seed(0)
    seen = space.sample()
    rows = (
        {key: torch.as_tensor(part)[None] for key, part in seen.items()} if isinstance(seen, dict) else torch.as_tensor(seen)[None]
    )
    before = {path: (one, one._version) for path, one in module.named_buffers()}
    methods = ("extract_features",) if hasattr(module, "lstm_actor") else ("_predict", "predict_values")
    if (error := _fails(module, methods, rows, torch.inference_mode)) and not _fails(module, methods, rows, torch.no_grad):
        raise ValueError(
            f"{name} cannot be evaluated as actors do it, in torch.inference_mode() ({error}): let its forward() compute no "
            "gradients, or use SB3's algorithm with ReactorVecEnv"
        ) from error
    for path, one in module.named_buffers():
        if before[path][0] is not one or before[path][1] != one._version:
            raise ValueError(
                f"{name} changes the buffer {path!r} where it acts, and each actor would change one of its own: change it only "
                "where it learns (if self.training: ...), or use SB3's algorithm with ReactorVecEnv"
            )


def _fails(module: Any, methods: tuple[str, ...], rows: Any, mode: Any) -> Exception | None:
    """Call those of the methods that a network has. Return the exception of the first that fails; ``None`` if all work."""
    try:
        with mode(), torch_stream(torch_state(0)):
            for method in methods:
                if hasattr(module, method):
                    getattr(module, method)(rows)
    except Exception as error:
        return error
    return None


def copied(module: M, memo: dict[int, Any]) -> M:
    """A deep copy, without what cannot be copied since it was computed, see :func:`reactor_torch.computed_in`.

    Args:
        module: What is copied.
        memo: What is to be found in the copy, by the ``id`` of what it stands for; see :func:`copy.deepcopy`.
    """
    return copy.deepcopy(module, memo | computed_in(module))


# ---------------------------------------------------------------------- how they are asked


class Predicting(OwnCalls):
    """An actor, or a policy, by its ``_predict``."""

    def redraw(self, module: Any, rows: int) -> None:
        module.reset_noise(rows)

    def draw(self, module: Any, seen: Any, more: Mapping[str, Any]) -> Answer:
        return Answer(module._predict(seen, deterministic=False))

    def mode(self, module: Any, seen: Any, more: Mapping[str, Any]) -> Answer:
        return Answer(module._predict(seen, deterministic=True))


class ActorCriticOutputs(Calls):
    """A plain actor and critic, which may have any layers."""

    judges = True

    def outputs(self, module: Any, seen: Any, judges: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
        features, body = module.extract_features(seen), module.mlp_extractor
        of_actor, of_critic = (features, features) if module.share_features_extractor else features
        values = module.value_net(body.forward_critic(of_critic)).flatten() if judges else None
        return module.action_net(body.forward_actor(of_actor)), values

    def values(self, module: Any, seen: Any) -> torch.Tensor:
        return module.predict_values(seen).flatten()  # type: ignore[no-any-return]


class ActorCriticCalls(OwnCalls):
    """An actor and critic by its ``forward``."""

    judges = True

    def redraw(self, module: Any, rows: int) -> None:
        module.reset_noise(rows)

    def draw(self, module: Any, seen: Any, more: Mapping[str, Any]) -> Answer:
        actions, values, log_prob = module(seen, **more)
        return Answer(actions, values.flatten(), log_prob)

    def mode(self, module: Any, seen: Any, more: Mapping[str, Any]) -> Answer:
        return Answer(module._predict(seen, deterministic=True, **more))

    def values(self, module: Any, seen: Any) -> torch.Tensor:
        return module.predict_values(seen).flatten()  # type: ignore[no-any-return]


class RecurrentCalls(ActorCriticCalls):
    """An actor and critic with LSTMs; parts of states are (hidden, cell) of each layer of the actor, then of the critic."""

    def draw(self, module: Any, seen: Any, more: Mapping[str, Any]) -> Answer:
        actions, values, log_prob, after = module(seen, _states(more["state"]), more["episode_starts"])
        return Answer(actions, values.flatten(), log_prob, torch.cat([*after.pi, *after.vf]))

    def mode(self, module: Any, seen: Any, more: Mapping[str, Any]) -> Answer:
        before = _states(more["state"])
        actions, after = module._predict(seen, before.pi, more["episode_starts"], deterministic=True)
        return Answer(actions, state=torch.cat([*after, *before.vf]))

    def values_after(self, module: Any, seen: Any, state: torch.Tensor) -> torch.Tensor:
        states = _states(state.contiguous()).vf
        return module.predict_values(seen, states, torch.zeros(state.shape[1])).flatten()  # type: ignore[no-any-return]


def _states(state: torch.Tensor) -> Any:
    from sb3_contrib.common.recurrent.type_aliases import RNNStates

    h, c, critic_h, critic_c = state.view(4, -1, *state.shape[1:])
    return RNNStates((h, c), (critic_h, critic_c))
