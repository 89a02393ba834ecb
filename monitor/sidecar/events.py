"""What happens to a sidecar, as values: live they come from sockets and clocks, in a replay from a recording."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.types import Instant

__all__ = ["Connected", "Evaluate", "Event", "Heartbeat", "Lost", "Message"]


@dataclass(frozen=True, slots=True)
class Message:
    """A message arrived on a topic; `now` is when it came through the door."""

    now: Instant
    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Time to answer what is due. `latest_only`: there is more to do than time, so only the newest step is answered."""

    now: Instant
    latest_only: bool = False


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Time to say that we are alive, and which alarms stand."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker was reached (`up`) or lost."""

    now: Instant
    up: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """`count` messages of this topic were dropped at the door: there was no room."""

    now: Instant
    topic: str
    count: int


Event = Message | Evaluate | Heartbeat | Connected | Lost
