"""A sink: a place where notices go. `Metrics`, `StatusView` and `Logbook` are sinks.

To add one, write a class with these three methods in a module of its own, and list it in `sinks.Sinks`.

What goes to the broker and to webhooks is no sink: it is written to the store in the transaction of the events that
caused it, and an outbox keeps it until it is acknowledged. A sink hears of an event after that, so it may lose the last
ones in a crash, and need not undo any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from monitor.alarm.message import Identity
from monitor.runtime.query import Query
from monitor.sidecar.effects import Effects
from monitor.stream.shard import Shard
from monitor.types import Instant


class FleetShard(msgspec.Struct, frozen=True):
    """The part of a fleet that is watched: one of the shards whose MQTT client ids begin with `fleet`."""

    fleet: str
    shard: Shard


class Watched(msgspec.Struct, frozen=True):
    """What is watched: all that a sink must know beforehand.

    `agents`: how many at most. `alerts`: the topic under which alerts are published, by agent and formula. `part`: of a
    fleet; None: all of it.
    """

    queries: Sequence[Query]
    identity: Identity
    agents: int
    alerts: str
    part: FleetShard | None = None


class Sink(Protocol):
    """Takes effects on the thread of the loop, one event after the other. No method may wait."""

    def take(self, effects: Effects, now: Instant) -> None:
        """Show or send what one event caused; evidence and journal are written already."""

    def recall(self, effects: Effects, now: Instant) -> None:
        """Show the state of everything after a restart or a reload. Nothing of it is new: do not count or send it."""

    def adopt(self, watched: Watched) -> None:
        """Go on under another configuration; `recall` follows."""
