"""Reasons why a formula is blind, with the meaning and the effect of each.

To add a reason, name it in `BlindReason`, describe it here, and return it where it is detected: as a `Break` of the
path, or in `AgentMonitor._blindness`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from monitor.types.stream_events import BlindReason


class Blindness(msgspec.Struct, frozen=True):
    """A reason why a formula is blind.

    `words`: why the formula cannot be evaluated, or why its verdict is not reliable. `first`: what to do first; the
    runbook of `alert` has the rest. `marks`: whether the reason only marks results. The path is then complete, steps
    are evaluated, and alarms advance as usual. `ready`: whether the monitor still counts as ready, because the cause is
    outside the monitor. `alert`: the alert of `deploy/prometheus/cfmon.rules.yml` that reports the reason. `complete`:
    whether an overview may still say "none", because everything that needs an evaluation has been evaluated.
    `advises`: whether alerts still advise what to do now.
    """

    words: str
    first: str
    marks: bool = False
    ready: bool = False
    alert: str = "CfmonFormulaBlind"
    complete: bool = False
    advises: bool = False


_LOOK: Final = "Look at what the agent controls (the robot, the plant, the patient)."

BLINDNESS: Final[Mapping[BlindReason, Blindness]] = {
    "gap": Blindness(
        "steps are missing",
        f"{_LOOK} Then find out why messages are lost; this ends after enough new steps.",
    ),
    "stale": Blindness(
        "no step has arrived for too long",
        f"{_LOOK} Then check whether the agent runs, and whether its steps reach the broker.",
        marks=True,
        alert="CfmonAgentSilent",
    ),
    "conflict": Blindness(
        "the same step arrived twice with different content",
        f"{_LOOK} Then check whether two programs publish under its name.",
    ),
    "impossible_step": Blindness(
        "a step arrived to which the model gives probability 0",
        f"{_LOOK} Then compare its last steps with the model.",
    ),
    "unknown_state": Blindness(
        "a step arrived whose state or action the model does not have",
        f"{_LOOK} Then check how its states and actions are encoded.",
    ),
    "out_of_range": Blindness(
        "a number of the state lies far outside what was recorded",
        f"{_LOOK} Then check its sensor and the unit.",
    ),
    "policy_mismatch": Blindness(
        "the agent runs a policy that is not configured",
        f"{_LOOK} Then check which policy it runs, and configure that one.",
    ),
    "dropped": Blindness("steps were dropped", f"{_LOOK} Then check the load of this monitor."),
    "warming_up": Blindness(
        "too few steps since the path was restarted", "Wait for as many steps as the formula looks back."
    ),
    "disconnected": Blindness(
        "the connection to the broker is down",
        "Look at what the agents control. Then check the broker and the network.",
        marks=True,
        alert="CfmonBrokerDisconnected",
    ),
    "deadline": Blindness(
        "steps have waited too long to be evaluated",
        "Check the load of this monitor; its answers are late.",
        marks=True,
    ),
    "old_episode": Blindness(
        "all arriving steps belong to episodes that have ended",
        f"{_LOOK} Then check whether it uses the names of earlier episodes again.",
        marks=True,
        ready=True,
    ),
    "idle": Blindness(
        "the agent has not started another episode for a long time",
        "Check whether the agent has finished or has crashed.",
        marks=True,
        ready=True,
        alert="CfmonAgentIdle",
        complete=True,
    ),
    "overload": Blindness(
        "answers are skipped because steps arrive faster than they can be evaluated",
        "Check the load of this monitor; alarms may be missing.",
        marks=True,
        ready=True,
        alert="CfmonEvaluationsSkipped",
    ),
    "model_doubt": Blindness(
        "observed transitions contradict the model",
        "Find out what differs from the model: the environment, the software, or the agent.",
        marks=True,
        ready=True,
        alert="CfmonModelDoubt",
        complete=True,
        advises=True,
    ),
}
BLIND_WORDS: Final[Mapping[BlindReason, str]] = {reason: each.words for reason, each in BLINDNESS.items()}
MARKS: Final = frozenset(reason for reason, each in BLINDNESS.items() if each.marks)
READY: Final = frozenset(reason for reason, each in BLINDNESS.items() if each.ready)
COMPLETE: Final = frozenset(reason for reason, each in BLINDNESS.items() if each.complete)


def advises(blind: BlindReason | None) -> bool:
    """Return whether alerts of a formula that is blind for this reason (None: not blind) advise what to do now."""
    return blind is None or BLINDNESS[blind].advises
