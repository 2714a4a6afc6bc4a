"""How an environment is made that can be seen: the ``render_mode`` is said when it is made, and never later."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import gymnasium
from gymnasium.wrappers import HumanRendering

from reactor_gymnasium.plugin import EnvFn, fps_of, looked_at, make_probe, told_to_render
from reactor_sb3.environments.makers import EnvMaker

__all__ = ["RenderMode", "check_like", "visible"]

RenderMode = Literal["human", "rgb_array"]


class InWindow:
    """Makes an environment that gives pictures, in a window."""

    def __init__(self, env_fn: EnvFn) -> None:
        self.env_fn = env_fn

    def __call__(self) -> gymnasium.Env[Any, Any]:
        env = self.env_fn()
        env.metadata = {"render_fps": 30, **env.metadata}
        return HumanRendering(env)


def visible(makes: EnvMaker, mode: RenderMode, option: str) -> tuple[EnvMaker, float]:
    """A maker of environments like those of ``makes``, with a render mode, and their pictures a second.

    A throw-away one is looked at.

    Args:
        makes: Makes environments.
        mode: ``"human"`` for a window, ``"rgb_array"`` for pictures. Where an environment has no window of its own, its pictures
            are shown in one.
        option: What it is for, for messages.

    Raises:
        ValueError: If there is nothing to be seen of them, or it is not known how to make them so.
    """

    def told(env: gymnasium.Env[Any, Any]) -> tuple[Any, str | None, str, float]:
        name = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        return env.metadata.get("render_modes") or (), getattr(env, "render_mode", None), name, fps_of(env, option, name)

    (make,) = makes.of(0).env_fns
    modes, has, name, fps = looked_at(partial(make_probe, makes.of(0)), told)
    if "rgb_array" not in modes and mode not in modes:
        raise ValueError(f'{option} needs an environment with the render mode "{mode}", and {name} has {list(modes) or "none"}')
    wanted = mode if mode in modes else "rgb_array"
    again = make if has == wanted else told_to_render(make, wanted)
    if again is None and mode == "human" and has == "rgb_array":
        again, wanted = make, "rgb_array"
    if again is None:
        raise ValueError(
            f"{option} needs {name} with render_mode={wanted!r}, what makes it says {has!r}, and it cannot be told another one: "
            f'give it a parameter render_mode, or pass watch_env=lambda: gymnasium.make(..., render_mode="{wanted}")'
        )
    return EnvMaker(InWindow(again) if wanted != mode else again), fps


def check_like(makes: EnvMaker, observations: gymnasium.Space[Any], actions: gymnasium.Space[Any], option: str) -> None:
    """Refuse environments of other spaces than the training's."""
    observed, acted = looked_at(partial(make_probe, makes), lambda env: (env.observation_space, env.action_space))
    for what, space, trained in (("observation", observed, observations), ("action", acted, actions)):
        if space != trained:
            raise ValueError(f"{option} has the {what} space {space}, and what is trained in has {trained}")
