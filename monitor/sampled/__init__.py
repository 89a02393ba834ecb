"""Evaluation by sampling: noise, a function of a counter, moves particles through counterfactual worlds.

Sampling is used for models that cannot be enumerated, and as a check of the exact engine.
`Sampler(scene, seed).outcomes(goal, path, particles)` returns the outcome of a query in each sampled world. A scene is
an enumerated model (`Enumerated`) or a simulator (`Simulated`).
"""

from monitor.sampled.decisions import Decisions, as_decisions
from monitor.sampled.sampler import Sampler
from monitor.sampled.scene import Enumerated, Scene, Simulated
from monitor.sampled.simulator import NumberedSimulator, Simulator, VectorSimulator, number_of

__all__ = [
    "Decisions",
    "Enumerated",
    "NumberedSimulator",
    "Sampler",
    "Scene",
    "Simulated",
    "Simulator",
    "VectorSimulator",
    "as_decisions",
    "number_of",
]
