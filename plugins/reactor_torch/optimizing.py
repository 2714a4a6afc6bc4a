"""A torch optimiser over flat parameters: its moments are views too, and a step of all parameters is one call.

The optimiser stays what it is: schedules change its ``param_groups``, its state dicts are torch's, and its own ``step`` goes on
from the same moments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.radam import radam

from reactor_torch.flat import FlatParameters

__all__ = ["FlatOptimizer"]

SMALLEST_NORMAL = torch.finfo(torch.float32).tiny
_MOMENTS = ("exp_avg", "exp_avg_sq")


class FlatOptimizer:
    """Steps flat parameters as a torch optimiser would.

    Adam, AdamW and RAdam of one group of parameters (without ``amsgrad``, ``maximize`` and the like) go over the flat arrays at
    once, without the hooks on the optimiser's ``step``; any other one makes its own step on the views. A parameter that has no
    gradient in an update counts as one whose gradient is 0; torch leaves it out.

    Args:
        optimizer: Torch's; its parameters are those of ``flat``, but for frozen ones and idle ones.
        flat: The parameters.
        idle: Parameters that the optimiser has too, and never a gradient for: another one learns them.

    Raises:
        ValueError: If they are not the same parameters.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, flat: FlatParameters, idle: Iterable[nn.Parameter] = ()) -> None:
        self.optimizer, self.flat, self.idle = optimizer, flat, tuple(idle)
        own = {id(one) for group in optimizer.param_groups for one in group["params"] if one.requires_grad}
        if own - {id(one) for one in self.idle} != {id(one) for one in flat.parameters}:
            raise ValueError("the optimiser's parameters are not the flat ones: make both from the same network")
        self.at_once = False
        self._moments = tuple(torch.zeros_like(flat.data) for _ in _MOMENTS)
        on_device = any(group.get("fused") for group in optimizer.param_groups)  # then torch's own step wants them there
        self._steps = torch.zeros(len(flat.parameters), device=flat.device if on_device else "cpu")
        self._on_device = torch.zeros((), device=flat.device)
        views = (self._steps.unbind(), *(flat.views(moment) for moment in self._moments))
        self._states: tuple[dict[str, torch.Tensor], ...] = tuple(
            dict(zip(("step", *_MOMENTS), of_parameter, strict=True)) for of_parameter in zip(*views, strict=True)
        )
        self.bind()

    def bind(self) -> None:
        """Take over parameters, gradients and moments that have been replaced, by loading for instance.

        Adam's first moments that have faded to denormal numbers become 0.
        """
        self.flat.bind()
        self.at_once = self._can_go_at_once()
        if not self.at_once:
            return
        for parameter, views in zip(self.flat.parameters, self._states, strict=True):
            state = self.optimizer.state[parameter]
            for name, view in views.items():
                known = state.get(name)
                if known is not view:
                    view.copy_(torch.as_tensor(known)) if known is not None else view.zero_()
                    state[name] = view
        steps = self._steps.tolist()
        self._on_device.fill_(steps[0])
        self.at_once = min(steps) == max(steps)
        # Without gradients (of units that rectify everything away) a first moment fades to a denormal number and stays one, because
        # 0.9 times the smallest rounds up to it: processors take many times as long for those, and no weight notices them.
        first = self._moments[0]
        torch.hardshrink(first, SMALLEST_NORMAL, out=first)

    def _can_go_at_once(self) -> bool:
        groups = self.optimizer.param_groups
        if type(self.optimizer) not in (torch.optim.Adam, torch.optim.AdamW, torch.optim.RAdam) or len(groups) != 1:
            return False
        group = groups[0]
        special = any(group.get(name) for name in ("amsgrad", "maximize", "capturable", "differentiable"))
        return not special and not any(isinstance(one, torch.Tensor) for one in (group["lr"], *group["betas"]))

    def step(self) -> None:
        """One step along the gradients, at the learning rate that the optimiser's group has now."""
        if not self.at_once:
            for one in self.idle:
                one.grad = None
            self.optimizer.step()
            return
        group = self.optimizer.param_groups[0]
        self._steps.add_(1)
        first, second = self._moments
        flat, (beta1, beta2) = self.flat, group["betas"]
        common: dict[str, Any] = {
            "lr": group["lr"], "beta1": beta1, "beta2": beta2, "eps": group["eps"], "weight_decay": group["weight_decay"],
        }  # fmt: skip
        if type(self.optimizer) is torch.optim.RAdam:
            radam(
                [flat.data], [flat.gradients], [first], [second], [self._on_device], foreach=False,
                decoupled_weight_decay=group["decoupled_weight_decay"], **common,
            )  # fmt: skip
            return
        self._on_device.add_(1)
        decoupled = type(self.optimizer) is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        (torch._fused_adamw_ if decoupled else torch._fused_adam_)(
            [flat.data], [flat.gradients], [first], [second], [], [self._on_device], amsgrad=False, maximize=False, **common,
        )  # fmt: skip
