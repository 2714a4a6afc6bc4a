"""``SyncIPPO``: a PPO for each agent of a PettingZoo environment (de Witt et al. 2020), all learned side by side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self, Unpack, cast

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy, MultiInputActorCriticPolicy
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.utils import FloatSchedule, explained_variance, safe_mean
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize
from stable_baselines3.ppo import CnnPolicy, MlpPolicy, MultiInputPolicy

from reactor_pettingzoo.agents import EnvFn, probe_agents, travelling
from reactor_pettingzoo.learning.joint_policy import JointPolicy, PolicySlot
from reactor_pettingzoo.learning.league import MAIN, OPPONENT, PLAYERS, League, Pool, sides_of
from reactor_pettingzoo.learning.payoffs import LeagueReport, Payoffs
from reactor_pettingzoo.learning.policies import AgentPolicies, CentralisedPolicy, MaskedLoss, acting_alone
from reactor_pettingzoo.learning.seated_unit import JointMaker, seated_rows
from reactor_pettingzoo.learning.seats import RETURNS, Block, Seats, names_of, seats_of, state_size
from reactor_pettingzoo.reading import AgentID
from reactor_pettingzoo.runner.tournament import tournament
from reactor_rl.plugin import ExecutorName
from reactor_sb3.plugin import (
    MASKS,
    Behaviour,
    Minibatch,
    OnPolicy,
    Options,
    PPOBatch,
    PPOLoss,
    PPOTrainer,
    Rollouts,
    flat_rows,
    keeps_arguments,
    read_policy,
    transition_record,
)
from reactor_torch import Batch, Loss, MaskedBatch, Network, Update

__all__ = ["SyncIPPO"]


class SyncIPPO(PPOTrainer, BaseAlgorithm):
    """PPO for many agents: a policy for each of them, or for each group, learned from its own agents' steps alone.

    A policy's updates are those of :class:`~reactor_sb3.SyncPPO`, with as many rows in a minibatch; with one agent so is every bit.
    Agents may die and join, have action masks and different spaces. Steps in which an agent is not there, or not to move, are not
    learned from. Where agents take turns (``AECEnv``), what an agent gets between two of its turns belongs to the first of them,
    and discounts are from turn to turn; its last action before a round ends or an episode is cut off, of which nobody knows what
    comes of it, is left out.

    Args:
        policy: The kind of all policies: ``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"``, or a subclass of SB3's
            ``ActorCriticPolicy``. Agents whose observations are a ``Dict`` get a ``MultiInputPolicy`` for ``"MlpPolicy"``.
        env: A function that makes a ``ParallelEnv`` or an ``AECEnv``.
        n_steps: Steps of each environment in a round; where agents take turns, an action is a step. ``None``: as for ``SyncPPO``.
        batch_size: Rows of a minibatch of each policy.
        gae_lambda, clip_range, clip_range_vf, normalize_advantage, ent_coef, vf_coef, max_grad_norm: As for SB3's ``PPO``, and so
            is every parameter that is not named here.
        target_kl: As for SB3's ``PPO``; of a policy that has changed so much there are no more updates in a round.
        policy_kwargs: Arguments of all policies.
        policies: Arguments of each policy, by name, over those of ``policy_kwargs``; or just names. ``None``: each agent has a
            policy of its own name.
        policy_of: From an agent to the name of its policy, a function or a dict. By default its own name or, if there is one
            policy, that.
        league: Self-play, for two agents with equal spaces: one policy, ``"main"``, learns on either side against snapshots of
            itself. Then ``policies={"main": ...}`` has its arguments, and ``ep_rew_mean`` and evaluations are its returns.
        centralised_critic: Whether critics see the environment's ``state()`` besides what their agents see, or all observations
            where it has none: MAPPO (Yu et al. 2022). Actors see what they saw.
        **options: As for :class:`~reactor_sb3.SyncPPO`; see :class:`~reactor_sb3.RunOptions`.

    Attributes:
        policies: The policies by name, each an ``ActorCriticPolicy``, or its actor if critics are centralised: what
            :class:`~reactor_pettingzoo.MultiAgentRunner` and :func:`~reactor_pettingzoo.evaluate` take.
        policy_of: The name of each agent's policy.

    Raises:
        TypeError: If ``env`` makes no PettingZoo environment, or SB3 has no distribution of an agent's actions.
        ValueError: If an agent has no policy, a policy is to act for agents with different spaces, a league is not one, or a number
            makes no sense.

    Example:
        >>> from mpe2 import simple_spread_v3
        >>> from reactor_pettingzoo.learning import SyncIPPO
        >>> with SyncIPPO("MlpPolicy", simple_spread_v3.parallel_env, n_actors=2, n_steps=32, seed=0, workers=2) as model:
        ...     _ = model.learn(128)
        ...     sorted(model.policies)
        ['agent_0', 'agent_1', 'agent_2']
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy, "CnnPolicy": CnnPolicy, "MultiInputPolicy": MultiInputPolicy,
    }  # fmt: skip
    default_log_name: ClassVar[str] = "IPPO"
    policy: AgentPolicies
    seats: Seats

    @keeps_arguments
    def __init__(
        self,
        policy: str | type[ActorCriticPolicy],
        env: EnvFn | None,
        learning_rate: float | Schedule = 3e-4,
        n_steps: int | None = None,
        batch_size: int = 64,
        n_epochs: int = 10,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        clip_range: float | Schedule = 0.2,
        clip_range_vf: float | Schedule | None = None,
        normalize_advantage: bool = True,
        ent_coef: float = 0.0,
        vf_coef: float = 0.5,
        max_grad_norm: float = 0.5,
        target_kl: float | None = None,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "cpu",
        _init_setup_model: bool = True,
        *,
        policies: dict[str, Any] | list[str] | tuple[str, ...] | None = None,
        policy_of: Callable[[AgentID], str] | dict[Any, str] | None = None,
        centralised_critic: bool = False,
        league: League | None = None,
        **options: Unpack[Options],
    ) -> None:
        self.batch_size, self.n_epochs, self.gamma, self.gae_lambda = batch_size, n_epochs, gamma, gae_lambda
        self.clip_range, self.clip_range_vf, self.normalize_advantage = clip_range, clip_range_vf, normalize_advantage
        self.ent_coef, self.vf_coef, self.max_grad_norm, self.target_kl = ent_coef, vf_coef, max_grad_norm, target_kl
        self.own_kwargs = {name: dict(of or {}) for name, of in policies.items()} if isinstance(policies, Mapping) else {}
        self.league = league
        self._explained: dict[str, float] = {}
        if isinstance(env, VecEnv):  # of a run that is resumed
            self.seats = env.get_attr("agents")[0]
        elif env is not None:
            specs = probe_agents(env)
            state = state_size(env, specs.turns) if centralised_critic else 0
            if league is None:
                self.seats = seats_of(specs, names_of(specs, None if policies is None else list(policies), policy_of), state=state)
            else:
                if policy_of is not None or set(policies or ()) - {MAIN}:
                    raise ValueError("in a league one policy learns, 'main': leave policy_of= out, and name no other in policies=")
                one, other = sides_of(specs)
                self.seats = seats_of(specs, one, (other,), state, frozenset((MAIN,)))
        for name in ("evaluate_env", "watch_env"):
            if callable(self.arguments[name]) and not hasattr(self.arguments[name], "env_fns"):
                self.arguments[name] = self._made_joint(self.arguments[name])
        kind = self.policy_aliases.get(policy, policy) if isinstance(policy, str) else policy
        # SB3 would say of the name that the environment's observations are a dict: those of its agents need not be.
        vars(self)["given"] |= {"env": self._made_joint(env), "policy": kind}
        self.construct(BaseAlgorithm)

    def _made_joint(self, env: Any) -> Any:
        """Makers of environments of all agents together."""
        if isinstance(env, VecEnv) and unwrap_vec_normalize(env) is not None:
            raise ValueError("SyncIPPO cannot use VecNormalize, which would normalise what agents are told besides observations")
        if env is None or isinstance(env, VecEnv | JointMaker):
            return env
        travelling(env, type(self).__name__, "env")
        return JointMaker.of(env, self.seats)

    def _for_host(self) -> dict[str, Any]:
        given = super()._for_host()
        self.n_steps = int(given.pop("n_steps"))
        return given

    def _setup_model(self) -> None:
        # Also of a model that was saved when observations and actions were laid out in another way.
        self.observation_space, self.action_space = self.seats.observation_space(), self.seats.action_space()
        super()._setup_model()

    def _setup_policy(self) -> None:
        kind: Any = self.policy_class
        if not issubclass(kind, self.policy_base):
            raise TypeError(f"{type(self).__name__} needs a {self.policy_base.__name__}, got {kind.__name__}")
        self.clip_range = FloatSchedule(self.clip_range)
        if self.clip_range_vf is not None:
            self.clip_range_vf = FloatSchedule(self.clip_range_vf)
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        policies = {}
        for block in self.seats.learning:
            made = kind
            if block.state:
                made = CentralisedPolicy
            elif kind is MlpPolicy and isinstance(block.observation_space, spaces.Dict):
                made = MultiInputActorCriticPolicy
            arguments = {**self.policy_kwargs, **self.own_kwargs.get(block.policy, {})}
            policies[block.policy] = made(block.observation_space, block.action_space, self.lr_schedule, **arguments)
        self.policy = AgentPolicies(self.seats, policies, self.league).to(self.device)
        if self.policy.pool is not None and self.policy.pool.league.games:
            self.session.referee = self.policy.pool

    @property
    def policies(self) -> dict[str, Any]:
        """The policies that learn, by name."""
        policies: Any = {block.policy: self.policy.agents[block.policy] for block in self.seats.learning}
        return {name: acting_alone(one) for name, one in policies.items()}

    @property
    def policy_of(self) -> dict[AgentID, str]:
        """The name of each agent's policy."""
        blocks, (order, *_) = self.seats.blocks, self.seats.orders
        return {agent: block.policy for block in blocks for agent in order[block.seats]}

    # ------------------------------------------------------------------ what is learned

    def networks(self) -> dict[str, Network]:
        """Each policy that learns."""
        agents: Any = {block.policy: self.policy.agents[block.policy] for block in self.seats.learning}
        return {name: Network(one, one.optimizer, self.max_grad_norm, read=self._read) for name, one in agents.items()}

    def losses(self) -> dict[str, Loss]:
        """PPO's, of each policy."""
        numbers = vars(super().losses()["policy"])
        return {
            block.policy: (MaskedLoss if block.masked else PPOLoss)(**{**numbers, "learns": block.policy})
            for block in self.seats.learning
        }

    @property
    def make_rows(self) -> Callable[[int], Any]:
        """Make rows of environments: all agents of each are one row."""
        return partial(seated_rows, self.seats)

    def acting(self) -> tuple[torch.nn.Module, Behaviour]:
        """The policies, from whose distributions their agents' actions are drawn."""
        self.policy.check_apart()
        parts = tuple(self._part(block, self.policy.names(block)) for block in self.seats.blocks)
        return self.policy.agents, JointPolicy(parts, self.seats)

    def acting_by_torch(self) -> dict[str, str | None]:
        return {part.block.policy: part.policy.policy.why_torch for part in cast(JointPolicy, self.acting()[1]).parts}

    def _part(self, block: Block, names: tuple[str, ...], plays: bool = False) -> PolicySlot:
        policy = self.policy.agents[names[0]]
        own = replace(read_policy(policy).policy, masked=block.masked)
        if block.masked and own.distribution is None:
            raise ValueError(
                f"{type(policy).__name__} draws actions by itself, and would draw forbidden ones: its agents have masks"
            )
        learns = block.policy in self.seats.counted and not plays
        return PolicySlot(block, OnPolicy(own, self.gamma, self.gae_lambda), tuple(f"{name}." for name in names), learns)

    def store(self, rollouts: Rollouts) -> None:
        """Nothing is kept besides."""

    def batch(self, rollouts: Rollouts) -> dict[str, PPOBatch]:  # type: ignore[override]
        """The steps that each policy learns from: those of its agents that were there."""
        self._stopped, self._explained = frozenset(), {}
        return {block.policy: self._batch_of(block, rollouts) for block in self.seats.learning}

    def _batch_of(self, block: Block, rollouts: Rollouts) -> PPOBatch:
        learned = rollouts.rows(f"{block.policy}.learned").flatten()
        # Where everybody was there, as in most environments, nothing is copied.
        which = None if bool(learned.all()) else learned.nonzero()[:, 0]

        def kept(rows: torch.Tensor) -> torch.Tensor:
            return rows if which is None else rows[which]

        def rows(field: str) -> torch.Tensor:
            return kept(rollouts.rows(f"{block.policy}.{field}").flatten(0, 1))

        seen = block.seen({key: rollouts.rows("observations" + key) for key in block.keys.values()})
        seen = {part: kept(of_part) for part, of_part in seen.items()}
        observed: Any = seen.get("", seen)
        if self.nets.compiled and not self.nets.sees_images(block.policy):
            policy: Any = self.policy.agents[block.policy]
            observed = flat_rows(observed, block.observation_space, policy.normalize_images)
        boxed = isinstance(block.action_space, spaces.Box)
        actions, advantages, values = rows("policy_actions" if boxed else "actions"), rows("advantages"), rows("values")
        actions = actions.flatten() if isinstance(block.action_space, spaces.Discrete) else actions.flatten(1).float()
        returns = advantages + values
        if len(values):
            self._explained[block.policy] = float(explained_variance(values.cpu().numpy(), returns.cpu().numpy()))
        batch = PPOBatch(observed, actions, advantages, returns, rows("log_probs"), values)
        return MaskedBatch(**vars(batch), action_masks=rows(MASKS)) if block.masked else batch

    def minibatches(self, batch: Any) -> Iterator[dict[str, Minibatch]]:  # type: ignore[override]
        """A pass: a minibatch of each policy, as long as it has any, its rows in a new order as in ``SyncPPO``."""
        passes = {name: PPOTrainer.minibatches(self, rows, name) for name, rows in batch.items() if len(rows)}
        while True:
            going = [name for name in passes if name not in self._stopped]
            found = {name: one for name in going if (one := next(passes[name], None)) is not None}
            if not found:
                return
            yield found

    def update(self, minibatch: Mapping[str, Batch | Minibatch]) -> Update:  # type: ignore[override]
        """A step of each policy, unless its divergence has become too large."""
        return self.descend(**minibatch)

    def named(self, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Statistics begin with the name of their policy, if there is more than one."""
        return {self._named(policy, name): value for policy, of_policy in found.items() for name, value in of_policy.items()}

    def _named(self, policy: str, name: str) -> str:
        return name if len(self.seats.learning) == 1 else f"{policy}/{name}"

    def plan_blocks(self) -> None:
        """Decide of which blocks of rows gradients are the sum."""
        self.nets.plan_blocks(self.example())

    def example(self) -> Any:
        """For each policy a minibatch of zeros, as large as there are any."""
        steps = min(self.n_steps, math.ceil(self.batch_size / self.n_envs))
        zeros = np.zeros(1, transition_record(self.session.layout, self.acting()[1].fields, steps, self.n_envs))
        for block in self.seats.learning:
            # All rows: with fewer, the example would be smaller than the minibatches that blocks are planned for.
            zeros[f"{block.policy}.learned"] = True
        rollouts, rows = Rollouts(self.session.layout, zeros, self.device), slice(0, self.batch_size)
        return {block.policy: self._batch_of(block, rollouts)[rows] for block in self.seats.learning}

    def updates_due(self) -> int:
        """Updates of a round, if all agents are always there and none ends it early."""
        rows = max(block.rows for block in self.seats.learning)
        return self.n_epochs * math.ceil(self.n_steps * self.n_envs * rows / self.batch_size)

    # ------------------------------------------------------------------ self-play

    def round(self, transitions: Any, infos: Any) -> Update:
        """Keep a round, make its updates, and draw who plays whom in the next one."""
        yield from super().round(transitions, infos)
        if self.policy.pool is not None:
            self._change_opponents(self.policy.pool)
            if self.session.referee is not None:
                for place, name in zip(self.policy.pool.begin_match(self._base_seed) or (), PLAYERS, strict=False):
                    self.policy.pool.put(place, self.policy.agents[name])
        return {}

    def match_policy(self) -> JointPolicy:
        """How two snapshots act that play each other."""
        players = zip(self.seats.blocks, PLAYERS, strict=True)
        return JointPolicy(tuple(self._part(block, (name,), True) for block, name in players), self.seats)

    def _change_opponents(self, pool: Pool) -> None:
        rollouts: Rollouts = self.session.rollouts
        over, totals = rollouts.steps("dones"), rollouts.steps(RETURNS)
        main, other = (block.first for block in self.seats.blocks)
        _, envs = over.nonzero()
        won = totals[over][:, main] - totals[over][:, other]
        slots = envs // self.envs_per_actor % pool.league.opponents
        policy = self.policy.agents[MAIN]
        drawn = pool.round_over(self._base_seed, policy, slots, (1 + np.sign(won)) / 2, self.pipeline)
        for number, place in enumerate(drawn):
            pool.put(place, self.policy.agents[f"{OPPONENT}_{number}"])
        if len(won):
            self.logger.record("league/won", float((1 + np.sign(won)).mean() / 2))
        self.logger.record("league/snapshots", int((pool.rounds >= 0).sum()))

    def snapshots(self) -> dict[str, torch.nn.Module]:
        """The pool of a league: policies as they were, the oldest first, by the round after which they were taken.

        Raises:
            ValueError: If there is no league.
        """
        return {name: acting_alone(one) for name, one in self._pool().snapshots(self.policy.agents[MAIN]).items()}

    def payoffs(self) -> Payoffs:
        """How snapshots have played each other so far, beside the training; the oldest first.

        Raises:
            ValueError: If there is no league.
        """
        return self._pool().told()

    def _pool(self) -> Pool:
        if self.policy.pool is None:
            raise ValueError("there are no snapshots without a league: pass league=League()")
        return self.policy.pool

    def league_report(
        self, episodes: int = 20, seed: int = 0, workers: int | None = None, executor: ExecutorName = "auto"
    ) -> LeagueReport:
        """Let all snapshots, and the policy as it is now, play a :func:`~reactor_pettingzoo.tournament`.

        That takes its time after the training; what is known without it, :meth:`payoffs` tells.

        Args:
            episodes: How many each pairing plays.
            seed: Of the tournament.
            workers: Number of workers; ``None`` for the cores that this process may use.
            executor: As for :class:`~reactor_pettingzoo.MultiAgentRunner`.

        Raises:
            ValueError: If there is no league, or no environment.
        """
        population = {**self.snapshots(), "now": acting_alone(self.policy.agents[MAIN])}
        if self.env is None:
            raise ValueError("the model has no environment: pass env= to load(), or call set_env()")
        env_fn = self.env.get_attr("env_fn")[0]
        found = tournament(
            env_fn, population, episodes=episodes, seed=seed, deterministic=False, workers=workers, executor=executor,
            progress_bar=False,
        )  # fmt: skip
        return LeagueReport(found, Payoffs.of(found).elo)

    # ------------------------------------------------------------------ what is told

    def log_round(self, passes: list[list[dict[str, float]]]) -> None:
        """Log means over the round, but for divergences, which are the last pass's, and losses, which are the last ones."""
        record = self.logger.record
        updates = [update for of_pass in passes for update in of_pass]
        for name in dict.fromkeys(name for update in updates for name in update):
            last = [update[name] for update in (passes[-1] if name.endswith("approx_kl") else updates) if name in update]
            if last:
                record(f"train/{name}", last[-1] if name.rpartition("/")[2] == "loss" else float(np.mean(last)))
        for policy, explained in self._explained.items():
            record(f"train/{self._named(policy, 'explained_variance')}", explained)
        record("train/clip_range", self.nets.loss(self.seats.learning[0].policy).clip_range)
        record("train/n_updates", self._n_updates, exclude="tensorboard")

    def dump_logs(self, iteration: int = 0) -> None:
        """Record the usual statistics, and the returns of each agent; ``ep_rew_mean`` is the sum over agents."""
        for agent in map(str, self.seats.specs.agents):
            returns = [info[agent] for info in self.ep_info_buffer or () if agent in info]
            if returns:
                self.logger.record(f"rollout/return_of/{agent}", safe_mean(returns))
        super().dump_logs(iteration)

    # ------------------------------------------------------------------ SB3's other methods

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """As every trainer's; ``env`` is a function that makes a PettingZoo environment."""
        super().set_env(self._made_joint(env), force_reset)

    @classmethod
    def load(cls, path: Any, env: Any = None, *args: Any, **kwargs: Any) -> Self:
        """Load a file that ``save()`` has written; ``env`` is a function that makes a PettingZoo environment."""
        model = super().load(path, None, *args, **kwargs)
        if env is not None:
            model.set_env(env)
        return model

    @classmethod
    def resume(cls, path: Any, env: Any = None, *, allow_pickle: bool = True, **changed: Any) -> Self:
        """As every trainer's; the environment is the one that was saved."""
        if env is not None or not allow_pickle:
            raise ValueError(
                "SyncIPPO resumes with the environment that was saved, which is a pickle: leave env= and allow_pickle= out"
            )
        return super().resume(path, **changed)

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", *(f"policy.agents.{block.policy}.optimizer" for block in self.seats.learning)], []
