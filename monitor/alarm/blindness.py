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

    `words`: why the formula cannot be evaluated, or why its verdict is not reliable. `marks`: whether the reason only
    marks results. The path is then intact, steps are evaluated, and alarms advance as usual. `ready`: whether the
    monitor still counts as ready, because the reason does not lie in the monitor itself. `alert`: the alert of
    `deploy/prometheus/cfmon.rules.yml` that reports it. `complete`: whether an overview may still say "none", because
    everything that needs an evaluation has been evaluated. `advises`: whether alerts still advise what to do now.
    """

    words: str
    marks: bool = False
    ready: bool = False
    alert: str = "CfmonFormulaBlind"
    complete: bool = False
    advises: bool = False


BLINDNESS: Final[Mapping[BlindReason, Blindness]] = {
    "gap": Blindness("steps are missing"),
    "stale": Blindness("no step has arrived for too long", marks=True, alert="CfmonAgentSilent"),
    "conflict": Blindness("the same step arrived twice with different content"),
    "impossible_step": Blindness("a step arrived to which the model gives probability 0"),
    "unknown_state": Blindness("a step arrived whose state or action the model does not have"),
    "out_of_range": Blindness("a number of the state lies far outside what was recorded"),
    "policy_mismatch": Blindness("the agent runs a policy that is not configured"),
    "dropped": Blindness("steps were dropped"),
    "warming_up": Blindness("too few steps since the path was restarted"),
    "disconnected": Blindness("the connection to the broker is down", marks=True, alert="CfmonBrokerDisconnected"),
    "deadline": Blindness("steps have waited too long to be evaluated", marks=True),
    "old_episode": Blindness("all arriving steps belong to episodes that have ended", marks=True, ready=True),
    "idle": Blindness(
        "the agent has not started another episode for a long time",
        marks=True,
        ready=True,
        alert="CfmonAgentIdle",
        complete=True,
    ),
    "overload": Blindness(
        "answers are skipped because steps arrive faster than they can be evaluated",
        marks=True,
        ready=True,
        alert="CfmonEvaluationsSkipped",
    ),
    "model_doubt": Blindness(
        "observed transitions contradict the model",
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
