"""``ReactorVecEnv``: Stable-Baselines3's ``SubprocVecEnv`` as a reactor program."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from itertools import repeat
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import gymnasium
import numpy as np
import numpy.typing as npt
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.env_util import is_wrapped
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from reactor_gymnasium import ReactorVectorEnv
from reactor_gymnasium.plugin import EnvFn, HostStyle, checked_makers, checked_seed, load_env, save_strategy, saved_exactly
from reactor_rl.plugin import ExecutorName, Pickled, decode
from reactor_sb3.environments.makers import EnvMaker

if TYPE_CHECKING:
    from reactor_rl.plugin import Tracing

__all__ = ["warn_of_threads", "OfVectorEnv", "ReactorVecEnv"]


@cache
def warn_of_threads() -> None:
    """Warn, once in a process, if torch has several threads and other programs keep all cores busy.

    To be called before anything is learned: later the load is this process's own.
    """
    threads, cores = torch.get_num_threads(), os.cpu_count() or 1
    if threads == 1 or not hasattr(os, "getloadavg") or (load := os.getloadavg()[0]) <= cores:
        return
    warnings.warn(
        f"torch has {threads} threads, and other programs keep all {cores} cores of this machine busy (load {load:.1f}): they "
        "wait for each other, and an update may take many times as long. Call torch.set_num_threads(1) before you train",
        stacklevel=3,
    )


_GOES_ON = {"TimeLimit.truncated": False}
"""The info of an environment that says nothing, and whose episode goes on."""


class _Envs(ReactorVectorEnv):
    """The vector environment behind it, whose infos stay one dict for each environment."""

    # Between two steps of SB3's loops a policy is evaluated, which takes longer than helpers usually stay awake. Beyond that,
    # they have to be woken, so it takes more for them to be worth it.
    _style = HostStyle(
        title="ReactorVecEnv", context_option="start_method", spin=1e-3, casting="unsafe", infos="rows", actions="list"
    )

    def apply(self, function: Callable[..., Any], args: tuple[Any, ...], indices: Iterable[int]) -> list[Any]:
        """Call ``function(env, *args)`` with some environments."""
        chosen = [range(self.num_envs)[index] for index in indices]
        results = self.call_units(function, dict.fromkeys(chosen, args))
        return [results[index] for index in chosen]


class OfVectorEnv(VecEnv):
    """A ``VecEnv`` whose environments are those of a Gymnasium vector environment."""

    def __init__(self, vector_env: VectorEnv[Any, Any, Any]) -> None:
        self._envs = vector_env
        super().__init__(vector_env.num_envs, vector_env.single_observation_space, vector_env.single_action_space)
        self.metadata = {name: value for name, value in vector_env.metadata.items() if name != "autoreset_mode"}

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set the seeds ``seed``, ``seed + 1``, ... of the next reset; random ones, if ``seed`` is ``None``.

        Raises:
            TypeError: If it is not an integer.
            ValueError: If it is negative.
        """
        return super().seed(None if seed is None else checked_seed(seed))

    def get_images(self) -> Sequence[npt.NDArray[Any] | None]:
        """The environments' pictures, ``None`` where ``render_mode`` is not ``"rgb_array"``."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"The render mode is {self.render_mode}, but this method assumes it is `rgb_array` to obtain images.", stacklevel=2
            )
            return [None] * self.num_envs
        frames: Any = self._envs.render()
        return list(frames)


class ReactorVecEnv(OfVectorEnv):
    """Steps many environments on all cores: a drop-in for ``SubprocVecEnv`` that gives what ``DummyVecEnv`` gives, bit for bit.

    Args:
        env_fns: Functions that create the environments.
        start_method: How helper processes start: ``"forkserver"`` (default where there is one), ``"spawn"`` or ``"fork"``. Scripts
            need no ``__main__`` guard with any of them.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use. Never
            changes a result, nor does ``executor``.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which steps a throw-away environment of each kind for
            some milliseconds, chooses, and places environments by what they cost. Name one if that must not happen.
        nodes: Machines, with ``executor="ray"``; as for :class:`reactor_gymnasium.ReactorVectorEnv`.
        caller_works: Whether the calling thread steps environments itself.
        restarts: How often worker processes that die are replaced, with the same results; as for
            :class:`reactor_gymnasium.ReactorVectorEnv`.
        timeout: Seconds that a step may take on a worker process at most; likewise.

    Raises:
        ValueError: If there are no environments, a number makes no sense, or this system does not have that ``start_method``.
        RuntimeError: If the environments' spaces differ.

    Example:
        >>> from reactor_sb3 import ReactorVecEnv
        >>> from stable_baselines3.common.env_util import make_vec_env
        >>> env = make_vec_env("CartPole-v1", n_envs=4, seed=0, vec_env_cls=ReactorVecEnv)
        >>> env.reset().shape
        (4, 4)
        >>> env.close()
    """

    _envs: _Envs

    def __init__(
        self,
        env_fns: Sequence[EnvFn],
        start_method: str | None = None,
        *,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        nodes: Any = None,
        caller_works: bool = True,
        restarts: int = 0,
        timeout: float | None = None,
    ) -> None:
        self.waiting = False
        parts = type(self).step_async, type(self).step_wait
        self._split = parts != (ReactorVecEnv.step_async, ReactorVecEnv.step_wait)  # whether somebody has to see both
        envs = _Envs(
            [EnvMaker(env_fn) for env_fn in checked_makers(env_fns, type(self).__name__)],
            shared_memory=False,
            context=start_method,
            autoreset_mode=AutoresetMode.SAME_STEP,
            workers=workers,
            executor=executor,
            nodes=nodes,
            caller_works=caller_works,
            restarts=restarts,
            timeout=timeout,
        )
        try:
            super().__init__(envs)
        except BaseException:
            envs.close()
            raise

    # ------------------------------------------------------------------ steps

    def step(self, actions: npt.NDArray[Any]) -> VecEnvStepReturn:
        """Step every environment; see :meth:`step_wait`.

        Raises:
            ValueError: If there are not as many actions as environments.
            Exception: What an environment raised.
        """
        if self._split:
            return super().step(actions)
        return self._as_vec_env(self._envs.step(actions))

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Begin a step with one action for each environment.

        Raises:
            ValueError: If there are not as many actions as environments.
        """
        self._envs.step_async(actions)
        self.waiting = True

    def step_wait(self) -> VecEnvStepReturn:
        """End a step.

        Returns:
            Observations, of new episodes where one has ended; rewards, shape ``(num_envs,)``, float32; whether episodes ended,
            shape ``(num_envs,)``, bool; an info for each environment.

        Raises:
            Exception: What an environment raised.
        """
        self.waiting = False
        return self._as_vec_env(self._envs.step_wait())

    def _as_vec_env(self, results: tuple[Any, ...]) -> VecEnvStepReturn:
        """The results of a step as SB3 has them."""
        observations, rewards, terminations, truncations, reported = results
        infos = list(map(dict.copy, repeat(_GOES_ON, self.num_envs)))  # which takes half the time of a loop
        if reported:
            ended, given = reported["ended"], reported["infos"]
            for index, info in given.items():
                if index not in ended:
                    info["TimeLimit.truncated"] = False
                    infos[index] = info
            for index, (last, info) in ended.items():
                infos[index] = info
                info["TimeLimit.truncated"] = truncations.item(index) and not terminations.item(index)
                info["terminal_observation"] = last
                self.reset_infos[index] = given.get(index, {})
        return observations, rewards.astype(np.float32), terminations | truncations, infos

    def reset(self) -> VecEnvObs:
        """Begin new episodes, with the seeds and options of :meth:`seed` and :meth:`set_options`, which count once."""
        if self._envs.begin_anew():
            self.waiting = False
        if self.waiting:
            self.step_wait()
        warn_of_threads()
        observations, reported = self._envs.reset_units({
            index: {"seed": seed, **({"options": options} if options else {})}
            for index, (seed, options) in enumerate(zip(self._seeds, self._options, strict=True))
        })  # fmt: skip
        infos = reported.get("infos", {})
        self.reset_infos = [infos.get(index, {}) for index in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return observations  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ calls

    def has_attr(self, attr_name: str) -> bool:
        """Whether every environment has an attribute of that name."""
        return all(self.env_method("has_wrapper_attr", attr_name))

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of some environments, or of the wrapper around each that has one."""
        return self.env_method("get_wrapper_attr", attr_name, indices=indices)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the outermost wrapper of some environments."""
        self._envs.apply(setattr, (attr_name, value), self._get_indices(indices))

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of some environments."""
        return self._envs.apply(_call, (method_name, method_args, method_kwargs), self._get_indices(indices))

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Whether some environments are wrapped by a class."""
        return self._envs.apply(is_wrapped, (wrapper_class,), self._get_indices(indices))

    def ask_envs(self, function: Callable[[Any], Any]) -> list[Any]:
        """For trainers: call a function with each environment, in the process where that is, and return the results."""
        return self._envs.apply(function, (), range(self.num_envs))

    # ------------------------------------------------------------------ saving

    def saved_envs(self) -> list[bytes]:
        """The exact state of each environment, between two steps.

        Raises:
            RunError: If one cannot be saved and restored exactly. Says why.
        """
        named = enumerate(self._envs.encoded_makers)
        saved = self._envs.call_units(_saved, {index: (make, f"environment {index}") for index, make in named})
        return list(saved.values())

    def put_back(self, saved: Sequence[bytes]) -> None:
        """Make each environment what it was when it was saved. This executes pickles."""
        self._envs.call_units(load_env, {index: (state,) for index, state in enumerate(saved)})

    def saved_makers(self) -> list[Pickled] | None:
        """Makers for :meth:`made_again`; ``None`` where they cannot be pickled."""
        makers = self._envs.encoded_makers
        return makers if all(type(make) is Pickled for make in makers) else None

    @classmethod
    def made_again(cls, makers: Sequence[Pickled], **places: Any) -> Self:
        """One of environments that are made as those of another one were.

        Args:
            makers: What :meth:`saved_makers` gave. This executes pickles.
            **places: The other arguments of the constructor.
        """
        return cls([decode(make).env_fns[0] for make in makers], **places)

    # ------------------------------------------------------------------ looking at it, and the end

    def draw(self, path: str | None = None, *, format: Literal["mermaid", "dot", "svg"] | None = None) -> str:
        """The program behind it as a picture; see :meth:`reactor_rl.Program.draw`."""
        return self._envs.draw(path, format=format)

    def trace(self, path: str) -> AbstractContextManager[Tracing]:
        """Record what each worker does: ``with env.trace("trace.json"): ...`` writes a file that Perfetto opens."""
        return self._envs.trace(path)

    @property
    def workers(self) -> int:
        """Number of workers, the calling thread included."""
        return self._envs.workers

    @property
    def executor(self) -> str:
        """Name of the executor."""
        return self._envs.executor

    def close(self) -> None:
        """Close the environments and end the workers. May be called again."""
        if not self._envs.closed:
            self._envs.abandon()  # as SubprocVecEnv does, whatever the step brings that goes on
            self._envs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuses copying and pickling, as the vector environment behind it does.

        Raises:
            TypeError: Always.
        """
        return self._envs.__reduce_ex__(protocol)

    def __repr__(self) -> str:
        return repr(self._envs)

    def _repr_html_(self) -> str | None:
        return self._envs._repr_html_()


def _saved(env: gymnasium.Env[Any, Any], make: Any, name: str) -> bytes:
    return saved_exactly(env, save_strategy(make), f"{name} of ReactorVecEnv")


def _call(env: gymnasium.Env[Any, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return env.get_wrapper_attr(name)(*args, **kwargs)
