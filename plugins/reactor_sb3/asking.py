"""How modules of SB3 and sb3-contrib are asked, where torch evaluates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from reactor_torch import Answer, Calls, OwnCalls

__all__ = ["ActorCriticCalls", "ActorCriticOutputs", "Predicting", "RecurrentCalls"]


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
