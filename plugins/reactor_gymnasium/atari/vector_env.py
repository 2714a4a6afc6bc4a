"""``AtariVectorEnv``: the preprocessing and the interface of ``ale_py.AtariVectorEnv``, as a reactor program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import logger
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from reactor_gymnasium.arguments import Bools, checked_mask, checked_number, checked_seed, one_seed
from reactor_gymnasium.atari.game import AtariGame, AtariOptions, emulator_seed
from reactor_gymnasium.atari.unit import COLUMNS, AtariUnit, MakeGame, call
from reactor_gymnasium.environments.unit_rows import UnitRows
from reactor_gymnasium.placement import StepCosts, median_step
from reactor_gymnasium.vector.env_program import EnvBatch, HostStyle, Inputs
from reactor_gymnasium.vector.sharded import ShardedVectorEnv
from reactor_rl.plugin import Execution, ExecutorName, require_extra

__all__ = ["AtariVectorEnv", "rom_path"]


class AtariVectorEnv(ShardedVectorEnv):
    """Plays one Atari game many times over with the customary preprocessing, on all cores.

    Arguments, defaults, observations and infos are those of ``ale_py.AtariVectorEnv`` 0.12, frames bit-identical to it for the
    same seeds and actions. A shard of games plays on each worker through ``ale_py.ALEInterface`` and writes the finished stacks
    of frames into shared memory. Results never depend on the number of workers.

    Infos are arrays of int32, ``(batch_size,)``: ``env_id``, ``lives``, ``frame_number`` (of all episodes) and
    ``episode_frame_number``; with ``SAME_STEP``, when any is terminated or truncated, also ``final_obs``, the last observations of
    those, zero for the others.

    **Resets.** ``seed`` is ``None``, one seed of 31 bits for each game that is reset, or an int ``s`` for ``s, s + 1, ...``; it
    fixes the no-ops that an episode begins with, and sticky actions. ``options`` has nothing but ``reset_mask``; games that it
    leaves out report their last observation and info.

    **Calls.** ``call``, ``get_attr`` and ``set_attr`` are of games: what our game has (``lives``, ``over``, ``np_random``), and
    methods of the emulator, ``ale_py.ALEInterface`` (``getRAM``, ``getEpisodeFrameNumber``).

    Args:
        game: Name of the game in snake case, ``"ms_pacman"``, or an id of Gymnasium's, ``"ALE/MsPacman-v5"``, which only names the
            game here: for the id's settings (sticky actions of 0.25), use ``make_vec(id, num_envs, preprocess=True)``.
        num_envs: How many games.
        batch_size: How many of them step together, a divisor of ``num_envs``; 0 for all. Otherwise batches take turns, as described
            at :class:`ReactorVectorEnv`, in the same order always: ALE's own returns whichever are done first.
        num_threads: The number of workers where ``workers`` is not given; 0 for the cores that this process may use.
        thread_affinity_offset: If not negative, helper ``i`` is bound to core ``offset + i`` (Linux); the calling thread never is.
        max_num_frames_per_episode: After so many emulated frames an episode is truncated.
        repeat_action_probability: With which the emulator repeats the last action ("sticky actions").
        full_action_space: Whether all 18 actions are there, or only those that the game has a use for.
        continuous: Whether actions are ``(radius, angle, fire)`` of a joystick, float32.
        continuous_action_threshold: Value above which a continuous action counts as moved or pressed.
        autoreset_mode: ``NEXT_STEP`` or ``SAME_STEP``.
        img_height: Rows of a frame.
        img_width: Columns of a frame.
        grayscale: Whether frames are grey, or have three colours.
        stack_num: How many frames an observation has.
        frameskip: How many emulated frames a step takes.
        maxpool: Whether a frame is the larger of the last two that were emulated, which hides the flicker of sprites.
        noop_max: Below this the number of no-ops is drawn that an episode begins with.
        episodic_life: Whether the loss of a life ends an episode.
        life_loss_info: Whether the loss of a life is reported as a termination, without a reset.
        reward_clipping: Whether rewards are cut off at -1 and 1.
        use_fire_reset: Whether an episode begins with the fire button, where the game has one.
        render_mode: ``"rgb_array"``, and :meth:`render` gives the screens; ``None``, and it gives nothing.
        copy: Whether observations are copies, yours to keep, or views, which the next step of the same environments overwrites.
        context: How helper processes start: ``"forkserver"`` (default where there is one), ``"spawn"`` or ``"fork"``.
        workers: Number of workers, the calling thread included; ``None`` for the cores that this process may use. Never
            changes a result, nor does ``executor``.
        executor: ``"inline"``, ``"threads"`` (the emulator holds the GIL), ``"processes"``, or ``"auto"``, which times a throw-away
            game and chooses.
        nodes: Machines, with ``executor="ray"``; as for :class:`ReactorVectorEnv`.
        caller_works: Whether the calling thread plays too. If not, ``workers`` helpers do everything, and the caller may do
            something else between :meth:`send` and :meth:`recv`. ``None``: unless there are several batches.
        restarts: How often worker processes that die are replaced, with the same results; see :class:`reactor_rl.Recover`.
        timeout: Seconds that a step may take on a worker process at most; as for :class:`ReactorVectorEnv`.

    Raises:
        ValueError: If there is no such game, or a number makes no sense.
        gymnasium.error.Error: If ``frameskip`` is not a positive integer.
        ImportError: If ale-py is missing, or OpenCV, for frames of other sizes or colours.

    Example:
        >>> from reactor_gymnasium import AtariVectorEnv
        >>> envs = AtariVectorEnv("pong", num_envs=4, workers=2)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape, infos["lives"]
        ((4, 4, 84, 84), array([0, 0, 0, 0], dtype=int32))
        >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
        >>> envs.close()
    """

    _style = HostStyle(label="games", columns=True, makers_option=None, infos="rows")
    _call_one = staticmethod(call)
    _set_one = staticmethod(setattr)

    def __init__(
        self,
        game: str,
        num_envs: int,
        *,
        batch_size: int = 0,
        num_threads: int = 0,
        thread_affinity_offset: int = -1,
        max_num_frames_per_episode: int = 108000,
        repeat_action_probability: float = 0.0,
        full_action_space: bool = False,
        continuous: bool = False,
        continuous_action_threshold: float = 0.5,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        img_height: int = 84,
        img_width: int = 84,
        grayscale: bool = True,
        stack_num: int = 4,
        frameskip: int = 4,
        maxpool: bool = True,
        noop_max: int = 30,
        episodic_life: bool = False,
        life_loss_info: bool = False,
        reward_clipping: bool = True,
        use_fire_reset: bool = True,
        render_mode: str | None = None,
        copy: bool = True,
        context: str | None = None,
        workers: int | None = None,
        executor: ExecutorName = "auto",
        nodes: Any = None,
        caller_works: bool | None = None,
        restarts: int = 0,
        timeout: float | None = None,
    ) -> None:
        super().__init__()
        for name, number, least in (("num_envs", num_envs, 1), ("num_threads", num_threads, 0)):
            checked_number(name, number, least)
        self.game, rom = rom_path(game)
        self._options = AtariOptions(
            rom, max_num_frames_per_episode, repeat_action_probability, full_action_space or continuous,
            img_height, img_width, grayscale, stack_num, frameskip, maxpool, noop_max, episodic_life, life_loss_info,
            reward_clipping, use_fire_reset,
        )  # fmt: skip
        self.num_envs = num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        if self.autoreset_mode is AutoresetMode.DISABLED:
            raise ValueError("AtariVectorEnv has the autoreset modes NEXT_STEP and SAME_STEP, as ale_py.AtariVectorEnv has")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(
                f'render_mode={render_mode!r}: choose None or "rgb_array", which gymnasium.wrappers.vector.HumanRendering shows in '
                "a window"
            )
        self.render_mode = render_mode
        self.metadata = {"autoreset_mode": self.autoreset_mode, "render_modes": ["rgb_array"], "render_fps": 60 // frameskip}
        self._threshold = float(continuous_action_threshold) if continuous else None
        self._first_core = thread_affinity_offset
        execution = Execution(
            workers=workers if workers is not None else num_threads or None, executor=executor, nodes=nodes, start_method=context,
            caller_works=caller_works, restarts=restarts, timeout=timeout, method_option=self._style.context_option,
        )  # fmt: skip
        self._construct([partial(AtariGame, self._options)] * num_envs, execution, copy=copy, batch_size=batch_size or None)

    # ------------------------------------------------------------------ hooks

    def _describe(self, probe: AtariGame) -> Sequence[int]:
        self.single_observation_space = Box(0, 255, (self._options.stack_num, *self._options.frame_shape), np.uint8)
        if self._threshold is None:
            self.single_action_space: Any = Discrete(len(probe.actions))
        else:
            self.single_action_space = Box(
                np.array([0.0, -np.pi, 0.0], np.float32), np.array([1.0, np.pi, 1.0], np.float32), (3,), np.float32
            )
        self.observation_space = batch_space(self.single_observation_space, self.batch_size)
        self.action_space = batch_space(self.single_action_space, self.batch_size)
        return range(self.num_envs + 1)

    def _time(self, probe: AtariGame, workers: int) -> StepCosts:
        def step(action: int) -> bool:
            probe.step(action, 1.0)
            return probe.over

        actions = cycle(range(len(probe.actions)))
        return StepCosts.alike(median_step(lambda seed: probe.reset(), actions.__next__, step), self.num_envs)

    def _tried_makers(self) -> Sequence[Any]:
        return ()  # a game does the same again after the same seed and actions

    def _shard_settings(self, lo: int, hi: int, worker: int) -> dict[str, Any]:
        core = (self._first_core + worker) % (os.cpu_count() or 1) if self._first_core >= 0 else None
        make = partial(AtariUnit, threshold=self._threshold)
        make_rows = partial(UnitRows, autoreset=self.autoreset_mode, make=make, layout=self._layout, columns=COLUMNS)
        return {"make_rows": make_rows, "construct": MakeGame(core), "reward_dtype": np.int32}

    def _reset_kwargs(self, seed: Any, options: dict[str, Any] | None) -> Mapping[int, dict[str, Any]]:
        mask, _ = self._masked(options, _checked_mask)
        self._assert_all_first(bool(mask.all()), "games")
        which = np.flatnonzero(mask).tolist()
        return {index: {"seed": one} for index, one in zip(which, _seeds(seed, len(which)), strict=True)}

    def _encode_actions(self, batch: EnvBatch, actions: Any) -> Inputs:
        self._assert_was_reset()
        array = np.asarray(actions)
        kinds = "iu" if self._action_dtype.kind == "i" else "f"
        if array.shape != self._action_shape or array.dtype.kind not in kinds:
            raise ValueError(
                f"the actions have shape {array.shape} and dtype {array.dtype}; {self.batch_size} actions of "
                f"{self.single_action_space} have shape {self._action_shape} and dtype {self._action_dtype}"
            )
        if kinds == "iu" and (wrong := (array < 0) | (array >= self.single_action_space.n)).any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"action {array[row]} of environment {batch.lo + row} is not one of {self.single_action_space}")
        return array.astype(self._action_dtype, copy=False)

    def _batch_infos(self, batch: EnvBatch, parts: Sequence[Any]) -> dict[str, Any]:
        infos = {"env_id": np.arange(batch.lo, batch.hi, dtype=np.int32)}
        infos |= {name: batch.columns[name].copy() for name in COLUMNS}
        if parts:
            assert batch.rows is not None
            infos["final_obs"] = last = np.zeros_like(batch.rows)
            for row, (observation, _) in self._merged(batch, parts)["ended"].items():
                last[row] = observation
        return infos

    def render(self) -> tuple[npt.NDArray[np.uint8], ...] | None:
        """The pictures of all games' emulators, with ``render_mode="rgb_array"``.

        Returns:
            Screens, ``(height, 160, 3)`` uint8, of most games 210 high. Where an episode has ended, what ``autoreset_mode`` says:
            its end with ``NEXT_STEP``, the next one's beginning with ``SAME_STEP``.

        Raises:
            gymnasium.error.ResetNeeded: Before the first :meth:`reset`.
            AlreadyPendingCallError: If a step or reset was begun and not ended.
        """
        self._assert_is_running()
        if self.render_mode is None:
            logger.warn('render() gives nothing without a render mode: make the environment with render_mode="rgb_array"')
            return None
        if not self._was_reset:
            raise ResetNeeded("call reset() before render()")
        self._assert_nothing_pending("render")
        return super().render()

    def _name(self) -> str:
        return repr(self.game)


def rom_path(game: str) -> tuple[str, str]:
    """The name of a game, or of the game of an id ``ALE/...``, and where its ROM is.

    Raises:
        ValueError: If there is no such game.
    """
    with require_extra("atari", "an Atari game"):
        from ale_py import roms

    spec = gymnasium.registry.get(game) if isinstance(game, str) and game.startswith("ALE/") else None  # ale_py has registered it
    name = game if spec is None else spec.kwargs["game"]
    path = roms.get_rom_path(name) if isinstance(name, str) else None
    if path is None:
        raise ValueError(
            f'{game!r} is not the name of a game; names are in snake case, "ms_pacman" and not "MsPacman", or ids of Gymnasium\'s, '
            '"ALE/MsPacman-v5"'
        )
    return name, str(path)


def _checked_mask(mask: Any, num_envs: int) -> Bools:
    """As Gymnasium's vector environments check it, but that no game at all may be selected, as ALE has it."""
    if isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (num_envs,) and not mask.any():
        return mask
    return checked_mask(mask, num_envs)


def _seeds(seed: Any, n: int) -> list[int | None]:
    """Checked seeds of ``n`` games; ALE's are 31 bits."""
    if seed is None:
        return [None] * n
    if one_seed(seed):
        return [emulator_seed(checked_seed(seed) + i) for i in range(n)]
    if len(seed) != n:
        raise ValueError(f"`seed` must have one entry for each of the {n} games that are reset, got {len(seed)}")
    return [emulator_seed(one) for one in seed]
