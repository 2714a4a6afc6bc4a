"""Trainers that learn from each round once: passes over it in minibatches, and nothing is kept for later."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.records import Observations, by_step, transition_record
from reactor_sb3.streams import Purpose, drawing_first_weights, stream
from reactor_sb3.trainers.finite import check_batch, check_losses, check_parameters, culprit
from reactor_sb3.trainers.learner import finish
from reactor_sb3.trainers.report import LEARNED, counted
from reactor_sb3.trainers.trainer import Trainer
from reactor_torch import Update

__all__ = ["OnPolicyTrainer", "Rollouts", "lambda_returns", "mean_of", "usual_steps"]

Array = npt.NDArray[Any]
USUAL_ROLLOUT = 2048
"""Steps of a round, in all environments together, unless told otherwise: those of SB3's PPO with one environment."""


class Rollouts:
    """A round of all actors, field by field, as :meth:`OnPolicyTrainer.batch` is given it.

    Args:
        layout: Layout of observations as the policy sees them.
        record: A record for each actor, see :func:`reactor_sb3.acting.records.transition_record`.
        device: Where tensors are to be.
    """

    def __init__(self, layout: Observations, record: Array, device: torch.device) -> None:
        self._layout, self.record, self._device = layout, record, device
        self._by_env: dict[str, Array] = {}
        self._filled: Any = None
        self._shown: list[Array] = []

    def steps(self, name: str) -> Array:
        """A field, ``(steps, envs, ...)``."""
        return by_step(self.record[name])

    def tensors(self, name: str) -> Any:
        """Observations, ``(steps * envs, ...)``, all environments of a step and then the next step; of a ``Dict`` by key."""
        parts = self._layout.of(self.record, name)
        # Copied into memory of torch's: numpy's begins anywhere in a cache line, which the last bits of sums depend on.
        return self._layout.outside(
            {key: torch.tensor(by_step(part)).flatten(0, 1).to(self._device) for key, part in parts.items()}
        )

    def rows(self, name: str) -> torch.Tensor:
        """A field, ``(envs * steps, ...)``, in the order of SB3's rollout buffer: all steps of an environment, then the next."""
        return torch.from_numpy(self._rows(name)).to(self._device)

    def once(self, name: str) -> Array:
        """A field that each round has once, ``(envs, ...)``."""
        field = self.record[name]
        return field.reshape(-1, *field.shape[2:])

    def observations(self) -> Any:
        """Observations in that order; of a ``Dict`` by key."""
        return self._layout.outside({key: self.rows("observations" + key) for key in self._layout.parts})

    def actions(self) -> torch.Tensor:
        """Actions in that order, as the policy has drawn them."""
        return self.rows(self._drawn)

    def fill(self, buffer: RolloutBuffer, *more: str, **others: Array) -> None:
        """Make a rollout buffer one that is full of this round.

        Args:
            buffer: SB3's. Its arrays become views, ``(steps, envs, ...)``, of such in the order of :meth:`rows`. Nobody may write
                to them, for the round is learned from before callbacks see it.
            *more: Fields that it has besides those of SB3's own, by the same name.
            **others: Other arrays of it, ``(steps, envs, ...)``.
        """
        target: Any = buffer
        steps, envs = buffer.buffer_size, buffer.n_envs

        def view(name: str) -> Array:
            rows = self._rows(name)
            return rows.reshape(envs, steps, *rows.shape[1:]).swapaxes(0, 1)

        target.observations = self._layout.outside({key: view("observations" + key) for key in self._layout.parts})
        target.actions = view(self._drawn).reshape(steps, envs, -1)
        for name in ("rewards", "values", "log_probs", "advantages", *more):
            setattr(target, name, view(name))
        target.returns = target.advantages + target.values
        target.episode_starts = np.concatenate([np.ones((1, envs)), view("dones")[:-1]]).astype(np.float32)
        vars(target).update(others)
        target.pos, target.full, target.generator_ready = steps, True, False
        self._filled = buffer
        self._shown = self._arrays()
        for array in self._shown:
            array.flags.writeable = False

    def _arrays(self) -> list[Array]:
        """The arrays of the rollout buffer."""
        arrays = []
        for value in vars(self._filled).values():
            parts = value.values() if isinstance(value, dict) else [value]
            arrays += [part for part in parts if isinstance(part, np.ndarray)]
        return arrays

    def check_shown(self, buffer: Any) -> None:
        """Refuse other arrays in the place of those that the rollout buffer has been filled with, which nobody would learn from."""
        if self._filled is None or self._filled.generator_ready:  # `get()` has laid them out anew
            return
        if buffer is not self._filled or any(one is not shown for one, shown in zip(self._arrays(), self._shown, strict=True)):
            raise ValueError(f"a callback replaced arrays of rollout_buffer, {LEARNED}")

    @property
    def _drawn(self) -> str:
        return "policy_actions" if "policy_actions" in (self.record.dtype.names or ()) else "actions"

    def _rows(self, name: str) -> Array:
        found = self._by_env.get(name)
        if found is None:
            actors, steps, envs, *rest = self.record[name].shape
            found = np.array(self.record[name].swapaxes(1, 2), order="C").reshape(actors * envs * steps, *rest)
            self._by_env[name] = found
        return found


class OnPolicyTrainer(Trainer):
    """A trainer that makes several passes over each round.

    Besides what every algorithm writes it has ``n_epochs`` and :meth:`minibatches`; :meth:`batch` is given :class:`Rollouts`.
    """

    n_steps: int
    n_epochs: int
    _over: str = ""
    """Why there are no more updates in this round."""

    # ------------------------------------------------------------------ construction

    def _setup_model(self) -> None:
        self._setup_actors()
        with drawing_first_weights(self.seed):
            self._setup_policy()
        self.policy.set_training_mode(False)  # but for the updates themselves
        self.session.streams["minibatches"] = stream(self._base_seed, Purpose.MINIBATCHES)
        self._make_networks()

    def _setup_policy(self) -> None:
        """Make the policy, and what SB3's algorithm has besides, if there is one."""
        if isinstance(self, OnPolicyAlgorithm):
            super()._setup_model()  # type: ignore[safe-super]
            return
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        policy: Any = self.policy_class
        self.policy = policy(self.observation_space, self.action_space, self.lr_schedule, **self.policy_kwargs).to(self.device)

    def check_buffer(self, *usual: Any) -> None:
        """Refuse rollout buffers of other classes, or with other arguments.

        Args:
            *usual: The classes that SB3 has itself.
        """
        kind, kwargs = self.arguments["rollout_buffer_class"], self.arguments["rollout_buffer_kwargs"]
        if kind not in (None, *usual) or kwargs:
            raise ValueError(
                "the actors compute returns and advantages themselves, so that a rollout buffer of another class, or with other "
                "arguments, would never be asked: leave rollout_buffer_class= and rollout_buffer_kwargs= out, or use "
                f"{self.host}'s {self.default_log_name} with ReactorVecEnv"
            )

    # ------------------------------------------------------------------ what an algorithm says

    @abstractmethod
    def minibatches(self, batch: Any) -> Iterable[Any]:
        """A pass over a round: what each update is made from."""

    def begin_passes(self, batch: Any) -> None:
        """Called before the first pass, when networks are ready to learn: an algorithm may learn from the whole round here."""

    def pass_done(self) -> None:
        """Called after each pass."""

    def check_shown(self) -> None:
        """Refuse what callbacks have put in the place of a round that has been learned from."""
        if self.session.rollouts is not None:
            self.session.rollouts.check_shown(vars(self).get("rollout_buffer"))

    def store(self, rollouts: Rollouts) -> None:
        """Keep a round where SB3's users look for it."""

    @property
    def steps_of_schedules(self) -> int:
        """How many steps the schedules of a round's updates have come to: its own included."""
        return self._learned_timesteps

    def permutation(self, rows: int) -> torch.Tensor:
        """An order of rows, drawn from the stream of minibatches."""
        return torch.from_numpy(self.session.streams["minibatches"].permutation(rows)).to(self.device)

    def end_round_early(self, why: str) -> None:
        """Make no more updates in this round."""
        self._over = why

    # ------------------------------------------------------------------ a round

    @property
    def rollout_steps(self) -> int:
        """Steps of each environment in a round."""
        return self.n_steps

    def exploration_rates(self) -> Array:
        """Nothing: what actors draw from is the policy itself."""
        return np.zeros(self.n_steps, np.float32)

    def updates_due(self) -> int:
        """Updates of a round, if none ends it early."""
        return self.n_epochs * math.ceil(self.n_steps * self.n_envs / self.minibatch_rows)

    def round(self, transitions: Array, infos: list[list[StepInfo]]) -> Update:
        """Keep a round and make its updates."""
        self._learned_timesteps += self.rollout_steps * self.n_envs
        # With pipeline=1, the round that was under way when counting began anew is learned before the first one.
        self._update_current_progress_remaining(max(self.steps_of_schedules, 0), self._total_timesteps)
        rollouts = self.session.rollouts = Rollouts(self.session.layout, transitions, self.device)
        self.store(rollouts)
        yield from self._updates()
        return {}

    def _updates(self) -> Update:
        """All passes over the round."""
        batch = self.batch(self.session.rollouts)
        check_batch(batch, self._culprit)
        self.begin_updates()
        passes: list[list[dict[str, float]]] = []
        self._over = ""
        self.begin_passes(batch)
        while not self._over and len(passes) < self.n_epochs:
            passes.append([])
            for number, minibatch in enumerate(self.minibatches(batch)):
                self.update_in_round = number
                passes[-1].append((yield from self.update(minibatch)))
                if self._over:
                    break
            self.pass_done()
        if self._over:
            self.logger.info(f"no more updates in round {counted(self) + 1}: {self._over}")
        self.nets.end_round()
        found = [of_update for of_pass in passes for of_update in of_pass]
        if not math.isfinite(sum(map(sum, (one.values() for one in found)))):  # the same for all, and quickly
            check_losses(found, 0, self._culprit())
        check_parameters(self.nets, "lower the learning rate, or look at the rewards")
        self.log_round(passes)
        return {}

    def _culprit(self) -> str:
        """Say what in the last round may have made a loss infinite."""
        rollouts = self.session.rollouts
        return culprit(self.session.layout, rollouts.record)

    def log_round(self, passes: list[list[dict[str, float]]]) -> None:
        """Log the means of what the updates of a round have returned, which is given pass by pass."""
        found = [of_update for of_pass in passes for of_update in of_pass]
        for name in found[0]:
            self.logger.record(f"train/{name}", mean_of(found, name))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")

    def train(self) -> None:
        """Make all updates from the last round once more; see SB3's ``PPO.train``."""
        self.look()
        finish(self._updates(), self.nets)
        self.session.structure.let_move()

    def example(self) -> Any:
        """A minibatch of zeros, as large as there are any."""
        rows = min(self.minibatch_rows, self.n_steps * self.n_envs)
        record = transition_record(self.session.layout, self.acting()[1].fields, math.ceil(rows / self.n_envs), self.n_envs)
        with self.drawing_apart():
            return self.batch(Rollouts(self.session.layout, np.zeros(1, record), self.device))[slice(0, rows)]

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", "policy.optimizer"], []


def usual_steps(n_envs: int, batch_size: int) -> int:
    """Steps of each environment in rounds as long as SB3's with one environment."""
    steps = max(USUAL_ROLLOUT // n_envs, 1)
    if USUAL_ROLLOUT % n_envs == 0:
        return steps
    whole = batch_size // math.gcd(batch_size, n_envs)  # steps that make whole minibatches, for which SB3 asks
    return steps // whole * whole or steps


def mean_of(found: list[dict[str, float]], name: str) -> float:
    """The mean of a statistic over updates."""
    return float(np.mean([one[name] for one in found]))


def lambda_returns(rewards: Array, following: Array, dones: Array, timeouts: Array, gamma: float, weight: float) -> Array:
    """Q(lambda) returns (Gallici et al. 2024), ``(steps, envs)``, float32.

    Args:
        rewards: ``(steps, envs)``, float32, as everything else.
        following: Values of the observations that the steps led to.
        dones: Whether an episode ended, bool.
        timeouts: Whether a time limit ended it, bool: then the return goes on with the value of the last observation.
        gamma: Discount.
        weight: Weight of longer returns, lambda.
    """
    discount, longer = np.float32(gamma), np.float32(weight)
    one_step = rewards + discount * following * (1 - (dones & ~timeouts).astype(np.float32))
    returns: Array = np.empty_like(one_step)
    returns[-1] = later = one_step[-1]
    for step in range(len(rewards) - 2, -1, -1):
        mixed = rewards[step] + discount * (longer * later + np.float32(1 - weight) * following[step])
        returns[step] = later = np.where(dones[step], one_step[step], mixed)
    return returns
