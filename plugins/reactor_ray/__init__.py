"""Reactor programs on the machines of a Ray cluster: the same programs, the same bits. Ray is imported when it is used."""

import logging

from reactor_ray.nodes import RayNodes
from reactor_rl import __version__

__all__ = ["RayNodes", "__version__"]

logging.getLogger(__name__).addHandler(logging.NullHandler())
