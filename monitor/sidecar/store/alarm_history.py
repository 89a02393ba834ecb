"""The list of alarms: every alarm that fired, what it said, when it began and when it was over; bounded.

The store keeps it (`Journal`, table `alarms`), in the transaction in which the alarm is published. Times are those at
which this monitor spoke, so that the list is in order whatever an agent's clock says. While an alarm fires, the list
has what was said when it began to; what it says by now, the board knows.
"""

from __future__ import annotations

import json
import math
import threading
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from monitor.alarm.message import rfc3339
from monitor.sidecar.effects import Publication

__all__ = ["MAX_ALARMS", "Alarm", "AlarmFilter", "AlarmHistory", "Changes"]

MAX_ALARMS: Final = 5000
"""Alarms kept, of about 1 KB each; beyond them the oldest that does not fire goes first."""

UNKNOWN: Final = "unknown"
"""The state of an alarm that fired when it was last heard of, and does not any more: its end was not kept."""


class Alarm(msgspec.Struct, array_like=True):
    """One alarm. `began`, `over`: when it was first and last told, seconds since the epoch; None: no date, or not yet.

    `packed`: the alert as last kept, as compressed JSON.
    """

    id: str
    agent: str
    formula: str
    severity: str
    state: str
    revision: int
    began: float | None
    over: float | None
    packed: bytes

    def shown(self, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the alert with the times of the alarm; `live`: the alert by its newest verdict, if it fires."""
        alert: dict[str, Any] = dict(live) if live is not None else json.loads(zlib.decompress(self.packed))
        times = {"began": self.began, "over": self.over}
        both = {name: None if seconds is None else rfc3339(seconds) for name, seconds in times.items()}
        return {**alert, "state": self.state, **both, **{f"{name}_unix": times[name] for name in times}}


class Changes(msgspec.Struct, frozen=True):
    """What the store has to write: `rows` by number, and the numbers that are `gone`."""

    rows: Mapping[int, bytes] = {}
    gone: Collection[int] = ()


class AlarmFilter(msgspec.Struct, frozen=True):
    """Which alarms are asked for; None: any. An alarm is in `since` to `until` if it fired at any time in between.

    The `state` `over` is any but `firing`.
    """

    agent: str | None = None
    formula: str | None = None
    severity: str | None = None
    state: str | None = None
    since: float = -math.inf
    until: float = math.inf

    def matches(self, alarm: Alarm) -> bool:
        """Return whether it is asked for."""
        named = ((self.agent, alarm.agent), (self.formula, alarm.formula), (self.severity, alarm.severity))
        if any(wanted not in (None, there) for wanted, there in named):
            return False
        if self.state not in (None, alarm.state) and (self.state != "over" or alarm.state == "firing"):
            return False
        began = -math.inf if alarm.began is None else alarm.began
        over = math.inf if alarm.over is None else alarm.over
        return began <= self.until and over >= self.since


class AlarmHistory:
    """Written on the loop's thread, read on the server's; a lock stands between.

    `alerts`: the topic under which alerts are published. `limit`: how many alarms are kept.
    """

    def __init__(self, alerts: str, limit: int = MAX_ALARMS) -> None:
        self._lock = threading.Lock()
        self._alerts = f"{alerts}/"
        self._limit = limit
        self._alarms: dict[int, Alarm] = {}
        self._numbers: dict[str, int] = {}
        self._next = 1

    def load(self, alarms: Iterable[tuple[int, Alarm]]) -> None:
        """Take up what was kept."""
        with self._lock:
            for number, alarm in alarms:
                self._alarms[number], self._numbers[alarm.id] = alarm, number
                self._next = max(self._next, number + 1)

    def note(self, publications: Iterable[Publication]) -> Changes:
        """Note the alerts among these messages; one that is known already changes nothing."""
        rows: dict[int, bytes] = {}
        gone: list[int] = []
        for publication in publications:
            if publication.payload and not publication.repeats and publication.topic.startswith(self._alerts):
                with self._lock:
                    self._note(json.loads(publication.payload), rows, gone)
        return Changes({number: row for number, row in rows.items() if number not in gone}, gone)

    def mark_unknown(self, firing: Collection[str]) -> None:
        """Mark as unknown how those ended that fired when they were last heard of, and are not among these ids."""
        with self._lock:
            for alarm in self._alarms.values():
                if alarm.state == "firing" and alarm.id not in firing:
                    alarm.state = UNKNOWN

    def rows(self) -> dict[int, bytes]:
        """All of it, for a store that begins anew."""
        with self._lock:
            return {number: msgspec.msgpack.encode(alarm) for number, alarm in self._alarms.items()}

    def find(self, asked: AlarmFilter, limit: int | None = None) -> list[Alarm]:
        """Return the alarms asked for, the newest first, at limit so many."""
        with self._lock:
            found = self._find(asked)
            return list(found) if limit is None else [alarm for alarm, _ in zip(found, range(limit), strict=False)]

    def _find(self, asked: AlarmFilter) -> Iterator[Alarm]:
        return (alarm for alarm in reversed(self._alarms.values()) if asked.matches(alarm))

    def _note(self, alert: dict[str, Any], rows: dict[int, bytes], gone: list[int]) -> None:
        number = self._numbers.get(alert["id"])
        known = None if number is None else self._alarms[number]
        if known is not None and alert["revision"] <= known.revision:
            return
        firing, sent = alert["state"] == "firing", alert["sent_unix"]
        if known is not None and firing and known.state == "firing":
            known.revision = alert["revision"]  # what it says by now is on the board
            return
        if number is None:
            number, self._next = self._next, self._next + 1
        alarm = Alarm(
            id=alert["id"],
            agent=alert["agent"],
            formula=alert["formula"]["name"],
            severity=alert["severity"],
            state=alert["state"],
            revision=alert["revision"],
            began=sent if known is None else known.began,
            over=None if firing else sent,
            packed=zlib.compress(json.dumps(alert, separators=(",", ":")).encode()),
        )
        self._alarms[number], self._numbers[alarm.id] = alarm, number
        rows[number] = msgspec.msgpack.encode(alarm)
        if len(self._alarms) > self._limit:
            gone += self._drop_oldest()

    def _drop_oldest(self) -> list[int]:
        oldest = next((n for n, alarm in self._alarms.items() if alarm.state != "firing"), None)
        if oldest is None:  # all of them fire: that is bounded by the agents and formulas there are
            return []
        del self._numbers[self._alarms.pop(oldest).id]
        return [oldest]
