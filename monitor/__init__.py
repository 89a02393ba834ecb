"""Runtime counterfactual safety monitor: would the fallback policy have kept the agent safe?

The names below are the public API. They are loaded on first use, so that `import monitor` stays fast.
"""

from __future__ import annotations

import os
from importlib import import_module

from monitor._version import __version__

if os.environ.get("MONITOR_UNCOMPILED") == "1":
    from monitor.uncompiled import prefer_sources

    prefer_sources()

TYPE_CHECKING = False  # importing `typing` is slow, and Ctrl-C is not handled before this module is imported
if TYPE_CHECKING:
    from typing import Any

    from monitor.errors import ConfigError as ConfigError
    from monitor.errors import EvidenceError as EvidenceError
    from monitor.errors import FormulaError as FormulaError
    from monitor.errors import InputError as InputError
    from monitor.errors import LimitError as LimitError
    from monitor.errors import ModelError as ModelError
    from monitor.errors import MonitorError as MonitorError
    from monitor.errors import PathError as PathError
    from monitor.errors import PolicyError as PolicyError
    from monitor.evaluation import check as check
    from monitor.evaluation import recourse as recourse
    from monitor.exact import Checker as Checker
    from monitor.exact import values as values
    from monitor.logic import parse as parse
    from monitor.model.io import load_model as load_model
    from monitor.model.io import save_model as save_model
    from monitor.model.mdp import MDP as MDP
    from monitor.policy.controller import Controller as Controller
    from monitor.policy.controller import Policy as Policy
    from monitor.policy.onnx_policy import load_policy as load_policy
    from monitor.policy.table import PolicyTable as PolicyTable
    from monitor.runtime.monitor import Monitor as Monitor
    from monitor.runtime.step import AgentState as AgentState
    from monitor.runtime.step import AgentStep as AgentStep
    from monitor.runtime.step import step as step
    from monitor.sidecar.config.load import load as load
    from monitor.stream.decode import decode as decode
    from monitor.types import AlarmSpec as AlarmSpec
    from monitor.types import FormulaSpec as FormulaSpec
    from monitor.types import Instant as Instant
    from monitor.types import Observation as Observation
    from monitor.types import Sampling as Sampling
    from monitor.types import StreamSettings as StreamSettings
    from monitor.types import TrustSettings as TrustSettings
    from monitor.types import Verdict as Verdict
    from monitor.worlds import Feature as Feature
    from monitor.worlds import World as World
    from monitor.worlds import load_world as load_world
    from monitor.worlds.gymnasium_world import GymnasiumWorld as GymnasiumWorld
    from monitor.worlds.simulator_world import SimulatorWorld as SimulatorWorld

_HOMES = {
    "monitor.exact": ("Checker", "values"),
    "monitor.evaluation": ("check", "recourse"),
    "monitor.errors": (
        "ConfigError",
        "EvidenceError",
        "FormulaError",
        "InputError",
        "LimitError",
        "ModelError",
        "MonitorError",
        "PathError",
        "PolicyError",
    ),
    "monitor.runtime.monitor": ("Monitor",),
    "monitor.runtime.step": ("AgentState", "AgentStep", "step"),
    "monitor.logic": ("parse",),
    "monitor.model.mdp": ("MDP",),
    "monitor.model.io": ("load_model", "save_model"),
    "monitor.policy.controller": ("Controller", "Policy"),
    "monitor.policy.onnx_policy": ("load_policy",),
    "monitor.policy.table": ("PolicyTable",),
    "monitor.sidecar.config.load": ("load",),
    "monitor.stream.decode": ("decode",),
    "monitor.types": (
        "AlarmSpec",
        "FormulaSpec",
        "Instant",
        "Observation",
        "Sampling",
        "StreamSettings",
        "TrustSettings",
        "Verdict",
    ),
    "monitor.worlds": ("Feature", "World", "load_world"),
    "monitor.worlds.gymnasium_world": ("GymnasiumWorld",),
    "monitor.worlds.simulator_world": ("SimulatorWorld",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604 - the names are listed once, in the table above


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public object
    if name not in _HOME_OF:
        raise AttributeError(f"module 'monitor' has no attribute {name!r}")
    value = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
