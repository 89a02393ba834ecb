"""Bounded history of the alarms that fired, each with its alert, its start and its end.

`Journal` stores it (table `alarms`) in the transaction that publishes the alarm. All times are times of publication, so
the order does not depend on the agents' clocks. For a firing alarm, the history has the first alert; the status view
has the newest alert.
"""

from __future__ import annotations

import json
import math
import threading
import zlib
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Final

import msgspec

from monitor.alarm.message import rfc3339
from monitor.sidecar.effects import Publication

MAX_ALARMS: Final = 5000
"""Maximum number of alarms, about 2 KB each. Beyond it, the oldest alarm that is not firing is removed."""

LEVEL: Final = 0
"""Compression level: none. Other levels take about 60 us, longer than it takes to make and encode the alert."""

UNKNOWN: Final = "unknown"
"""State of an alarm that is over, if its end was not stored."""


class AlarmRecord(msgspec.Struct, array_like=True):
    """One alarm. `began`, `over`: times of publication, in seconds since the epoch; None if unknown or not over.

    `packed`: the alert as last stored, JSON in zlib's format.
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

    def outline(self) -> dict[str, Any]:
        """Return the fields of the alarm that a timeline shows."""
        times = {"began_unix": self.began, "over_unix": self.over}
        return {"id": self.id, "agent": self.agent, "formula": self.formula, "severity": self.severity,
                "state": self.state, **times}  # fmt: skip

    def shown(self, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the alert with the alarm's times. `live`: the newest alert, if the alarm is firing."""
        alert: dict[str, Any] = dict(live) if live is not None else json.loads(zlib.decompress(self.packed))
        times = {"began": self.began, "over": self.over}
        both = {name: None if seconds is None else rfc3339(seconds) for name, seconds in times.items()}
        return {**alert, "state": self.state, **both, **{f"{name}_unix": times[name] for name in times}}


class _NamedFormula(msgspec.Struct, frozen=True):
    name: str


class _Heard(msgspec.Struct, frozen=True):
    """The part of an alert that the history reads."""

    id: str
    revision: int
    state: str
    severity: str
    agent: str
    formula: _NamedFormula
    sent_unix: float | None


_read: Final = msgspec.json.Decoder(_Heard).decode


class HistoryChanges(msgspec.Struct, frozen=True):
    """Changes for the store to write. `rows`: number -> row. `gone`: numbers of removed rows."""

    rows: Mapping[int, bytes] = {}
    gone: Collection[int] = ()


class AlarmFilter(msgspec.Struct, frozen=True):
    """Query for alarms. None matches any value. An alarm matches if it was firing at some time from `since` to `until`.

    The `state` `over` matches every state except `firing`.
    """

    agent: str | None = None
    formula: str | None = None
    severity: str | None = None
    state: str | None = None
    since: float = -math.inf
    until: float = math.inf

    def matches(self, alarm: AlarmRecord) -> bool:
        """Return whether `alarm` satisfies the query."""
        named = ((self.agent, alarm.agent), (self.formula, alarm.formula), (self.severity, alarm.severity))
        if any(wanted not in (None, actual) for wanted, actual in named):
            return False
        if self.state not in (None, alarm.state) and (self.state != "over" or alarm.state == "firing"):
            return False
        began = -math.inf if alarm.began is None else alarm.began
        over = math.inf if alarm.over is None else alarm.over
        return began <= self.until and over >= self.since


class AlarmHistory:
    """Alarm history, written on the loop's thread and read on the server's, under a lock.

    `alerts`: the topic under which alerts are published. `limit`: maximum number of alarms.
    """

    def __init__(self, alerts: str, limit: int = MAX_ALARMS) -> None:
        self._lock = threading.Lock()
        self._alerts = f"{alerts}/"
        self._limit = limit
        self._alarms: dict[int, AlarmRecord] = {}
        self._numbers: dict[str, int] = {}
        self._next = 1

    def load(self, alarms: Iterable[tuple[int, AlarmRecord]]) -> None:
        """Restore stored alarms, each with its number."""
        with self._lock:
            for number, alarm in alarms:
                self._alarms[number], self._numbers[alarm.id] = alarm, number
                self._next = max(self._next, number + 1)

    def note(self, publications: Iterable[Publication]) -> HistoryChanges:
        """Record the alerts among these messages, and return the changes. Known alerts change nothing."""
        rows: dict[int, bytes] = {}
        gone: list[int] = []
        for publication in publications:
            if publication.payload and not publication.repeats and publication.topic.startswith(self._alerts):
                with self._lock:
                    self._note(_read(publication.payload), publication.payload, rows, gone)
        return HistoryChanges({number: row for number, row in rows.items() if number not in gone}, gone)

    def mark_unknown(self, firing: Collection[str]) -> None:
        """Set the state of recorded firing alarms to `UNKNOWN` if their id is not in `firing`."""
        with self._lock:
            for alarm in self._alarms.values():
                if alarm.state == "firing" and alarm.id not in firing:
                    alarm.state = UNKNOWN

    def rows(self) -> dict[int, bytes]:
        """Return all rows, for a store that is written from scratch."""
        with self._lock:
            return {number: msgspec.msgpack.encode(alarm) for number, alarm in self._alarms.items()}

    def find(self, query: AlarmFilter, limit: int | None = None) -> list[AlarmRecord]:
        """Return at most `limit` alarms that match `query`, newest first."""
        with self._lock:
            return list(islice(filter(query.matches, reversed(self._alarms.values())), limit))

    def _note(self, alert: _Heard, payload: bytes, rows: dict[int, bytes], gone: list[int]) -> None:
        number = self._numbers.get(alert.id)
        known = None if number is None else self._alarms[number]
        if known is not None and alert.revision <= known.revision:
            return
        firing, sent = alert.state == "firing", alert.sent_unix
        if known is not None and firing and known.state == "firing":
            known.revision = alert.revision  # the status view has the newest alert
            return
        if number is None:
            number, self._next = self._next, self._next + 1
        alarm = AlarmRecord(
            id=alert.id,
            agent=alert.agent,
            formula=alert.formula.name,
            severity=alert.severity,
            state=alert.state,
            revision=alert.revision,
            began=sent if known is None else known.began,
            over=None if firing else sent,
            packed=zlib.compress(payload, LEVEL),
        )
        self._alarms[number], self._numbers[alarm.id] = alarm, number
        rows[number] = msgspec.msgpack.encode(alarm)
        if len(self._alarms) > self._limit:
            gone += self._drop_oldest()

    def _drop_oldest(self) -> list[int]:
        oldest = next((n for n, alarm in self._alarms.items() if alarm.state != "firing"), None)
        if oldest is None:  # all are firing; the number of agents and formulas bounds these
            return []
        del self._numbers[self._alarms.pop(oldest).id]
        return [oldest]
