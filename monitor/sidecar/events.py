"""What happens to a sidecar, as values: live they come from sockets and clocks, in a replay from a recording."""

from __future__ import annotations

import msgspec

from monitor.types import Instant

__all__ = ["Connected", "Evaluate", "Event", "Heartbeat", "Lost", "Message"]


class Message(msgspec.Struct, frozen=True):
    """A message arrived on a topic; `now` is when it came through the door."""

    now: Instant
    topic: str
    payload: bytes


class Evaluate(msgspec.Struct, frozen=True):
    """Time to answer what is due. `latest_only`: there is more to do than time, so only the newest step is answered.

    `steps`: about how many are answered now, agents taking turns; the others wait. 0: all.
    """

    now: Instant
    latest_only: bool = False
    steps: int = 0


class Heartbeat(msgspec.Struct, frozen=True):
    """Time to say that we are alive, and which alarms stand."""

    now: Instant


class Connected(msgspec.Struct, frozen=True):
    """The broker was reached (`up`) or lost."""

    now: Instant
    up: bool


class Lost(msgspec.Struct, frozen=True):
    """`count` messages of this topic were dropped at the door: there was no room. `why`: if it was something else."""

    now: Instant
    topic: str
    count: int
    why: str = ""


Event = Message | Evaluate | Heartbeat | Connected | Lost
