"""Normalise observations for a model of Stable-Baselines3, as its ``VecNormalize`` does, with the present statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize, VecTransposeImage

from reactor_rl.plugin import decode, encode
from reactor_sb3.acting.normalization import by_key
from reactor_sb3.environments.wrapped_alone import levels_of

__all__ = ["Normalizer", "changes_of", "normalizer_of"]


class Normalizer:
    """Normalises observations as the environments of a model do, by statistics that stand still.

    Args:
        wrappers: The environments' ``VecNormalize`` wrappers, the innermost first.
    """

    def __init__(self, wrappers: Sequence[VecNormalize]) -> None:
        self.wrappers: list[Any] = [decode(encode(one)) for one in wrappers]  # without their environments
        for one in self.wrappers:
            one.class_attributes, one.returns = {}, None  # else it cannot travel again

    def __call__(self, observations: Any) -> Any:
        """Normalised observations, ``(rows, ...)``; those that are given stay as they are."""
        for one in self.wrappers:
            observations = one.normalize_obs(observations)
        return observations

    def statistics(self) -> list[dict[str, Any]]:
        """For each wrapper the means and variances by key of an observation; of one that is an array the key is empty."""
        return [{key: (rms.mean, rms.var) for key, rms in by_key(one).items()} for one in self.wrappers]


def normalizer_of(model: BaseAlgorithm, space: spaces.Space[Any] | None) -> Normalizer | None:
    """Return the normaliser of a model's observations; ``None`` if nothing normalises them.

    Args:
        model: The model.
        space: Of the observations that are to be normalised; ``None`` if it has been looked at.

    Raises:
        ValueError: If other observations than those are normalised, such as frames before they are stacked.
    """
    wrappers: list[Any] = levels_of(model.get_env())[-2::-1]  # the innermost first
    found = [one for one in wrappers if isinstance(one, VecNormalize) and one.norm_obs]
    if not found:  # an environment of its own kind may hold one elsewhere
        held = model.get_vec_normalize_env()
        found = [held] if held is not None and held.norm_obs else []
    if space is None:
        return Normalizer(found) if found else None
    others = [type(one).__name__ for one in wrappers if not isinstance(one, VecNormalize)]
    shown = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
    for one in found:
        shapes = {key: rms.mean.shape for key, rms in by_key(one).items()}
        if any(key not in shown or shown[key].shape != shape for key, shape in shapes.items()):
            raise ValueError(
                f"the VecNormalize of {type(model).__name__} normalises observations of the shapes {shapes.get('', shapes)}, and "
                f"the environment shows {space}: put VecNormalize around {' and '.join(others) or 'what shows them'}, or pass a "
                "function that shows the model what it has learned from"
            )
    return Normalizer(found) if found else None


def changes_of(model: BaseAlgorithm) -> str:
    """Advise on an environment that shows something else than a model has learned from, if wrappers are why; else empty."""
    named = [
        type(one).__name__
        for one in levels_of(model.get_env())[-2::-1]
        if not isinstance(one, VecNormalize | VecTransposeImage) and one.observation_space != one.venv.observation_space
    ]
    if not named:
        return ""
    return f"; its environments are wrapped in {' and '.join(named)}: pass an environment that shows what those do"
