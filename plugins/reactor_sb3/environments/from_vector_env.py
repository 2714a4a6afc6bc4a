"""``from_vector_env``: a Gymnasium vector environment as a ``VecEnv`` of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from reactor_sb3.environments.vec_env import OfVectorEnv

__all__ = ["from_vector_env"]


def from_vector_env(vector_env: VectorEnv[Any, Any, Any]) -> VecEnv:
    """A Gymnasium vector environment as a ``VecEnv``, for any algorithm of Stable-Baselines3.

    Its environments (a :class:`~reactor_pettingzoo.ParallelVectorEnv`'s agents) become those of the ``VecEnv``, with the values of
    ``DummyVecEnv``: float32 rewards, an info dict for each, ``terminal_observation``, ``TimeLimit.truncated``. Values in infos are
    numpy's, as the vector environment has them. Closing the one closes the other.

    Wrap it in ``VecMonitor`` to log episodes, or the vector environment in Gymnasium's ``RecordEpisodeStatistics``. Rows that are
    padded when they end (``info["padded"]``: the agent had died before, or did not join) are ``done``, so that a learner sees a
    boundary there, but their infos take no ``"episode"``: neither ``ep_rew_mean`` nor, with ``VecMonitor``, ``evaluate_policy``
    counts them (which waits for an episode of every row, so it never ends if there is an agent that never joins). Only the log
    file of ``VecMonitor`` has a line for them, of return 0, and its ``episode_count`` counts them. The length of an episode
    includes the steps before the agent joined.

    Nothing in Stable-Baselines3 can leave rows out of a step, so its algorithms do learn from padded ones (observations and rewards
    of 0, whatever the action), and the running means of ``VecNormalize`` count them: where agents die early, both are drawn towards
    0, by the share of padded rows. Normalise in the environment then, agent by agent, or let dead agents' episodes be short.

    Args:
        vector_env: Any vector environment with autoreset mode ``SAME_STEP``.

    Raises:
        TypeError: If it is not a vector environment.
        ValueError: If its autoreset mode is another one, its environments take turns (``batch_size``), or it hands out views
            (``copy=False``), which algorithms keep.

    Example:
        >>> from gymnasium.vector import AutoresetMode
        >>> from reactor_gymnasium import make_vec
        >>> from reactor_sb3 import from_vector_env
        >>> envs = make_vec("CartPole-v1", num_envs=4, vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP})
        >>> env = from_vector_env(envs)
        >>> env.reset().shape
        (4, 4)
        >>> env.close()
    """
    if not isinstance(vector_env, VectorEnv):
        raise TypeError(f"expected a gymnasium.vector.VectorEnv, got {vector_env!r}")
    mode = vector_env.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.SAME_STEP:
        raise ValueError(
            f"the autoreset mode of {vector_env} is {mode}, and Stable-Baselines3 resets within the step: make it with "
            "autoreset_mode=AutoresetMode.SAME_STEP"
        )
    together = getattr(vector_env.unwrapped, "batch_size", vector_env.num_envs)
    if together != vector_env.num_envs:
        raise ValueError(
            f"the environments of {vector_env} take turns, {together} of {vector_env.num_envs} in a step, and Stable-Baselines3 "
            "steps all of them at once: make it without batch_size"
        )
    if getattr(vector_env.unwrapped, "copy", True) is False:
        raise ValueError(f"{vector_env} hands out views, which the next step overwrites: make it with copy=True")
    return _FromVectorEnv(vector_env)


class _PaddingEnds(dict[str, Any]):
    """The info of a row that ends with no episode behind it: ``VecMonitor``, which copies it to add one, cannot."""

    def copy(self) -> _PaddingEnds:
        return _PaddingEnds(self)

    def __setitem__(self, key: str, value: Any) -> None:
        if key != "episode":
            super().__setitem__(key, value)

    def __missing__(self, key: str) -> None:
        """Nothing for ``VecMonitor``'s ``info_keywords``, which it takes from every row that is done."""


class _FromVectorEnv(OfVectorEnv):
    """The ``VecEnv`` that :func:`from_vector_env` returns."""

    def __init__(self, vector_env: VectorEnv[Any, Any, Any]) -> None:
        self.vector_env = vector_env
        super().__init__(vector_env)

    # ------------------------------------------------------------------ steps

    def step_async(self, actions: npt.NDArray[Any]) -> None:
        """Keep the actions for :meth:`step_wait`: a wrapper of vector environments has ``step`` only."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step every environment.

        Returns:
            Observations, of new episodes where one has ended; rewards, shape ``(num_envs,)``, float32; whether episodes ended,
            shape ``(num_envs,)``, bool; an info for each environment.

        Raises:
            Exception: What an environment raised.
        """
        observations, rewards, terminations, truncations, batched = self.vector_env.step(self._actions)
        dones = terminations | truncations
        infos = _apart(batched, self.num_envs)
        for index in np.flatnonzero(dones).tolist():
            infos[index], self.reset_infos[index] = _ended(infos[index])
        for info, limit in zip(infos, (truncations & ~terminations).tolist(), strict=True):
            info.pop("final_obs", None)  # of an array that has a place for those, too, that have not ended
            info["TimeLimit.truncated"] = limit
        return observations, rewards.astype(np.float32), dones, infos

    def reset(self) -> VecEnvObs:
        """Begin new episodes, with the seeds and options of :meth:`seed` and :meth:`set_options`, which count once.

        Raises:
            ValueError: If environments have different options: a vector environment's reset has one dict for all.
        """
        options = self._options[0]
        if any(other != options for other in self._options):
            raise ValueError("a vector environment resets with one dict of options for all its environments; these differ")
        # The first seed stands for all: they are consecutive, here and there. Rows that share an environment share its seed.
        seed = self._seeds[0]
        observations, batched = self.vector_env.reset(seed=seed, options=options or None)
        self.reset_infos = _apart(batched, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        return observations  # type: ignore[no-any-return]

    # ------------------------------------------------------------------ calls

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """An attribute of some environments, or of the vector environment where it has no ``get_attr``."""
        inner: Any = self.vector_env.unwrapped
        if attr_name == "render_mode" or not hasattr(inner, "get_attr"):
            values = [getattr(self.vector_env if attr_name == "render_mode" else inner, attr_name)] * self.num_envs
        else:
            values = self._of_rows(inner.get_attr(attr_name))
        return [values[index] for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of every environment.

        Raises:
            ValueError: If only some are chosen.
            AttributeError: If the vector environment has no ``set_attr``.
        """
        self._all(indices)
        inner: Any = self.vector_env.unwrapped
        # A list or tuple would be taken for one value for each.
        count: int = len(inner.bounds) - 1 if hasattr(inner, "bounds") else getattr(inner, "num_copies", self.num_envs)
        inner.set_attr(attr_name, [value] * count)

    def env_method(self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of every environment.

        Raises:
            ValueError: If only some are chosen.
            AttributeError: If the vector environment has no ``call``.
        """
        self._all(indices)
        inner: Any = self.vector_env.unwrapped
        return self._of_rows(inner.call(method_name, *method_args, **method_kwargs))

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """``False`` for each: a vector environment does not tell."""
        return [False for _ in self._get_indices(indices)]

    def _all(self, indices: VecEnvIndices) -> None:
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise ValueError(f"a vector environment calls all its environments or none; indices={indices!r} are some of them")

    def _of_rows(self, results: Sequence[Any]) -> list[Any]:
        """One result for each row, where several rows share an environment."""
        inner: Any = self.vector_env.unwrapped
        bounds = getattr(inner, "bounds", range(0, self.num_envs + 1, self.num_envs // len(results)))
        return [result for result, (lo, hi) in zip(results, pairwise(bounds), strict=True) for _ in range(lo, hi)]

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Close the vector environment."""
        self.vector_env.close()

    def __repr__(self) -> str:
        return f"from_vector_env({self.vector_env})"


def _ended(info: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The info of the step and that of the reset, of an environment that was reset within the step."""
    last = info.pop("final_obs", None)
    # A vector environment that keeps no last infos has those of the step in their place.
    final = info.pop("final_info") if "final_info" in info else dict(info)
    if final.get("padded", False):
        final = _PaddingEnds(final)
    if "episode" in info:  # RecordEpisodeStatistics puts it beside what the reset tells
        final["episode"] = info.pop("episode")
    if last is not None:
        final["terminal_observation"] = last
    return final, info


def _apart(infos: dict[str, Any], n: int) -> list[dict[str, Any]]:
    """Batched infos as one dict for each environment. A key without a mask belongs to all of them."""
    apart: list[dict[str, Any]] = [{} for _ in range(n)]
    for key, values in infos.items():
        if key.startswith("_"):
            continue
        mask = infos.get(f"_{key}")
        of_all = _apart(values, n) if isinstance(values, dict) else values
        for index in range(n) if mask is None else np.flatnonzero(mask).tolist():
            apart[index][key] = of_all[index]
    return apart
