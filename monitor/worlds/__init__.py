"""Worlds with numbers: a state is a vector of numbers, and a step of the environment a function of it and of noise.

`World` is what a user writes, `load_world` checks it, and `CheckedWorld` is what the engines use. `abduction.py` has
what an observed step says about its noise, `manifest.py` worlds made of ONNX graphs.
"""

from monitor.worlds.abduction import Abduction, Moment
from monitor.worlds.checked import CheckedWorld
from monitor.worlds.loading import is_world, load_world
from monitor.worlds.protocol import Feature, World, numbers_of, with_inputs

__all__ = ["Abduction", "CheckedWorld", "Feature", "Moment", "World", "is_world", "load_world", "numbers_of",
           "with_inputs"]  # fmt: skip
