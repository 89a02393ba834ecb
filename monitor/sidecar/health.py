"""The health of a sidecar, which `/healthz`, `/readyz`, `/api/status` and the service manager report.

Other threads call these methods, so each method reads each plain value only once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monitor._version import __version__
from monitor.sidecar.config.load import Loaded
from monitor.sidecar.mqtt.inbox import Inbox
from monitor.sidecar.mqtt.link import BrokerLink
from monitor.sidecar.outbox import Outbox
from monitor.sidecar.sinks.status_view import StatusView
from monitor.sidecar.store.store import Store
from monitor.sidecar.webhooks.webhooks import Webhooks
from monitor.types.stream_events import Instant


def tick_of(loaded: Loaded) -> float:
    """Return the seconds between two evaluations: a quarter of the shortest configured timeout or period."""
    config = loaded.config
    waits = [config.path.reorder.wait, config.stream.stale_after, config.heartbeat]
    waits += [formula.every for formula in config.formulas if isinstance(formula.every, float)]
    return min(max(min(waits) / 4, 0.02), 1.0)


class Health:
    """Health of one sidecar.

    `starting`: the work that remains before agents are monitored; empty once they are monitored.
    """

    def __init__(
        self,
        loaded: Loaded,
        client_id: str,
        *,
        clock: Callable[[], Instant],
        evaluated: Callable[[], Instant],
        inbox: Inbox,
        outbox: Outbox,
        link: BrokerLink,
        webhooks: Webhooks,
        view: StatusView,
        store: Store | None,
    ) -> None:
        self.starting = "starting"
        self._loaded = loaded
        self._client_id = client_id
        self._clock = clock
        self._evaluated = evaluated
        self._inbox = inbox
        self._outbox = outbox
        self._link = link
        self._webhooks = webhooks
        self._view = view
        self._store = store

    def adopt(self, loaded: Loaded) -> None:
        """Continue with another configuration."""
        self._loaded = loaded

    def health(self) -> str:
        """Return the problem of this process, or an empty text. It has a problem if its last evaluation is too old."""
        age = self._clock().ticks - self._evaluated().ticks
        limit = 3 * self._loaded.config.heartbeat
        return f"no evaluation for {age:.1f} s, expected every {tick_of(self._loaded):.1f} s" if age > limit else ""

    def readiness(self) -> str:
        """Return the reason why no formula can be evaluated now, or an empty text."""
        if self.starting:
            return self.starting
        if not self._link.up:
            return "not connected to the broker"
        return "" if self._view.seeing() else "every formula is blind"

    def status(self) -> dict[str, Any]:
        """Return the status of this process as plain data."""
        identity = self._loaded.identity
        return {
            "version": __version__,
            "client_id": self._client_id,
            "shard": self._loaded.config.mqtt.shard,
            "broker": self._loaded.config.mqtt.broker.address,
            "connected": self._link.up,
            "queue": len(self._inbox),
            "unsent": len(self._outbox),
            "webhooks": self._webhooks.status(),
            "store": "nothing is kept" if self._store is None else self._store.problem or "ok",
            "store_damage": "" if self._store is None else self._store.damage,
            "model": {"name": identity.model_name, "sha256": identity.model_sha256},
            "policies": [{"name": name, "sha256": sha256} for name, sha256 in sorted(identity.policies.items())],
        }
