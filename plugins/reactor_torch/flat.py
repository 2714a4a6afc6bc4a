"""The parameters of a network in one array, and optimisers that step them as one.

Every tensor of a network, and of its gradients and moments, is a view. What goes over all parameters is one call then: clipping, an
optimiser's step, a soft update of a target, a copy for the actors. An optimiser stays what it is: schedules change its
``param_groups``, its state dicts are torch's, and its own ``step`` goes on from the same moments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.optim import optimizer as of_all_optimizers
from torch.optim.radam import radam
from torch.optim.rmsprop import rmsprop

from reactor_torch import kernels

__all__ = ["FlatOptimizer", "FlatParameters", "array_of", "get", "have_hooks", "kernels_for", "numbers", "put"]

Array = npt.NDArray[Any]


def array_of(tensor: torch.Tensor) -> Any:
    """A tensor as numpy has it if it lies in a processor's memory, which is shared; else as it is."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def kernels_for(device: Any) -> Any:
    """The extension for what lies on a device; ``None`` if torch has to do it."""
    return kernels.compiled if device.type == "cpu" else None


def put(into: Any, values: Array) -> None:
    """Overwrite what :func:`array_of` has given, wherever it lies, by numbers in a processor's memory."""
    if isinstance(into, np.ndarray):
        into[...] = values
    else:
        into.copy_(torch.tensor(values))  # which copies: others may not be written to, and torch warns of views of those


def get(source: Any, out: Array) -> None:
    """Copy what :func:`array_of` has given, from wherever it lies, into a processor's memory."""
    if isinstance(source, np.ndarray):
        out[...] = source
    else:
        torch.from_numpy(out).copy_(source)


def numbers(values: list[Any]) -> npt.NDArray[np.float32]:
    """Scalars of either kind, ``(len(values),)``; waits for the device once."""
    if isinstance(values[0], torch.Tensor):
        return torch.stack([torch.as_tensor(one, dtype=torch.float32) for one in values]).cpu().numpy()
    return np.array(values, np.float32)


_BEFORE, _BEHIND = map(attrgetter, ("_backward_hooks", "_post_accumulate_grad_hooks"))
_HOOKS = attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")
"""Hooks of a parameter, on its gradient; torch keeps them in dicts, or ``None``."""


def have_hooks(parameters: Iterable[torch.Tensor]) -> bool:
    """Whether somebody has hung hooks onto one of these, which look at gradients or change them."""
    return any(map(_BEFORE, parameters)) or any(map(_BEHIND, parameters))


class FlatParameters:
    """Parameters whose values and gradients lie in one array each, in the order given and without gaps.

    The modules go on as before: what is loaded into them arrives in the array, and what is stepped there is seen by them. Whoever
    may have replaced a parameter's tensor meanwhile, or its gradient (``zero_grad`` does), calls :meth:`bind` before going on.
    Copies (``copy.deepcopy``) are bound to an array of their own by the same call.

    Args:
        named: Names and parameters, as ``module.named_parameters()`` gives them; each is taken once, frozen ones are left alone.
        learned: ``False`` for a network that nobody differentiates (a target): no gradients, and frozen ones are taken too.

    Attributes:
        names: Names of the parameters, in order.
        parameters: The parameters.
        frozen: Names of those that are left alone.
        data: Their values, ``(size,)``, float32.
        gradients: Their gradients, ``(size,)``, float32; empty if they are not learned.

    Raises:
        ValueError: If the sequence is empty.
        TypeError: If one is not float32, or they are on several devices.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]], learned: bool = True) -> None:
        taken: dict[nn.Parameter, str] = {}
        frozen = set()
        for name, parameter in named:
            if learned and not parameter.requires_grad:
                frozen.add(name)
            else:
                taken.setdefault(parameter, name)
        self.names, self.parameters, self.frozen = tuple(taken.values()), tuple(taken), frozenset(frozen)
        if not self.parameters:
            raise ValueError("there are no parameters to learn: all are frozen, or the network has none")
        self.device = self.parameters[0].device
        for name, parameter in zip(self.names, self.parameters, strict=True):
            self._check(name, parameter)
        size = sum(parameter.numel() for parameter in self.parameters)
        self.data = torch.zeros(size, device=self.device)
        self.gradients = torch.zeros(size if learned else 0, device=self.device)
        self._values = self.views(self.data)
        self._gradients = self.views(self.gradients) if learned else tuple(one.grad for one in self.parameters)
        self._at = {name: index for index, name in enumerate(self.names)}
        self.bind()

    def _check(self, name: str, parameter: nn.Parameter) -> None:
        if parameter.dtype != torch.float32 or parameter.device != self.device:
            raise TypeError(
                f"parameter {name!r} is {parameter.dtype} on {parameter.device}, and learners want float32 on one device "
                f"({self.device}); after moving a network make its learner again"
            )

    def views(self, array: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """An array like :attr:`data` cut into tensors of the parameters' shapes."""
        pieces = torch.split(array, [parameter.numel() for parameter in self.parameters])
        return tuple(piece.view(parameter.shape) for piece, parameter in zip(pieces, self.parameters, strict=True))

    def bind(self) -> None:
        """Make parameters and gradients views of the arrays again where they are not; values of parameters are kept.

        Raises:
            TypeError: If a parameter has become something else than float32 on the device where they were.
        """
        for name, parameter, value, gradient in zip(self.names, self.parameters, self._values, self._gradients, strict=True):
            # By address: loading and moving exchange what is behind a parameter, and keep the parameter itself.
            if parameter.data_ptr() != value.data_ptr() or parameter.stride() != value.stride():
                self._check(name, parameter)
                value.copy_(parameter.data.clone())  # it may be the same memory, turned
                parameter.data = value
            if parameter.grad is not gradient:
                parameter.grad = gradient

    def move(self, data: torch.Tensor, gradients: torch.Tensor | None = None) -> None:
        """Have the values in another array from now on, those that are there, and the gradients in another one too.

        For who has not looked at them yet: views of the former arrays are views of nothing any more.
        """
        self.data, self._values = data, self.views(data)
        if gradients is not None:
            self.gradients, self._gradients = gradients, self.views(gradients)
        for parameter, value, gradient in zip(self.parameters, self._values, self._gradients, strict=True):
            parameter.data, parameter.grad = value, gradient

    def hooked(self) -> list[int]:
        """Numbers of the parameters that have hooks, of those that are learned; see :func:`have_hooks`."""
        return [number for number, hooks in enumerate(map(_HOOKS, self.parameters)) if any(hooks)]

    @contextmanager
    def without_hooks(self, hooked: Iterable[int]) -> Iterator[None]:
        """Keep autograd from calling the hooks of such parameters: they are called once for each minibatch, however it is cut."""
        dicts = [hooks for number in hooked for hooks in _HOOKS(self.parameters[number]) if hooks]
        kept = [tuple(hooks.items()) for hooks in dicts]
        for hooks in dicts:  # autograd looks into them
            hooks.clear()
        try:
            yield
        finally:
            for hooks, items in zip(dicts, kept, strict=True):
                hooks.update(items)

    @torch.no_grad()
    def call_hooks(self, hooked: Iterable[int]) -> None:
        """Call the hooks of such parameters, as autograd calls them when the gradients are there."""
        for number in hooked:
            parameter, gradient = self.parameters[number], self._gradients[number]
            assert gradient is not None
            before, behind = _HOOKS(parameter)
            for hook in tuple((before or {}).values()):
                # A clone, for a hook may keep it, and the array is overwritten by the next update.
                changed = hook(gradient.clone())
                if changed is not None:
                    gradient.copy_(changed)
            parameter.grad = gradient
            # These are given the parameter, and look at its .grad.
            for hook in tuple((behind or {}).values()):
                hook(parameter)
            if parameter.grad is not gradient:
                gradient.zero_() if parameter.grad is None else gradient.copy_(parameter.grad)
                parameter.grad = gradient

    def begin_gradients(self) -> None:
        """Zeros, into which autograd adds."""
        self.gradients.zero_()
        for parameter, gradient in zip(self.parameters, self._gradients, strict=True):
            parameter.grad = gradient

    def value(self, name: str) -> torch.Tensor | None:
        """A parameter's view of :attr:`data`; ``None`` if there is no such parameter."""
        return self._values[self._at[name]] if name in self._at else None

    def gradient(self, name: str) -> torch.Tensor | None:
        """A parameter's view of :attr:`gradients`; ``None`` if there is no such parameter."""
        return self._gradients[self._at[name]] if name in self._at else None

    def clip(self, max_norm: float, kernels: Any = None) -> None:
        """Scale the gradients down to a norm, as ``torch.nn.utils.clip_grad_norm_`` does.

        Args:
            max_norm: The norm.
            kernels: The extension, if it is to be used.
        """
        norm: Any = kernels.norm(self.gradients.numpy()) if kernels else torch.linalg.vector_norm(self.gradients)
        if self.device.type != "cpu":  # without waiting for the device
            self.gradients.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
        elif not (factor := max_norm / (float(norm) + 1e-6)) >= 1.0:  # NaN spreads, as it does there
            self.gradients.mul_(factor)

    def blend(self, other: FlatParameters, tau: float, kernels: Any = None) -> None:
        """Move towards other parameters, ``tau`` of the way: the soft update of a target network; ``tau=1`` copies.

        Args:
            other: The other parameters.
            tau: How far.
            kernels: The extension, if it is to be used.
        """
        if tau == 1:
            self.data.copy_(other.data)
        elif kernels:
            kernels.polyak(self.data.numpy(), other.data.numpy(), tau)
        else:
            self.data.mul_(1 - tau).add_(other.data, alpha=tau)


SMALLEST_NORMAL = torch.finfo(torch.float32).tiny
FADED = 32
"""Every so many steps, moments that have faded away become 0. Once they are denormal, steps are slow until then; to look costs a
pass over all moments. Chosen.
"""
_ADAM = ("exp_avg", "exp_avg_sq")
_MOMENTS: dict[Any, tuple[str, ...]] = {
    torch.optim.Adam: _ADAM, torch.optim.AdamW: _ADAM, torch.optim.RAdam: _ADAM, torch.optim.RMSprop: ("square_avg",),
}  # fmt: skip
"""Moments that optimisers keep of each parameter, of those that go over all at once; those that fade fastest first."""
_GLOBAL_HOOKS: tuple[Any, ...] = (
    of_all_optimizers._global_optimizer_pre_hooks, of_all_optimizers._global_optimizer_post_hooks
)  # fmt: skip


class FlatOptimizer:
    """Steps flat parameters as a torch optimiser would.

    Adam, AdamW, RAdam and RMSprop of one group of parameters (without ``amsgrad``, ``momentum``, ``maximize`` and the like) go over
    the flat arrays at once; any other one, and one that has hooks or a ``step`` of its own, makes its own step on the views. A
    parameter that has no gradient in an update counts as one whose gradient is 0; torch leaves it out.

    Args:
        optimizer: Torch's; its parameters are those of ``flat``, but for frozen ones and idle ones.
        flat: The parameters.
        idle: Parameters that the optimiser has too, and never a gradient for: another one learns them.
        kernels: The extension, if it is to step them at once, with bits that do not depend on the processor; else torch does.

    Raises:
        ValueError: If they are not the same parameters.
    """

    def __init__(
        self, optimizer: torch.optim.Optimizer, flat: FlatParameters, idle: Iterable[nn.Parameter] = (), kernels: Any = None
    ) -> None:
        self.optimizer, self.flat, self.idle, self.kernels = optimizer, flat, tuple(idle), kernels
        own = {id(one) for group in optimizer.param_groups for one in group["params"] if one.requires_grad}
        if own - {id(one) for one in self.idle} != {id(one) for one in flat.parameters}:
            raise ValueError("the optimiser's parameters are not the flat ones: make both from the same network")
        self.at_once, self._taken = False, 0
        names = _MOMENTS.get(type(optimizer), ())
        self._moments = tuple(torch.zeros_like(flat.data) for _ in names)
        on_device = any(group.get("fused") for group in optimizer.param_groups)  # then torch's own step wants them there
        self._steps = torch.zeros(len(flat.parameters), device=flat.device if on_device else "cpu")
        self._on_device = torch.zeros((), device=flat.device)
        views = (self._steps.unbind(), *(flat.views(moment) for moment in self._moments))
        if kernels:  # as the extension takes them
            self._step_counts: Array = self._steps.numpy()
            self._arrays = [one.numpy() for one in (flat.data, flat.gradients, *self._moments)]
        self._states: tuple[dict[str, torch.Tensor], ...] = tuple(
            dict(zip(("step", *names), of_parameter, strict=True)) for of_parameter in zip(*views, strict=True)
        )
        self.bind()

    def bind(self) -> None:
        """Take over parameters, gradients and moments that have been replaced, by loading for instance."""
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
                    # In the optimiser's own state, where SB3's save() and load() look for moments.
                    state[name] = view
        steps = self._steps.tolist()
        self._taken = int(steps[0])
        if not self.kernels:
            self._on_device.fill_(steps[0])
        # One count serves all parameters. Where some are younger than others, torch's own loop has to make the step.
        self.at_once = min(steps) == max(steps)

    def _can_go_at_once(self) -> bool:
        groups = self.optimizer.param_groups
        if type(self.optimizer) not in _MOMENTS or len(groups) != 1:
            return False
        one: Any = self.optimizer
        if any((one._optimizer_step_pre_hooks, one._optimizer_step_post_hooks, *_GLOBAL_HOOKS)) or "step" in vars(one):
            return False
        group = groups[0]
        names = ("amsgrad", "momentum", "centered", "maximize", "capturable", "differentiable")
        special = any(group.get(name) for name in names)
        return not special and not any(isinstance(one, torch.Tensor) for one in (group["lr"], *group.get("betas", ())))

    def step(self) -> None:
        """One step along the gradients, at the learning rate that the optimiser's group has now."""
        if not self.at_once:
            for one in self.idle:
                # Else torch would step along what the loss of another network has left there.
                one.grad = None
            self.optimizer.step()
            return
        group, kind = self.optimizer.param_groups[0], type(self.optimizer)
        self._taken += 1
        if self._taken % FADED == 0:
            # Without gradients (of units that rectify everything away) a moment fades to a denormal number and stays one, because
            # 0.9 times the smallest rounds up to it: processors take many times as long for those, and no weight notices.
            torch.hardshrink(self._moments[0], SMALLEST_NORMAL, out=self._moments[0])
        if self.kernels:
            self._step_counts += 1
        else:
            self._steps.add_(1)
        (self._rmsprop if kind is torch.optim.RMSprop else self._adam)(group, kind)

    def _rmsprop(self, group: dict[str, Any], kind: Any) -> None:
        if self.kernels:
            self.kernels.rmsprop(*self._arrays, group["lr"], group["alpha"], group["eps"], group["weight_decay"])
            return
        rmsprop(
            [self.flat.data], [self.flat.gradients], [*self._moments], [], [], [self._on_device], foreach=False, momentum=0.0,
            centered=False, lr=group["lr"], alpha=group["alpha"], eps=group["eps"], weight_decay=group["weight_decay"],
        )  # fmt: skip

    def _adam(self, group: dict[str, Any], kind: Any) -> None:
        beta1, beta2 = group["betas"]
        decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        if self.kernels:
            numbers = (self._taken, group["lr"], beta1, beta2, group["eps"], group["weight_decay"])
            self.kernels.adam(kind is torch.optim.RAdam, decoupled, *self._arrays, *numbers)
            return
        first, second = self._moments
        flat = self.flat
        common: dict[str, Any] = {
            "lr": group["lr"], "beta1": beta1, "beta2": beta2, "eps": group["eps"], "weight_decay": group["weight_decay"],
        }  # fmt: skip
        if kind is torch.optim.RAdam:
            radam(
                [flat.data], [flat.gradients], [first], [second], [self._on_device], foreach=False,
                decoupled_weight_decay=group["decoupled_weight_decay"], **common,
            )  # fmt: skip
            return
        self._on_device.add_(1)
        (torch._fused_adamw_ if decoupled else torch._fused_adam_)(
            [flat.data], [flat.gradients], [first], [second], [], [self._on_device], amsgrad=False, maximize=False, **common,
        )  # fmt: skip
