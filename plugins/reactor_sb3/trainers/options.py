"""Options of trainers beyond those of SB3's own algorithms, documented and checked once for all of them."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, cast, get_args

import gymnasium
import torch
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import VecEnv

from reactor_gymnasium.plugin import checked_number
from reactor_rl.plugin import Execution, ExecutorName
from reactor_sb3.environments.live_vec_env import kernel_of_all
from reactor_sb3.trainers.arguments import check_numbers, plain_argument

__all__ = [
    "DEVICES",
    "MOST_THREADS",
    "Options",
    "RunOptions",
    "SplitOptions",
    "check_arguments",
    "check_devices",
    "check_places",
    "constructor_names",
    "keeps_arguments",
    "known_arguments",
    "most_actors",
    "shared_out",
]

NOT_KEPT = frozenset({"self", "env", "_init_setup_model"})
"""A constructor's parameters that the same trainer is made again without."""
DEVICES = ("device", "critic_device", "actor_device")
"""Options of any trainer that say where something is computed."""

MOST_THREADS = 1024
"""Most threads of a learner; a file that says more was not written by us. More than any machine has cores that share a memory, give
or take.
"""
_OURS = ("reactor_sb3", "reactor_pettingzoo")

P = ParamSpec("P")
T = TypeVar("T")


class Options(TypedDict, total=False):
    """The keywords of every trainer; see :class:`RunOptions`."""

    n_actors: int | None
    envs_per_actor: int | None
    pipeline: int
    n_learners: int | None
    learner_threads: int
    evaluate_every: int | None
    evaluate_episodes: int
    evaluate_steps: int | None
    evaluate_env: Any
    watch: str | os.PathLike[str] | None
    watch_every: int
    watch_episodes: int
    watch_steps: int | None
    watch_env: Any
    workers: int | None
    executor: ExecutorName
    nodes: Any
    start_method: str | None
    restarts: int
    timeout: float | None


class SplitOptions(Options, total=False):
    """The keywords of trainers whose critics and actor may learn at the same time; see :class:`RunOptions`."""

    split: bool
    critic_device: torch.device | str | None
    actor_device: torch.device | str | None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The keywords that trainers have besides those of SB3's algorithms. What is part of the algorithm comes first.

    The others, ``n_learners`` and what follows, only say how it is run, and never change a bit of the weights.

    Args:
        n_actors: How many actors there are: by default 1 with a replay buffer, for ``SyncA2C`` and ``SyncRecurrentPPO``, 4 for
            ``PQN``, 8 for the others. With more, transitions come from older parameters, and less is learned from each. With a
            vector environment as ``env``, ``n_actors * envs_per_actor`` is the number of its environments; by default up to 8
            actors share them, 4 with images, and 2 of up to 64 environments that kernels in C step; MuJoCo's, too, in rounds of few
            steps.
        envs_per_actor: Environments of each actor, 1 by default; its network sees them as one batch.
        pipeline: 0: the actors sample a round, the learner learns from it. 1: while they sample the next one. With ``SyncPPO``, the
            probabilities that the loss divides by are those with which actions were drawn.
        split: Whether the critics and the actor learn from the same minibatch at the same time, side by side: the actor then sees
            the critics from before their update, which is a delayed variant of SB3's algorithm. Without it, an update is SB3's.
            (Of algorithms with a replay buffer and an actor.)
        critic_device: With ``split=True``, where the critics' gradients are computed and all steps are made; ``None``: on
            ``device``.
        actor_device: With ``split=True``, where the actor's gradients are computed, by a reactor that has copies of actor and
            critics there; ``None``: on ``device``. What the two exchange, a part of each minibatch, parameters and gradients, goes
            through array ports, so through the processor's memory. It has been run with both on the processor, never on a GPU.
        learner_threads: Torch's threads in the learner, and in each of its slices. Dense layers and convolutions have at least as
            many of their own; see ``n_learners``.
        evaluate_every: Rounds between the beginnings of two evaluations on a snapshot of the parameters, which go on
            beside the training; their results are in ``evaluations`` and the log. ``None``: no evaluations.
        evaluate_episodes: Greedy episodes of an evaluation.
        evaluate_steps: Most steps of an evaluation in one round; by default as many as an actor takes.
        evaluate_env: Where it takes place, if not in ``env``.
        watch: Shows a policy at play while it is trained, with a snapshot of the parameters: ``"human"`` in a window,
            ``"run.mp4"`` or ``"run.gif"`` (any path) in a film for each showing, ``run-TIMESTEPS.mp4``, ``"tensorboard"`` in the
            trainer's log. It changes no bit of the training. Films need the extra ``watch``.
        watch_every: Rounds between the beginnings of two showings, at least.
        watch_episodes: Episodes of a showing, in which actions are not random.
        watch_steps: Most steps of a showing in one round; by default one for every 16 that an actor takes.
        watch_env: Where it takes place, if not in ``env``: for an ``env`` that cannot be told its ``render_mode``.
        n_learners: How many threads or reactors compute the gradients of a minibatch, at most. It is a fixed sequence of blocks of
            rows, whose gradients are added up in a fixed order: any number gives the same bits. ``None``: as many as there are
            workers, in rounds where that was measured to be faster. Dense layers and convolutions have threads, other networks
            reactors; with an ``executor`` other than ``"auto"`` a number is taken as it is, of reactors. On a GPU, without a C
            compiler, with batch normalisation, and for small networks of other than dense layers a minibatch is one block.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use.
        executor: ``"inline"``, ``"threads"``, ``"processes"``, or ``"auto"``, which measures throw-away copies of an actor and of
            the learner, chooses, and places reactors so that all workers end together. ``"ray"`` is for several machines.
        nodes: With ``"ray"``: how many machines of a Ray cluster, this one included, or a ``reactor_ray.RayNodes``; ``None`` for
            all of them. The actors are shared out among them, and ``workers`` is the number of workers on each.
        start_method: How helper processes start; see :class:`~reactor_sb3.ReactorVecEnv`.
        restarts: How often worker processes that die are replaced, with the same weights; likewise.
        timeout: Seconds that the learner waits for a worker process in a round at most, a whole rollout and what goes on
            beside it. After that it is a :class:`reactor_rl.WorkerHungError` that names the worker's reactors, or, with
            ``restarts``, the worker is replaced. Actors in the calling process are not timed.

    Raises:
        TypeError: If a number is not one.
        ValueError: If it is too small, or options do not go together.
        RuntimeError: If torch knows no such device.
    """

    n_actors: int | None = None
    envs_per_actor: int | None = None
    pipeline: int = 0
    split: bool = False
    critic_device: torch.device | str | None = None
    actor_device: torch.device | str | None = None
    learner_threads: int = 1
    evaluate_every: int | None = None
    evaluate_episodes: int = 20
    evaluate_steps: int | None = None
    evaluate_env: Any = None
    watch: str | os.PathLike[str] | None = None
    watch_every: int = 100
    watch_episodes: int = 1
    watch_steps: int | None = None
    watch_env: Any = None
    n_learners: int | None = None
    workers: int | None = None
    executor: ExecutorName = "auto"
    nodes: Any = None
    start_method: str | None = None
    restarts: int = 0
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name in ("learner_threads", "evaluate_episodes"):
            checked_number(name, getattr(self, name), 1)
        check_places(vars(self))
        check_devices(vars(self))
        for name in ("n_actors", "envs_per_actor", "evaluate_every", "evaluate_steps"):
            if getattr(self, name) is not None:
                checked_number(name, getattr(self, name), 1)
        for name in ("learner_threads", "n_learners"):
            if (getattr(self, name) or 0) > MOST_THREADS:
                raise ValueError(f"`{name}` must be at most {MOST_THREADS}, got {getattr(self, name)}.")
        if self.pipeline not in (0, 1):
            raise ValueError(
                f"pipeline={self.pipeline!r}: 0 learns from a round before the next one, 1 while the next one is sampled"
            )

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Those among a trainer's attributes or arguments, checked."""
        return cls(**{name: given[name] for name in _NAMES if name in given})


_NAMES = tuple(one.name for one in fields(RunOptions))


# ---------------------------------------------------------------------- constructors


def keeps_arguments(init: Callable[Concatenate[T, P], None]) -> Callable[Concatenate[T, P], None]:
    """A constructor that notes in ``self.arguments`` what it is given, defaults included: what makes the same trainer again.

    Its ``**options: Unpack[SplitOptions]``, say, are shown by ``help()`` and :func:`inspect.signature` as the keywords that they
    are. ``n_envs`` and ``num_envs``, which SB3 and Gymnasium have, are answered with what they are called here. Numbers of numpy's
    become Python's, and those that make no sense are refused.
    """
    signature = _with_options(init)
    positions = list(signature.parameters)[1:]

    @wraps(init)
    def keeping(self: T, *args: P.args, **kwargs: P.kwargs) -> None:
        for name in ("n_envs", "num_envs"):
            if name in kwargs:
                raise TypeError(
                    f"{type(self).__name__} has no {name}: its environments are its actors', so pass n_actors={kwargs[name]!r}, "
                    "each with an environment of its own, or n_actors= and envs_per_actor="
                )
        given = [plain_argument(name, value) for name, value in zip(positions, args, strict=False)]
        args = cast(Any, (*given, *args[len(given) :]))
        kwargs = cast(Any, {name: plain_argument(name, value) for name, value in kwargs.items()})
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        _check_numbers_of(signature, init.__module__, bound.arguments)
        vars(self)["given"] = {name: value for name, value in bound.arguments.items() if name != "self"}
        vars(self)["arguments"] = {name: value for name, value in bound.arguments.items() if name not in NOT_KEPT}
        init(self, *args, **kwargs)

    wrapped: Any = keeping
    wrapped.__signature__ = signature
    return cast(Callable[Concatenate[T, P], None], keeping)


def _options_of(init: Callable[..., Any]) -> Any:
    """The ``TypedDict`` that a constructor's ``**options`` are, ``None`` if it has none."""
    unwrapped: Any = inspect.unwrap(init)
    hint: Any = unwrapped.__annotations__.get("options")
    if isinstance(hint, str):
        hint = eval(hint, unwrapped.__globals__)
    return get_args(hint)[0] if get_args(hint) else None


def _with_options(init: Callable[..., Any]) -> inspect.Signature:
    """A constructor's signature, with its ``**options`` as the keywords that they are."""
    signature, options = inspect.signature(init), _options_of(init)
    defaults = {one.name: one.default for one in fields(RunOptions) if one.default is not MISSING}
    named = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
        for name, hint in ({} if options is None else options.__annotations__).items()
    ]
    return signature.replace(parameters=[*named, *more])


def constructor_names(cls: type[Any]) -> set[str]:
    """The arguments that make a trainer of a class, but for its environment."""
    return set(inspect.signature(cls).parameters) - NOT_KEPT


def known_arguments(cls: type[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those of some arguments that a constructor has, and the defaults of the others that it has."""
    parameters = inspect.signature(cls).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):  # a class of the user's that hands on whatever it is given
        return dict(arguments)
    return {
        name: arguments.get(name, one.default)
        for name, one in parameters.items()
        if name in arguments or (name not in NOT_KEPT and one.default is not one.empty)
    }


def check_arguments(cls: type[Any], arguments: Mapping[str, Any]) -> None:
    """Refuse numbers among arguments that the constructor of a class would refuse.

    Raises:
        ValueError: Naming it.
    """
    _check_numbers_of(inspect.signature(cls), cls.__init__.__module__, arguments)


def _check_numbers_of(signature: inspect.Signature, module: str, arguments: Mapping[str, Any]) -> None:
    defaults = {name: one.default for name, one in signature.parameters.items()}
    check_numbers(arguments, defaults, ours=module.partition(".")[0] in _OURS)


# ---------------------------------------------------------------------- checks


def shared_out(n_actors: int | None, envs_per_actor: int | None, count: int | None, usual: int, most: int) -> tuple[int, int]:
    """How many actors there are, and how many environments each of them has.

    Args:
        n_actors: How many are asked for, if any number is.
        envs_per_actor: Likewise.
        count: Environments of the live vector environment that the actors' are made from; ``None`` without one.
        usual: Actors that there are if nothing else says how many.
        most: Actors that share out a vector environment: its environments are a batch of the network in each of them.

    Raises:
        ValueError: If so many environments cannot be shared out like that.
    """
    if count is None:
        return int(n_actors or usual), int(envs_per_actor or 1)
    actors = n_actors or (count // envs_per_actor if envs_per_actor else _divisor(count, most))
    envs = envs_per_actor or count // max(actors, 1)
    if actors * envs != count:
        said = " and ".join(f"{name}={n}" for name, n in (("n_actors", n_actors), ("envs_per_actor", envs_per_actor)) if n)
        raise ValueError(
            f"{said} cannot share out the {count} environments of the vector environment: leave both out, or give numbers whose "
            f"product is {count}"
        )
    return int(actors), int(envs)


def most_actors(venv: VecEnv, few_steps: bool) -> int:
    """How many actors share out a live vector environment at most: fewer where its rows cost less than an actor.

    An actor evaluates the network by itself in each step, and lays out its weights in each round. Kernels step a row in less time
    than that takes, those of MuJoCo's environments if a round has few steps. With more than 32 rows to an actor it pays again.
    """
    space = venv.observation_space
    if any(map(is_image_space, space.spaces.values() if isinstance(space, gymnasium.spaces.Dict) else [space])):
        return 4  # a convolutional network takes hardly longer for two images than for one
    kernel = kernel_of_all(venv)
    cheap = kernel == "compiled" or (kernel == "simulated" and few_steps)
    return min(max(2, venv.num_envs // 32), 8) if cheap else 8


def _divisor(count: int, most: int) -> int:
    """The largest divisor up to ``most``; where that is less than half of it, the smallest one above."""
    divisors = [number for number in range(1, count + 1) if count % number == 0]
    below = max(number for number in divisors if number <= most)
    return below if 2 * below >= min(most, count) else min(number for number in divisors if number > most)


def check_devices(arguments: Mapping[str, Any]) -> None:
    """Refuse devices that are not there, of those that are named; SB3 would silently use others.

    Raises:
        RuntimeError: If torch knows no such device.
        ValueError: If it is not in this machine.
    """
    for name in DEVICES:
        if (device := arguments.get(name)) is None:
            continue
        wanted = get_device("cpu") if device == "auto" else torch.device(device)
        if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
            raise ValueError(
                f'{name}="{wanted}": torch sees {torch.cuda.device_count()} CUDA devices here; use {name}="cpu", or "auto" '
                "for one of them if there is any"
            )


def check_places(arguments: Mapping[str, Any]) -> None:
    """Refuse arguments that say where a trainer runs and make no sense, of those that there are.

    Raises:
        TypeError: If a number is not one.
        ValueError: If there can be no such name or number, or an executor does not go with nodes or threads of the learner.
    """
    execution = Execution.of(arguments)
    if arguments.get("n_learners") is not None:
        checked_number("n_learners", arguments["n_learners"], 1)
    if execution.executor == "threads" and arguments.get("learner_threads", 1) > 1:
        raise ValueError(
            'executor="threads" needs learner_threads=1: torch has one number of threads for the whole process, which the '
            "actors' threads would find changed"
        )
