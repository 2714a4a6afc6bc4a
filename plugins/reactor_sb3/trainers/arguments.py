"""Check the numbers among a trainer's arguments by tables of their limits, and convert them to Python's.

A model may have been trained with others, by an older version or because an attribute was set, and has to go on. So of arguments
that are taken over from a file (:func:`taken_over`) only the kinds are held against the tables, and no limits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from reactor_sb3.plain import plain

__all__ = ["check_log_interval", "check_numbers", "plain_argument", "plain_timesteps", "taken_over"]

LARGEST_SEED = 2**32 - 1
"""The largest seed of numpy's global generator, which SB3 seeds too."""
_LARGEST = 2**62 - 1
"""The largest whole number of an argument: sums of two fit into 64 bits, and a checkpoint takes it (``LARGE`` in
``checkpoints/templates.py``).
"""

_taken_over: ContextVar[bool] = ContextVar("taken_over", default=False)


def _is_coefficient(value: Any) -> bool:
    """Whether it is ``"auto"``, or that with the number that it begins with."""
    if not isinstance(value, str):
        return False
    word, _, first = value.partition("_")
    try:
        return word == "auto" and (value == "auto" or 0 < float(first) < math.inf)
    except ValueError:
        return False


class _Numbers(NamedTuple):
    """Numbers that an argument may be.

    Attributes:
        low: The least.
        high: The largest.
        whole: Whether they are whole ones.
        above: Whether ``low`` itself is excluded.
        endless: Whether infinity is one of them, which switches some things off.
        other: Whether a value may be there in place of a number.
        otherwise: What that is.
    """

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    above: bool = False
    endless: bool = False
    other: Callable[[Any], bool] = lambda value: False
    otherwise: str = ""

    def holds(self, value: Any) -> bool:
        """Whether a value is one of them."""
        if not isinstance(value, int if self.whole else (int, float)) or type(value) is bool:
            return self.other(value)
        return (
            (self.whole or math.isfinite(value) or self.endless)
            and (self.low < value if self.above else self.low <= value)
            and value <= self.high
        )

    def unlimited(self) -> _Numbers:
        """The same kind of numbers, whatever their size; whole ones that fit into 63 bits."""
        if self.whole:
            return self._replace(low=-_LARGEST, high=_LARGEST, above=False)
        return self._replace(low=-math.inf, high=math.inf, above=False, endless=True)

    def __str__(self) -> str:
        said = "a whole number" if self.whole else "a finite number" if self.low == -math.inf and not self.endless else "a number"
        if self.low > -math.inf:
            said += f" above {self.low}" if self.above else f" from {self.low}"
            if self.high < math.inf:
                said += f" and up to {self.high}" if self.above else f" to {self.high}"
            elif not self.above:
                said += " on"
        return said + self.otherwise


_FUNCTION = ", or a function of what remains of the training"
_SHARE, _AMOUNT, _LIMIT, _FINITE = _Numbers(0, 1), _Numbers(0), _Numbers(0, endless=True), _Numbers()
_ANY_WHOLE, _COUNT, _FROM_ZERO = _Numbers(whole=True), _Numbers(1, whole=True), _Numbers(0, whole=True)
_NUMBERS: dict[str, _Numbers] = {
    **dict.fromkeys(
        ("n_steps", "batch_size", "n_epochs", "n_minibatches", "buffer_size", "target_update_interval",
         "policy_delay", "n_delta", "n_top", "n_eval_episodes", "cg_max_steps", "line_search_max_iter", "n_critic_updates",
         "sub_sampling_factor"),
        _COUNT,
    ),
    **dict.fromkeys(("learning_starts", "top_quantiles_to_drop_per_net", "stats_window_size"), _FROM_ZERO),
    **dict.fromkeys(("gradient_steps", "sde_sample_freq"), _ANY_WHOLE),
    "seed": _Numbers(0, LARGEST_SEED, whole=True),
    **dict.fromkeys(
        ("gamma", "gae_lambda", "q_lambda", "tau", "exploration_initial_eps", "exploration_final_eps"), _SHARE
    ),
    **dict.fromkeys(
        ("exploration_fraction", "target_policy_noise", "epsilon_spread", "rms_prop_eps", "cg_damping"), _AMOUNT
    ),
    "line_search_shrinking_factor": _Numbers(0, 1, above=True),
    **dict.fromkeys(("max_grad_norm", "target_kl", "target_noise_clip"), _LIMIT),
    **dict.fromkeys(("learning_rate", "delta_std"), _Numbers(0, other=callable, otherwise=_FUNCTION)),
    **dict.fromkeys(("clip_range", "clip_range_vf"), _Numbers(0, above=True, endless=True, other=callable, otherwise=_FUNCTION)),
    "vf_coef": _FINITE,
    "ent_coef": _FINITE,
    "alive_bonus_offset": _FINITE,
}  # fmt: skip
"""By the name of the argument, whichever trainer has it."""
_LEARNED: dict[str, _Numbers] = {
    "ent_coef": _Numbers(other=_is_coefficient, otherwise=', "auto", or "auto_0.1", say'),
    "target_entropy": _Numbers(other=lambda value: isinstance(value, str) and value == "auto", otherwise=' or "auto"'),
}
"""The same where the entropy coefficient may be learned."""
_OF_NETWORKS = dict.fromkeys(("n_critics", "n_quantiles", "lstm_hidden_size", "n_lstm_layers"), _COUNT)
"""The same in ``policy_kwargs``."""
_OF_EVERY_TRAINER = frozenset({
    "n_steps", "batch_size", "n_epochs", "train_freq", "buffer_size", "learning_starts", "gradient_steps",
    "stats_window_size", "seed",
})  # fmt: skip
"""Names that mean the same in an algorithm of the user's, for its bases read them."""
_WITHOUT = frozenset({"max_grad_norm"})
"""Names of those that may be ``None`` though it is not their default."""


# ---------------------------------------------------------------------- what is given


def plain_argument(name: str, value: Any) -> Any:
    """An argument without numbers of numpy's, which files cannot hold, and whole numbers as whole numbers."""
    value = _plain(name, value)
    if name in _NUMBERS and _NUMBERS[name].whole and type(value) is float and value.is_integer():
        return int(value)
    return value


def _plain(name: Any, value: Any) -> Any:
    if type(value) is dict and name != "features_extractor_kwargs":  # whose arrays are a module's of the user's
        return {plain(key): _plain(key, part) for key, part in value.items()}
    if isinstance(value, np.ndarray) and (value.ndim == 0 or name == "net_arch"):
        return value.tolist()
    if type(value) in (list, tuple) and name == "net_arch":
        return type(value)([_plain(name, part) for part in value])
    return plain(value)


def plain_timesteps(total_timesteps: Any) -> Any:
    """How many steps ``learn()`` is to take.

    Raises:
        ValueError: If that is no number.
    """
    steps = _plain("total_timesteps", total_timesteps)
    if type(steps) not in (int, float) or math.isnan(steps):
        raise ValueError(f"total_timesteps must be a number, got {total_timesteps!r}")
    return steps


# ---------------------------------------------------------------------- what makes sense


@contextlib.contextmanager
def taken_over() -> Iterator[None]:
    """In the block, arguments are those of a file, which is read or written."""
    token = _taken_over.set(True)
    try:
        yield
    finally:
        _taken_over.reset(token)


def check_numbers(arguments: Mapping[str, Any], defaults: Mapping[str, Any], *, ours: bool) -> None:
    """Refuse numbers that make no sense, which would be found out in the middle of a training, in other words.

    Args:
        arguments: A trainer's, plain.
        defaults: Of those that have one. What is ``None`` by default may be ``None``.
        ours: Whether the algorithm is one of ours; in another one some names may mean something else.
    """
    unlimited = _taken_over.get()
    numbers = _NUMBERS | _LEARNED if "target_entropy" in arguments else _NUMBERS
    if not ours:
        arguments = {name: value for name, value in arguments.items() if name in _OF_EVERY_TRAINER}
    for name, value in arguments.items():
        if name in numbers and not (value is None and (unlimited or defaults.get(name, 0) is None or name in _WITHOUT)):
            _want(name, value, numbers[name].unlimited() if unlimited else numbers[name])
    if unlimited:
        return
    if "train_freq" in arguments:
        _check_train_freq(arguments["train_freq"])
    if "exploration_fraction" in arguments and "replay_buffer_class" in arguments:  # SB3's schedule divides by it
        _want("exploration_fraction", arguments["exploration_fraction"], _Numbers(0, above=True))
    kwargs = arguments.get("policy_kwargs")
    if isinstance(kwargs, Mapping):
        for name, allowed in _OF_NETWORKS.items():
            if name in kwargs:
                _want(name, kwargs[name], allowed, " (in policy_kwargs)")
        _check_widths(kwargs.get("net_arch"))


def _want(name: str, value: Any, allowed: _Numbers, where: str = "") -> None:
    if not allowed.holds(value):
        raise ValueError(f"{name} must be {allowed}, got {value!r}{where}")


def _check_train_freq(value: Any) -> None:
    number = value[0] if isinstance(value, tuple) and len(value) == 2 else value  # SB3 knows the units
    if not _COUNT.holds(number):
        raise ValueError(f'train_freq must be a whole number from 1 on, or a pair of one and "step", got {value!r}')


def _check_widths(layers: Any) -> None:
    """Refuse layers without units."""
    parts = layers.values() if isinstance(layers, Mapping) else layers if isinstance(layers, (list, tuple)) else ()
    for part in parts:
        if isinstance(part, (Mapping, list, tuple)):
            _check_widths(part)
        elif isinstance(part, (int, float)):  # a policy of the user's may take others
            _want("net_arch", part, _COUNT, " for a layer (in policy_kwargs)")


def check_log_interval(log_interval: Any) -> None:
    """Refuse intervals between two logs that there cannot be."""
    value = plain(log_interval)
    if value is not None and (type(value) not in (int, float) or value % 1 != 0 or value == 0):  # NaN and infinity leave NaN
        raise ValueError(f"log_interval must be a whole number from 1 on, or None for no logs, got {log_interval!r}")
