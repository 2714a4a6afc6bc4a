"""Pass calls on a trainer's vector environment (``env_method``, ``set_attr``, ``get_attr``) on to the actors' environments.

In SB3 the vector environment of ``model.get_env()``, and of ``training_env`` in callbacks, is the one that is stepped. A trainer's
actors have environments of their own. So these calls go to the actors, between two rounds, and to what the caller holds as well:
both are changed alike. Answers are the actors', unless the caller has just reset what it holds, and plays in it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices

from reactor_sb3.environments.wrapped_alone import levels_of

__all__ = ["EnvRequest", "forget_play", "leave", "reach"]

_ATTRIBUTE = "_reactor_rl_reached"


class EnvRequest:
    """Something to be asked of some environments, or done with them; can be pickled.

    Args:
        what: ``"env_method"``, ``"set_attr"`` or ``"get_attr"``.
        name: Of the method or the attribute.
        args: Arguments of the method; the value.
        kwargs: Keywords of the method.

    Attributes:
        title: What it is called in messages.
        changes: Whether the environments may be others afterwards.
    """

    def __init__(self, what: str, name: str, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        self.what, self.name, self.args, self.kwargs = what, name, args, kwargs or {}

    @property
    def title(self) -> str:
        return f"{self.what}({self.name!r})"

    @property
    def changes(self) -> bool:
        return self.what != "get_attr"

    def __call__(self, env: gymnasium.Env[Any, Any]) -> Any:
        """Ask one environment, as SB3's ``DummyVecEnv`` does."""
        if self.what == "set_attr":
            return setattr(env, self.name, *self.args)
        found = env.get_wrapper_attr(self.name)
        return found(*self.args, **self.kwargs) if self.what == "env_method" else found


class _Reached:
    """Stands in for the methods of a vector environment.

    Args:
        venv: The vector environment, without wrappers.
        whole: Whether it has environments of its own that are there, and not only made when they are used.
    """

    def __init__(self, venv: VecEnv, whole: bool) -> None:
        self.venv, self.whole = venv, whole
        self.owners: weakref.WeakSet[Any] = weakref.WeakSet()
        self.played = False

    def __getstate__(self) -> dict[str, Any]:
        return {"venv": self.venv, "whole": self.whole, "played": self.played}  # a copy belongs to nobody

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, owners=weakref.WeakSet())

    def _own(self, what: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(type(self.venv), what).__get__(self.venv)
        return method

    def _ask(self, asked: EnvRequest, indices: VecEnvIndices, own: Callable[[], Any]) -> Any:
        numbers = list(self.venv._get_indices(indices))
        numbers = [range(self.venv.num_envs)[number] for number in numbers]
        answers = None
        for owner in list(self.owners):
            found = owner.ask_actors(asked, numbers)
            answers = answers if found is None else found
        if answers is None or self.played:
            return own()
        if self.whole and asked.changes:
            own()
        return answers

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        own = partial(self._own("env_method"), method_name, *method_args, indices=indices, **method_kwargs)
        found: list[Any] = self._ask(EnvRequest("env_method", method_name, method_args, method_kwargs), indices, own)
        return found

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        found: list[Any] = self._ask(EnvRequest("get_attr", attr_name), indices, partial(self._own("get_attr"), attr_name, indices))
        return found

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        self._ask(EnvRequest("set_attr", attr_name, (value,)), indices, partial(self._own("set_attr"), attr_name, value, indices))

    def reset(self) -> Any:
        """See SB3; from now on until the next round its own environments answer."""
        self.played = self.whole = True
        return self._own("reset")()


def reach(venv: VecEnv, owner: Any, whole: bool) -> None:
    """Let calls on a vector environment reach the actors of a trainer.

    Args:
        venv: The trainer's.
        owner: The trainer, whose ``ask_actors`` is called, and which is not kept alive.
        whole: Whether the environments in it are there, and not only made when they are used.
    """
    base = levels_of(venv)[-1]
    reached: _Reached | None = vars(base).get(_ATTRIBUTE)
    if reached is None:
        reached = _Reached(base, whole)
        vars(base)[_ATTRIBUTE] = reached
        for name in ("env_method", "get_attr", "set_attr", "reset"):
            vars(base)[name] = getattr(reached, name)
    reached.owners.add(owner)


def leave(venv: VecEnv, owner: Any) -> None:
    """The inverse of :func:`reach`: the trainer has other environments now."""
    reached: _Reached | None = vars(levels_of(venv)[-1]).get(_ATTRIBUTE)
    if reached is not None:
        reached.owners.discard(owner)


def forget_play(venv: VecEnv | None) -> None:
    """Note that a round begins: whoever has reset a vector environment before plays in it no more."""
    if venv is not None and (reached := vars(levels_of(venv)[-1]).get(_ATTRIBUTE)) is not None:
        reached.played = False
