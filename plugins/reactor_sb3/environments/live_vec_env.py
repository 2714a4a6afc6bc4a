"""The parts of a live vector environment of SB3's, so that actors can have environments like its own, one by one.

Nobody keeps the functions that made the environments, and an environment may have been changed since: so copies are made of the
environments as they are, where they are, in the worker processes of a ``SubprocVecEnv`` too. Of what is wrapped around all of them
every copy gets its share.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor, ResultsWriter
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecEnv,
    VecEnvWrapper,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from reactor_gymnasium.plugin import EnvFn, KernelKind, kernel_kind
from reactor_rl.plugin import loads
from reactor_sb3.environments.copies import copies_in, copies_of
from reactor_sb3.environments.wrapped_alone import StackedFrames, TransposedImages, levels_of

__all__ = ["Wrapped", "env_fns_of", "episode_logs", "kernel_of_all", "shown_to_actors", "wrappers_alone"]

INSTEAD = 'pass an id ("CartPole-v1") or a function that makes one environment, and n_actors= for how many'
_ATTRIBUTE = "_reactor_rl_copies"


class Wrapped:
    """Makes an environment and wraps it.

    Args:
        env_fn: Makes it.
        wrappers: Functions of an environment, the innermost first.
    """

    def __init__(self, env_fn: EnvFn, wrappers: Sequence[Callable[[Any], Any]]) -> None:
        self.env_fn, self.wrappers = env_fn, tuple(wrappers)

    def __call__(self) -> gymnasium.Env[Any, Any]:
        env = self.env_fn()
        for wrapper in self.wrappers:
            env = wrapper(env)
        return env


def shown_to_actors(venv: VecEnv) -> VecEnv:
    """The model for the actors' environments: the vector environment without those wrappers that a trainer stands for itself."""
    while type(venv) in (VecTransposeImage, VecNormalize):
        assert isinstance(venv, VecEnvWrapper)
        venv = venv.venv
    return venv


def env_fns_of(venv: VecEnv) -> list[EnvFn]:
    """A function for each environment of a live vector environment, which makes one like it is now.

    Raises:
        TypeError: If there is no way, or something is wrapped around all of them that one cannot have alone.
        RuntimeError: If it is closed, or in the middle of a step.
    """
    wrappers, inner = wrappers_alone(shown_to_actors(venv))
    return [Wrapped(env_fn, wrappers) if wrappers else env_fn for env_fn in _of_envs(inner)]


def wrappers_alone(venv: VecEnv) -> tuple[list[Callable[[Any], Any]], VecEnv]:
    """Wrappers of one environment that do as those of a vector environment do with all of them, and what these are around.

    Raises:
        TypeError: If there is one that an environment cannot have alone.
    """
    *layers, inner = levels_of(venv)
    wrappers = [_alone(layer) for layer in layers]
    return [one for one in reversed(wrappers) if one is not None], inner


def kernel_of_all(venv: VecEnv) -> KernelKind | None:
    """Tell which kind of kernel there is for all environments of a live vector environment; ``None`` if not for all.

    Raises:
        TypeError, RuntimeError: As :func:`env_fns_of`.
    """
    inner = shown_to_actors(venv)
    while type(inner) is VecMonitor:
        inner = inner.venv
    if isinstance(inner, VecEnvWrapper):
        return None
    kinds: set[KernelKind | None] = set(_ask(inner, kernel_kind))
    return kinds.pop() if len(kinds) == 1 else None


def episode_logs(venv: VecEnv | None) -> list[ResultsWriter]:
    """The logs of each ``VecMonitor`` that has one: of the episodes in all environments, so that only the trainer can write it."""
    monitors = [one for one in levels_of(venv) if type(one) is VecMonitor]
    return [one.results_writer for one in monitors if one.results_writer is not None]


def _alone(layer: VecEnvWrapper) -> Callable[[Any], Any] | None:
    """A wrapper of one environment that does as a layer does with all of them; None if none is needed."""
    kind = type(layer)
    if kind is VecFrameStack:
        frames = layer.stacked_obs
        order: Any = "first" if getattr(frames, "channels_first", False) else "last"
        if isinstance(frames.observation_space, spaces.Dict):
            parts = frames.sub_stacked_observations
            order = {key: "first" if part.channels_first else "last" for key, part in parts.items()}
        return partial(StackedFrames, n_stack=frames.n_stack, channels_order=order)
    if kind is VecMonitor:
        return partial(Monitor, info_keywords=tuple(layer.info_keywords))
    if kind is VecTransposeImage:
        if layer.skip:
            return None
        return partial(TransposedImages, keys=tuple(getattr(layer, "image_space_keys", ())))
    if kind is VecNormalize:
        raise TypeError(
            "VecNormalize has to be around all other wrappers of a trainer's vector environment but VecTransposeImage, for its "
            "statistics are the learner's: wrap in it last"
        )
    raise TypeError(
        f"actors have environments of their own, one by one, and what {kind.__name__} does around all of them is not known for "
        "one: wrap each environment instead, in the function that makes it (make_vec_env(..., wrapper_class=...))"
    )


def _of_envs(venv: VecEnv) -> list[EnvFn]:
    """For each environment a function that makes copies of it."""
    if type(venv) is DummyVecEnv:
        return [copies_of(env) for env in venv.envs]
    answers = _ask(venv, copies_in)
    for index, answer in enumerate(answers):
        if isinstance(answer, str):
            raise TypeError(f"environment {index} of the {type(venv).__name__}: {answer}")
    return [loads(answer) for answer in answers]


def _ask(venv: VecEnv, function: Callable[[Any], Any]) -> list[Any]:
    """Call a function with each environment, in the process where that is, and return the results."""
    name = type(venv).__name__
    if getattr(venv, "waiting", False):
        raise RuntimeError(f"the {name} is in the middle of a step: call step_wait() before it is given to a trainer")
    if type(venv) is DummyVecEnv:
        return list(map(function, venv.envs))
    if type(venv) is SubprocVecEnv:
        if venv.closed:
            raise RuntimeError(f"the {name} has been closed: give it to a trainer before that, or {INSTEAD}")
        venv.set_attr(_ATTRIBUTE, _InWorker(function))
        answers: list[Any] = venv.env_method(_ATTRIBUTE)
        for index, answer in enumerate(answers):
            if isinstance(answer, TypeError):
                raise TypeError(f"environment {index} of the {name}: {answer}")
        return answers
    if hasattr(venv, "ask_envs"):  # a ReactorVecEnv
        return list(venv.ask_envs(function))
    raise TypeError(f"a live {name} cannot be taken apart and given to actors, each of which makes its own environments: {INSTEAD}")


class _InWorker:
    """Set as an attribute of an environment in a worker of SB3's, which knows of no other way to have something done with one."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self) -> Any:
        try:
            env = sys._getframe(1).f_locals["env"]
            delattr(env, _ATTRIBUTE)
            return self.function(env)
        except Exception as error:
            return TypeError(f"its worker does not let go of it ({type(error).__name__}: {error}); {INSTEAD}")
