"""The one door for other plugins: what of this package they may use beyond :mod:`reactor_gymnasium` itself."""

from reactor_gymnasium.arguments import (
    Bools,
    EnvFn,
    MakerTrial,
    check_travel,
    checked_makers,
    checked_mask,
    checked_number,
    checked_seed,
    checked_seeds,
    encode_makers,
    make_probe,
    one_seed,
    without_mask,
)
from reactor_gymnasium.atari.game import AtariGame
from reactor_gymnasium.environments.gym_rows import GymRows
from reactor_gymnasium.environments.infos import note_whose_info
from reactor_gymnasium.environments.owning import as_number, own
from reactor_gymnasium.environments.player import EndedEpisode, EpisodeLog, EpisodePlayer, Numbered, OfRounds
from reactor_gymnasium.environments.returned import check_made
from reactor_gymnasium.environments.rows import IDLE, ColumnSpec, EnvRows, SavedEnv, StepBuffers, close_all, kept_whole
from reactor_gymnasium.environments.saving import load_env, recover_for, save_env, save_strategy, saved_exactly
from reactor_gymnasium.environments.storage import ObservationLayout, joint_writer
from reactor_gymnasium.environments.unit_rows import UnitRows
from reactor_gymnasium.evaluation.contents import hashed
from reactor_gymnasium.evaluation.evaluate import PolicyEvaluator, env_maker, progress
from reactor_gymnasium.evaluation.policies import AskedPolicy, BoundPolicy, PolicyCall, PolicyContext, PolicyNoise, counted
from reactor_gymnasium.film import FILM_SUFFIXES, Camera, Film, check_encoder, checked_fps, fps_of, new_file, told_to_render
from reactor_gymnasium.native.kernels import KernelKind, kernel_kind
from reactor_gymnasium.placement import StepCosts, choose_executor, median_step, random_actions
from reactor_gymnasium.registry import repeat_registrations
from reactor_gymnasium.reporting import Table, interval_of, intervals_told, saved_figure
from reactor_gymnasium.traces import looked_at, no_traces
from reactor_gymnasium.vector.env_program import EnvBatch, HostStyle, Inputs
from reactor_gymnasium.vector.sharded import ShardedVectorEnv

__all__ = [
    "IDLE",
    "env_maker",
    "EndedEpisode",
    "EpisodeLog",
    "EpisodePlayer",
    "PolicyEvaluator",
    "Numbered",
    "OfRounds",
    "kept_whole",
    "hashed",
    "counted",
    "PolicyCall",
    "PolicyContext",
    "PolicyNoise",
    "BoundPolicy",
    "AskedPolicy",
    "AtariGame",
    "check_made",
    "check_travel",
    "EnvBatch",
    "Bools",
    "ColumnSpec",
    "EnvRows",
    "SavedEnv",
    "UnitRows",
    "StepBuffers",
    "StepCosts",
    "EnvFn",
    "FILM_SUFFIXES",
    "Camera",
    "Film",
    "checked_fps",
    "fps_of",
    "new_file",
    "told_to_render",
    "GymRows",
    "HostStyle",
    "KernelKind",
    "Inputs",
    "ObservationLayout",
    "ShardedVectorEnv",
    "as_number",
    "checked_seed",
    "one_seed",
    "without_mask",
    "check_encoder",
    "checked_makers",
    "checked_mask",
    "checked_number",
    "checked_seeds",
    "close_all",
    "choose_executor",
    "progress",
    "random_actions",
    "encode_makers",
    "joint_writer",
    "save_strategy",
    "load_env",
    "median_step",
    "note_whose_info",
    "repeat_registrations",
    "own",
    "recover_for",
    "save_env",
    "saved_exactly",
    "make_probe",
    "looked_at",
    "no_traces",
    "MakerTrial",
    "kernel_kind",
    "Table",
    "interval_of",
    "intervals_told",
    "saved_figure",
]
