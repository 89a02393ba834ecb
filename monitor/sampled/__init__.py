"""Answers by sampling: noise as a function of a counter, particles in the worlds asked about, their outcomes.

For models that cannot be enumerated, and as a referee of the exact engine. `Sampler(scene, seed).outcomes(goal, path,
particles)` gives what a question comes to in each drawn world; `monitor.statistics` decides from such numbers. A scene
is an enumerated model (`Enumerated`) or a simulator (`Simulated`).
"""

from monitor.sampled.decisions import Decisions, as_decisions
from monitor.sampled.sampler import Sampler, Walks
from monitor.sampled.scene import Enumerated, Scene, Simulated
from monitor.sampled.simulator import Numbered, Simulator, VectorSimulator, number_of

__all__ = [
    "Decisions",
    "Enumerated",
    "Numbered",
    "Sampler",
    "Scene",
    "Simulated",
    "Simulator",
    "VectorSimulator",
    "Walks",
    "as_decisions",
    "number_of",
]
