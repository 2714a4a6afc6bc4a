"""``SyncARS``: augmented random search (Mania et al. 2018), sb3-contrib's ``ARS`` on all cores."""

from __future__ import annotations

from typing import Any, ClassVar, Self, Unpack

import gymnasium
import numpy as np
import torch
from sb3_contrib.ars.ars import ARS
from sb3_contrib.ars.policies import ARSPolicy
from stable_baselines3.common.type_aliases import MaybeCallback, Schedule
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from reactor_sb3.trainers.options import Options, keeps_arguments
from reactor_sb3.trainers.search import Directions, Returns, SearchLoss, SearchTrainer, read_parameters
from reactor_torch import Loss, Network, Update

__all__ = ["SyncARS"]


class SyncARS(SearchTrainer, ARS):
    """ARS whose actors evaluate the candidates in parallel, with results that do not depend on how.

    A round is a tick of a reactor program, and an update: each actor plays its share of ``2 * n_delta * n_eval_episodes`` whole
    episodes side by side, and sends their returns. Given the same directions and returns, the weights are sb3-contrib's but for
    rounding. No bit depends on ``workers`` and ``executor``, nor on ``n_actors`` and ``envs_per_actor``.

    Callbacks are called when a round is over, ``on_step`` once for each step of all environments, as with contrib's ``AsyncEval``.
    With ``VecNormalize`` all candidates of a round see the same statistics; returns are the environments' own, as in contrib.

    Args:
        policy: ``"LinearPolicy"``, ``"MlpPolicy"``, or a subclass of ``ARSPolicy``. Frozen parameters stay as they are.
        env: As for :class:`~reactor_sb3.SyncDQN`.
        n_delta: Pairs of candidates of a round.
        n_top: How many of them, the best, an update is made from; ``None`` for all.
        learning_rate, delta_std: Step size and deviation of candidates: numbers, or functions of what remains of the training.
        zero_policy: Whether weights are 0 at first.
        alive_bonus_offset: Added to each reward, to cancel out a bonus for staying alive.
        n_eval_episodes: Episodes of each candidate; their returns are added up.
        policy_kwargs, stats_window_size, tensorboard_log, seed, verbose, device: As for sb3-contrib's ``ARS``.
        **options: Keywords of every trainer, see :class:`~reactor_sb3.RunOptions`; without ``pipeline``. By default there are up to
            8 actors, with as many environments as there are episodes, up to 8 each.

    Raises:
        TypeError: If no environments like ``env`` can be made.
        ValueError: If a number makes no sense, or ``pipeline`` is 1.

    Example:
        >>> from reactor_sb3 import SyncARS
        >>> with SyncARS("LinearPolicy", "CartPole-v1", n_delta=4, seed=0, workers=2) as model:
        ...     model.learn(200).n_updates > 0
        True
    """

    default_log_name: ClassVar[str] = "ARS"
    host: ClassVar[str] = "sb3-contrib"

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[ARSPolicy],
        env: gymnasium.Env[Any, Any] | str | Any,
        n_delta: int = 8,
        n_top: int | None = None,
        learning_rate: float | Schedule = 0.02,
        delta_std: float | Schedule = 0.05,
        zero_policy: bool = True,
        alive_bonus_offset: float = 0,
        n_eval_episodes: int = 1,
        policy_kwargs: dict[str, Any] | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        seed: int | None = None,
        verbose: int = 0,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        **options: Unpack[Options],
    ) -> None:
        self.construct(ARS)

    @property  # type: ignore[override]
    def weights(self) -> torch.Tensor:
        """The policy's parameters, ``(n,)``, float32, as they are now."""
        return parameters_to_vector(self.policy.parameters()).detach()

    @weights.setter
    def weights(self, weights: torch.Tensor | None) -> None:
        if weights is not None:
            vector_to_parameters(weights, self.policy.parameters())

    def learn(  # type: ignore[override]
        self, total_timesteps: int, callback: MaybeCallback = None, log_interval: int | None = 1, tb_log_name: str | None = None,
        reset_num_timesteps: bool = True, async_eval: None = None, progress_bar: bool = False,
    ) -> Self:  # fmt: skip
        """Train, see :meth:`reactor_sb3.trainers.trainer.Trainer.learn`; ``log_interval`` are updates.

        Raises:
            ValueError: If there is an ``async_eval``: the actors are what it is for.
        """
        if async_eval is not None:
            raise ValueError("async_eval must be None: actors evaluate candidates in parallel already; pass workers=, say")
        return super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)

    def networks(self) -> dict[str, Network]:
        """The policy, and plain gradient descent."""
        if getattr(self.policy, "optimizer", None) is None:
            self.policy.optimizer = torch.optim.SGD(self.policy.parameters(), lr=self.lr_schedule(1))
        return {"policy": Network(self.policy, self.policy.optimizer, read=read_parameters)}

    def losses(self) -> dict[str, Loss]:
        """The slope along the best directions."""
        return {"policy": SearchLoss()}

    def spread(self) -> float:
        """``delta_std`` as it is now."""
        return self.delta_std_schedule(self._current_progress_remaining)

    def batch(self, found: Returns) -> Directions:
        """The best directions, and what they have gained."""
        totals = (found.totals + self.alive_bonus_offset * found.lengths).reshape(2, self.n_delta, -1).sum(2)
        top = np.argsort(-totals.max(0), kind="stable")[: self.n_top]
        plus, minus = totals[:, top].astype(np.float32)
        deviation = np.concatenate([plus, minus]).std(ddof=1)
        scale = 1 / (len(top) * deviation + 1e-6)
        self.logger.record("rollout/return_std", float(deviation))
        self.logger.record("train/iterations", self._n_updates, exclude="tensorboard")
        self.logger.record("train/delta_std", self.spread())
        self.logger.record("train/step_size", float(self.lr_schedule(self._current_progress_remaining) * scale))
        gains = torch.from_numpy((plus - minus) * np.float32(scale * len(top)))
        return Directions(torch.from_numpy(self.deltas(found.update)[top]), gains).to(self.device)

    def update(self, batch: Directions) -> Update:
        """A step along the slope."""
        self._n_updates += 1
        yield from self.descend(policy=batch)
        return {}

    @property
    def minibatch_rows(self) -> int:
        return self.n_top

    def example(self) -> Directions:
        """Directions of no length."""
        return Directions(torch.zeros(self.n_top, self.searched), torch.zeros(self.n_top)).to(self.device)
