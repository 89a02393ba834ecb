"""Events of a sidecar, as values. They come from sockets and clocks, or from a recording in a replay."""

from __future__ import annotations

import math

import msgspec

from monitor.types.stream_events import Instant


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message arrived on a topic; `now` is the time at which it entered the inbox."""

    now: Instant
    topic: str
    payload: bytes


class Evaluate(msgspec.Struct, frozen=True, gc=False):
    """It is time to evaluate the formulas that are due.

    `latest_only`: in overload, only the newest live step of each agent is evaluated. All late steps, and all steps that
    arrived up to `live_since` (ticks), are evaluated nevertheless. `steps`: approximate number of steps to evaluate
    now, with agents taking turns; the other steps wait. 0: all steps.
    """

    now: Instant
    latest_only: bool = False
    steps: int = 0
    live_since: float = -math.inf


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """It is time to publish the status and to repeat the alerts of firing alarms."""

    now: Instant


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The broker was reached (`up`) or lost."""

    now: Instant
    up: bool


class Lost(msgspec.Struct, frozen=True, gc=False):
    """`count` messages of this topic were dropped, because the inbox was full or for the reason in `why`."""

    now: Instant
    topic: str
    count: int
    why: str = ""


Event = Message | Evaluate | Heartbeat | Connected | Lost
