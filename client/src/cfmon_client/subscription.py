"""Receive the monitor's alerts through an asynchronous iterator that reconnects after a failure."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import aiomqtt

from cfmon_client.alert import Alert, read_alert
from cfmon_client.broker import Broker, as_broker
from cfmon_client.connection import FAILURES, LOG, Backoff, LimitedLog, connection
from cfmon_client.errors import AlertError

__all__ = ["Seen", "alert_of", "alerts", "receive"]

REMEMBERED: Final = 10_000
"""Number of alarms whose newest revision is remembered."""


async def alerts(
    broker: Broker | str,
    agent: str = "+",
    formula: str = "+",
    *,
    topic: str = "cfmon/alerts",
    client_id: str | None = None,
    repeats: bool = False,
    on_link: Callable[[bool], None] | None = None,
) -> AsyncGenerator[Alert, None]:
    """Yield the alerts of an agent (`+`: of all agents) until the caller stops; reconnect whenever necessary.

    The newest alert of each alarm is yielded at least once, also after a lost connection or a restart. The first alerts
    are those that the broker has retained, including alerts on closed alarms. With a `client_id`, the broker also keeps
    the alerts that are published while no connection uses this id.

    Args:
        broker: URL of the broker, or a `Broker` with credentials and certificates.
        agent: Name of an agent, or `+` for all agents.
        formula: Name of a formula in the monitor's configuration, or `+` for all formulas.
        topic: Root of the alerts' topics, as in the monitor's configuration.
        client_id: MQTT client id of a persistent session; only one connection at a time can use it.
        repeats: Also yield the alert that the monitor repeats for a firing alarm at each heartbeat. It has the same id
            and revision, and the newest numbers.
        on_link: Called with True when the subscription is made, and with False when the connection is lost.

    Raises:
        ClientError: The broker's URL or a file is wrong. An unreachable broker is no error; it is logged, and the
            connection is tried again.
    """
    seen, limited = Seen(), LimitedLog()
    async with aclosing(
        receive(as_broker(broker), f"{topic}/{agent}/{formula}", client_id=client_id, on_link=on_link)
    ) as messages:
        async for message in messages:
            alert = alert_of(message, limited)
            if alert is not None and (seen.new(alert) or repeats):
                yield alert


def alert_of(message: aiomqtt.Message, limited: LimitedLog) -> Alert | None:
    """Return the alert in a message; None if the message clears its topic. If it is no alert, warn and return None."""
    if not message.payload:
        return None
    try:
        return read_alert(bytes(message.payload))
    except AlertError as error:
        if limited.due(str(message.topic)):
            LOG.warning("the message on %s is not a readable alert: %s", message.topic, error)
        return None


async def receive(
    broker: Broker, *topics: str, client_id: str | None = None, on_link: Callable[[bool], None] | None = None
) -> AsyncGenerator[aiomqtt.Message, None]:
    """Subscribe to topic filters at QoS 1, and yield messages, retained ones first; reconnect after each failure."""
    backoff, limited = Backoff(), LimitedLog()
    name = client_id or f"cfmon-client-{uuid.uuid4().hex[:12]}"
    while True:
        try:
            async with connection(broker, name, persistent=client_id is not None) as client:
                await client.subscribe([(topic, 1) for topic in topics])
                backoff.succeed()
                _notify(on_link, up=True)
                try:
                    async for message in client.messages:
                        yield message
                finally:
                    _notify(on_link, up=False)
        except FAILURES as error:
            if limited.due("connection"):
                LOG.warning("no connection to %s: %s; trying again", broker.address, error)
        await asyncio.sleep(backoff.pause())


def _notify(on_link: Callable[[bool], None] | None, *, up: bool) -> None:
    if on_link is not None:
        on_link(up)


@dataclass
class Seen:
    """The newest revision seen of each alarm, for the last `limit` alarms."""

    limit: int = REMEMBERED
    _revisions: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def new(self, alert: Alert) -> bool:
        """Return whether this revision of the alarm is newer than all seen revisions, and count it as seen."""
        known = self._revisions.get(alert.id, -1)
        self._revisions[alert.id] = max(alert.revision, known)
        self._revisions.move_to_end(alert.id)
        if len(self._revisions) > self.limit:
            self._revisions.popitem(last=False)
        return alert.revision > known
