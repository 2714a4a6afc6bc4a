"""How every trainer trains: an SB3 algorithm whose rounds are ticks of a reactor program."""

from __future__ import annotations

import contextlib
import inspect
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3.common import utils
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from reactor_rl import Program, RunError
from reactor_rl.plugin import FORKED, canonical, new_hash
from reactor_sb3.acting.normalization import by_key
from reactor_sb3.acting.records import Observations
from reactor_sb3.checkpoints import checkpoint
from reactor_sb3.environments.makers import EnvMaker, lazy_envs, live_count, maker_of, spare_envs
from reactor_sb3.environments.reached import EnvRequest, leave, reach
from reactor_sb3.policies import LIBRARIES
from reactor_sb3.streams import Purpose, seed_of
from reactor_sb3.trainers.arguments import check_log_interval, plain_timesteps
from reactor_sb3.trainers.copying import copy_of
from reactor_sb3.trainers.display import WATCHING
from reactor_sb3.trainers.explanation import Explanation, explanation_of
from reactor_sb3.trainers.learner import LocalRef, Minibatch, flat_rows, refuse_common, tasks_of
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.options import DEVICES, RunOptions, check_devices, known_arguments, most_actors, shared_out
from reactor_sb3.trainers.program import program_of
from reactor_sb3.trainers.report import Locals
from reactor_sb3.trainers.session import Session
from reactor_sb3.trainers.settings import check_finite_arguments
from reactor_torch import Batch, Networks, Update, check_split, refuse_global_hooks, torch_stream

if TYPE_CHECKING:
    from reactor_rl import Run

__all__ = ["Trainer"]

_KNOWN = (*LIBRARIES, "abc", "builtins", "reactor_rl")
"""Packages whose trainers draw from :attr:`Trainer.generator` where they draw by torch's functions."""

Array = npt.NDArray[Any]


class Trainer(Model):
    """An SB3 algorithm that samples, learns, evaluates, shows and logs at the same time, with results that do not depend on how.

    A round is a tick of a reactor program of actors, learner, evaluator, logger and viewer. A model that is closed stays usable:
    the next ``learn()`` starts workers again, and begins new episodes.

    An algorithm says in torch, as a paper has it, what is learned: :meth:`networks`, :meth:`losses`, :meth:`batch` and
    :meth:`update`; and how actors act by it: :meth:`acting`. Everything else is the bases'.

    Attributes:
        arguments: Arguments of the constructor.
        nets: The networks, by name.
        update_in_round: Number of the update that is being made, counted from 0 in each round.
        n_learners: Reactors that compute the gradients of a minibatch, at most; ``None`` for as many as pay.
        split: Whether all losses of an update are computed at the same time. Where none looks at what another one learns, a run
            decides by cost: it changes no bit.
        session: The run, and the parts that report and show. ``save()`` leaves it out.
        wants_infos: Whether the learner needs the infos of each step.
    """

    session: Session
    update_in_round = 0
    n_learners: int | None

    default_log_name: ClassVar[str] = "run"
    host: ClassVar[str] = "SB3"
    """Whose algorithm it is, for messages."""
    usual_actors: ClassVar[int] = 8
    """How many actors there are if nobody says how many."""
    few_steps: ClassVar[bool] = False  # whether a round has few by default
    usual_policy_kwargs: ClassVar[Mapping[str, Any]] = {}
    """Entries that SB3's algorithm adds to ``policy_kwargs`` unless they say otherwise, and that decide about parameters."""
    session_class: ClassVar[type[Session]] = Session

    # ------------------------------------------------------------------ construction

    def construct(self, host: Any) -> None:
        """Make what SB3's class makes, of the arguments of this constructor that it knows; what a constructor ends with.

        Args:
            host: SB3's class.

        Raises:
            TypeError: If an argument has a wrong type.
            ValueError: If one makes no sense, or some do not go together.
        """
        given = vars(self).pop("given")
        check_finite_arguments(self.arguments)
        self._set_options(given["env"])
        if given.get("policy_kwargs") is not None:
            given["policy_kwargs"] = dict(given["policy_kwargs"])  # SB3 writes into it
        env = lazy_envs(given["env"], self.n_actors * self.envs_per_actor)
        given |= {"env": env, **self._for_host()}  # SB3 takes None too, for load()
        known = inspect.signature(host.__init__).parameters
        host.__init__(self, **{name: given[name] for name in known if name in given})
        if "_init_setup_model" not in known and given.get("_init_setup_model", True):  # BaseAlgorithm itself, say
            self._setup_model()

    def _for_host(self) -> dict[str, Any]:
        """Arguments that SB3's constructor gets in the place of those that were given."""
        return {"support_multi_env": True}

    def _set_options(self, env: Any) -> None:
        """Check and keep what SB3's own constructor does not know, of all the arguments of this one."""
        options = RunOptions.of(self.arguments)
        check_devices(self.arguments)
        self._share_out(options.n_actors, options.envs_per_actor, env)
        self.pipeline, self.learner_threads = int(options.pipeline), int(options.learner_threads)
        self.n_learners, self.split = options.n_learners, bool(options.split)
        self.evaluate_every, self.evaluate_episodes = options.evaluate_every, options.evaluate_episodes
        self.evaluate_steps = options.evaluate_steps
        self.workers, self.executor, self.start_method = options.workers, options.executor, options.start_method
        self.nodes, self.restarts, self.timeout = options.nodes, options.restarts, options.timeout
        evaluate_env, watch_env = (None if env is None else maker_of(env) for env in (options.evaluate_env, options.watch_env))
        self.session = self.session_class(evaluate_env, watch_env)
        self.watch, self.watch_every = options.watch, options.watch_every
        self.watch_episodes, self.watch_steps = options.watch_episodes, options.watch_steps
        self.session.display.place(self)  # refuses what cannot be shown
        kept = {name: value for name, value in self.arguments.items() if name not in WATCHING}
        self.arguments = {**kept, "evaluate_env": evaluate_env}
        entropy: Any = np.random.SeedSequence().entropy
        self._base_seed = int(entropy) % 2**63 if kept["seed"] is None else int(kept["seed"])
        self._learned_timesteps = 0
        self.wants_infos = False

    def _share_out(self, n_actors: int | None, envs_per_actor: int | None, env: Any) -> None:
        """Decide how many actors there are, and how many environments each has; see :func:`shared_out`."""
        count = live_count(env)
        most = 8 if count is None or n_actors or envs_per_actor else most_actors(env, self.few_steps)
        self.n_actors, self.envs_per_actor = shared_out(n_actors, envs_per_actor, count, self.usual_actors, most)
        self.arguments = {**self.arguments, "n_actors": self.n_actors, "envs_per_actor": self.envs_per_actor}

    @staticmethod
    def _wrap_env(env: Any, verbose: int = 0, monitor_wrapper: bool = True) -> VecEnv:
        if not isinstance(env, VecEnv):
            env = spare_envs(maker_of(env), 1)
        return BaseAlgorithm._wrap_env(env, 0, monitor_wrapper)

    def _setup_actors(self) -> None:
        """Make what the actors need; an algorithm's ``_setup_model`` begins with it."""
        count = live_count(self.env)
        if count is not None and count != self.n_actors * self.envs_per_actor:
            # Those that a model was loaded with.
            self._share_out(None, None if count % self.envs_per_actor else self.envs_per_actor, self.env)
        self.n_envs = self.n_actors * self.envs_per_actor
        self.session.layout = Observations(self.observation_space, self.observation_space)
        if self.env is not None:
            makes = maker_of(self.env)
            if self.env.num_envs != self.n_envs:  # a model that has been loaded
                self.env = self._wrap_env(spare_envs(makes, self.n_envs))
            self._take_env(self.env, makes)
            self.session.display.visible(self)  # what cannot be shown is refused now
        self.session.generator = torch.Generator().manual_seed(seed_of(self._base_seed, Purpose.TORCH))
        self.session.live = LocalRef(self)

    def _take_env(self, env: VecEnv, makes: EnvMaker) -> None:
        """Have these environments from now on, and the actors what ``makes`` makes."""
        if self.env is not None:
            leave(self.env, self)
        self.env, self.session.makes, self._vec_normalize_env = env, makes, unwrap_vec_normalize(env)
        self.session.unasked, self.session.changed_envs = [], ""
        self.session.leave_goal_env()
        reach(env, self, whole=live_count(env) is not None)
        keys = by_key(self._vec_normalize_env).keys()
        self.session.layout = Observations(self.observation_space, self.observation_space, normalized=keys)

    # ------------------------------------------------------------------ updates

    def gradients(self, /, **minibatches: Batch | Minibatch) -> Update:
        """Compute the gradients of some losses at the same time.

        Args:
            **minibatches: What each loss is computed from, by the loss's name.

        Returns:
            The statistics of all of them; those that several losses have begin with the loss's name.
        """
        found = yield tasks_of(minibatches)
        return self.named(dict(zip(minibatches, found, strict=True)))

    def descend(self, /, **minibatches: Batch | Minibatch) -> Update:
        """Compute the gradients of some losses and step along them: one after the other or, with ``split=True``, side by side.

        Args:
            **minibatches: What each loss is computed from, by the loss's name.

        Returns:
            The statistics of all of them.
        """
        found: dict[str, Mapping[str, float]] = {}
        for together in [minibatches] if self.split else [{loss: one} for loss, one in minibatches.items()]:
            statistics = yield tasks_of(together)
            for loss, of_loss in zip(together, statistics, strict=True):
                found[loss] = of_loss
                self.step_along(loss, of_loss)
        return self.named(found)

    def step_along(self, loss: str, statistics: Mapping[str, float]) -> None:
        """Step along the gradients of a loss, as :meth:`descend` does; because of its statistics an algorithm may make no step."""
        self.nets.step(self.nets.loss(loss).learns)

    def named(self, found: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """The statistics of some losses by the names that they are logged by: the loss's is in front if several have it."""
        if len(found) == 1:
            return dict(*found.values())
        names = [name for one in found.values() for name in one]
        return {
            name if names.count(name) == 1 else f"{loss}_{name}": value
            for loss, one in found.items()
            for name, value in one.items()
        }

    def seen(self, rows: Any) -> Any:
        """Observations ``(rows, ...)`` as losses take them: for the extension preprocessed and flat, but for images."""
        if not self.nets.compiled or any(map(self.nets.sees_images, self.nets)):
            return rows
        return flat_rows(rows, self.observation_space, self.policy.normalize_images)

    @property
    def generator(self) -> torch.Generator:
        """The ``generator=`` of torch's functions for what batches and updates draw, in a processor's memory."""
        return self.session.generator

    def drawing(self) -> AbstractContextManager[None]:
        """The same generator for what draws without naming one; nothing where nobody does."""
        return torch_stream(self.generator) if self.session.draws else nullcontext()

    @contextmanager
    def drawing_apart(self) -> Iterator[None]:
        """For what belongs to no training: another generator, so that the training draws what it would have drawn."""
        own, self.session.generator = self.generator, torch.Generator().manual_seed(0)
        try:
            with self.drawing():
                yield
        finally:
            self.session.generator = own

    def begin_updates(self) -> None:
        """Take over learning rates, losses, and whatever was loaded since the last round."""
        optimizers = [part.optimizer for part in self.nets.parts.values() if part.optimizer is not None]
        self._update_learning_rate(optimizers)
        check_finite_arguments({"learning_rate": optimizers[0].param_groups[0]["lr"]})
        seed = seed_of(self._base_seed, Purpose.TORCH, 1, self._n_updates) if self.nets.draws else 0
        self.nets.begin_round(self.losses(), self.session.parts, seed)

    def _make_networks(self) -> None:
        """Make networks and losses: the end of a model's setup.

        Raises:
            ValueError: If what learns cannot learn side by side, or what acts cannot act.
        """
        self.acting()  # which refuses here what it would refuse in the first round
        parts = self.networks()
        self.nets = Networks(parts, self.losses())
        refuse_common(parts)
        self.plan_blocks()
        if self.split:
            check_split(self.nets)
        self.session.draws = self.nets.draws or any(cls.__module__.partition(".")[0] not in _KNOWN for cls in type(self).__mro__)
        self.session.made_from(self, parts)
        if self.session.made is None:
            self.session.made = checkpoint.templates_of(self)

    def look(self) -> None:
        """Take over what somebody has changed about the policy since the last round.

        Whatever is frozen, thawed or replaced, and hooks of modules: networks and losses are made anew then. A round begins with
        it, and where nothing has changed it takes some microseconds.

        Raises:
            ValueError: If what is there cannot be followed, learn, or act.
            TypeError: If parameters are not float32 on one device, or ``model.policy`` is no policy.
        """
        refuse_global_hooks()
        if not isinstance(self.policy, BasePolicy):
            raise TypeError(f"model.policy must be a policy of Stable-Baselines3, got {self.policy!r:.200}")
        session = self.session
        if session.has_other_parts(self):
            cast(Any, self)._create_aliases()
        session.parts = parts = self.networks()
        if session.structure.is_still_so({"policy": self.policy}, parts):
            return
        # Before others are made of the same modules, whose optimisers would step along what is left here.
        self.nets.let_go()
        self.policy.set_training_mode(False)
        self._make_networks()

    def log_exploration(self, rate: float) -> None:
        """Note the rate of exploration where SB3's users look for it."""
        self.exploration_rate = rate
        self.logger.record("rollout/exploration_rate", rate)

    # ------------------------------------------------------------------ parameters

    def fingerprint(self) -> str:
        """A hash of the parameters that actors get: the same for every executor and number of workers."""
        digest = new_hash()
        for name, tensor in self.session.state(self).items():
            canonical((name, tensor.detach().cpu().numpy()), digest)
        return str(digest.hexdigest())

    # ------------------------------------------------------------------ the program

    def program(self) -> Program:
        """The reactor program that ``learn()`` runs, one tick a round."""
        return program_of(self.program_config())

    # ------------------------------------------------------------------ its run

    def start(self) -> Run:
        """Start the workers, if they do not run yet; ``learn()`` does it by itself.

        Raises:
            RunError: In a forked child of the process that started them.
            ValueError: If there are ``restarts`` and environments that could not be brought back.
        """
        if self._run is not None and self._run.foreign:
            raise RunError(f"cannot go on with this {type(self).__name__}, for {FORKED}")
        if self._run is None or self._run.stopped:
            self._run = self.session.start(self)
            self.session.ask_first(self)
        return self._run

    def _running(self) -> Run:
        return self.start()

    def ask_actors(self, asked: EnvRequest, numbers: Sequence[int]) -> list[Any] | None:
        """Ask the actors' environments of these numbers, between two rounds. ``None``: it is asked when there are actors."""
        return self.session.ask(self, asked, numbers)

    # ------------------------------------------------------------------ learning

    def learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int | None = 4,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> Self:
        """Train.

        Callbacks are called when a round is done: ``on_step`` once for each step of all environments, in the order in which they
        were taken, with the arrays that SB3 gives them (a row for each environment, in actor order). One that returns ``False``
        ends the training with that round.

        Args:
            total_timesteps: Steps to take in all environments together; whole rounds of ``rollout_steps * n_envs`` are taken.
            callback: As for any SB3 algorithm.
            log_interval: Episodes between two logs; at most one log a round.
            tb_log_name: Name of the run in TensorBoard.
            reset_num_timesteps: Whether to count steps from 0 and begin new episodes, or to go on.
            progress_bar: Whether to show one.

        Returns:
            The model.

        Raises:
            Exception: What an environment raised, with its actor and the tag.
            WorkerDiedError: If a worker process ended.
        """
        check_log_interval(log_interval)
        total_timesteps, callback = self._setup_learn(
            plain_timesteps(total_timesteps), callback, reset_num_timesteps, tb_log_name or self.default_log_name, progress_bar
        )
        callback.on_training_start(Locals(locals()), globals())
        try:
            self.session.learn(self, total_timesteps, callback, log_interval)
        except BaseException:
            # What went wrong first is the error to be told of.
            with contextlib.suppress(Exception):
                self.close()
            raise
        callback.on_training_end()
        return self

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        # SB3's own would reset the environments of `get_env()`, which the actors do not use.
        self._begin_learning(reset_num_timesteps)
        self.start_time = time.time_ns()
        if self.ep_info_buffer is None or self.ep_success_buffer is None or reset_num_timesteps:
            self.ep_info_buffer = deque(maxlen=self._stats_window_size)
            self.ep_success_buffer = deque(maxlen=self._stats_window_size)
        if reset_num_timesteps:
            self._learned_timesteps -= self.num_timesteps  # not 0 if a round is still under way
            self.num_timesteps = self._episode_num = 0
            self.session.afresh = True
        else:
            total_timesteps += self.num_timesteps
        self._total_timesteps, self._num_timesteps_at_start = total_timesteps, self.num_timesteps
        self._update_current_progress_remaining(self.num_timesteps, max(total_timesteps, 1))
        if not self._custom_logger:
            self._logger = utils.configure_logger(self.verbose, self.tensorboard_log, tb_log_name, reset_num_timesteps)
        return total_timesteps, self._init_callback(callback, progress_bar)

    def _begin_learning(self, reset_num_timesteps: bool) -> None:
        """Called before :meth:`learn` begins."""

    # ------------------------------------------------------------------ checkpoints

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Save everything that the coming rounds depend on.

        A run that is resumed from it ends with the same weights, bit for bit, as one that was never interrupted, on any number of
        workers. The file is replaced at once: whenever the process is killed, there is the old checkpoint or the new one. Weights,
        buffers and counters in it are arrays and JSON; environments' states, factories and functions that the user has passed are
        pickles, listed in its ``manifest.json``.

        Between two rounds (in a callback's ``_on_rollout_end``, or when :meth:`learn` is over) it is written at once. Within one
        (in ``_on_step``) the learner is ahead of what callbacks have seen: then it is written when they have seen the whole round,
        before ``_on_rollout_end``, and what goes wrong with it is raised by :meth:`learn`.

        Args:
            path: The file.

        Warns:
            UserWarning: If an environment can neither be saved nor replayed, so that a resumed run begins a new episode there.

        Raises:
            ValueError: If the model has no environment, or its policy is no longer as the constructor makes it: frozen, with other
                hooks, layers or optimisers. Within a round, :meth:`learn` raises it.
            TypeError: If the file could not be read again: the constructor cannot make an attribute or a part of the model.
                The error names it, and the old file is still there.
            OSError: If the file cannot be written; the old one is then still there, and the training can go on.
        """
        if self.env is None:
            raise ValueError("a model without an environment has no run to go on with; use save() for its weights")
        if self.running:
            self.session.settings.check_kept(self)
        if not self.session.in_round:
            checkpoint.save(path, self)
        elif path not in self.session.due:
            self.session.due.append(path)

    @classmethod
    def resume(cls, path: str | os.PathLike[str], env: Any = None, *, allow_pickle: bool = True, **changed: Any) -> Self:
        """Go on from a checkpoint: ``model.learn(model.remaining_timesteps, reset_num_timesteps=False)`` ends as it would have.

        Args:
            path: The file.
            env: In place of the environment that was saved; must be of the same kind.
            allow_pickle: Whether to load what pickle holds, which executes code: do not load files from others. If not, only
                checkpoints without pickles can be resumed, nothing is imported for them (an id ``"module:Name"`` needs a module
                that you have imported), and nothing is made that is much larger than the file. Nor does the file say where to
                run and to write then: of what ``changed`` may name, all but devices are the constructor's defaults, or given here.
            **changed: Arguments of the constructor that never change results: ``workers``, ``executor``, ``nodes`` (which another
                executor has to be given anew), ``start_method``, ``restarts``, ``timeout``, ``verbose``,
                ``tensorboard_log``; ``device`` and what ends with ``_device``, which change last bits only; and ``watch`` and what
                begins with ``watch_``, of which a checkpoint has none.

        Returns:
            The model.

        Raises:
            FileNotFoundError: If there is no such file.
            ValueError: If it is damaged, of another algorithm or version, or holds pickles that are not allowed.
            ImportError: If a pickle in it needs what cannot be imported here.
            TypeError: If ``changed`` names something that would change results.

        Warns:
            UserWarning: If it was written with other versions or on another kind of processor, whose last bits may differ.
        """
        named = inspect.signature(cls.__init__).parameters
        free = {*checkpoint.PLACES, *(name for name in DEVICES if name in named)}
        if not free >= set(changed):
            raise TypeError(f"resume() cannot change {', '.join(sorted(set(changed) - free))}: the run would no longer be the same")
        return cast(Self, checkpoint.load(cls, path, env, allow_pickle, changed))

    @classmethod
    def load(cls, path: Any, *args: Any, **kwargs: Any) -> Self:
        """Load a file that ``save()`` has written; see SB3.

        Raises:
            ValueError: If it is a checkpoint, or damaged, or ``policy_kwargs`` are others than those that the model was made with.
        """
        checkpoint.check_loadable(cls, path)
        asked = kwargs.pop("policy_kwargs", None)
        if "device" in kwargs:
            kwargs["device"] = get_device(kwargs["device"])  # as in SB3, a model from a GPU is loaded on a machine without one
        elif len(args) < 2:
            kwargs["device"] = "cpu"  # as by the constructor
        try:
            model = super().load(path, *args, **kwargs)
        except KeyError as error:  # a name in the zip's directory is another one
            raise ValueError(f"{path} is damaged: it has no {error}") from error
        # SB3 would hold them against those of the algorithm, which has written into them.
        if asked is not None and asked not in (model.policy_kwargs, model.arguments.get("policy_kwargs") or {}):
            raise ValueError(f"policy_kwargs must be those that the model was saved with, {model.policy_kwargs}, got {asked}")
        # Files of 0.1.0 have arguments that are called otherwise now; their values are attributes as well.
        model.arguments = {**known_arguments(cls, model.arguments), "device": str(model.device)}
        vars(model).setdefault("timeout", None)
        return model

    # ------------------------------------------------------------------ how far it is

    @property
    def _last_obs(self) -> Any:
        """See SB3; for callbacks."""
        if vars(self).get("_last_obs") is None and "session" in vars(self) and self.session.unseen:
            raise AttributeError(
                f"the last observations of this {type(self).__name__} are with its actors: pass a callback to learn(), which sees "
                'self.model._last_obs and self.locals["new_obs"] of each step'
            )
        return vars(self).get("_last_obs")

    @_last_obs.setter
    def _last_obs(self, observations: Any) -> None:
        vars(self)["_last_obs"] = observations

    @property
    def remaining_timesteps(self) -> int:
        """Steps that the last call of :meth:`learn` still had to take."""
        return max(0, self._total_timesteps - self.num_timesteps)

    @property
    def learned_timesteps(self) -> int:
        """Steps that the learner has seen; with ``pipeline=1`` a round behind ``num_timesteps``, negative before the first one."""
        return self._learned_timesteps

    @property
    def n_updates(self) -> int:
        """Updates so far, as they are logged as ``train/n_updates``; ``SyncPPO`` counts passes over a round, as SB3 does."""
        return self._n_updates

    @property
    def n_episodes(self) -> int:
        """Episodes that have ended since ``learn()`` began to count."""
        return self._episode_num

    # ------------------------------------------------------------------ SB3's other methods

    def set_env(self, env: Any, force_reset: bool = True) -> None:
        """Go on with other environments: an id, a function that makes one, or one that can be made again.

        Args:
            env: The environment. What :meth:`get_env` gives stands for the environments that the actors have.
            force_reset: Whether the next :meth:`learn` begins new episodes; other environments always do.

        Raises:
            ValueError: If its spaces differ.
            AssertionError: If it is a live vector environment of another number of environments.
            TypeError: If no more of it can be made.
        """
        if env is not None and env is self.env:
            self.session.afresh = self.session.afresh or force_reset
            return
        if (count := live_count(env)) not in (None, self.n_envs):
            raise AssertionError(  # as SB3 does
                f"the vector environment has {count} environments and the model {self.n_envs}: give it as many, or load a model "
                f"with it: {type(self).__name__}.load(path, env)"
            )
        spare = lazy_envs(env, self.n_envs)
        if spare is None:
            raise ValueError("set_env() needs an environment")
        wrapped = self._wrap_env(spare)
        utils.check_for_correct_spaces(wrapped, self.observation_space, self.action_space)
        makes = maker_of(wrapped)
        self.close()
        self._take_env(wrapped, makes)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "session", "nets", "_run", *WATCHING]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return cast(Self, copy_of(self, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuses pickling, and copies that share what belongs to one run.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled, nor copied by copy.copy(), not even after close(): use save() and load(), "
            "save_checkpoint() and resume(), or copy.deepcopy(), whose copy has no run yet"
        )

    def explain(self) -> Explanation:
        """Say who evaluates and who differentiates each network, and why it is not the extension.

        ``print(model.explain())`` shows a table with a row for each network. It is about the policy as it is now.
        """
        return explanation_of(self.nets, self.acting_by_torch(), self.nets.why)

    def acting_by_torch(self) -> dict[str, str | None]:
        """By the names of the networks that act, the reason why torch evaluates them; ``None`` if the extension does."""
        module, behaviour = self.acting()
        why: str | None = getattr(getattr(behaviour, "policy", None), "why_torch", None)  # somebody's own need not say
        return {next((name for name in self.nets if self.nets[name] is module), "policy"): why}

    def length_in_words(self) -> str:
        """How long a round is, as the constructor has it."""
        return f"n_steps={self.rollout_steps}"

    def __repr__(self) -> str:
        running = "" if self._run is None else f", executor={self._run.executor!r}, workers={self._run.workers}"
        session = self.session
        count = (self.n_learners or 1) if session.sliced is None else session.sliced.lanes.slices
        learners = f", n_learners={count}" if (count := max(count, session.threads)) > 1 else ""
        split, gradients = ", split=True" if self.split else "", "compiled" if self.nets.compiled else "autograd"
        why = "" if self.nets.why is None else f", why={self.nets.why!r}"
        return (
            f"{type(self).__name__}(n_actors={self.n_actors}, envs_per_actor={self.envs_per_actor}, "
            f"{self.length_in_words()}, pipeline={self.pipeline}{learners}{running}{split}, gradients={gradients!r}{why})"
        )
