"""A trainer's state between two rounds, and how another trainer becomes what it says.

What is learned is asked of SB3's ``_get_torch_save_params()``: an algorithm has nothing to say about checkpoints.
"""

from __future__ import annotations

from collections import deque
from types import NoneType
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.type_aliases import TrainFreq
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule

from reactor_rl.plugin import Pickled, decode, dumps
from reactor_sb3 import streams
from reactor_sb3.acting.evaluator import Evaluation
from reactor_sb3.acting.normalization import put_statistics, statistics_state
from reactor_sb3.checkpoints.alike import LARGE, alike, want, writable
from reactor_sb3.checkpoints.expected import Made, Steps, check_outline, expected_outputs, expected_run, expected_state
from reactor_sb3.checkpoints.parts import environment_state, fill_replay, outline, overlay, replay_outline, replay_state, run_state
from reactor_sb3.checkpoints.saved_arguments import check_arguments
from reactor_sb3.plain import plain
from reactor_sb3.trainers.model import Model
from reactor_sb3.trainers.replay import BLOCKWISE

__all__ = ["go_on", "made_of", "optimizers_of", "restore", "state_of", "state_to_write"]

COUNTERS = (
    "num_timesteps", "_total_timesteps", "_num_timesteps_at_start", "_episode_num", "_n_updates", "_n_calls", "_learned_timesteps",
    "_current_progress_remaining", "exploration_rate", "_base_seed", "use_masking",
)  # fmt: skip
_OTHERWISE_KEPT = ("train_freq", "nodes")
"""Arguments that may be numbers, and whose attributes are something else."""


CHANGEABLE = ("learning_rate", "action_noise", "clip_range", "clip_range_vf", "delta_std")
"""Arguments that may be functions or objects, and be changed between two rounds."""


def optimizers_of(model: Model) -> dict[str, torch.optim.Optimizer]:
    """All optimisers of a trainer, by the names that SB3 has for them."""
    known = {name: recursive_getattr(model, name) for name in model._get_torch_save_params()[0]}
    return {name: part for name, part in known.items() if isinstance(part, torch.optim.Optimizer)}


def _tensors_of(model: Model) -> dict[str, torch.Tensor]:
    """All tensors that are learned besides the policy, likewise: a coefficient, say."""
    return {name: recursive_getattr(model, name) for name in model._get_torch_save_params()[1]}


def state_of(model: Model) -> dict[str, Any]:
    """Everything that the coming rounds depend on, between two rounds; with Python's numbers.

    Raises:
        Unlike: If an argument has become an attribute of another kind.
    """
    part = None if model._run is None else model._run.snapshot().part
    state = {
        "arguments": _arguments_now(model),
        "environment": environment_state(model.session.makes),
        **_own_state(model),
        "sent": None if part is None else model.session.sent == model.session.parameters(model).tobytes(),
        "afresh": None if part is None else model.session.afresh,
        "run": None if part is None else run_state(part, model.session.saved_parts, whole_infos=model.wants_infos),
    }
    return {name: plain(value) for name, value in state.items()}


def _own_state(model: Model) -> dict[str, Any]:
    """Return the part of the state that a trainer has even without an environment."""
    return {
        "counters": {name: _number(getattr(model, name)) for name in COUNTERS if hasattr(model, name)},
        "policy": dict(model.policy.state_dict()),
        "optimizers": {name: optimizer.state_dict() for name, optimizer in optimizers_of(model).items()},
        "learned": _tensors_of(model),
        "streams": {name: streams.state_of(generator) for name, generator in model.session.streams.items()},
        "torch_stream": model.session.generator.get_state(),
        "episodes": [dict(info) for info in model.ep_info_buffer or ()],
        "successes": [float(one) for one in model.ep_success_buffer or ()],
        "evaluations": [[one.timesteps, list(one.returns), list(one.lengths)] for one in model.evaluations],
        "normalization": statistics_state(model._vec_normalize_env),
        "replay_buffer": _replay_state(model),
    }


def made_of(model: Model) -> Made:
    """Describe the state of a trainer that was just made; this takes hardly any memory."""
    buffer, state = _buffer(model), outline(_own_state(model))
    state |= dict.fromkeys(("arguments", "environment", "sent", "afresh", "run"))
    if buffer is not None and type(buffer) not in BLOCKWISE:
        state["replay_buffer"] = {"whole": None}
    optimizers = {name: Steps.of(optimizer) for name, optimizer in optimizers_of(model).items()}
    return Made(state, optimizers, None if buffer is None else replay_outline(buffer), type(buffer))


def state_to_write(model: Model) -> dict[str, Any]:
    """The same, held against what it will be held against when it is read.

    Raises:
        TypeError: If it could not be read again, naming what is wrong.
    """
    with writable(type(model).__name__):
        state, made = state_of(model), model.session.made
        # Statistics are those of the environments that the user has set since.
        made = made._replace(state={**made.state, "normalization": outline(state["normalization"])})
        check_outline(state, LARGE)
        check_arguments(type(model), state["arguments"])
        alike(state, expected_state(made), "its state")
        if (buffer := _buffer(model)) is not None:
            like = made.buffer_class, made.buffer.buffer_size
            want((type(buffer), buffer.buffer_size) == like, "its replay_buffer", buffer)
        if state["run"] is not None:
            alike(state["run"], model.session.expected_run(model), "its run")
    return state


def _replay_state(model: Model) -> Any:
    """The state of a replay buffer, and what the environment that hindsight asks was asked."""
    buffer = _buffer(model)
    saved = replay_state(buffer, buffer is not None and type(buffer) not in BLOCKWISE)
    asked = [] if model.session.goals is None else model.session.goals.asked
    return {**saved, "asked": [Pickled(dumps(one)) for one in asked]} if asked else saved


def _buffer(model: Model) -> Any:
    return getattr(model, "replay_buffer", None)


def _arguments_now(model: Model) -> dict[str, Any]:
    """A constructor's arguments as they are by now, where they have become attributes that were changed since."""
    arguments = {name: _plain_now(model, name, value) for name, value in model.arguments.items()}
    rounds = getattr(model, "train_freq", None)
    if isinstance(rounds, TrainFreq) and "rollout_steps" in arguments:
        said = arguments["rollout_steps"] or arguments["train_freq"]
        if (said[0] if isinstance(said, tuple) else said) != rounds.frequency:
            arguments |= dict.fromkeys(("rollout_steps", "train_freq"), rounds.frequency)
    return arguments


def _plain_now(model: Model, name: str, value: Any) -> Any:
    """A constructor's argument as it is by now, where it has become an attribute that was changed since."""
    made = "lr_schedule" if name == "learning_rate" else f"{name}_schedule"  # which SB3 makes of it, and asks
    now = vars(model).get(made if made in vars(model) else name, value)
    if isinstance(now, FloatSchedule):  # what SB3 makes of a number, too
        now = now.value_schedule
        now = now.val if isinstance(now, ConstantSchedule) else now
    now = plain(now.item() if isinstance(now, np.ndarray) and now.ndim == 0 else now)
    if name in CHANGEABLE:
        return now
    numbers = bool, int, float
    if isinstance(now, (*numbers, NoneType)) and isinstance(value, (*numbers, NoneType)):
        return now
    if name == "target_entropy" and value == "auto" and float(now) != -float(np.prod(model.action_space.shape or ())):
        return float(now)
    want(not isinstance(value, numbers) or name in _OTHERWISE_KEPT, name, now)
    return value


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, (bool, np.bool_)) else value


def restore(model: Model, state: dict[str, Any]) -> None:
    """Make a trainer that was just made what a state says, but for its run.

    Raises:
        CorruptError: If the state is not one of such a trainer.
    """
    optimizers = optimizers_of(model)
    alike(state, expected_state(model.session.made), "the state")
    for name, value in state["counters"].items():
        setattr(model, name, value)
    model.policy.load_state_dict(state["policy"])
    for name, optimizer in optimizers.items():
        optimizer.load_state_dict(state["optimizers"][name])
    with torch.no_grad():
        for name, tensor in _tensors_of(model).items():
            tensor.copy_(state["learned"][name])
    for name, generator in model.session.streams.items():
        streams.restore(generator, state["streams"][name])
    model.session.generator.set_state(state["torch_stream"])
    window = model._stats_window_size
    model.ep_info_buffer, model.ep_success_buffer = deque(state["episodes"], window), deque(state["successes"], window)
    model.session.report.evaluations = [
        Evaluation(steps, tuple(returns), tuple(lengths)) for steps, returns, lengths in state["evaluations"]
    ]
    _put_statistics(model, state["normalization"])
    if state["run"] is None:
        _fill_replay(model, state["replay_buffer"])
    else:
        config = model.program_config()
        alike(state["run"], expected_run(config, model.wants_infos), "the run")


def go_on(model: Model, state: dict[str, Any]) -> None:
    """Start the run of a trainer and make it the one that a state has, if it has one.

    Raises:
        CorruptError: If it is not one of this trainer.
    """
    saved = state["run"]
    if saved is None:
        return
    run = model.start()
    fresh = run.snapshot()
    named = model.session.saved_parts
    alike(saved["outputs"], expected_outputs(fresh.part, saved["outputs"], named), "the ports")
    overlay(fresh.part, saved, named)
    run.restore(fresh)
    model.session.sent = model.session.parameters(model).tobytes() if state["sent"] else None
    # After the start, which would mark the end of episodes that go on.
    _fill_replay(model, state["replay_buffer"])
    for one in (state["replay_buffer"] or {}).get("asked", ()):
        model.session.goal_env().follow(decode(one))
    _put_statistics(model, state["normalization"])
    model.session.afresh = state["afresh"]
    reactors = [saved["reactors"][name] for name in named.reactors]
    actors = [reactor for reactor in reactors if "random" in reactor]
    begun = np.array([one["way"] is None and one["episode"] >= 0 for actor in actors for one in actor["envs"]], np.bool_)
    if model.pipeline:
        model.session.late_cut = begun
    else:
        model.cut_episodes(begun)


def _put_statistics(model: Model, saved: Any) -> None:
    if saved is not None and model._vec_normalize_env is not None:
        put_statistics(model._vec_normalize_env, saved)


def _fill_replay(model: Any, saved: Any) -> None:
    if saved is not None:
        model.replay_buffer = fill_replay(model.replay_buffer, saved)
