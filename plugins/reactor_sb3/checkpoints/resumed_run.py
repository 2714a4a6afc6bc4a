"""``resume_run``: goes on with a run of one of SB3's own algorithms."""

from __future__ import annotations

import os
import pickle
import random
import warnings
from copy import deepcopy
from dataclasses import fields
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList, ConvertCallback
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import VecEnv

from reactor_rl.plugin import Execution
from reactor_sb3.checkpoints.archive import blaming
from reactor_sb3.checkpoints.document import warn_if_elsewhere
from reactor_sb3.checkpoints.saved_run import put_into, read, saved_levels, wrapper_again
from reactor_sb3.environments.vec_env import ReactorVecEnv
from reactor_sb3.trainers.options import check_devices

__all__ = ["ResumedRun", "resume_run"]

_PLACES = tuple(one.name for one in fields(Execution))


def resume_run(path: str | os.PathLike[str], env: VecEnv | None = None, **places: Any) -> ResumedRun:
    """Go on with a run of PPO, A2C, DQN, SAC or TD3 that :class:`~reactor_sb3.SaveRun` has saved.

    ``resume_run("run.zip").learn()`` finishes the call of ``learn()`` that was interrupted, and ends with the weights that it would
    have ended with, bit for bit, on any number of workers.

    The file holds pickles, which execute code when they are loaded: do not load files from others.

    Args:
        path: The file.
        env: In place of the environments that were saved, where these cannot be made again: a ``ReactorVecEnv`` like theirs, with
            the same wrappers of SB3's around it. It becomes what the saved ones were.
        **places: Arguments of ``ReactorVecEnv`` that never change results, if there is no ``env``: ``workers``, ``executor``,
            ``start_method``, ``caller_works``, ``restarts``, ``timeout``.

    Returns:
        The run. Its ``model`` is whole: it can also be saved, evaluated, or trained in other ways.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is damaged or something else, the environments are not like those that were saved, or the device that the
            model was on is not there.
        TypeError: If ``env`` is no ``ReactorVecEnv``, or ``places`` names something else.

    Warns:
        UserWarning: If it was written with other versions, on another kind of processor, or with another number of torch's
            threads: last bits may differ.

    Example:
        >>> import os, tempfile
        >>> from stable_baselines3 import PPO
        >>> from stable_baselines3.common.env_util import make_vec_env
        >>> from reactor_sb3 import ReactorVecEnv, SaveRun, resume_run
        >>> env = make_vec_env("CartPole-v1", n_envs=2, seed=0, vec_env_cls=ReactorVecEnv)
        >>> path = os.path.join(tempfile.mkdtemp(), "run.zip")
        >>> model = PPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, seed=0, device="cpu")
        >>> model = model.learn(64, callback=SaveRun(path, every=32))
        >>> env.close()
        >>> with resume_run(path) as run:
        ...     run.remaining_timesteps, run.learn().num_timesteps
        (32, 64)
    """
    wrong = sorted(set(places) - set(_PLACES))
    if wrong:
        raise TypeError(f"resume_run() cannot change {', '.join(wrong)}: the run would no longer be the same")
    if env is not None and places:
        raise TypeError(f"{', '.join(sorted(places))} belong to the constructor of the environments, and there is an env=")
    document, saved = read(path)
    with blaming(path):
        on_gpu = torch.device(saved["device"]).type == "cuda"
        makers, kinds = pickle.loads(saved["made from"].data)
    if on_gpu:
        check_devices({"device": saved["device"]})
    ours: VecEnv
    if env is not None:
        ours = BaseAlgorithm._wrap_env(env)  # which has images transposed
    elif makers is None:
        raise ValueError(f"what made the environments of {path} could not be pickled: pass environments like them as env=")
    else:
        ours = ReactorVecEnv.made_again(makers, **places)
        for kind in reversed(kinds):
            ours = wrapper_again(kind, ours)
    try:
        run = _resumed(path, saved, ours, kinds)
    except BaseException:
        if env is None:
            ours.close()
        raise
    warn_if_elsewhere(path, document, stacklevel=2)
    _warn_of_threads(path, saved["threads"])
    return run


def _warn_of_threads(path: str | os.PathLike[str], then: int) -> None:
    """SB3's algorithms learn by torch, whose sums have another order with another number of threads."""
    now = torch.get_num_threads()
    if then != now:
        warnings.warn(
            f"{path} was written where torch had {then} thread{'s' * (then != 1)}, and here it has {now}: weights may differ in "
            f"their last bits from those of an uninterrupted run. Call torch.set_num_threads({then}) before run.learn()",
            stacklevel=3,
        )


def _resumed(path: str | os.PathLike[str], saved: dict[str, Any], env: VecEnv, kinds: list[Any]) -> ResumedRun:
    levels = saved_levels(env)
    if [type(level) for level in levels[:-1]] != kinds:
        theirs, here = (" of ".join([kind.__name__ for kind in some] or ["none"]) for some in (kinds, map(type, levels[:-1])))
        raise ValueError(f"the wrappers around the environments were {theirs}, and here they are {here}")
    venv = levels[-1]
    assert isinstance(venv, ReactorVecEnv)
    with blaming(path):
        states: list[bytes] = pickle.loads(saved["environments"].data)
    if len(states) != venv.num_envs:
        raise ValueError(f"there are {venv.num_envs} environments, and the run that was saved has {len(states)}")
    venv.put_back(states)  # what is wrong with the environments is not the file's fault
    with blaming(path):
        return ResumedRun(*put_into(levels, saved))


class ResumedRun:
    """A run that was saved, as it was; see :func:`resume_run`.

    Attributes:
        model: The model.
    """

    def __init__(self, model: BaseAlgorithm, generators: dict[str, Any]) -> None:
        self.model = model
        self._put_back: _PutBack | None = _PutBack(model, generators)

    @property
    def remaining_timesteps(self) -> int:
        """Steps that the last call of ``learn()`` still had to take."""
        return max(0, self.model._total_timesteps - self.model.num_timesteps)

    def learn(self, callback: MaybeCallback = None, **arguments: Any) -> BaseAlgorithm:
        """Finish the call of ``learn()`` that was interrupted.

        Callbacks and loggers begin anew: pass those that were passed then, ``SaveRun`` among them.

        Args:
            callback: As for ``learn()``.
            **arguments: ``log_interval``, ``tb_log_name`` and ``progress_bar`` of ``learn()``.

        Returns:
            The model.
        """
        first: list[BaseCallback] = [] if self._put_back is None else [self._put_back]
        self._put_back = None
        given = callback if isinstance(callback, list) else [] if callback is None else [callback]
        theirs = [one if isinstance(one, BaseCallback) else ConvertCallback(one) for one in given]
        return self.model.learn(
            self.remaining_timesteps, callback=CallbackList([*first, *theirs]), reset_num_timesteps=False, **arguments
        )

    def close(self) -> None:
        """Close the environments."""
        if self.model.env is not None:
            self.model.env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None) -> None:
        self.close()


class _PutBack(BaseCallback):
    """Undoes, when the first rollout begins, what ``learn()`` has drawn and reset until then, which it had done before the save."""

    def __init__(self, model: BaseAlgorithm, generators: dict[str, Any]) -> None:
        super().__init__()
        self._generators: dict[str, Any] | None = generators
        # Noise that was drawn for the rollout. These objects stay, whatever becomes of what they hold.
        drawing = [getattr(part, "action_dist", None) for part in (model.policy, getattr(model, "actor", None))]
        self._noise = [(one, deepcopy(vars(one))) for one in (model.action_noise, *drawing) if one is not None]

    def _on_rollout_start(self) -> None:
        if self._generators is None:
            return
        for one, attributes in self._noise:
            vars(one).update(attributes)
        random.setstate(self._generators["random"])
        np.random.set_state(self._generators["numpy"])
        torch.set_rng_state(self._generators["torch"])
        if self._generators["cuda"] is not None:
            torch.cuda.set_rng_state(self._generators["cuda"], self.model.device)
        self._generators = None

    def _on_step(self) -> bool:
        return True
