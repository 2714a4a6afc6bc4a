"""Trainers that search among candidates: a round is whole episodes of each, and nothing of single steps is kept."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch.nn.utils import parameters_to_vector

from reactor_sb3.acting.actor import StepInfo
from reactor_sb3.acting.behaviours import Behaviour
from reactor_sb3.acting.candidates import CandidatesConfig, Searched, deltas_of
from reactor_sb3.acting.normalization import by_key
from reactor_sb3.environments.live_vec_env import episode_logs
from reactor_sb3.environments.makers import live_count
from reactor_sb3.policies import dense_forward, read_policy
from reactor_sb3.streams import drawing_first_weights
from reactor_sb3.trainers.finite import check_parameters
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.program import ProgramConfig
from reactor_sb3.trainers.report import TrainingReport
from reactor_sb3.trainers.session import Session
from reactor_sb3.trainers.trainer import Trainer
from reactor_torch import Batch, FlatParameters, Loss, Update

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["Directions", "Returns", "SearchLoss", "SearchTrainer", "read_parameters"]

Array = npt.NDArray[Any]
MOST_ENVS = 8
"""Environments of an actor, unless told otherwise: each steps as many candidates side by side. With more, those whose episode has
ended wait longer for the others. Chosen.
"""
EVALUATED = 1000
"""Steps of an evaluation in a round, unless told otherwise; 16 of them are shown by a viewer. About an episode of MuJoCo's
environments.
"""


class Returns:
    """A round of all actors, episode by episode, in the order of their numbers.

    Args:
        record: A record for each actor, see :attr:`reactor_sb3.acting.candidates.CandidatesConfig.record`.

    Attributes:
        update: Number of the update that it is for.
        totals: Returns, ``(episodes,)``, float64.
        lengths: Steps of each.
    """

    def __init__(self, record: Array) -> None:
        self._record, self.update = record, int(record["update"][0])
        self._played = self._in_order("lengths") > 0
        self.totals, self.lengths = self["returns"], self["lengths"]

    def _in_order(self, name: str) -> Array:
        field = self._record[name].swapaxes(0, 1)  # an actor has every so many-th one
        return field.reshape(-1, *field.shape[2:])

    def __getitem__(self, name: str) -> Array:
        return self._in_order(name)[self._played]


@dataclass
class Directions(Batch):
    """The best directions of a round.

    Attributes:
        deltas: Unit normal, ``(n_top, parameters)``, float32.
        gains: Returns forwards less those back, ``(n_top,)``, float32, in units of the deviation of all of them.
    """

    deltas: torch.Tensor
    gains: torch.Tensor

    def __len__(self) -> int:
        return len(self.gains)


@dataclass(frozen=True)
class SearchLoss(Loss):
    """A linear function of the weights, whose slope is the update of Mania et al. 2018."""

    learns, reads, statistics, by_blocks = "policy", (), ("loss",), False

    def __call__(self, nets: Mapping[str, Any], batch: Directions) -> tuple[torch.Tensor, ...]:
        """The loss."""
        return (-(batch.gains * (batch.deltas @ parameters_to_vector(nets["policy"].parameters()))).mean(),)

    def fast(self, nets: Mapping[str, Any], batch: Directions, share: float) -> tuple[float, ...]:
        """The same without a graph, one direction after the other: the same bits on every processor."""
        flat: FlatParameters = nets["policy"]
        flat.gradients.zero_()
        for gain, delta in zip((batch.gains * -share).tolist(), batch.deltas, strict=True):
            flat.gradients.add_(delta * gain)
        return (float(flat.gradients @ flat.data),)


def read_parameters(policy: torch.nn.Module, flat: FlatParameters) -> FlatParameters | str:
    """The parameters of a policy that nobody has touched, which is all that the loss looks at; or why not."""
    found = dense_forward(policy, "action_net")
    if isinstance(found, str):
        return found
    return f"its {min(flat.frozen)} is frozen" if flat.frozen else flat


class _SearchReport(TrainingReport):
    """Counts the steps of whole episodes, when they are all over."""

    def round(self, model: Model, run: Run, callback: BaseCallback | None, log_interval: int | None) -> bool:
        self._evaluated(model, run)
        found, go_on = Returns(run.transitions), True
        now = round((time.time_ns() - model.start_time) / 1e9, 6)
        pairs = zip(found.totals.tolist(), found.lengths.tolist(), strict=True)
        infos = [{"episode": {"r": round(total, 6), "l": length, "t": now}} for total, length in pairs]
        model.ep_info_buffer = deque(maxlen=max(len(infos), model._stats_window_size))  # those of one round, as in the host's logs
        model._episode_num += len(infos)
        model._update_info_buffer(infos)
        for log in episode_logs(model.env):
            for info in infos:
                log.write_row(info["episode"])
        last = model.num_timesteps + int(found.lengths.sum())
        while callback is not None and go_on and model.num_timesteps < last:
            model.num_timesteps = min(model.num_timesteps + model.n_envs, last)
            if go_on := callback.on_step():
                model.session.assert_runs(model, run)
        model.num_timesteps = last
        model._update_current_progress_remaining(model.num_timesteps, model._total_timesteps)
        model.round_done()
        self._due = log_interval is not None and model._n_updates % log_interval == 0
        return go_on

    def _record_rates(self, model: Model) -> None:
        super()._record_rates(model)
        values = model.logger.name_to_value  # each step is learned from once
        model.logger.record("time/update_frames_hz", values["time/sampling_hz"])


class _SearchSession(Session):
    def __init__(self, evaluate_env: Any, watch_env: Any) -> None:
        super().__init__(evaluate_env, watch_env)
        self.report = _SearchReport()

    def add_statistics(self, model: Model, transitions: Array) -> None:
        """Add what candidates have seen to the statistics of observations, episode by episode; those of rewards are not used."""
        normalizer = model._vec_normalize_env
        if normalizer is None or not (normalizer.training and normalizer.norm_obs):
            return
        found = Returns(transitions)
        for key, of_key in by_key(normalizer).items():
            for moments in zip(found[f"mean {key}"], found[f"var {key}"], found.lengths, strict=True):
                of_key.update_from_moments(*moments)


class SearchTrainer(Trainer):
    """A trainer whose actors play whole episodes of candidates, which are weights that lie around those that there are.

    Besides what every algorithm writes it has ``n_delta`` pairs of candidates, ``n_eval_episodes`` of each, and :meth:`spread`;
    :meth:`batch` is given :class:`Returns`. A candidate and its episodes depend on their numbers alone: the number of actors and
    environments changes no bit either.
    """

    session_class = _SearchSession
    n_delta: int
    n_eval_episodes: int

    # ------------------------------------------------------------------ construction

    def _share_out(self, n_actors: int | None, envs_per_actor: int | None, env: Any) -> None:
        episodes = 2 * self.arguments["n_delta"] * self.arguments["n_eval_episodes"]
        if live_count(env) is None:  # more would wait
            n_actors = n_actors or min(self.usual_actors, episodes)
            envs_per_actor = envs_per_actor or min(-(-episodes // n_actors), MOST_ENVS)
        super()._share_out(n_actors, envs_per_actor, env)

    def _set_options(self, env: Any) -> None:
        super()._set_options(env)
        self.check_settings()
        self.evaluate_steps = self.evaluate_steps or EVALUATED
        self.watch_steps = self.watch_steps or EVALUATED // 16

    def check_settings(self) -> None:
        """Refuse to learn from a round while the next one is sampled."""
        if self.pipeline:
            raise ValueError(
                f"pipeline must be 0 for {type(self).__name__}, got {self.pipeline!r}: an update takes no time that episodes could "
                "be played in, and they would be played with candidates from before it"
            )

    def _setup_model(self) -> None:
        self._setup_actors()
        with drawing_first_weights(self.seed):
            super()._setup_model()  # type: ignore[safe-super]
        self.policy.set_training_mode(False)
        self._make_networks()

    def program_config(self) -> ProgramConfig:
        config = super().program_config()
        given = vars(config.actors)
        actors = CandidatesConfig(**given, candidates=2 * self.n_delta, episodes=self.n_eval_episodes)
        return replace(config, actors=actors, helped=False)  # no layer is differentiated

    # ------------------------------------------------------------------ a round

    @property
    def rollout_steps(self) -> int:
        """Episodes of an actor in a round, at most."""
        return -(-2 * self.n_delta * self.n_eval_episodes // self.n_actors)

    def length_in_words(self) -> str:
        return f"n_delta={self.n_delta}, n_eval_episodes={self.n_eval_episodes}"

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The policy, without chance."""
        source = read_policy(self.policy)
        names = tuple(name for name, _ in self.policy.named_parameters())
        return source.module, Searched(source.policy, names, frozenset(self.further_settings()), self._n_updates)

    def further_settings(self) -> tuple[str, ...]:
        """Names of the parameters that are frozen."""
        return tuple(name for name, one in self.policy.named_parameters() if not one.requires_grad)

    @abstractmethod
    def spread(self) -> float:
        """How far candidates lie from the weights that there are: the deviation of a parameter."""

    def exploration_rates(self) -> Array:
        """See :meth:`spread`."""
        return np.full(self.rollout_steps, self.spread(), np.float32)

    @property
    def searched(self) -> int:
        """How many numbers the policy's parameters are, frozen ones included."""
        return sum(one.numel() for one in self.policy.parameters())

    def deltas(self, update: int) -> Array:
        """The directions that an update tries, ``(n_delta, searched)``, float32."""
        return deltas_of(self._base_seed, update, range(self.n_delta), self.searched)

    def updates_due(self) -> int:
        """One."""
        return 1

    def round(self, transitions: Array, infos: list[list[StepInfo]]) -> Update:
        """Make the update of a round."""
        found = Returns(transitions)
        self._learned_timesteps += int(found.lengths.sum())
        batch = self.batch(found)
        self.begin_updates()
        yield from self.update(batch)
        self.nets.end_round()
        check_parameters(self.nets, "lower the learning rate, or look at the rewards")
        return {}
