"""``export``: a trained policy as one file that needs neither Python nor torch."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.vec_env import VecNormalize

from reactor_sb3.checkpoints.archive import check_saved
from reactor_sb3.exporting.c_header import header_of
from reactor_sb3.exporting.onnx_model import onnx_of
from reactor_sb3.exporting.reading import read
from reactor_sb3.replacing import replacing

__all__ = ["export", "loaded_policy", "loaded_statistics"]


def export(model: BaseAlgorithm | BasePolicy, path: str | os.PathLike[str], *, normalize: VecNormalize | None = None) -> None:
    """Write a trained policy as a C header or as an ONNX model, by the ending of ``path``.

    What is written goes from an observation, as the environment shows it, to the best action, as the environment takes it:
    ``VecNormalize`` with its statistics, the network, masks, bounds and ``Discrete.start`` are inside. No exploration and no noise.

    Models are those of Stable-Baselines3, of sb3-contrib and of this package: A2C, PPO, DQN, DDPG, TD3, SAC; TRPO, MaskablePPO,
    RecurrentPPO, QR-DQN, TQC, CrossQ; PQN. Observations are a ``Box`` or a ``Discrete``.

    * ``policy.h`` needs nothing but ``math.h``; its names begin with ``policy_``. The comment at its head says how to call it. What
      the network gives has the bits of an actor here, with any compiler that keeps to IEEE 754. No images.
    * ``policy.onnx`` has the inputs ``observation``, ``(rows, *shape)`` in the space's dtype (images with their channels first),
      ``state`` ``(rows, 2 * hidden)`` float32 of an LSTM, zeros where an episode begins, and ``action_masks`` ``(rows, choices)``
      bool of a masked policy; and the outputs ``action``, ``outputs`` by which it is chosen, ``(rows, n)`` float32, and
      ``next_state``. ONNX promises no order of sums: last bits differ. It needs the extra ``export``.

    Args:
        model: The model, or its policy.
        path: The file; replaced if it is there. Its name without the ending is that of the policy.
        normalize: What observations are normalised by, for a model whose environments do not say so. ``None`` for the model's own
            ``VecNormalize``, if it has one.

    Raises:
        TypeError: If ``model`` is no model.
        ValueError: If the file has another ending, or if something in the model is code of its own, is not known here, or cannot be
            put into such a file, by name; or if weights are not finite.
        ModuleNotFoundError: If a package is missing that ONNX needs.
        OSError: If the file cannot be written.

    Example:
        >>> import tempfile
        >>> from stable_baselines3 import PPO
        >>> from reactor_sb3 import export
        >>> model = PPO("MlpPolicy", "CartPole-v1", device="cpu")
        >>> export(model, tempfile.mkdtemp() + "/policy.h")
    """
    file = Path(path)
    if file.suffix not in (".h", ".onnx"):
        raise ValueError(f"path must end in .h or .onnx, got {str(path)!r}")
    if normalize is not None and not isinstance(normalize, VecNormalize):
        raise TypeError(f"normalize must be a VecNormalize, got {type(normalize).__name__}")
    greedy = read(model, normalize)
    written = header_of(greedy, file.name).encode() if file.suffix == ".h" else onnx_of(greedy)
    with replacing(file) as out:
        out.write(written)


def loaded_policy(path: str | os.PathLike[str]) -> BasePolicy:
    """The policy in a file that ``model.save()`` has written, whatever algorithm it is of. Unpickles parts of the file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is a checkpoint, or none that ``save()`` has written.
    """
    check_saved(path, "resume it, with the class that has written it, and pass the model to reactor_sb3.export()")
    data, params, _ = load_from_zip_file(Path(path), device="cpu")
    assert data is not None and params is not None
    parameters: Any = params["policy"]
    cls, arguments = data["policy_class"], {key: value for key, value in data["policy_kwargs"].items() if key != "device"}
    if issubclass(cls, ActorCriticPolicy):  # their algorithms have it beside those
        arguments["use_sde"] = data["use_sde"]
    try:
        policy: BasePolicy = cls(data["observation_space"], data["action_space"], lambda _: 0.0, **arguments)
        policy.load_state_dict(parameters)
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"{path} has a {cls.__name__} that cannot be made again: {error}") from error
    return policy


def loaded_statistics(path: str | os.PathLike[str]) -> VecNormalize:
    """Load what ``VecNormalize.save()`` has written, without environments. Unpickles the file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is something else.
    """
    with open(path, "rb") as file:
        try:
            found = pickle.load(file)
        except Exception as error:
            raise ValueError(f"{path} is no file that VecNormalize.save() has written: {error!r}") from error
    if not isinstance(found, VecNormalize):
        raise ValueError(f"{path} is no file that VecNormalize.save() has written: it holds a {type(found).__name__}")
    return found
