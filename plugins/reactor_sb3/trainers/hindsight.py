"""Hindsight replay (Andrychowicz et al. 2017): SB3's ``HerReplayBuffer``, and an environment to ask for rewards."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.her.goal_selection_strategy import KEY_TO_GOAL_STRATEGY, GoalSelectionStrategy
from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

from reactor_gymnasium.plugin import checked_number, no_traces
from reactor_sb3.environments.copies import without_logs
from reactor_sb3.environments.makers import EnvMaker
from reactor_sb3.environments.reached import EnvRequest
from reactor_sb3.streams import drawing_from
from reactor_sb3.trainers.replay_sampler import ReplaySampler

__all__ = ["GoalEnv", "HindsightSampler", "check_hindsight", "cut_short", "has_episodes"]

Array = npt.NDArray[Any]

GOAL_KEYS = ("observation", "achieved_goal", "desired_goal")
_NO_EPISODE = (  # SB3's words
    "Unable to sample before the end of the first episode. We recommend choosing a value for learning_starts that is greater than "
    "the maximum number of timesteps in the environment."
)


def check_hindsight(space: spaces.Space[Any], given: dict[str, Any]) -> None:
    """Refuse observations without goals, and arguments of the buffer that make no sense.

    Args:
        space: The observation space.
        given: ``replay_buffer_kwargs``.

    Raises:
        ValueError: Naming what is wrong.
        TypeError: If ``n_sampled_goal`` is no number.
    """
    if not isinstance(space, spaces.Dict) or not space.spaces.keys() >= set(GOAL_KEYS):
        raise ValueError(
            f"HerReplayBuffer needs observations that are a Dict with {', '.join(map(repr, GOAL_KEYS))}, got {space}; use "
            "replay_buffer_class=None for an environment without goals"
        )
    checked_number("n_sampled_goal", given.get("n_sampled_goal", 4), 0)
    _strategy(given.get("goal_selection_strategy", "future"))


def _strategy(given: Any) -> GoalSelectionStrategy:
    found = given if isinstance(given, GoalSelectionStrategy) else KEY_TO_GOAL_STRATEGY.get(str(given).lower())
    if found is None:
        raise ValueError(f"goal_selection_strategy must be 'future', 'final' or 'episode', got {given!r}")
    return found


class GoalEnv(DummyVecEnv):
    """The environment that computes the rewards of other goals. It is reset once, as SB3's have been, and never stepped.

    Actors keep their environments to themselves. Whoever changes those through ``get_env()`` changes this one, too.

    Args:
        makes: Makes the actors' environments.

    Attributes:
        asked: What it was asked that may have changed it.

    Raises:
        ValueError: If it has no ``compute_reward``.
    """

    def __init__(self, makes: EnvMaker) -> None:
        with no_traces(), without_logs():
            super().__init__([makes.of(0)])
            self.seed(0)
            self.reset()
        self.asked: list[EnvRequest] = []
        if not self.envs[0].has_wrapper_attr("compute_reward"):
            raise ValueError(
                "HerReplayBuffer asks the environment for the rewards of other goals, and it has no compute_reward(achieved_goal, "
                "desired_goal, info): give it that method, for many goals at once, or use replay_buffer_class=None"
            )

    def follow(self, asked: EnvRequest) -> None:
        """Do what the actors' environments were asked to do."""
        self.asked.append(asked)
        asked(self.envs[0])


def has_episodes(buffer: HerReplayBuffer) -> bool:
    """Whether there is an episode to sample from: of each environment, the last that has ended is the last to be overwritten."""
    return bool(buffer.ep_length[buffer._current_ep_start - 1, np.arange(buffer.n_envs)].any())


def cut_short(buffer: HerReplayBuffer, which: Array) -> None:
    """End the episodes of some environments with the last transition that is there, see SB3's ``truncate_last_trajectory``."""
    for number in np.flatnonzero(which & (buffer._current_ep_start != buffer.pos)).tolist():
        buffer._compute_episode_length(number)


class HindsightSampler(ReplaySampler):
    """Gives what SB3's ``HerReplayBuffer.sample`` gives, and draws from a generator of its own; see :class:`ReplaySampler`."""

    def begin(self) -> None:
        """Look which transitions are of whole episodes.

        Raises:
            RuntimeError: If no episode has ended, as in SB3.
        """
        buffer: Any = self.buffer
        self._whole = np.flatnonzero(buffer.ep_length[: buffer.size()] > 0)
        if not len(self._whole):
            raise RuntimeError(_NO_EPISODE)

    def _sampled(self) -> ReplayBufferSamples:
        buffer: Any = self.buffer
        drawn = self._random.choice(self._whole, size=self.batch_size)
        count = int(buffer.her_ratio * self.batch_size)
        self._all.take(np.concatenate([drawn[count:], drawn[:count]]))  # those with other goals are drawn first, and given last
        if count:
            self._replace_goals(buffer, *np.divmod(drawn[:count], buffer.n_envs))
        return self._given(*self._one_step())

    def _replace_goals(self, buffer: HerReplayBuffer, steps: Array, envs: Array) -> None:
        """Give the last rows of the minibatch goals that were achieved in their episodes, and the rewards for them."""
        begun, lengths = buffer.ep_start[steps, envs], buffer.ep_length[steps, envs]
        match _strategy(buffer.goal_selection_strategy):
            case GoalSelectionStrategy.FINAL:
                later = lengths - 1
            case GoalSelectionStrategy.FUTURE:
                later = self._random.randint((steps - begun) % buffer.buffer_size, lengths)
            case _:
                later = self._random.randint(0, lengths)
        rows = slice(self.batch_size - len(steps), None)
        goals = buffer.next_observations["achieved_goal"][(later + begun) % buffer.buffer_size, envs]
        infos: Any = copy.deepcopy(buffer.infos[steps, envs]) if buffer.copy_info_dict else [{} for _ in steps]
        achieved = self._next_observations.columns["achieved_goal"].rows[rows].copy()
        assert buffer.env is not None
        with drawing_from(self._generator):  # as in SB3, if it draws
            (rewards,) = buffer.env.env_method("compute_reward", achieved, goals, infos, indices=[0])
        if np.shape(rewards) not in [(len(steps),), (len(steps), 1)]:
            raise ValueError(
                f"compute_reward() must return one reward for each of {len(steps)} goals, an array of shape ({len(steps)},), got "
                f"{np.shape(rewards) or repr(rewards)}: let it take many goals at once, (n, ...), as SB3's HerReplayBuffer asks"
            )
        self._rewards.rows[rows] = np.reshape(rewards, (-1, 1))
        for observations in (self._observations, self._next_observations):
            observations.columns["desired_goal"].rows[rows] = goals
