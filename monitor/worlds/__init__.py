"""Worlds with numbers: a state is a vector of numbers, and a step is a function of the state, the action and noise.

A user writes a `World`, `load_world` checks it, and the engines use the `CheckedWorld`. `abduction.py` represents the
noise inferred from an observed step. `location_scale.py` has worlds made of ONNX graphs.
"""

from monitor.worlds.abduction import Abduction, Moment
from monitor.worlds.checked import CheckedWorld
from monitor.worlds.loading import is_world, load_world
from monitor.worlds.protocol import Feature, World, numbers_of, with_inputs

__all__ = ["Abduction", "CheckedWorld", "Feature", "Moment", "World", "is_world", "load_world", "numbers_of",
           "with_inputs"]  # fmt: skip
