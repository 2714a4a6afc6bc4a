"""Kinds of layers, as modules of torch and as those compute them who act and learn. A new kind is a new :class:`Case`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
from networks_today import ActorAndCritic, Critics, Learned, Memory, OfBytes, Squashed, Tensors
from sb3_contrib.common.torch_layers import BatchRenorm1d
from torch import nn
from torch.func import functional_call

ROWS = 200
"""Three leaves and a part of one: a tree of them is no sum from left to right."""
FEW = 20
"""Of images and sequences."""
CHOICES = 5


@dataclass
class Case:
    """A kind of layer.

    Attributes:
        make: Makes the module, of weights for which order matters.
        shape: Of an input.
        computed: What computes it.
        inputs: From a number of rows to what the module is given; by default numbers of the shape.
        alike: Numbers of outputs whose gradients are the same in all rows.
        rows: How many.
        adds_up: Whether gradients of leaves of rows, added up as a tree, have the bits of those of all rows.
        apart: Whether several of them are not evaluated at once. An exception, too.
        one_hot: Whether who acts is given numbers of ones among zeros.
        learning: Whether batches are normalised by their own statistics; ``None`` where there is no difference.
        wide: Whether it is large enough for threads to help.
        dear: Whether it takes so long that some checks of it are ``slow``.
    """

    make: Callable[[], Any]
    shape: tuple[int, ...] = (13,)
    computed: Callable[..., Learned] = Learned
    inputs: Callable[[int], Sequence[torch.Tensor]] | None = None
    alike: tuple[int, ...] = ()
    rows: int = ROWS
    adds_up: bool = True
    apart: bool = False
    one_hot: bool = False
    learning: bool = False
    wide: bool = False
    dear: bool = False

    @property
    def plain(self) -> bool:
        """Whether layers follow each other, from one input to one output."""
        return self.computed is Learned

    def made(self) -> Made:
        """The same each time."""
        torch.manual_seed(0)
        module = self.make()
        inputs = list(self.inputs(self.rows)) if self.inputs else [torch.randn(self.rows, *self.shape)]
        with torch.no_grad():
            outputs = outputs_of(deepcopy(module).train(self.learning), inputs)
        slopes = [torch.randn(1).expand_as(one) if at in self.alike else torch.randn_like(one) for at, one in enumerate(outputs)]
        return Made(self, module, inputs, slopes)


@dataclass
class Made:
    """A module, what it is given, and gradients of a loss by what it gives."""

    case: Case
    module: Any
    inputs: list[torch.Tensor]
    slopes: list[torch.Tensor]

    def learned(self) -> Learned:
        """What computes it."""
        return self.case.computed(deepcopy(self.module), self.case.shape)

    def ours(self) -> Tensors:
        """All that is computed."""
        return self.of_rows(slice(None))

    def of_rows(self, rows: Any) -> Tensors:
        """Of some of the rows, by what is made anew: buffers change."""
        learned = self.learned()
        by_row = [one[:, rows].contiguous() if one.shape[0] != self.case.rows else one[rows] for one in self.slopes]  # of critics
        return learned.computed([one[rows] for one in self.inputs], by_row, self.case.learning)

    def by_torch(self, double: bool = True) -> Tensors:
        """The same by torch's autograd."""
        module = deepcopy(self.module).train(self.case.learning)
        module, wide = (module.double(), torch.float64) if double else (module, torch.float32)
        inputs = [one.to(wide).requires_grad_() if one.is_floating_point() else one for one in self.inputs]
        outputs = outputs_of(module, inputs)
        parts = {f"by input {at}": one for at, one in enumerate(inputs) if one.requires_grad}
        parts |= {f"by {name}": one for name, one in module.named_parameters()}
        sums = [(one * slope).sum() for one, slope in zip(outputs, self.slopes, strict=True) if one.requires_grad]
        found = torch.autograd.grad(torch.stack(sums).sum(), list(parts.values()), allow_unused=True)
        gradients = {name: torch.zeros_like(parts[name]) if by is None else by for name, by in zip(parts, found, strict=True)}
        return {f"output {at}": one.detach() for at, one in enumerate(outputs)} | gradients | dict(module.named_buffers())


def outputs_of(module: Any, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What a module gives; bytes are divided by 255."""
    wide = next(module.parameters()).dtype
    found = module(*(one.to(wide) / 255 if one.dtype == torch.uint8 else one for one in inputs))
    return list(found) if isinstance(found, tuple) else [found]


# ---------------------------------------------------------------------- modules


def sequence(*parts: nn.Module) -> nn.Sequential:
    """With parameters that are not those that a normalisation begins with."""
    for part in parts:
        if isinstance(part, nn.LayerNorm):
            nn.init.normal_(part.weight), nn.init.normal_(part.bias)
        if isinstance(part, BatchRenorm1d):
            nn.init.normal_(part.scale), nn.init.normal_(part.bias)
    return nn.Sequential(*parts)


def linear(activation: type[nn.Module] | None = None, inputs: int = 13, outputs: int = 7, **how: Any) -> nn.Sequential:
    return sequence(nn.Linear(inputs, outputs, **how), *([activation()] if activation else []))


def wide() -> nn.Sequential:
    return sequence(*linear(nn.ReLU, 100, 256), *linear(nn.Tanh, 256, 257), *linear(None, 257, 6))


def layer_norm(activation: type[nn.Module] | None = None, eps: float = 0.01) -> nn.Sequential:
    behind = [activation()] if activation else []
    return sequence(nn.Linear(13, 19), nn.LayerNorm(19, eps=eps), *behind, nn.Linear(19, 7))


def batch_renorm(steps: int, far: float = 0.0) -> nn.Sequential:
    """After so many of 5 steps of warm-up; with ``far``, running statistics are beyond the bounds."""
    parts: list[Any] = [BatchRenorm1d(13, 0.01, 0.3, warmup_steps=5), nn.Linear(13, 9), BatchRenorm1d(9, 0.01, 0.3, warmup_steps=5)]
    for one in parts[::2]:
        one.ra_mean.copy_((0.3 + 20 * far) * torch.randn(one.num_features))
        scale = torch.tensor([0.01, 200.0])[torch.randint(2, (one.num_features,))] if far else 1.0
        one.ra_var.copy_((0.5 + torch.rand(one.num_features)) * scale)
        one.steps.fill_(steps)
    return sequence(*parts, nn.ReLU(), nn.Linear(9, 7))


def convolutions(wide: bool = False) -> nn.Sequential:
    """As in Mnih et al. (2015), smaller; or with kernels, strides and padding that are not square."""
    if wide:
        parts = [
            nn.Conv2d(3, 16, 4, 2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 7 * 8, 64),
            nn.ReLU(),
        ]
        return sequence(*parts, nn.Linear(64, 7))
    parts = [nn.Conv2d(3, 6, (5, 3), (2, 3), (1, 2)), nn.Tanh(), nn.Conv2d(6, 8, 2, padding=1), nn.Flatten()]
    return sequence(*parts, nn.Linear(8 * 6 * 7, 7))


def flattened() -> nn.Sequential:
    """The order of what is flattened matters: channels come first."""
    return sequence(nn.Conv2d(3, 5, 3), nn.Flatten())


class Body(nn.Module):
    """With two heads, of a squashed normal distribution."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.body = sequence(nn.Linear(13, 24), nn.ReLU(), nn.Linear(24, width), nn.ReLU())
        self.mu, self.log_std = nn.Linear(width, 3), nn.Linear(width, 3)

    def forward(self, seen: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
        latent = self.body(seen)
        mean, log_std = self.mu(latent), self.log_std(latent).clamp(-20, 2)
        actions = torch.tanh(mean + log_std.exp() * noise)
        normal = torch.distributions.Normal(mean, log_std.exp()).log_prob(mean + log_std.exp() * noise)
        return actions, (normal - torch.log(1 - actions**2 + 1e-6)).sum(1)


class Shared(nn.Module):
    """Features that an actor and a critic have in common."""

    def __init__(self) -> None:
        super().__init__()
        self.features = sequence(nn.Linear(13, 24), nn.Tanh())
        self.actor, self.critic = nn.Linear(24, CHOICES), nn.Linear(24, 1)

    def forward(self, seen: torch.Tensor, taken: torch.Tensor) -> tuple[torch.Tensor, ...]:
        features = self.features(seen)
        choice = torch.distributions.Categorical(logits=self.actor(features))
        return self.critic(features)[:, 0], choice.log_prob(taken), choice.entropy()


class Beside(nn.Module):
    """Critics: the least that one of them says, as a function of actions, and all that they say, as one of parameters."""

    actions = 2

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        layers = [
            sequence(nn.Linear(15, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)) for _ in range(count)
        ]
        self.critics = nn.ModuleList(layers)

    def forward(self, seen: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        fixed = [{name: one.detach() for name, one in critic.named_parameters()} for critic in self.critics]
        both = torch.cat([seen, actions], 1)
        said = [functional_call(critic, given, both) for critic, given in zip(self.critics, fixed, strict=True)]
        values = [critic(both.detach()) for critic in self.critics]
        return torch.cat(said, 1).amin(1), torch.cat(values, 1).t().contiguous()


class Cells(nn.Module):
    """An LSTM that begins anew where an episode does."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 12)

    def forward(self, seen: torch.Tensor, starts: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs, cells = [], []
        for step, start in zip(seen.unbind(1), starts.unbind(1), strict=True):
            kept = (1 - start)[None, :, None]
            _, (h, c) = self.lstm(step[None], (kept * h.view(1, len(seen), -1), kept * c.view(1, len(seen), -1)))
            outputs.append(h[0])
            cells.append(c[0])
        return torch.stack(outputs, 1), torch.stack(cells, 1).detach()


def sequences(rows: int) -> list[torch.Tensor]:
    return [torch.randn(rows, 9, 5), (torch.rand(rows, 9) < 0.2).float(), *torch.randn(2, rows, 12).tanh()]


def ones_among_zeros(rows: int) -> list[torch.Tensor]:
    return [nn.functional.one_hot(torch.randint(13, (rows,)), 13).float()]


def critics(count: int, width: int = 24, **more: Any) -> Case:
    inputs = [(13,), (Beside.actions,)]
    return Case(
        partial(Beside, count, width), computed=Critics, inputs=lambda rows: [torch.randn(rows, *one) for one in inputs], **more
    )


def heads(width: int, **more: Any) -> Case:
    inputs = lambda rows: [torch.randn(rows, 13), 0.5 * torch.randn(rows, 3)]  # noqa: E731
    return Case(partial(Body, width), computed=Squashed, inputs=inputs, alike=(1,), **more)


IMAGES: Mapping[str, Any] = {"shape": (3, 12, 14), "rows": FEW, "adds_up": False}
LARGER: Mapping[str, Any] = {"shape": (3, 20, 22), "rows": FEW, "adds_up": False}


def pictures(rows: int, form: torch.memory_format = torch.contiguous_format) -> list[torch.Tensor]:
    return [torch.randint(0, 256, (rows, *LARGER["shape"]), dtype=torch.uint8).contiguous(memory_format=form)]


CASES: dict[str, Case] = {
    "linear": Case(linear),
    "linear, relu": Case(partial(linear, nn.ReLU)),
    "linear, tanh": Case(partial(linear, nn.Tanh)),
    "linear, no bias": Case(partial(linear, nn.ReLU, bias=False)),
    "linear, few outputs": Case(partial(linear, outputs=3, inputs=40), (40,)),
    "linear, one input": Case(partial(linear, inputs=1, outputs=33), (1,)),
    "activations alone": Case(lambda: sequence(nn.Linear(13, 9), nn.Tanh(), nn.ReLU(), nn.Tanh())),
    "several": Case(lambda: sequence(*linear(nn.Tanh, 13, 33), *linear(nn.ReLU, 33, 17), *linear(None, 17, 6))),
    "wide": Case(wide, (100,), wide=True),
    "one-hot": Case(partial(linear, nn.ReLU), inputs=ones_among_zeros, one_hot=True),
    "layer norm": Case(layer_norm),
    "layer norm, relu": Case(partial(layer_norm, nn.ReLU)),
    "layer norm, small epsilon": Case(partial(layer_norm, nn.Tanh, 1e-5)),
    "batch renorm, acting": Case(partial(batch_renorm, 9), adds_up=False, apart=True),
    "batch renorm, warm-up": Case(partial(batch_renorm, 5), adds_up=False, learning=True, apart=True),
    "batch renorm, after it": Case(partial(batch_renorm, 6), adds_up=False, learning=True, apart=True),
    "batch renorm, beyond bounds": Case(partial(batch_renorm, 9, 1.0), adds_up=False, learning=True, apart=True),
    "convolutions": Case(convolutions, **IMAGES),
    "convolutions, relu": Case(partial(convolutions, True), **LARGER, wide=True),
    "flatten": Case(flattened, **IMAGES),
    "convolutions of bytes": Case(partial(convolutions, True), **LARGER, computed=OfBytes, inputs=pictures),
    "convolutions of bytes, channels last": Case(
        partial(convolutions, True), **LARGER, computed=OfBytes, inputs=partial(pictures, form=torch.channels_last)
    ),
    "LSTM": Case(Cells, computed=Memory, inputs=sequences, rows=FEW, adds_up=False),
    "two heads": heads(16),
    "two wide heads": heads(256, wide=True),
    "actor and critic": Case(
        Shared, computed=ActorAndCritic, inputs=lambda rows: [torch.randn(rows, 13), torch.randint(CHOICES, (rows,))], alike=(2,)
    ),
    "one critic": critics(1),
    "three critics": critics(3),
    "two wide critics": critics(2, 256, wide=True),
}  # fmt: skip


def cases(some: Callable[[Case], bool] = lambda case: True) -> Any:
    """A test for each of them, or for some."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[pytest.mark.slow] * case.dear) for name, case in CASES.items() if some(case)]
    )
