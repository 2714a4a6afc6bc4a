"""Policies of LeRobot for ``evaluate``: each episode has its own queues, whatever is played beside it."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["LeRobotPolicy"]


class LeRobotPolicy:
    """A policy of LeRobot's, for :func:`~reactor_gymnasium.evaluate`.

    It is asked as LeRobot's ``rollout`` asks it, one row at a time: ``select_action`` behind the four pipelines. What it keeps of
    an episode (queues of actions and of observations, a temporal ensemble) is taken out of it after each step, and put back before
    the next one of the same episode.

    It has to keep that in attributes of its own, as those of LeRobot's policies do that ``reset()`` makes anew, and not in modules
    within it.

    Args:
        policy: A ``PreTrainedPolicy``. It is put into evaluation mode.
        preprocessor: Of observations, from ``make_pre_post_processors``; ``None`` to leave them as they are.
        postprocessor: Of actions, likewise.
        env_preprocessor: Of observations, from ``make_env_pre_post_processors``; called before ``preprocessor``.
        env_postprocessor: Of actions, likewise; called after ``postprocessor``.
        task: What policies that read a language are told to do.
    """

    def __init__(
        self,
        policy: Any,
        preprocessor: Callable[[Any], Any] | None = None,
        postprocessor: Callable[[Any], Any] | None = None,
        env_preprocessor: Callable[[Any], Any] | None = None,
        env_postprocessor: Callable[[Any], Any] | None = None,
        *,
        task: str = "",
    ) -> None:
        for name in ("select_action", "reset"):
            if not callable(getattr(policy, name, None)):
                raise TypeError(f"policy must be a PreTrainedPolicy of LeRobot, got {policy!r}")
        self.policy, self.task = policy, task
        self.preprocessor, self.postprocessor = preprocessor, postprocessor
        self.env_preprocessor, self.env_postprocessor = env_preprocessor, env_postprocessor
        policy.reset()
        self._kept = _kept(policy)
        self._kept = self._copied()  # which no episode gets: reset() may change an object instead of making a new one

    def predict(self, observations: Any, state: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """The next action of an episode.

        Args:
            observations: A batch of one.
            state: What was returned at the episode's step before; ``None`` at its beginning.

        Returns:
            The action, in a batch of one, and what the policy keeps of this episode.
        """
        from lerobot.envs import preprocess_observation

        policy = self.policy
        _put_back(policy, self._copied() if state is None else state)
        if state is None:
            policy.eval()
            policy.reset()
        given = preprocess_observation(observations)
        given["task"] = [self.task]
        with _torch().inference_mode():
            action = policy.select_action(_through(self.preprocessor, _through(self.env_preprocessor, given)))
            # LeRobot's name for what the environment's pipeline changes.
            action = _through(self.env_postprocessor, {"action": _through(self.postprocessor, action)})["action"]
        return action.to("cpu").numpy(), _kept(policy)

    def _copied(self) -> dict[str, Any]:
        policy = self.policy
        return copy.deepcopy(self._kept, {id(policy): policy, id(policy.config): policy.config})


def _through(pipeline: Callable[[Any], Any] | None, given: Any) -> Any:
    return given if pipeline is None else pipeline(given)


def _torch() -> Any:
    """Which this plugin does not ask for: a policy is a module of torch's, so it is there."""
    return sys.modules["torch"]


def _kept(policy: Any) -> dict[str, Any]:
    """The attributes of a module that are neither of torch's nor how it was made."""
    fixed = vars(_torch().nn.Module())
    return {name: value for name, value in vars(policy).items() if name not in fixed and name != "config"}


def _put_back(policy: Any, kept: dict[str, Any]) -> None:
    for name in _kept(policy).keys() - kept.keys():
        delattr(policy, name)
    vars(policy).update(kept)
