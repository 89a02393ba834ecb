"""The interface of a sink, which receives notices: `Metrics`, `StatusView` and `Logbook` are sinks.

To add a sink, write a class with these three methods in a new module, and list the class in `sinks.Sinks`.

The broker and webhooks are no sinks. Their messages are written to the store in the transaction of the events that
caused them, and an outbox keeps each message until it is acknowledged. A sink gets the notices of an event after the
transaction of the event. It may therefore lose the last notices in a crash, but it does not need to undo a notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from monitor.alarm.message import Identity
from monitor.runtime.query import Query
from monitor.sidecar.effects import Effects
from monitor.stream.shard import Shard
from monitor.types.stream_events import Instant


class FleetShard(msgspec.Struct, frozen=True):
    """The monitored part of a fleet: one of the shards whose MQTT client ids begin with `fleet`."""

    fleet: str
    shard: Shard


class Watched(msgspec.Struct, frozen=True):
    """Description of the monitored agents and formulas. Sinks need it from the start.

    `agents`: maximum number of agents. `alerts`: the topic under which alerts are published, by agent and formula.
    `part`: the monitored part of a fleet; None for the whole fleet.
    """

    queries: Sequence[Query]
    identity: Identity
    agents: int
    alerts: str
    part: FleetShard | None = None


class Sink(Protocol):
    """Takes effects on the thread of the loop, one event after the other. No method may wait."""

    def take(self, effects: Effects, now: Instant) -> None:
        """Show or send the effects of one event. Evidence and journal are written already."""

    def recall(self, effects: Effects, now: Instant) -> None:
        """Show the whole state after a restart or a reload.

        The state contains no new event, so do not count or send it.
        """

    def adopt(self, watched: Watched) -> None:
        """Continue with another configuration; `recall` follows."""
