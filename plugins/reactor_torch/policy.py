"""One noun for what acts: a network, a distribution of actions, and the spaces between which they stand.

A :class:`Policy` is a value without weights, of which everybody who acts gets a copy. Bound to weights and to the observations that
it looks at, it is a :class:`BoundPolicy`. Actors, evaluators, runners and leagues all ask one for actions; they differ in where
noise comes from, and in what they do with actions.

:func:`as_policy` reads the policies of other libraries. Each plugin that knows a library has a function for it, which it offers as
an entry point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import nn

from reactor_rl.plugin import NoiseKind, drawn_noise
from reactor_torch import kernels
from reactor_torch.acting import AskedNet, BoundNet, Net, RecurrentNet
from reactor_torch.distributions import ActionDistribution, check_masks
from reactor_torch.parameters import parameter_record, tensors_of, write_parameters
from reactor_torch.streams import drawing_nothing

__all__ = ["BoundPolicy", "Noise", "OneStream", "Policy", "Source", "as_policy", "choices_among"]

Array = npt.NDArray[Any]
GROUP = "reactor_torch.policies"
"""Entry points of functions like :func:`as_policy`, each for the classes of one package, whose name it has."""


# ---------------------------------------------------------------------- noise


class Noise(Protocol):
    """Where the noise that actions are drawn with comes from."""

    def take(self, kind: NoiseKind, steps: int, rows: int, width: int) -> Array:
        """The next noise, ``(steps, rows, width)``, float32, which is the caller's.

        Args:
            kind: Its kind; :func:`~reactor_rl.plugin.drawn_noise` draws it from a generator.
            steps: For how many steps.
            rows: For how many rows.
            width: Numbers for a row at a step.
        """


@dataclass(frozen=True)
class OneStream:
    """One generator for all rows: that of an actor."""

    generator: np.random.Generator

    def take(self, kind: NoiseKind, steps: int, rows: int, width: int) -> Array:
        """See :class:`Noise`."""
        return drawn_noise(kind, self.generator, (steps, rows, width))


# ---------------------------------------------------------------------- policies


@dataclass(frozen=True)
class Policy:
    """How somebody acts, without weights: frozen, picklable, light, and compared by ``==``.

    Attributes:
        network: From observations to the outputs of the actor, and to values of the critic.
        distribution: From outputs to raw actions; ``None`` if the network is a module that draws them in a way of its own.
        action_space: Of one environment.
        squashed: Whether raw actions of a ``Box`` lie between -1 and 1 and are stretched to its bounds; else they are clipped.
        masked: Whether it has to be told which choices are allowed.
    """

    network: Net | AskedNet
    distribution: ActionDistribution | None
    action_space: gymnasium.Space[Any]
    squashed: bool = False
    masked: bool = False

    @property
    def draws(self) -> bool:
        """Whether it may draw from torch's generator: then it is asked within a :func:`~reactor_torch.torch_stream`."""
        return self.network.draws

    @property
    def by_row(self) -> bool:
        """Whether an answer depends on its own row alone, to the last bit, by construction."""
        return self.why_torch is None and kernels.compiled is not None

    @property
    def why_torch(self) -> str | None:
        """Why torch evaluates it; ``None`` if the extension does, wherever there is one."""
        return self.network.why_torch

    def state(self, rows: int) -> Array | None:
        """Memory where episodes begin, ``(parts, rows, hidden)``, float32; ``None`` if it remembers nothing."""
        if isinstance(self.network, RecurrentNet | AskedNet) and self.network.parts:
            return np.zeros((self.network.parts, rows, self.network.hidden), np.float32)
        return None

    @property
    def fitting(self) -> Callable[[Array], Array] | None:
        """A function from raw actions to those that environments take, ``(rows, *shape)``; ``None`` if they are the same."""
        space: Any = self.action_space
        match space:
            case spaces.Box():
                return _fitting(space.low, space.high, self.squashed)
            case spaces.Discrete():
                start: Any = int(space.start)
            case spaces.MultiDiscrete():
                start = space.start
            case _:
                start = 0
        if not np.any(start):
            return None
        return lambda actions: actions.reshape(-1, *space.shape) + start

    def bind(
        self,
        weights: Array,
        seen: Mapping[str, Array],
        *,
        masks: Array | None = None,
        starts: Array | None = None,
        noting: bool = False,
        allow_none: bool = False,
    ) -> BoundPolicy:
        """The policy with weights. Everything that it looks at is written before a step is asked for.

        Args:
            weights: A record of parameters and buffers, by name.
            seen: Observations, ``(steps, rows, *shape)`` by key, without gaps; an array has the key ``""``.
            masks: What is allowed, ``(steps, rows, choices)``, bool; ``None`` if everything is.
            starts: Whether an episode begins with a step, ``(steps, rows)``, bool; for policies that remember.
            noting: Whether values, and probabilities of drawn actions, are wanted after a round.
            allow_none: Whether masks of a row may forbid everything: it is padding, and its choices are the first.

        Raises:
            ValueError: If something of the network is not among the weights, or is of another shape.
        """
        remembers = self.state(1) is not None
        if (self.masked and masks is None) or (remembers and starts is None):
            raise ValueError(f"{'masks' if self.masked else 'starts'} must be given to a policy that looks at them")
        steps, rows = next(iter(seen.values())).shape[:2]
        shape = steps, rows
        if isinstance(self.network, AskedNet):
            told = masks if self.masked else None, starts if remembers else None
            return _BoundAsked(self, self.network, weights, seen, *told, shape, allow_none)
        return _BoundSampled(self, weights, seen, masks, starts, shape, noting, allow_none)


def _fitting(low: Array, high: Array, squashed: bool) -> Callable[[Array], Array]:
    if not squashed:
        return lambda actions: actions.clip(low, high)
    width = high - low
    return lambda actions: (low + 0.5 * (actions + 1.0) * width).clip(low, high)


class BoundPolicy(Protocol):
    """A policy that reads observations where they lie, and its weights where it is bound and where a round begins.

    What it returns is valid until the next call.

    Attributes:
        outputs: From a step to what its distribution looks at, ``(rows, n)``, float32; masked choices are low.
        mode: From a step to the best raw actions, ``(rows, *shape)``.
        state: What it remembers of each row, ``(parts, rows, hidden)``: the first step reads it, and after the last one it is
            overwritten. Without a memory there are no parts.
        states: While it notes, the same before each step and after the last one, ``(steps + 1, parts, rows, hidden)``.
    """

    state: Array
    states: Array

    @property
    def outputs(self) -> Callable[[int], Array]: ...

    @property
    def mode(self) -> Callable[[int], Array]: ...

    def begin(self, noise: Noise, *, renewed: bool = True) -> Callable[[int], Array]:
        """Begin a round: the noise of all its steps is drawn.

        Args:
            noise: Where it comes from.
            renewed: Whether weights may be others than when it was bound, or a round began.

        Returns:
            A function from a step to drawn raw actions, ``(rows, *shape)``. It is called for steps in order, perhaps not for all.
        """

    def log_prob(self, actions: Array) -> Array:
        """Logarithms of the probabilities of the actions that were drawn in a round, ``(steps, rows, *shape)``."""

    def values(self) -> Array:
        """The critic's values in it, ``(steps, rows)``, float32."""

    def value_of(self, seen: Mapping[str, Array], which: Array) -> Array:
        """The critic's values of what is seen after some steps of it, ``(count,)``, float32.

        Args:
            seen: Observations, ``(count, *shape)`` by key.
            which: After which steps, ``(steps, rows)``, bool.
        """


class _BoundSampled:
    """Of a distribution."""

    def __init__(
        self, policy: Policy, weights: Array, seen: Mapping[str, Array], masks: Array | None, starts: Array | None,
        shape: tuple[int, int], noting: bool, allow_none: bool,
    ) -> None:  # fmt: skip
        assert policy.distribution is not None and not isinstance(policy.network, AskedNet)
        self.distribution, self.weights = policy.distribution, weights
        self.steps, self.rows = shape
        self.net: BoundNet = policy.network.bind(weights, seen, noting, starts)
        self.state, self.states = self.net.state, self.net.states
        outputs, mode, sizes = self.net.outputs, self.distribution.mode, self.distribution.choices
        if masks is not None and sizes:
            outputs = _allowed(outputs, masks, self.distribution, allow_none)
        self.outputs = outputs
        self.mode = lambda step: mode(outputs(step))
        if len(sizes) == 1 and not self.distribution.shape and masks is None:
            # One choice without masks: the extension finds the largest output in the same call.
            self.mode = self.net.argmax
        self.scores = np.empty((*shape, self.distribution.outputs), np.float32) if noting else None
        self.choose = self.distribution.drawing(self.rows)

    def begin(self, noise: Noise, *, renewed: bool = True) -> Callable[[int], Array]:
        """See :class:`BoundPolicy`."""
        if renewed:
            self.net.begin()
        outputs, scores, choose, rows = self.outputs, self.scores, self.choose, self.rows
        weights, distribution = self.weights, self.distribution
        kind, width, every, scaled = distribution.noise, distribution.width, distribution.every, distribution.scaled
        if kind == "none" and scores is None:
            return self.mode
        if every != 1:
            held = np.zeros((rows, width), np.float32)
            until = 0.0

            def draw_and_hold(step: int) -> Array:
                nonlocal until
                if step == 0 or step >= until:
                    until = _next_draw(step, every)
                    held[...] = scaled(noise.take(kind, 1, rows, width), weights)[0]
                of_step = outputs(step)
                if scores is not None:
                    scores[step] = of_step
                return choose(of_step, held)

            return draw_and_hold
        drawn = scaled(noise.take(kind, self.steps, rows, width), weights)
        if scores is None:
            return lambda step: choose(outputs(step), drawn[step])

        def draw(step: int) -> Array:
            of_step = scores[step] = outputs(step)
            return choose(of_step, drawn[step])

        return draw

    def log_prob(self, actions: Array) -> Array:
        assert self.scores is not None
        return self.distribution.log_prob(self.scores, actions, self.weights)

    def values(self) -> Array:
        return self.net.values()

    def value_of(self, seen: Mapping[str, Array], which: Array) -> Array:
        return self.net.value_of(seen, which)


def _next_draw(step: int, every: int) -> float:
    """The next step of a round that has noise of its own, where a draw holds for so many; 0 for all of a round."""
    return step - step % every + every if every else math.inf


def _allowed(
    outputs: Callable[[int], Array], masks: Array, distribution: ActionDistribution, allow_none: bool
) -> Callable[[int], Array]:
    """The scores of a step, of which those are low that its masks forbid."""
    look, forbid = _checking(distribution.choices, allow_none), distribution.forbid
    return lambda step: forbid(outputs(step), look(masks[step], step))


def _checking(choices: tuple[int, ...], allow_none: bool) -> Callable[[Array, int], Array]:
    """A function from the masks of a step, and the step, to what is allowed: where nothing is, that is an error, or the first."""
    begins = np.cumsum((0, *choices[:-1]))

    def checked(allowed: Array, step: int) -> Array:
        check_masks(allowed, choices, step)
        return allowed

    def padded(allowed: Array, step: int) -> Array:
        allowed = allowed.copy()
        allowed[:, begins] |= ~np.logical_or.reduceat(allowed, begins, 1)
        return allowed

    return padded if allow_none else checked


class _BoundAsked:
    """Of a module that draws actions by itself."""

    def __init__(
        self, policy: Policy, net: AskedNet, weights: Array, seen: Mapping[str, Array], masks: Array | None, starts: Array | None,
        shape: tuple[int, int], allow_none: bool,
    ) -> None:  # fmt: skip
        self.net, self.rows, self.module = net, shape[1], net.forward.with_weights(weights)
        self.judged, self.logs = (np.empty(shape, np.float32) for _ in range(2))
        self.states = states = np.zeros((shape[0] + 1, net.parts, shape[1], net.hidden), np.float32)
        self.state = state = np.zeros(states.shape[1:], np.float32)
        module, last, raw = self.module, shape[0] - 1, (shape[1], *(policy.action_space.shape or ()))
        look = _checking(choices_among(policy.action_space), allow_none)
        steps = net.forward.steps(seen)
        judged, logs = self.judged, self.logs

        def ask(call: Any, step: int) -> Array:
            more: dict[str, Any] = {}
            if masks is not None:
                more["action_masks"] = look(masks[step], step)
            if starts is not None:
                if step == 0:
                    states[0] = state
                began = torch.from_numpy(starts[step].astype(np.float32))
                more |= {"state": torch.from_numpy(states[step]), "episode_starts": began}
            answer = call(module, steps(step), more)
            if answer.values is not None:
                judged[step] = answer.values.cpu().numpy()
            if answer.log_prob is not None:
                logs[step] = answer.log_prob.cpu().numpy()
            if answer.state is not None:
                states[step + 1] = answer.state.cpu().numpy()
                if step == last:
                    state[...] = states[-1]
            return answer.actions.cpu().numpy().reshape(raw)  # type: ignore[no-any-return]

        self.ask = ask

        def best(step: int) -> Array:
            with torch.inference_mode():
                return ask(net.calls.mode, step)

        self.mode = self.outputs = best

    def begin(self, noise: Noise, *, renewed: bool = True) -> Callable[[int], Array]:
        """See :class:`BoundPolicy`. What is drawn is drawn by torch."""
        ask, call, redraw, every = self.ask, self.net.calls.draw, self.net.calls.redraw, self.net.every
        module, rows, stepping = self.module, self.rows, drawing_nothing if self.net.quiet else nullcontext
        until = 0.0

        def draw(step: int) -> Array:
            nonlocal until
            with torch.inference_mode():
                if every >= 0 and (step == 0 or step >= until):
                    until = _next_draw(step, every)
                    redraw(module, rows)
                with stepping():
                    return ask(call, step)

        return draw

    def log_prob(self, actions: Array) -> Array:
        self._check()
        return self.logs

    def values(self) -> Array:
        self._check()
        return self.judged

    def _check(self) -> None:
        if not self.net.calls.judges:
            raise TypeError(f"{type(self.module).__name__} says nothing of probabilities and values")

    def value_of(self, seen: Mapping[str, Array], which: Array) -> Array:
        with torch.inference_mode():
            state = torch.from_numpy(self.states[1:].swapaxes(1, 2)[which].swapaxes(0, 1))
            return self.net.calls.values_after(self.module, self.net.forward.copies(seen), state).numpy()


# ---------------------------------------------------------------------- reading


class Source(NamedTuple):
    """A policy, and the module that has its weights.

    Attributes:
        policy: The policy.
        module: The module.
    """

    policy: Policy
    module: nn.Module

    @property
    def why_torch(self) -> str | None:
        return self.policy.why_torch

    def weights(self) -> Array:
        """Its parameters and buffers as they are now: a record, by name."""
        state = {name: one.detach().cpu() for name, one in tensors_of(self.module).items()}
        record: Array = np.zeros((), parameter_record(state))
        write_parameters(record, state)
        return record


def as_policy(
    policy: Any,
    observation_space: gymnasium.Space[Any] | None = None,
    action_space: gymnasium.Space[Any] | None = None,
    *,
    here: bool = False,
) -> Source | None:
    """Read a policy of another library.

    Args:
        policy: It, or what holds it.
        observation_space: Of one environment; ``None`` if the policy knows it.
        action_space: Likewise.
        here: Whether it acts with the weights that it has now: then what torch evaluates keeps them, and is on any device. Else
            it travels without weights.

    Returns:
        ``None`` for what no plugin knows: a function, say.
    """
    packages = {cls.__module__.partition(".")[0] for cls in type(policy).__mro__}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        if entry.name in packages:
            found: Source | None = entry.load()(policy, observation_space, action_space, here)
            if found is not None:
                return found
    return None


def choices_among(space: gymnasium.Space[Any]) -> tuple[int, ...]:
    """Among how many is chosen, for each choice of an action that masks may forbid; bits are choices between two."""
    match space:
        case spaces.Discrete(n=n):
            return (int(n),)
        case spaces.MultiDiscrete(nvec=sizes):
            return tuple(map(int, sizes.flat))
    return (2,) * math.prod(space.shape or ())
