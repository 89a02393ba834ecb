"""Events of a sidecar, as values: live they come from sockets and clocks, in a replay from a recording."""

from __future__ import annotations

import math

import msgspec

from monitor.types import Instant


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message arrived on a topic; `now` is when it entered the inbox."""

    now: Instant
    topic: str
    payload: bytes


class Evaluate(msgspec.Struct, frozen=True, gc=False):
    """Time to answer what is due.

    `latest_only`: in overload, of the steps that were live when they arrived only each agent's newest is answered; of
    those that came late, or up to `live_since` (ticks), all are. `steps`: about how many are answered now, agents
    taking turns; the others wait. 0: all.
    """

    now: Instant
    latest_only: bool = False
    steps: int = 0
    live_since: float = -math.inf


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """Time to publish the status and to repeat the alerts of firing alarms."""

    now: Instant


class Connected(msgspec.Struct, frozen=True, gc=False):
    """The broker was reached (`up`) or lost."""

    now: Instant
    up: bool


class Lost(msgspec.Struct, frozen=True, gc=False):
    """`count` messages of this topic were dropped, because the inbox was full or for another reason (`why`)."""

    now: Instant
    topic: str
    count: int
    why: str = ""


Event = Message | Evaluate | Heartbeat | Connected | Lost
