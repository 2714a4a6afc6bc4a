"""``SyncRecurrentPPO``: PPO with an LSTM, sb3-contrib's ``RecurrentPPO`` on all cores, with minibatches of whole sequences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Unpack, cast

import gymnasium
import numpy as np
import torch
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.type_aliases import Schedule

from reactor_sb3.acting.behaviours import Behaviour, OnPolicy
from reactor_sb3.acting.records import transition_record
from reactor_sb3.algorithms.ppo import PPOBatch, PPOLoss, PPOTrainer
from reactor_sb3.policies import read_policy
from reactor_sb3.trainers.learner import Minibatch, cut
from reactor_sb3.trainers.on_policy import Rollouts
from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_torch import normalized

__all__ = ["SequenceBatch", "SequenceLoss", "SyncRecurrentPPO"]


@dataclass
class SequenceBatch(PPOBatch):
    """Sequences of a round: what is ``(rows, ...)`` elsewhere is ``(rows, steps, ...)``.

    Attributes:
        states: Of the LSTMs before the first step of each, ``(rows, 4 * layers * hidden)``.
        starts: Whether an episode begins with a step, ``(rows, steps)``, float32.
    """

    states: torch.Tensor
    starts: torch.Tensor


def unpacked(states: torch.Tensor, layers: int) -> RNNStates:
    """Hidden and cell states of actor and critic, ``(layers, rows, hidden)`` each, of ``(rows, 4 * layers * hidden)``."""
    h, c, vf_h, vf_c = states.view(len(states), 4, layers, -1).permute(1, 2, 0, 3).contiguous()
    return RNNStates((h, c), (vf_h, vf_c))


@dataclass(frozen=True)
class SequenceLoss(PPOLoss):
    """PPO's, with states computed anew along each sequence."""

    def evaluate(self, policy: Any, batch: SequenceBatch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Values, log-probabilities and entropies, of all steps of each sequence."""
        seen, states = batch.observations, unpacked(batch.states, policy.lstm_actor.num_layers)
        flat = {key: one.flatten(0, 1) for key, one in seen.items()} if isinstance(seen, dict) else seen.flatten(0, 1)
        found = policy.evaluate_actions(flat, batch.actions.flatten(0, 1), states, batch.starts.flatten())
        return cast(tuple[torch.Tensor, torch.Tensor, torch.Tensor | None], found)

    def fast(self, nets: Mapping[str, Any], batch: Any, share: float) -> tuple[float, ...]:
        """The same by the extension: of all steps of sequences, as rows."""
        nets[self.learns].begin(batch.states, batch.starts)
        steps = PPOBatch(*(getattr(batch, one.name).flatten(0, 1) for one in fields(PPOBatch)))
        return super().fast(nets, steps, share / batch.starts.shape[1])


def _check_sequences(n_steps: int, batch_size: int) -> None:
    if n_steps % batch_size and batch_size % n_steps:
        raise ValueError(
            f"n_steps={n_steps} and batch_size={batch_size}: minibatches are whole sequences, so that one has to divide the "
            f"other; use batch_size={n_steps}, a multiple of it, or a divisor"
        )


class SyncRecurrentPPO(PPOTrainer, RecurrentPPO):  # type: ignore[misc]
    """PPO with an LSTM, whose actors sample in parallel and whose results do not depend on how many cores do it.

    One round is a tick of the reactor program that :class:`~reactor_sb3.SyncPPO` runs too. States are with each actor, and go on
    from round to round. A minibatch is ``batch_size`` steps in whole sequences, each with the state that it began with: of
    ``n_steps`` steps, or of ``batch_size`` where that is less. sb3-contrib cuts its sequences at a random place.

    Args:
        policy: As for sb3-contrib's ``RecurrentPPO``, and so is every parameter that is not named here.
        env, device: As for :class:`~reactor_sb3.SyncDQN`.
        batch_size: Steps of a minibatch: a multiple or a divisor of ``n_steps``.
        **options: As for :class:`~reactor_sb3.SyncPPO`; but as in sb3-contrib there is one environment unless you ask for more.
            Each one more makes a longer round, so fewer updates of as many steps.

    Raises:
        TypeError: If no environments like ``env`` can be made, or the policy is not a ``RecurrentActorCriticPolicy``.
        ValueError: If a number makes no sense, or neither ``n_steps`` nor ``batch_size`` divides the other.

    Example:
        >>> from reactor_sb3 import SyncRecurrentPPO
        >>> with SyncRecurrentPPO("MlpLstmPolicy", "CartPole-v1", n_actors=4, n_steps=32, batch_size=64, seed=0) as model:
        ...     _ = model.learn(256)
        ...     model.num_timesteps
        256
    """

    default_log_name: ClassVar[str] = "RecurrentPPO"
    usual_actors: ClassVar[int] = 1
    host: ClassVar[str] = "sb3-contrib"
    loss_class: ClassVar[type[PPOLoss]] = SequenceLoss
    policy_base: ClassVar[type[Any]] = RecurrentActorCriticPolicy

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[RecurrentActorCriticPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int = 128,
        batch_size: int = 128,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        use_sde: bool = False,
        sde_sample_freq: int = -1,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[Options],
    ) -> None:
        _check_sequences(n_steps, batch_size)
        self.construct(RecurrentPPO)

    def check_settings(self) -> None:
        """Refuse minibatches that are no whole sequences."""
        super().check_settings()
        _check_sequences(self.n_steps, self.batch_size)

    @property
    def sequence(self) -> int:
        """Steps of a sequence."""
        return min(self.n_steps, self.batch_size)

    @property
    def minibatch_rows(self) -> int:
        """Sequences of a minibatch."""
        return self.batch_size // self.sequence

    def updates_due(self) -> int:
        """Updates of a round, if none ends it early."""
        return self.n_epochs * math.ceil(self.n_steps * self.n_envs / self.batch_size)

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The policy, from whose distributions actions are drawn, with its memory."""
        source = read_policy(self.policy, self.sde_sample_freq)
        return source.module, OnPolicy(source.policy, self.gamma, self.gae_lambda, self.n_steps // self.sequence)

    def store(self, rollouts: Rollouts) -> None:
        """Keep a round in sb3-contrib's rollout buffer, without the states of each step."""
        rollouts.fill(self.rollout_buffer, episode_starts=rollouts.steps("starts").astype(np.float32))

    def batch(self, rollouts: Rollouts) -> SequenceBatch:
        """A whole round, all sequences of an environment, then of the next."""

        def cut(rows: Any) -> Any:
            return (
                {key: cut(one) for key, one in rows.items()} if isinstance(rows, dict) else rows.unflatten(0, (-1, self.sequence))
            )

        plain = {name: cut(rows) for name, rows in vars(super().batch(rollouts)).items()}
        states = torch.tensor(rollouts.once("states")).flatten(0, 1).to(self.device)  # a copy: nobody may write to the record
        return SequenceBatch(**plain, states=states, starts=cut(rollouts.rows("starts").float()))

    def minibatches(self, batch: PPOBatch) -> Iterator[Minibatch]:  # type: ignore[override]
        """A pass: all sequences in a new order, with advantages that are normalised minibatch by minibatch."""
        shuffled, rows = batch[self.permutation(len(batch))], self.minibatch_rows
        if self.normalize_advantage:
            shuffled.advantages = normalized(shuffled.advantages.flatten(), self.batch_size, self.nets.kernels("policy")).view_as(
                shuffled.advantages
            )
        yield from cut(shuffled, rows)

    def example(self) -> Any:
        """A minibatch of zeros, as large as there are any."""
        record = transition_record(self.session.layout, self.acting()[1].fields, self.n_steps, self.n_envs)
        whole = self.batch(Rollouts(self.session.layout, np.zeros(1, record), self.device))
        return whole[slice(0, min(self.minibatch_rows, len(whole)))]
